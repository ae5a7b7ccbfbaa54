//! The systemd unit of a cgroup, from its path alone.
//!
//! Systemd keeps every process of a service or scope below a cgroup of that unit's name, and treats a
//! process that leaves it as ended. So a process in such a cgroup must stay there. The path is that of the
//! unified hierarchy, or of systemd's own hierarchy (`name=systemd`) if the host has one. This file does
//! not know whether the host has units at all.

/// Slices of users (user@.service(5)).
pub const USER_SLICES: &str = "user-*.slice";

/// Unit for the contents of the cgroup `path` in a policy: the slice of a user for everything in it
/// (sessions and the services of a user's manager come and go), otherwise the outermost service or scope.
/// `None` if `path` is in no service or scope.
pub fn unit_of(path: &str) -> Option<&str> {
    let mut slice = None;
    for name in path.split('/') {
        if is_unit(name, ".service") || is_unit(name, ".scope") {
            return Some(slice.unwrap_or(name));
        }
        if user_of_slice(name).is_some() {
            slice = Some(name);
        }
    }
    None
}

/// Part of a cgroup's path that consists of units of the system's systemd: slices, and then one service or
/// scope.
pub fn units_of(cgroup: &str) -> &str {
    let mut end = 0;
    for name in cgroup.split('/').skip(1) {
        let is_slice = is_unit(name, ".slice");
        if !is_slice && !is_unit(name, ".service") && !is_unit(name, ".scope") {
            break;
        }
        end += 1 + name.len();
        if !is_slice {
            break;
        }
    }
    if end == 0 { "/" } else { &cgroup[..end] }
}

/// The unit of the system's systemd whose own cgroup is `cgroup`, by the names in its path.
pub fn unit_at(cgroup: &str) -> Option<&str> {
    let name = cgroup.rsplit('/').next()?;
    (cgroup != "/" && units_of(cgroup) == cgroup).then_some(name)
}

fn is_unit(name: &str, suffix: &str) -> bool {
    name.strip_suffix(suffix).is_some_and(|prefix| !prefix.is_empty())
}

/// Slice of a user.
pub fn slice_of_user(uid: u32) -> String {
    format!("user-{uid}.slice")
}

/// User of a slice.
pub fn user_of_slice(name: &str) -> Option<u32> {
    name.strip_prefix("user-")?.strip_suffix(".slice")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_found_in_paths() {
        for (path, unit) in [
            ("/system.slice/cron.service", Some("cron.service")),
            ("/system.slice/cron.service/below/it.scope", Some("cron.service")),
            ("/system.slice/system-getty.slice/getty@tty1.service", Some("getty@tty1.service")),
            ("/init.scope", Some("init.scope")),
            ("/user.slice/user-1000.slice/session-3.scope", Some("user-1000.slice")),
            (
                "/user.slice/user-1000.slice/user@1000.service/app.slice/a.service",
                Some("user-1000.slice"),
            ),
            ("/user.slice/user-1000.slice", None),
            ("/", None),
            ("", None),
            ("/.service/.scope", None),
            ("/build/service", None),
        ] {
            assert_eq!(unit_of(path), unit, "{path}");
        }
    }

    #[test]
    fn a_cgroup_is_a_unit_where_all_above_it_are_slices() {
        for (path, units, unit) in [
            ("/system.slice/cron.service", "/system.slice/cron.service", Some("cron.service")),
            ("/a.slice/a-b.slice", "/a.slice/a-b.slice", Some("a-b.slice")),
            ("/init.scope", "/init.scope", Some("init.scope")),
            ("/system.slice/docker.service/docker/x.scope", "/system.slice/docker.service", None),
            (
                "/user.slice/user-1.slice/user@1.service/app.slice",
                "/user.slice/user-1.slice/user@1.service",
                None,
            ),
            ("/build/x.service", "/", None),
            ("/.service", "/", None),
            ("/", "/", None),
        ] {
            assert_eq!((units_of(path), unit_at(path)), (units, unit), "{path}");
        }
    }
}
