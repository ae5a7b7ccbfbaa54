//! What single values may look like: names, units, accounts, cgroup paths, lists of CPUs.

/// Characters of a tenant's name.
pub const LONGEST_NAME: usize = 64;
/// CPU numbers end below this: the kernel's own bound (`CONFIG_NR_CPUS`) is 8192 where it is largest.
pub const CPU_NUMBERS: u32 = 8192;

/// Whether a name is safe as the name of a cgroup; what is wrong with it otherwise.
pub(super) fn safe_name(name: &str) -> Result<(), String> {
    /// Kernel interface files are named after their controller; a cgroup of such a name would hide one
    /// (cgroup-v2, "Avoid Name Collisions").
    const CONTROLLERS: &[&str] = &[
        "blkio",
        "cgroup",
        "cpu",
        "cpuacct",
        "cpuset",
        "debug",
        "devices",
        "dmem",
        "freezer",
        "hugetlb",
        "io",
        "irq",
        "memory",
        "misc",
        "net_cls",
        "net_prio",
        "perf_event",
        "pids",
        "rdma",
    ];
    /// Files of a legacy cgroup that carry no controller's name.
    const LEGACY_FILES: &[&str] = &["tasks", "notify_on_release", "release_agent"];
    if name.is_empty() || name.chars().count() > LONGEST_NAME {
        return Err(format!("a name has 1 to {LONGEST_NAME} characters"));
    }
    if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b)) {
        return Err("letters, digits, `_`, `.` and `-` are safe".into());
    }
    if name.starts_with(['.', '-']) {
        return Err("begin with a letter, a digit or `_`".into());
    }
    let controller = name.split_once('.').map(|(controller, _)| controller);
    if controller.is_some_and(|it| CONTROLLERS.contains(&it)) || LEGACY_FILES.contains(&name) {
        return Err("the kernel has files of such names in every cgroup".into());
    }
    Ok(())
}

pub(super) fn unit_name(name: &str) -> Result<(), &'static str> {
    let kind = name.rsplit_once('.').map(|(_, kind)| kind);
    if !kind.is_some_and(|kind| ["service", "slice", "scope"].contains(&kind)) {
        return Err("the units that hold processes end in `.service`, `.slice` or `.scope`");
    }
    // systemd.unit(5): names have at most 255 characters.
    let valid = |b: u8| b.is_ascii_alphanumeric() || b":-_.\\@".contains(&b);
    match name.len() <= 255 && name.bytes().all(valid) {
        true => Ok(()),
        false => Err("a unit name has letters, digits and `:-_.\\@`, at most 255 characters"),
    }
}

pub(super) fn account_name(name: &str) -> Result<(), &'static str> {
    let forbidden =
        |c: char| c.is_control() || c.is_whitespace() || matches!(c, ':' | '/' | ',' | '*');
    match name.len() <= 256 && !name.contains(forbidden) {
        true => Ok(()),
        false => Err("give one name or number; several make a list: `[ana, bob]`"),
    }
}

/// Why a path of a cgroup is refused.
pub(super) enum PathRefusal {
    Escapes(&'static str),
    Malformed(&'static str),
}

/// A path below the mount point in its normal form: `/a/b`.
pub(super) fn cgroup_path(path: &str, is_pattern: bool) -> Result<String, PathRefusal> {
    if path.chars().any(char::is_control) {
        return Err(PathRefusal::Malformed("write the path on one line"));
    }
    for outside in ["/sys/", "/proc/", "/run/", "/home/"] {
        if path.starts_with(outside) {
            let help = "a cgroup path begins at the mount point: `/user.slice`, not `/sys/fs/cgroup/user.slice`";
            return Err(PathRefusal::Escapes(help));
        }
    }
    let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
    if names.iter().any(|name| matches!(*name, "." | "..")) {
        return Err(PathRefusal::Escapes("write the path without `.` and `..`"));
    }
    let wild = path.contains(['*', '?']);
    if wild && !is_pattern {
        return Err(PathRefusal::Malformed("the root is one cgroup: no `*` or `?`"));
    }
    if is_pattern && (path.contains("**") || path.contains(['[', ']', '{', '}'])) {
        return Err(PathRefusal::Malformed("patterns have `*` and `?`, each within one name"));
    }
    if is_pattern && names.is_empty() {
        return Err(PathRefusal::Malformed(
            "the root cgroup holds every process: name one below it",
        ));
    }
    Ok(format!("/{}", names.join("/")))
}

/// The CPUs of a list in the kernel's format (`0-3,8`), ascending and without repeats.
///
/// # Errors
/// What to write instead.
pub fn cpu_list(text: &str) -> Result<Vec<u32>, String> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |digits: &str| digits.trim().parse::<u32>().ok();
        let (Some(first), Some(last)) = (number(first), number(last)) else {
            return Err("write CPUs as `0-3,8`".into());
        };
        if first > last {
            return Err(format!("a range begins with the smaller number: `{last}-{first}`"));
        }
        if last >= CPU_NUMBERS {
            return Err(format!("CPU numbers end at {}", CPU_NUMBERS - 1));
        }
        cpus.extend(first..=last);
        // A list may repeat itself a thousand times; the CPUs do not grow.
        if cpus.len() > 2 * CPU_NUMBERS as usize {
            cpus.sort_unstable();
            cpus.dedup();
        }
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}
