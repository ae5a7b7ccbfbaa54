//! Reader of the cgroup mounts in `/proc/self/mountinfo`.
//!
//! Mount points, roots and sources are bytes that users choose (a USB stick, a FUSE mount), with space,
//! tab, end of line and backslash in octal. Only the mount points of other lines are read, and an unknown
//! line is skipped: it cannot keep the rest from being read.
//!
//! A mount can be covered by a later one, at the same mount point or above it. A covered mount cannot be
//! reached by its path, so it is not listed.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use super::proc_files::number;
use super::{path_of, text_of_path};

/// A mount of a cgroup hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupMount {
    /// Mount point.
    pub mount_point: PathBuf,
    /// Mounted cgroup of the hierarchy: `/`, or a part of it as in a container.
    pub root: PathBuf,
    /// True for cgroup2.
    pub is_unified: bool,
    options: Vec<Vec<u8>>,
}

impl CgroupMount {
    /// True if the hierarchy has this option: a controller, or a name as in `name=systemd`.
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|one| one == option.as_bytes())
    }

    /// See [`from_mount`].
    pub fn from_mount(&self, cgroup: &str) -> Option<String> {
        from_mount(&self.root, cgroup)
    }
}

/// Converts a path from the root of the hierarchy, as in `/proc/PID/cgroup`, to a path from a mount of the
/// cgroup `root`; `None` for a cgroup that is not below the mount.
pub fn from_mount(root: &Path, cgroup: &str) -> Option<String> {
    let path = path_of(cgroup);
    let inside = path.strip_prefix(root).ok()?;
    let is_inside = inside.components().all(|part| matches!(part, Component::Normal(_)));
    is_inside.then(|| format!("/{}", text_of_path(inside)))
}

/// Reachable cgroup mounts in a text of `/proc/self/mountinfo`, in its order.
pub fn cgroup_mounts(text: &[u8]) -> Vec<CgroupMount> {
    let lines = text.split(|byte| *byte == b'\n');
    let lines: Vec<Line<'_>> = lines.filter_map(Line::parse).collect();
    let seen = (0..lines.len()).filter(|at| !is_covered(&lines, *at));
    seen.filter_map(|at| lines[at].cgroup_mount()).collect()
}

/// Kind of the file system of the file at the absolute `path`.
pub fn kind_at<'a>(text: &'a [u8], path: &Path) -> Option<&'a [u8]> {
    let lines: Vec<Line<'_>> = text.split(|byte| *byte == b'\n').filter_map(Line::parse).collect();
    let above = (0..lines.len()).filter(|at| path.starts_with(&lines[*at].mount_point));
    let seen = above.filter(|at| !is_covered(&lines, *at));
    seen.max_by_key(|at| lines[*at].mount_point.components().count()).map(|at| lines[at].kind)
}

/// The options of the mount at `/proc` that paths reach; `None` without one.
pub(super) fn options_of_proc(text: &[u8]) -> Option<Vec<Vec<u8>>> {
    let lines = text.split(|byte| *byte == b'\n');
    let lines: Vec<Line<'_>> = lines.filter_map(Line::parse).collect();
    let is_it =
        |at: &usize| lines[*at].kind == b"proc" && lines[*at].mount_point == Path::new("/proc");
    let at = (0..lines.len()).filter(is_it).find(|at| !is_covered(&lines, *at))?;
    Some(lines[at].options.split(|byte| *byte == b',').map(<[u8]>::to_vec).collect())
}

/// A line, of which the last fields are not unescaped.
struct Line<'a> {
    id: u32,
    parent: u32,
    root: &'a [u8],
    mount_point: PathBuf,
    kind: &'a [u8],
    options: &'a [u8],
}

impl<'a> Line<'a> {
    fn parse(line: &'a [u8]) -> Option<Line<'a>> {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        // Optional fields end with a dash.
        let dash = 6 + fields.get(6..)?.iter().position(|field| *field == b"-")?;
        Some(Line {
            id: number(fields[0])?,
            parent: number(fields[1])?,
            root: fields[3],
            mount_point: path(fields[4]),
            kind: fields.get(dash + 1)?,
            options: fields.get(dash + 3)?,
        })
    }

    fn cgroup_mount(&self) -> Option<CgroupMount> {
        let is_unified = self.kind == b"cgroup2";
        (is_unified || self.kind == b"cgroup").then(|| CgroupMount {
            mount_point: self.mount_point.clone(),
            root: path(self.root),
            is_unified,
            options: self.options.split(|byte| *byte == b',').map(<[u8]>::to_vec).collect(),
        })
    }
}

/// True if another mount covers the one of line `at`.
///
/// Lines are in the order of mounting, except for moved mounts: a root mounted by an initial file system is
/// listed behind the mounts in it. So a mount does not cover the mounts that contain it.
fn is_covered(lines: &[Line<'_>], at: usize) -> bool {
    let this = &lines[at];
    let mut above = Vec::new();
    let mut parent = this.parent;
    while let Some(line) = lines.iter().find(|line| line.id == parent && !above.contains(&line.id))
    {
        above.push(line.id);
        parent = line.parent;
    }
    let is_rooted = lines
        .iter()
        .any(|line| above.last() == Some(&line.id) && line.mount_point == Path::new("/"));
    lines.iter().enumerate().any(|(number, other)| {
        let is_same = other.mount_point == this.mount_point;
        let is_above = is_rooted && this.mount_point.starts_with(&other.mount_point);
        let is_on_top = is_same && other.parent == this.id;
        number != at && !above.contains(&other.id) && is_on_top
            || number > at && !above.contains(&other.id) && (is_same || is_above)
    })
}

fn path(mut field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    while let Some((first, rest)) = field.split_first() {
        let octal = |digits: &[u8]| {
            let digit = |sum: u32, byte: &u8| {
                (b'0'..=b'7').contains(byte).then(|| sum * 8 + u32::from(byte - b'0'))
            };
            u8::try_from(digits.iter().try_fold(0, digit)?).ok()
        };
        match rest.get(..3).filter(|_| *first == b'\\').and_then(octal) {
            Some(byte) => {
                bytes.push(byte);
                field = &rest[3..];
            }
            None => {
                bytes.push(*first);
                field = rest;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn escaped(bytes: &[u8]) -> Vec<u8> {
        let code = |byte: &u8| match byte {
            b' ' | b'\t' | b'\n' | b'\\' => format!("\\{byte:03o}").into_bytes(),
            other => vec![*other],
        };
        bytes.iter().flat_map(code).collect()
    }

    fn points(text: &str) -> Vec<(String, String)> {
        let shown = |path: &Path| path.to_str().unwrap().to_string();
        let mounts = cgroup_mounts(text.as_bytes());
        mounts.iter().map(|it| (shown(&it.mount_point), shown(&it.root))).collect()
    }

    #[test]
    fn the_innermost_mount_that_is_not_covered_has_the_file() {
        let open = b"27 1 8:1 / / rw - ext4 /dev/sda1 rw\n28 27 0:30 / /srv/a\\040b rw - fuse.slow slow rw\n\
                     29 28 8:2 / /srv/a\\040b/c rw - xfs /dev/sdb rw\n";
        let text = [&open[..], b"30 27 0:31 / /srv rw - tmpfs x rw\n"].concat();
        let kind = |text: &[u8], path: &str| kind_at(text, Path::new(path)).map(<[u8]>::to_vec);
        assert_eq!(kind(open, "/srv/a b/disk"), Some(b"fuse.slow".to_vec()));
        assert_eq!(kind(open, "/srv/a b/c/disk"), Some(b"xfs".to_vec()));
        assert_eq!(kind(open, "/srv/a/disk"), Some(b"ext4".to_vec()));
        assert_eq!(kind(&text, "/srv/a b/disk"), Some(b"tmpfs".to_vec()));
        assert_eq!(kind(b"", "/x"), None);
    }

    #[test]
    fn a_later_mount_covers_those_at_and_below_its_mount_point() {
        let all = "27 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                   29 27 0:25 / /sys rw - sysfs sysfs rw\n\
                   30 29 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                   31 30 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                   32 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let cpu = "/sys/fs/cgroup/cpu";
        let memory = ("/sys/fs/cgroup/memory".to_string(), "/".to_string());
        let part = "33 31 0:27 /box /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
        assert_eq!(points(all), [(cpu.to_string(), "/".to_string()), memory.clone()]);
        let with_part = points(&format!("{all}{part}"));
        assert_eq!(with_part, [memory, (cpu.to_string(), "/box".to_string())]);
        let covered = "34 30 0:30 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n";
        assert_eq!(points(&format!("{all}{covered}")), []);
        // A sibling, or a name with a common beginning.
        let beside = "34 29 0:30 / /sys/fs/cgro rw - tmpfs tmpfs rw\n";
        assert_eq!(points(&format!("{all}{beside}")).len(), 2);
    }

    #[test]
    fn a_root_that_was_mounted_later_does_not_cover_what_is_in_it() {
        let text = "23 28 0:22 / /sys rw - sysfs sysfs rw\n\
                    30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n\
                    28 1 8:1 / / rw - ext4 /dev/sda1 rw\n";
        assert_eq!(points(text).len(), 1);
        // A mount that was moved onto another is listed before it.
        let moved = "29 30 0:27 /part /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let point = ("/sys/fs/cgroup".to_string(), "/part".to_string());
        assert_eq!(points(&format!("{moved}{text}")), [point]);
    }

    proptest! {
        #[test]
        fn mounts_of_others_hide_nothing(
            point in vec(any::<u8>(), 1..40),
            source in vec(any::<u8>(), 0..40),
            junk in vec(any::<u8>(), 0..80),
        ) {
            let point = escaped(&[b"/media/", &point[..]].concat());
            let mut text = b"27 1 8:1 / / rw - ext4 /dev/sda1 rw\n35 27 0:31 / ".to_vec();
            text.extend([&point[..], b" rw shared:1 - fuse.x ", &escaped(&source), b" rw\n"].concat());
            text.extend(junk.iter().filter(|byte| **byte != b'\n'));
            text.extend(b"\n36 27 0:32 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n");
            let mounts = cgroup_mounts(&text);
            prop_assert!(mounts.iter().any(|it| it.mount_point == Path::new("/sys/fs/cgroup") && it.has("nsdelegate")));
        }

        #[test]
        fn mount_points_and_roots_are_any_bytes(point in vec(any::<u8>(), 1..40)) {
            let point: Vec<u8> = point.into_iter().filter(|byte| *byte != 0).collect();
            let line = [b"36 27 0:32 /", &escaped(&point)[..], b" /", &escaped(&point), b" rw - cgroup2 x rw\n"];
            let mounts = cgroup_mounts(&line.concat());
            let expected = [b"/", &point[..]].concat();
            prop_assert_eq!(mounts[0].mount_point.as_os_str().as_bytes(), &expected[..]);
            prop_assert_eq!(mounts[0].root.as_os_str().as_bytes(), &expected[..]);
        }

        #[test]
        fn any_bytes_are_read(text in vec(any::<u8>(), 0..300)) {
            let _ = cgroup_mounts(&text);
        }
    }
}
