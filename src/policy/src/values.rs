//! Syntax of texts in a policy: names, units, accounts, cgroup paths, lists of CPUs.

use super::hint::{nearest, shortened};
use super::pattern::{ANY_DEPTH, has_wildcard, literal_prefix};
use crate::accounts::{digits, explicit};

#[derive(Debug)]
pub(super) struct NameKind {
    pub(super) what: &'static str,
    /// Checks the syntax; the error is the remedy.
    pub(super) check: fn(&str) -> Result<(), String>,
    /// True if digits without quotes are a number.
    pub(super) has_numbers: bool,
}

pub(super) static UNITS: NameKind =
    NameKind { what: "a systemd unit", check: unit_name, has_numbers: false };
pub(super) static USERS: NameKind =
    NameKind { what: "a user", check: account_name, has_numbers: true };
pub(super) static MATCHED_USERS: NameKind = NameKind {
    what: "a user",
    check: |name| if name == ALL_USERS { Ok(()) } else { account_name(name) },
    has_numbers: true,
};
pub(super) static GROUPS: NameKind =
    NameKind { what: "a group of users", check: account_name, has_numbers: true };

pub(super) static NAMESPACES: NameKind =
    NameKind { what: "a namespace of pods", check: namespace, has_numbers: false };
pub(super) static LABELS: NameKind =
    NameKind { what: "a label of pods", check: label, has_numbers: false };

/// In-memory form of a user or group name: a number has a plus sign, so that it differs from a name of
/// digits. Digits without quotes are a number, unless they begin with a 0.
pub(super) fn account(text: &str, is_plain: bool) -> String {
    let is_number = digits(text).is_some_and(|number| number.to_string() == text);
    if is_plain && is_number { format!("+{text}") } else { text.to_string() }
}

/// Form of such a name in a message: a number has no plus sign.
pub(super) fn shown(name: &str) -> &str {
    explicit(name).and(name.strip_prefix('+')).unwrap_or(name)
}

/// Form of such a name in a policy: a name of digits has quotes.
pub(super) fn notation(name: &str) -> String {
    if digits(name).is_some() { format!("\"{name}\"") } else { shown(name).to_string() }
}

/// A template's name for all regular users.
pub const ALL_USERS: &str = "*";
pub(super) const LONGEST_NAME: usize = 64;
/// Characters that [`safe_name`] accepts, as a pattern.
pub(super) const NAME_PATTERN: &str = "^[A-Za-z0-9_][A-Za-z0-9_.-]*$";
/// Prefix of the agent's own cgroups beside the tenants: `tenantd.agent`, `tenantd.rest`.
const RESERVED_PREFIX: &str = "tenantd.";
/// Bound of CPU numbers: the largest value of `CONFIG_NR_CPUS`.
pub(super) const CPU_NUMBERS: u32 = 8192;

/// Checks a name for use as the name of a cgroup.
///
/// # Errors
/// The remedy.
pub(super) fn safe_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.chars().count() > LONGEST_NAME {
        return Err(format!("a name has 1 to {LONGEST_NAME} characters"));
    }
    safe_characters(name)
}

/// Checks a name of valid length for use as the name of a cgroup.
///
/// # Errors
/// The remedy.
pub(super) fn safe_characters(name: &str) -> Result<(), String> {
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
    /// Files of a legacy cgroup without a controller's name.
    const LEGACY_FILES: &[&str] = &["tasks", "notify_on_release", "release_agent"];
    let is_safe = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    if !name.chars().all(is_safe) {
        const SAFE: &str = "letters, digits, `_`, `.` and `-` are safe";
        let safe: String = name.trim().chars().map(|c| if is_safe(c) { c } else { '-' }).collect();
        let example = match name.split_once('/') {
            Some((group, below))
                if group.starts_with(char::is_alphanumeric) && below.chars().all(is_safe) =>
            {
                format!("; a tenant in a group is `{group}: {{ tenants: {{ {below}: … }} }}`")
            }
            // A name that is mostly dashes helps no one.
            _ if name.is_ascii() && safe.starts_with(char::is_alphanumeric) => {
                format!(": `{}`", shortened(&safe))
            }
            _ => String::new(),
        };
        return Err(format!("{SAFE}{example}"));
    }
    if name.starts_with(['.', '-']) {
        return Err("begin with a letter, a digit or `_`".into());
    }
    let controller = name.split_once('.').map(|(controller, _)| controller);
    if controller.is_some_and(|it| CONTROLLERS.contains(&it)) || LEGACY_FILES.contains(&name) {
        return Err("the kernel has files of such names in every cgroup".into());
    }
    if name.starts_with(RESERVED_PREFIX) {
        return Err("names that begin with `tenantd.` are those of the agent's own cgroups".into());
    }
    Ok(())
}

/// Checks a name for a systemd unit with processes. As in a unit file, and unlike in systemctl, it is not
/// completed: a policy names the exact unit.
///
/// # Errors
/// The remedy.
pub(super) fn unit_name(name: &str) -> Result<(), String> {
    const KINDS: &str = "the units that hold processes end in `.service`, `.slice` or `.scope`";
    const OTHERS: &[&str] =
        &["socket", "target", "device", "mount", "automount", "swap", "timer", "path"];
    // systemd.unit(5): names have at most 255 characters.
    let valid = |b: u8| b.is_ascii_alphanumeric() || b":-_.\\@*?".contains(&b);
    let is_valid = name.len() <= 255 && name.bytes().all(valid) && !name.starts_with('.');
    let (stem, kind) = name.rsplit_once('.').unwrap_or((name, ""));
    let last = name.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    if name.contains('/') && last != name && unit_name(last).is_ok() {
        return Err(format!(
            "a unit name has letters, digits and `:-_.\\@`, and no path: `{last}`"
        ));
    }
    let help = match kind {
        "service" | "slice" | "scope" if name.contains([',', ' ', ';']) => {
            "a unit name has letters, digits and `:-_.\\@`; several make a list: `[nginx.service, php.service]`"
        }
        "service" | "slice" | "scope" if stem.contains(['[', '(', '+', '^', '$', '|', '{']) => {
            "patterns have `*` and `?`, as in `docker-*.scope`"
        }
        "service" | "slice" | "scope" if !is_valid => {
            "a unit name has letters, digits and `:-_.\\@`, at most 255 characters"
        }
        "slice" if has_wildcard(stem) && !literal_prefix(stem).contains('-') => {
            "such a pattern fits slices and those in them: begin it with the name of one slice, `user-*.slice`"
        }
        "slice" if stem == "-" => "the root slice holds every process: name a unit below it",
        "slice" if stem.split('-').any(str::is_empty) => {
            "the parts of a slice's name have single dashes between them: `a-b.slice`"
        }
        "service" | "scope" if stem.ends_with('@') => {
            let instance = format!("{stem}1.{kind}");
            return Err(format!("a template runs nothing itself: name an instance, `{instance}`"));
        }
        "service" | "slice" | "scope" => return Ok(()),
        other if is_valid && !OTHERS.contains(&other) => {
            let near = nearest(other, ["service", "slice", "scope"]);
            let meant = near.map_or(format!("{name}.service"), |kind| format!("{stem}.{kind}"));
            return Err(format!("{KINDS}: say `{meant}`"));
        }
        _ => KINDS,
    };
    Err(help.to_string())
}

pub(super) const SEVERAL: &str = "give one name or number; several make a list: `[ana, bob]`";
pub(super) const ONE_OR_SEVERAL: &str =
    "several names make a list: `[ana, bob]`; one with a space has quotes: `\"domain users\"`";

pub(super) const PEOPLE: &str = "ranges and patterns of accounts are not read: name a group, `groups: [staff]`, or find all \
                                 people of the host with `each: { match: { users: \"*\" } }`";

/// Checks a name for a user or a group of users, without the account database.
///
/// # Errors
/// The remedy.
pub(super) fn account_name(name: &str) -> Result<(), String> {
    // Active Directory names have spaces (`domain users`), and a backslash or a realm.
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let range = name.split_once("..").or(name.split_once('-'));
    let is_range =
        range.is_some_and(|(first, last)| is_number(first.trim()) && is_number(last.trim()));
    if is_range || name.contains('*') || name.starts_with('^') {
        return Err(PEOPLE.into());
    }
    // sudo(8) and other programs mark groups so.
    if let Some(group) = name.strip_prefix(['%', '@']) {
        return Err(format!("a group is named without a mark: `groups: [{group}]`"));
    }
    let forbidden = |c: char| c.is_control() || matches!(c, ':' | '/' | ',');
    if name.len() <= 256 && !name.contains(forbidden) && name.trim() == name {
        Ok(())
    } else {
        Err(SEVERAL.into())
    }
}

/// Longest namespace, and longest value of a label. Those of Kubernetes have up to 63 characters.
const LONGEST_OF_POD: usize = 253;
/// Longest key of a label: in Kubernetes a prefix of 253 characters, a slash and a name of 63.
const LONGEST_KEY: usize = 317;

/// Checks a namespace of pods or a pattern of such.
///
/// # Errors
/// The remedy.
fn namespace(name: &str) -> Result<(), String> {
    if name.contains('=') {
        return Err(format!("a label is `label: \"{}\"`", shortened(name)));
    }
    if name.contains([',', ' ']) {
        return Err("several make a list: `[shop, bank]`".into());
    }
    if name.len() > LONGEST_OF_POD || !name.chars().all(is_of_pattern) {
        return Err("a namespace has letters, digits, `-`, `_` and `.`; a pattern has `*` and `?`, as in `team-*`".into());
    }
    Ok(())
}

/// Checks a label of pods, with a pattern for its value.
///
/// # Errors
/// The remedy.
fn label(text: &str) -> Result<(), String> {
    const SYNTAX: &str =
        "a label is `KEY=VALUE`, as in `team=core`; the value may have `*` and `?`, as in `team=*`";
    let is_of_key = |c: char| c.is_ascii_alphanumeric() || "_.-/".contains(c);
    let is_key = |key: &str| (1..=LONGEST_KEY).contains(&key.len()) && key.chars().all(is_of_key);
    match text.split_once('=') {
        None if is_key(text) => Err(format!(
            "add the value: `{text}=core`, or `{text}=*` for any value",
            text = shortened(text)
        )),
        Some((key, value))
            if is_key(key) && value.len() <= LONGEST_OF_POD && value.chars().all(is_of_pattern) =>
        {
            Ok(())
        }
        _ => Err(SYNTAX.into()),
    }
}

fn is_of_pattern(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_.-*?".contains(c)
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum PathRefusal {
    Escapes(&'static str),
    Malformed(&'static str),
}

/// Normal form of a path below the mount point: `/a/b`.
///
/// # Errors
/// The reason, with the remedy.
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
    // limits.h: a file name has at most 255 bytes, and so has a cgroup's.
    if path.len() > 4096 || names.iter().any(|name| name.len() > 255) {
        return Err(PathRefusal::Malformed("a name has at most 255 bytes, a path 4096"));
    }
    if names.iter().any(|name| matches!(*name, "." | "..")) {
        return Err(PathRefusal::Escapes("write the path without `.` and `..`"));
    }
    if names.is_empty() && !path.starts_with('/') {
        return Err(PathRefusal::Malformed(
            "name a cgroup: `/a/b`, or `a/b` below the agent's own",
        ));
    }
    let wild = path.contains(['*', '?']);
    if wild && !is_pattern {
        return Err(PathRefusal::Malformed("the root is one cgroup: no `*` or `?`"));
    }
    if is_pattern && path.contains(['[', ']', '{', '}']) {
        return Err(PathRefusal::Malformed("patterns have `*` and `?`, and `**` between slashes"));
    }
    if is_pattern && names.iter().any(|name| *name != ANY_DEPTH && name.contains(ANY_DEPTH)) {
        return Err(PathRefusal::Malformed("`**` stands for whole names: `/a/**/b*`"));
    }
    if is_pattern && names.last() == Some(&ANY_DEPTH) {
        return Err(PathRefusal::Malformed(
            "what is below a match belongs to it: say `/a` for it and all below it, `/a/*` for each in it",
        ));
    }
    if is_pattern && names.is_empty() {
        return Err(PathRefusal::Malformed(
            "the root cgroup holds every process: name one below it",
        ));
    }
    Ok(format!("/{}", names.join("/")))
}

/// CPUs of a list in the kernel's format (`0-3,8`), ascending and without repeats.
///
/// # Errors
/// The remedy.
pub(super) fn cpu_list(text: &str) -> Result<Vec<u32>, String> {
    // A table, because a text may name a CPU a thousand times.
    let mut is_listed = [false; CPU_NUMBERS as usize];
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
        is_listed[first as usize..=last as usize].fill(true);
    }
    Ok((0..CPU_NUMBERS).filter(|cpu| is_listed[*cpu as usize]).collect())
}
