//! Readers of `/proc/PID/status` and `/proc/PID/cgroup`.
//!
//! Both take bytes and read only the needed lines, because the first line of `status` is a name that the
//! process chose, and the paths in `cgroup` are names that others chose.

use super::text_of;

/// The owner of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// Real user.
    pub ruid: u32,
    /// Effective user.
    pub euid: u32,
    /// Real group.
    pub rgid: u32,
    /// Effective group.
    pub egid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

/// Owner in a text of `/proc/PID/status`; `None` if a line is missing or has no numbers.
///
/// Reads three lines of some sixty, because it is called for every process of the host. The kernel escapes
/// an end of line in the name of a process, so each line here is the kernel's.
pub fn owner(status: &[u8]) -> Option<Owner> {
    let (mut users, mut gids, mut groups) = (None, None, None);
    for line in status.split(|byte| *byte == b'\n') {
        // Real, effective, saved and file system numbers.
        if let Some(values) = line.strip_prefix(b"Uid:") {
            let mut numbers = numbers(values);
            users = numbers.next().zip(numbers.next());
        } else if let Some(values) = line.strip_prefix(b"Gid:") {
            let mut numbers = numbers(values);
            gids = numbers.next().zip(numbers.next());
        } else if let Some(values) = line.strip_prefix(b"Groups:") {
            groups = Some(numbers(values).collect());
            break;
        }
    }
    let ((ruid, euid), (rgid, egid), groups) = (users?, gids?, groups?);
    Some(Owner { ruid, euid, rgid, egid, groups })
}

/// List of the CPUs on which a thread may run, in a text of its `status`; `None` if it does not run or want to.
pub fn running_on(status: &[u8]) -> Option<String> {
    let mut lines = status.split(|byte| *byte == b'\n');
    let state = lines.by_ref().find_map(|line| line.strip_prefix(b"State:\t"))?;
    let list = lines.find_map(|line| line.strip_prefix(b"Cpus_allowed_list:\t"));
    list.filter(|_| state.starts_with(b"R")).map(text_of)
}

fn numbers(values: &[u8]) -> impl Iterator<Item = u32> {
    let words = values.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    words.map_while(number)
}

/// Parses a decimal number.
pub fn number(text: &[u8]) -> Option<u32> {
    let is_digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let digit = |sum: u32, byte: &u8| sum.checked_mul(10)?.checked_add(u32::from(byte - b'0'));
    is_digits.then(|| text.iter().try_fold(0, digit)).flatten()
}

/// Numbers in a list of processes or threads, one per line. A process of another PID namespace is 0.
pub fn process_numbers(text: &[u8]) -> impl Iterator<Item = u32> {
    text.split(|byte| *byte == b'\n').filter_map(number)
}

/// Cgroup of a process in one hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupLine {
    /// Number of the hierarchy; 0 for the unified one.
    pub hierarchy: u32,
    /// Its controllers or its name, separated by commas; empty for the unified one.
    pub controllers: String,
    /// Path from the root of the hierarchy, as [`text_of`] writes it.
    pub path: String,
}

impl CgroupLine {
    /// True if the hierarchy has this controller, or this name as in `name=systemd`.
    pub fn has(&self, controller: &str) -> bool {
        self.controllers.split(',').any(|name| name == controller)
    }

    /// True if systemd keeps its units in this hierarchy.
    pub fn is_of_units(&self) -> bool {
        self.hierarchy == 0 || self.has("name=systemd")
    }
}

/// Lines of a text of `/proc/PID/cgroup`; `None` if one is not understood.
pub fn cgroup_lines(text: &[u8]) -> Option<Vec<CgroupLine>> {
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let line = |line: &[u8]| {
        let mut fields = line.splitn(3, |byte| *byte == b':');
        let hierarchy = number(fields.next()?)?;
        let controllers = text_of(fields.next()?);
        let path = fields.next().filter(|path| path.starts_with(b"/")).map(text_of)?;
        Some(CgroupLine { hierarchy, controllers, path })
    };
    lines.map(line).collect()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::kernel_text::bytes_of;

    #[test]
    fn what_is_not_the_kernels_text_has_no_owner() {
        for text in [
            &b""[..],
            b"Name:\tx\n",
            b"Name:\tx\nUid:\t1\nGid:\t1\t1\t1\t1\nGroups:\t\n",
            b"Name:\tx\nUid:\t-1\t1\t1\t1\nGid:\t1\t1\t1\t1\nGroups:\t\n",
            b"Name:\tx\nUid:\t1\t4294967296\t1\t1\nGid:\t1\t1\t1\t1\nGroups:\t\n",
            b"Name:\tx\nUid:\t1\t1\t1\t1\nGid:\t1\t1\t1\t1\n",
        ] {
            assert_eq!(owner(text), None);
        }
        for text in [&b"0::relative\n"[..], b"x::/\n", b"1:cpu\n", b"\xff\n"] {
            assert_eq!(cgroup_lines(text), None);
        }
    }

    #[test]
    fn the_cpus_of_a_thread_count_while_it_runs() {
        let text = |state: &str| {
            format!(
                "Name:\tCpus_allowed_list:\t7\nState:\t{state}\nUid:\t1\nCpus_allowed:\t3\nCpus_allowed_list:\t0-1\n"
            )
        };
        assert_eq!(running_on(text("R (running)").as_bytes()), Some("0-1".to_string()));
        assert_eq!(running_on(text("S (sleeping)").as_bytes()), None);
        assert_eq!(running_on(b"Name:\tx\nState:\tR (running)\n"), None);
    }

    /// Names of processes: the kernel escapes the end of line.
    fn names() -> impl Strategy<Value = Vec<u8>> {
        vec(any::<u8>().prop_filter("end of line", |byte| *byte != b'\n'), 0..16)
    }

    proptest! {
        #[test]
        fn owners_are_found_under_any_name(name in names(), users in any::<[u32; 4]>(), groups in vec(any::<u32>(), 0..9)) {
            let [ruid, euid, rgid, egid] = users;
            let mut text = b"Name:\t".to_vec();
            text.extend(&name);
            let list: String = groups.iter().map(|gid| format!("{gid} ")).collect();
            text.extend(format!(
                "\nUmask:\t0022\nUid:\t{ruid}\t{euid}\t{euid}\t{euid}\nGid:\t{rgid}\t{egid}\t{egid}\t{egid}\n\
                 FDSize:\t64\nGroups:\t{list}\nVmRSS:\t1 kB\n"
            ).into_bytes());
            prop_assert_eq!(owner(&text), Some(Owner { ruid, euid, rgid, egid, groups }));
        }

        #[test]
        fn cgroups_are_found_under_any_name(name in vec(any::<u8>(), 0..40)) {
            let name: Vec<u8> = name.into_iter().filter(|byte| !b"\n\0".contains(byte)).collect();
            let text = [b"4:cpu,cpuacct:/a/", &name[..], b"\n1:name=systemd:/\n0::/", &name, b"\n"].concat();
            let lines = cgroup_lines(&text).unwrap();
            prop_assert_eq!(bytes_of(&lines[0].path), [b"/a/", &name[..]].concat());
            prop_assert_eq!(bytes_of(&lines[2].path), [b"/", &name[..]].concat());
            prop_assert!(lines[0].has("cpuacct") && !lines[0].has("cpu,cpuacct"));
            prop_assert!(lines[1].is_of_units() && lines[2].is_of_units());
        }

        #[test]
        fn any_bytes_are_read(text in vec(any::<u8>(), 0..200)) {
            let _ = (owner(&text), cgroup_lines(&text), process_numbers(&text).count());
        }
    }
}
