//! Which unit of systemd a cgroup belongs to, from its path alone.
//!
//! Systemd keeps every process of a service or scope below a cgroup of that unit's name, and treats a process
//! that leaves it as ended. So a process in such a cgroup must stay there. The path is that of the unified
//! hierarchy, or of systemd's own hierarchy (`name=systemd`) on a host that has one; whether the host has
//! units at all is not known here.

/// The unit that a policy names for the contents of the cgroup `path`: the slice of a user for everything in
/// it (sessions and the services of a user's manager come and go), otherwise the outermost service or scope.
/// `None` where `path` is in no service or scope.
pub fn unit_of(path: &str) -> Option<&str> {
    let mut slice = None;
    for name in path.split('/') {
        if is_unit(name, ".service") || is_unit(name, ".scope") {
            return Some(slice.unwrap_or(name));
        }
        if is_slice_of_user(name) {
            slice = Some(name);
        }
    }
    None
}

fn is_unit(name: &str, suffix: &str) -> bool {
    name.strip_suffix(suffix).is_some_and(|prefix| !prefix.is_empty())
}

fn is_slice_of_user(name: &str) -> bool {
    let uid = name.strip_prefix("user-").and_then(|name| name.strip_suffix(".slice"));
    uid.is_some_and(|uid| uid.parse::<u32>().is_ok())
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
}
