//! People among the UIDs of a host: the users selected by `users: "*"`.
//!
//! | UIDs | meaning | people |
//! |---|---|---|
//! | below `UID_MIN` of login.defs(5), 1000 without one | the system | no |
//! | `UID_MIN`–60000 | local accounts | yes |
//! | 60001–60513 | homes of systemd-homed | yes |
//! | 60514–65535 | greeters, services with `DynamicUser=`, the overflow UID, −1 as 16 bits | no |
//! | 65536–524287 | directories | yes |
//! | 524288–1879048191 | containers, and directories | if an account exists |
//! | a range of subuid(5) above `UID_MIN` | containers of users, and directories | if an account exists |
//! | 1879048192–4294967294 | directories | yes |
//! | 4294967295 | no user | no |
//!
//! The other ranges are those of systemd ("Users, Groups, UIDs and GIDs on systemd Systems"). `UID_MAX` bounds
//! only new local accounts, not directories. A user whose account is not known yet has none.

use std::fs::File;
use std::io::Read;
use std::ops::RangeInclusive;

/// Greeters, dynamic users, the overflow UID, and the end of the 16-bit range.
const OF_SYSTEM: RangeInclusive<u32> = 60_514..=65_535;
/// Range of container managers and subuid(5).
const OF_CONTAINERS: RangeInclusive<u32> = 524_288..=1_879_048_191;
const UID_MIN: u32 = 1000;
const FILE_BYTES_MAX: u64 = 4 << 20;

/// UIDs of people on one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct People {
    uid_min: u32,
    subordinate: Vec<RangeInclusive<u32>>,
}

impl Default for People {
    /// Defaults of a host without these files.
    fn default() -> People {
        People { uid_min: UID_MIN, subordinate: Vec::new() }
    }
}

impl People {
    /// Reads login.defs(5) and subuid(5) of this machine. A missing file leaves the defaults.
    pub fn of_this_machine() -> People {
        let read = |path: &str| {
            let mut bytes = Vec::new();
            let file =
                File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes));
            file.map(|_| bytes).unwrap_or_default()
        };
        People::of(&read("/etc/login.defs"), &read("/etc/subuid"))
    }

    /// Parses the contents of these files.
    pub fn of(login_defs: &[u8], subuid: &[u8]) -> People {
        let number = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.trim().parse::<u32>().ok();
        let lines = login_defs.split(|byte| *byte == b'\n');
        let mut uid_min = lines.filter_map(|line| {
            let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            (words.next() == Some(&b"UID_MIN"[..])).then(|| number(words.next()?))?
        });
        let subordinate = subuid.split(|byte| *byte == b'\n').filter_map(|line| {
            let mut fields = line.split(|byte| *byte == b':').skip(1);
            let (first, nr) = (number(fields.next()?)?, number(fields.next()?)?);
            (nr > 0).then(|| first..=first.saturating_add(nr - 1))
        });
        // The last line counts, as in the tools of shadow. Root is never a person.
        let uid_min = uid_min.next_back().unwrap_or(UID_MIN).max(1);
        People { uid_min, subordinate: subordinate.collect() }
    }

    /// True for a person's UID; `has_account` is true if an account with it exists.
    pub fn includes(&self, uid: u32, has_account: bool) -> bool {
        let is_shared = || {
            OF_CONTAINERS.contains(&uid)
                || self.subordinate.iter().any(|range| range.contains(&uid))
        };
        self.is_above_system(uid) && !OF_SYSTEM.contains(&uid) && (has_account || !is_shared())
    }

    /// True if a UID is beyond those of the system's own users.
    pub fn is_above_system(&self, uid: u32) -> bool {
        uid >= self.uid_min && uid != u32::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_person(people: &People, uid: u32) -> (bool, bool) {
        (people.includes(uid, false), people.includes(uid, true))
    }

    #[test]
    fn each_boundary_of_the_table() {
        let people = People::default();
        let (never, with_account, always) = ((false, false), (false, true), (true, true));
        for (uid, expected) in [
            (0, never),
            (999, never),
            (1000, always),
            (60_000, always),
            (60_001, always),
            (60_513, always),
            (60_514, never),
            (61_184, never),
            (65_519, never),
            (65_534, never),
            (65_535, never),
            (65_536, always),
            (524_287, always),
            (524_288, with_account),
            (574_509, with_account),
            (1_879_048_191, with_account),
            (1_879_048_192, always),
            (u32::MAX - 1, always),
            (u32::MAX, never),
        ] {
            assert_eq!(is_person(&people, uid), expected, "{uid}");
        }
    }

    #[test]
    fn the_files_of_the_host_move_the_boundaries() {
        let login_defs =
            b"# UID_MIN 7\n\tUID_MIN\t\t  500\nUID_MAX 60000\nSYS_UID_MIN 101\n\xff\xfe\n";
        let subuid =
            b"ana:100000:65536\nb\xffn:300000:1\nbroken\nx:5:\ny:400000:0\nlast:4294967295:9";
        let people = People::of(login_defs, subuid);
        let (never, with_account, always) = ((false, false), (false, true), (true, true));
        for (uid, expected) in [
            (499, never),
            (500, always),
            (99_999, always),
            (100_000, with_account),
            (165_535, with_account),
            (165_536, always),
            (300_000, with_account),
            (300_001, always),
            (400_000, always),
            (u32::MAX, never),
        ] {
            assert_eq!(is_person(&people, uid), expected, "{uid}");
        }
        assert!(!People::of(b"UID_MIN 0\n", b"").includes(0, true), "root is no person");
        assert_eq!(People::of(b"UID_MIN x\nUID_MIN\n", b":::\n"), People::default());
    }
}
