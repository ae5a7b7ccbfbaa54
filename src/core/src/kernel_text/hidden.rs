//! Mounts of `/proc` that hide the processes of others from a reader (`hidepid=`, proc(5)).
//!
//! The kernel shows a process to holders of CAP_SYS_PTRACE, to members of the group `gid=` (root's without that option), and to its
//! own user. With `hidepid=ptraceable` the group does not count. A hidden process looks as one that has ended, so its absence
//! cannot be told from the files of processes.

use super::mountinfo::options_of_proc;
use super::proc_files::number;

/// The bit of CAP_SYS_PTRACE (capability.h).
const SYS_PTRACE: u32 = 19;

/// Kind of hiding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hidden {
    /// The option, as in `hidepid=2`.
    pub option: String,
    /// The group that sees all; `None` where there is no such group.
    pub group: Option<u32>,
}

/// Returns the way in which `/proc` hides the processes of others from the reader with this `/proc/PID/status`, by the text of
/// `/proc/self/mountinfo`; `None` where it sees all, or either text is not understood.
pub fn hidden(mountinfo: &[u8], status: &[u8]) -> Option<Hidden> {
    let options = options_of_proc(mountinfo)?;
    let value = |name: &[u8]| {
        let mut values = options.iter().filter_map(|option| option.strip_prefix(name));
        values.next_back().map(<[u8]>::to_vec)
    };
    let level = value(b"hidepid=")?;
    let has_group = match &level[..] {
        b"0" | b"off" => return None,
        b"4" | b"ptraceable" => false,
        _ => true,
    };
    let group = value(b"gid=").map_or(Some(0), |gid| number(&gid)).filter(|_| has_group);
    let field = |name: &[u8]| {
        let mut lines = status.split(|byte| *byte == b'\n');
        lines.find_map(|line| line.strip_prefix(name)).map(<[u8]>::trim_ascii)
    };
    let capabilities = std::str::from_utf8(field(b"CapEff:")?).ok()?;
    let may_trace = u64::from_str_radix(capabilities, 16).ok()? & 1 << SYS_PTRACE != 0;
    // The group counts that file access uses, which is the last of the four.
    let numbers = |text: &[u8]| -> Vec<u32> {
        text.split(u8::is_ascii_whitespace).filter_map(number).collect()
    };
    let own = numbers(field(b"Gid:")?).pop();
    let groups = numbers(field(b"Groups:")?);
    let is_member = group.is_some_and(|group| own == Some(group) || groups.contains(&group));
    let option = String::from_utf8_lossy(&[b"hidepid=", &level[..]].concat()).into_owned();
    (!may_trace && !is_member).then_some(Hidden { option, group })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(capabilities: &str, groups: &str) -> String {
        format!(
            "Name:\t\u{e9}\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nGroups:\t{groups}\nCapEff:\t{capabilities}\n"
        )
    }

    fn mount(options: &str) -> String {
        format!(
            "22 1 8:1 / / rw - ext4 /dev/sda rw\n24 22 0:22 / /proc rw,relatime shared:12 - proc proc {options}\n"
        )
    }

    #[test]
    fn who_sees_all_is_as_the_kernel_has_it() {
        // The unit's capabilities: SYS_NICE, DAC_OVERRIDE, CHOWN.
        let (bounded, all) = ("0000000000800003", "000001ffffffffff");
        let is_hidden = |options: &str, capabilities: &str, groups: &str| {
            hidden(mount(options).as_bytes(), status(capabilities, groups).as_bytes()).is_some()
        };
        for options in ["rw", "rw,hidepid=0", "rw,gid=1234,hidepid=off", "rw,gid=1234"] {
            assert!(!is_hidden(options, bounded, ""), "{options}");
        }
        for level in ["1", "2", "noaccess", "invisible"] {
            // Without `gid=`, root's group sees all.
            assert!(!is_hidden(&format!("rw,hidepid={level}"), bounded, ""), "{level}");
            let options = format!("rw,gid=1234,hidepid={level}");
            assert!(is_hidden(&options, bounded, "") && is_hidden(&options, bounded, "12 34"));
            assert!(!is_hidden(&options, bounded, "12 1234 "), "{level}");
            assert!(!is_hidden(&options, all, ""), "{level}");
        }
        for options in ["rw,hidepid=4", "rw,gid=1234,hidepid=ptraceable"] {
            assert!(
                is_hidden(options, bounded, "1234") && !is_hidden(options, all, ""),
                "{options}"
            );
        }
        let found =
            hidden(mount("rw,gid=7,hidepid=invisible").as_bytes(), status(bounded, "").as_bytes());
        assert_eq!(found, Some(Hidden { option: "hidepid=invisible".to_string(), group: Some(7) }));
        // A later mount covers it.
        let covered = mount("rw,gid=7,hidepid=2") + "30 24 0:40 / /proc rw - proc proc rw\n";
        assert_eq!(hidden(covered.as_bytes(), status(bounded, "").as_bytes()), None);
        assert_eq!(hidden(b"\xff\n", b"\xfe"), None);
    }
}
