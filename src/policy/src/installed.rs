//! Services and cgroups of this machine, from its files: `check` needs no running daemon and no bus.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::pattern;
use tenantd_core::kernel_text::mountinfo::cgroup_mounts;
use tenantd_core::kernel_text::{path_of, text_of_name};

pub(super) const UNIT_DIRS: [&str; 12] = [
    "/etc/systemd/system.control",
    "/run/systemd/system.control",
    "/run/systemd/transient",
    "/run/systemd/generator.early",
    "/etc/systemd/system",
    "/etc/systemd/system.attached",
    "/run/systemd/system",
    "/run/systemd/generator",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
    "/run/systemd/generator.late",
];

/// Services that systemd could run, including templates, each with its real name: an alias is a link to the
/// file of another name.
pub type Services = BTreeMap<String, String>;

pub(super) fn services() -> Option<Services> {
    // The test of sd_booted(3).
    let is_booted = Path::new("/run/systemd/system").is_dir();
    is_booted.then(|| services_in(UNIT_DIRS.iter().map(Path::new)))
}

/// The first directory that has a unit decides.
fn services_in<'p>(dirs: impl Iterator<Item = &'p Path>) -> Services {
    let mut services = Services::new();
    for entry in dirs.flat_map(fs::read_dir).flatten().flatten() {
        let name = text_of_name(&entry.file_name());
        if name.ends_with(".service") && !services.contains_key(&name) {
            let target = fs::read_link(entry.path()).ok();
            let target = target.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
            // A masked unit is a link to /dev/null.
            let real = target.filter(|target| target.ends_with(".service")).unwrap_or(&name);
            services.insert(name.clone(), real.to_string());
        }
    }
    services
}

pub(super) fn real_name<'n>(services: &'n Services, unit: &'n str) -> Option<&'n str> {
    let Some(stem) = unit.strip_suffix(".service") else { return Some(unit) };
    let template = || {
        let (template, _) = stem.split_once('@')?;
        services.contains_key(&format!("{template}@.service")).then_some(unit)
    };
    services.get(unit).map(String::as_str).or_else(template)
}

/// True if a pattern matches a cgroup in any hierarchy of this machine. `budget` is the number of directory
/// entries to read; a pattern that exceeds it, or cannot be tried, counts as matching.
pub(super) fn has_cgroup(pattern: &str, budget: &mut usize) -> bool {
    let Ok(mountinfo) = fs::read("/proc/self/mountinfo") else { return true };
    let mounts = cgroup_mounts(&mountinfo).into_iter();
    let roots: Vec<PathBuf> = mounts.map(|mount| mount.mount_point).collect();
    let names: Vec<&str> = pattern.split('/').filter(|name| !name.is_empty()).collect();
    roots.is_empty() || roots.iter().any(|root| matches_below(root, &names, budget))
}

fn matches_below(dir: &Path, names: &[&str], budget: &mut usize) -> bool {
    let Some((first, rest)) = names.split_first() else { return true };
    let is_any = *first == pattern::ANY_DEPTH;
    if is_any && matches_below(dir, rest, budget) {
        return true;
    }
    if !first.contains(['*', '?']) {
        let below = dir.join(path_of(first));
        return below.is_dir() && matches_below(&below, rest, budget);
    }
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let Some(left) = budget.checked_sub(1) else { return true };
        *budget = left;
        let name = entry.file_name();
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_dir
            && pattern::fits(first, &text_of_name(&name))
            && matches_below(&entry.path(), if is_any { names } else { rest }, budget)
        {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn services_go_by_the_name_of_their_file() {
        let dir = tempfile::tempdir().unwrap();
        let (etc, lib) = (dir.path().join("etc"), dir.path().join("lib"));
        fs::create_dir(&etc).unwrap();
        fs::create_dir(&lib).unwrap();
        for name in ["ssh.service", "cron.service", "getty@.service", "a.socket"] {
            fs::write(lib.join(name), "").unwrap();
        }
        symlink(lib.join("ssh.service"), etc.join("sshd.service")).unwrap();
        symlink("/dev/null", etc.join("cron.service")).unwrap();
        let nowhere = dir.path().join("nowhere");
        let services = services_in([nowhere.as_path(), &etc, &lib].into_iter());
        for (unit, real) in [
            ("ssh.service", Some("ssh.service")),
            ("sshd.service", Some("ssh.service")),
            ("cron.service", Some("cron.service")),
            ("getty@tty1.service", Some("getty@tty1.service")),
            ("foo@tty1.service", None),
            ("a.service", None),
            ("user-1000.slice", Some("user-1000.slice")),
        ] {
            assert_eq!(real_name(&services, unit), real, "{unit}");
        }
    }

    #[test]
    fn patterns_are_matched_with_directories_within_a_budget() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("batch/job-1/inner")).unwrap();
        fs::write(dir.path().join("batch/job-2"), "").unwrap();
        let matches = |names: &[&str], mut budget| matches_below(dir.path(), names, &mut budget);
        for (names, expected) in [
            (&["batch"][..], true),
            (&["batch", "job-*"], true),
            (&["batch", "job-2"], false),
            (&["b*", "j?b-1", "inner"], true),
            (&["*", "*", "*", "*"], false),
            (&["other", "*"], false),
            (&["**", "inner"], true),
            (&["batch", "**", "job-1"], true),
            (&["batch", "**", "job-2"], false),
        ] {
            assert_eq!(matches(names, 100), expected, "{names:?}");
        }
        // An unread cgroup may exist.
        assert!(matches(&["*", "*", "*", "*"], 2));
    }
}
