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

use std::ops::RangeInclusive;
use std::path::Path;

use super::ranges::{Ranges, SUBUID, content, number};

/// Greeters, dynamic users, the overflow UID, and the end of the 16-bit range.
const OF_SYSTEM: RangeInclusive<u32> = 60_514..=65_535;
/// Range of container managers and subuid(5).
const OF_CONTAINERS: RangeInclusive<u32> = 524_288..=1_879_048_191;
const UID_MIN: u32 = 1000;
const LOGIN_DEFS: &str = "etc/login.defs";

/// UIDs of people on one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct People {
    uid_min: u32,
    /// The subordinate UIDs of users; `None` where they could not be read.
    subordinate: Option<Ranges>,
    /// Reason for which login.defs could not be read.
    no_login_defs: Option<String>,
    /// The same of subuid.
    no_subuid: Option<String>,
}

impl Default for People {
    /// Defaults of a host without these files.
    fn default() -> People {
        People::of(b"", b"")
    }
}

impl People {
    /// Reads login.defs(5) and subuid(5) of this machine. A missing file leaves the defaults.
    pub fn of_this_machine() -> People {
        People::below(Path::new("/"))
    }

    /// Those of the host whose files are below `root`. One that could not be read is a reason of [`Self::failures`].
    pub fn below(root: &Path) -> People {
        let (login_defs, subuid) = (content(&root.join(LOGIN_DEFS)), content(&root.join(SUBUID)));
        People {
            uid_min: login_defs.as_deref().map_or(UID_MIN, uid_min),
            subordinate: subuid.as_deref().ok().map(Ranges::parse),
            no_login_defs: login_defs.err(),
            no_subuid: subuid.err(),
        }
    }

    /// Parses the contents of these files.
    pub fn of(login_defs: &[u8], subuid: &[u8]) -> People {
        People {
            uid_min: uid_min(login_defs),
            subordinate: Some(Ranges::parse(subuid)),
            no_login_defs: None,
            no_subuid: None,
        }
    }

    /// The same, with the content that files had in `former` where they could not be read now.
    #[must_use]
    pub fn after(self, former: &People) -> People {
        let uid_min = if self.no_login_defs.is_some() { former.uid_min } else { self.uid_min };
        let subordinate = self.subordinate.or_else(|| former.subordinate.clone());
        People { uid_min, subordinate, ..self }
    }

    /// Files that could not be read, with the effect.
    pub fn failures(&self) -> impl Iterator<Item = String> + '_ {
        let of_min = self
            .no_login_defs
            .iter()
            .map(|why| format!("{why}; people are the users with UIDs from {} on", self.uid_min));
        let effect = match self.subordinate {
            Some(_) => "the subordinate UIDs read before stay in use",
            None => "UIDs above 65535 are people only where an account has them",
        };
        of_min.chain(self.no_subuid.iter().map(move |why| format!("{why}; {effect}")))
    }

    /// True for a person's UID; `has_account` is true if an account with it exists.
    pub fn includes(&self, uid: u32, has_account: bool) -> bool {
        let is_subordinate = || match &self.subordinate {
            Some(ranges) => ranges.contains(uid),
            None => uid > *OF_SYSTEM.end(),
        };
        let is_shared = || OF_CONTAINERS.contains(&uid) || is_subordinate();
        self.is_above_system(uid) && !OF_SYSTEM.contains(&uid) && (has_account || !is_shared())
    }

    /// True if a UID is beyond those of the system's own users.
    pub fn is_above_system(&self, uid: u32) -> bool {
        uid >= self.uid_min && uid != u32::MAX
    }
}

/// `UID_MIN` of login.defs(5).
fn uid_min(login_defs: &[u8]) -> u32 {
    let lines = login_defs.split(|byte| *byte == b'\n');
    let mut uid_min = lines.filter_map(|line| {
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        (words.next() == Some(&b"UID_MIN"[..])).then(|| number(words.next()?))?
    });
    // As the tools of shadow read it, the last line counts. Root is never a person.
    uid_min.next_back().unwrap_or(UID_MIN).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_read_is_not_an_empty_one() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(People::below(dir.path()), People::default(), "missing files say nothing");
        std::fs::create_dir(dir.path().join("etc")).unwrap();
        let (login_defs, subuid) = (dir.path().join(LOGIN_DEFS), dir.path().join(SUBUID));
        std::fs::write(&login_defs, "UID_MIN 500\n").unwrap();
        std::fs::write(&subuid, "ana:100000:65536\n").unwrap();
        let former = People::below(dir.path());
        assert_eq!(former, People::of(b"UID_MIN 500\n", b"ana:100000:65536\n"));
        // Opening a directory works, and reading it does not, for root too.
        for file in [&login_defs, &subuid] {
            std::fs::remove_file(file).unwrap();
            std::fs::create_dir(file).unwrap();
        }
        let now = People::below(dir.path());
        let failures: Vec<String> = now.failures().collect();
        assert!(failures[0].contains("etc/login.defs") && failures[0].contains("from 1000 on"));
        assert!(failures[1].contains("etc/subuid") && failures[1].contains("65535"));
        // No number of a container passes for a person.
        assert_eq!(is_person(&now, 100_000), (false, true));
        assert_eq!(is_person(&now, 1000), (true, true));
        let now = now.after(&former);
        assert_eq!(
            [500, 100_000, 300_000].map(|uid| now.includes(uid, false)),
            [true, false, true]
        );
        assert_eq!(now.failures().count(), 2);
        // A file beyond the bound is not cut off in silence.
        std::fs::remove_dir(&subuid).unwrap();
        std::fs::write(&subuid, vec![b'\n'; (4 << 20) + 1]).unwrap();
        assert_eq!(is_person(&People::below(dir.path()), 100_000), (false, true));
    }

    /// True if a UID is a person's: without an account, and with one.
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
