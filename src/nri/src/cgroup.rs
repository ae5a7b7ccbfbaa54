//! The cgroup of a container, from the text that its OCI runtime gets.
//!
//! **Forms** (runc, `libcontainer/cgroups`): with the systemd driver `SLICE:PREFIX:NAME`, the scope `PREFIX-NAME.scope` in the
//! slice, which is nested by the dashes of its name (systemd.slice(5)); an empty slice is `system.slice`. With the cgroupfs driver
//! a path from the mount.
//!
//! **Choice.** The kubelet makes one cgroup for each pod and names it by the pod's UID. That one is attached: the pod's sandbox and
//! all its containers are in it, and the limits of the containers stay below it, those of the node's classes above it. Without a
//! kubelet the parent of a container's cgroup may be shared by all pods, so the container's own is attached.
//!
//! **Properties** (tests below): no text gives a path with `.` or `..`, the root, or a path longer than [`PATH_MAX`].

use tenantd_core::kernel_text::text_of;

/// Longest path, in bytes.
pub const PATH_MAX: usize = 4095;
/// Shortest UID that marks the cgroup of a pod. A UID of Kubernetes has 32 or 36 characters.
const UID_MIN: usize = 16;

/// Cgroup to attach for a container with this cgroup, in a pod with this UID; `None` if the text has no known form.
pub fn to_attach(cgroups_path: &[u8], uid: &[u8]) -> Option<String> {
    let path = path_of(cgroups_path)?;
    let text = match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) if slash > 0 && is_of_pod(&path[..slash], uid) => text_of(&path[..slash]),
        _ => text_of(&path),
    };
    Some(text)
}

/// Path of a container's cgroup from the mount.
fn path_of(text: &[u8]) -> Option<Vec<u8>> {
    let path = if text.starts_with(b"/") {
        text.to_vec()
    } else {
        let mut parts = text.split(|byte| *byte == b':');
        let (slice, prefix, name) = (parts.next()?, parts.next()?, parts.next()?);
        let is_unit = parts.next().is_none() && !name.is_empty() && !text.contains(&b'/');
        let mut path = nested(if slice.is_empty() { b"system.slice" } else { slice })?;
        path.push(b'/');
        if !prefix.is_empty() {
            path.extend_from_slice(prefix);
            path.push(b'-');
        }
        path.extend_from_slice(name);
        path.extend_from_slice(b".scope");
        is_unit.then_some(path)?
    };
    let mut names = path.split(|byte| *byte == b'/').skip(1);
    let is_safe = |name: &[u8]| !matches!(name, b"" | b"." | b"..") && !name.contains(&0);
    (path.len() <= PATH_MAX && names.all(is_safe)).then_some(path)
}

/// Path of a slice: that of `a-b.slice` is `/a.slice/a-b.slice`.
fn nested(slice: &[u8]) -> Option<Vec<u8>> {
    let stem = slice.strip_suffix(b".slice")?;
    let mut path = Vec::new();
    if stem == b"-" {
        return Some(path);
    }
    // The nested path is as long as the square of the text otherwise.
    if stem.len() > 255 {
        return None;
    }
    let dashes = stem.iter().enumerate().filter(|(_, byte)| **byte == b'-').map(|(at, _)| at);
    for end in dashes.chain([stem.len()]) {
        if end == 0 || stem[end - 1] == b'-' {
            return None;
        }
        path.push(b'/');
        path.extend_from_slice(&stem[..end]);
        path.extend_from_slice(b".slice");
    }
    Some(path)
}

/// True if the last name of `path` contains the pod's UID, in which systemd's form has `_` for `-`.
fn is_of_pod(path: &[u8], uid: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let escaped: Vec<u8> =
        uid.iter().map(|byte| if *byte == b'-' { b'_' } else { *byte }).collect();
    let contains = |uid: &[u8]| name.windows(uid.len()).any(|part| part == uid);
    uid.len() >= UID_MIN && (contains(uid) || contains(&escaped))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UID: &str = "2b9f4c1e-7c52-4a4e-8f1b-5a6f3c2d1e00";

    fn attached(path: &str, uid: &str) -> Option<String> {
        to_attach(path.as_bytes(), uid.as_bytes())
    }

    #[test]
    fn the_cgroup_of_the_kubelet_s_pod_is_attached() {
        let slice = format!("kubepods-burstable-pod{}.slice", UID.replace('-', "_"));
        let nested = format!("/kubepods.slice/kubepods-burstable.slice/{slice}");
        assert_eq!(attached(&format!("{slice}:cri-containerd:c1"), UID), Some(nested));
        let plain = format!("/kubepods/burstable/pod{UID}");
        assert_eq!(attached(&format!("{plain}/c1"), UID), Some(plain));
    }

    #[test]
    fn a_container_elsewhere_is_attached_itself() {
        for (path, uid, expected) in [
            ("/k8s.io/c1", UID, Some("/k8s.io/c1")),
            (":cri-containerd:c1", UID, Some("/system.slice/cri-containerd-c1.scope")),
            ("a-b.slice::c1", UID, Some("/a.slice/a-b.slice/c1.scope")),
            ("-.slice:x:c1", UID, Some("/x-c1.scope")),
            // A short UID would be in many names.
            ("/pods/podpod/c1", "pod", Some("/pods/podpod/c1")),
            ("/pods/x/c1", "", Some("/pods/x/c1")),
            (&format!("/pod{UID}"), UID, Some(&*format!("/pod{UID}"))),
            ("k8s.io/c1", UID, None),
            ("/", UID, None),
            ("", UID, None),
            ("/a/../b", UID, None),
            ("/a//b", UID, None),
            ("/a/\0", UID, None),
            ("a.slice:x:../../b", UID, None),
            ("a--b.slice:x:c1", UID, None),
            ("-a.slice:x:c1", UID, None),
            ("a:x:c1", UID, None),
            ("a.slice:x:c1:d", UID, None),
            ("a.slice:x:", UID, None),
        ] {
            assert_eq!(attached(path, uid).as_deref(), expected, "{path}");
        }
        assert_eq!(attached(&format!("/{}", "x".repeat(PATH_MAX)), UID), None);
    }

    proptest! {
        #[test]
        fn a_path_leads_below_the_mount(
            text in prop_oneof!["[a/.:-]{0,12}(\\.slice)?(:[a/.]{0,3}){0,3}", "\\PC{0,40}"],
            uid in "[a-]{0,20}",
        ) {
            if let Some(path) = attached(&text, &uid) {
                prop_assert!(path.len() > 1 && path.starts_with('/'), "{}", path);
                prop_assert!(path[1..].split('/').all(|it| !["", ".", ".."].contains(&it)), "{}", path);
            }
        }
    }
}
