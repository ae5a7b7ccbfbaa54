//! Subordinate UIDs: the ranges of subuid(5), and the user for whom each counts.
//!
//! **Problem.** A user with subordinate UIDs can act under each of them, so clients of the socket are counted for the owner of
//! the range, and a UID in a range is not a person's. An account service may hang, and clients may connect thousands of times
//! a second. **Rules.** Only files are read. [`Owners`] keeps their content for [`KEPT`]. A missing file is empty; for one that
//! cannot be read, the last content stays in use, and [`Owners::failure`] has the reason.

use std::fs::File;
use std::io::{self, Read};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tenantd_core::kernel_text::proc_files;

/// The file of ranges, from the root of the host.
pub(super) const SUBUID: &str = "etc/subuid";
const PASSWD: &str = "etc/passwd";
/// Bytes of a file that are read.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Age at which [`Owners`] reads the files again.
pub const KEPT: Duration = Duration::from_secs(5);

/// Ranges in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(Vec<Range>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Range {
    /// A name or UID.
    owner: Vec<u8>,
    uids: RangeInclusive<u32>,
}

impl Ranges {
    /// The ranges of a file. Lines that are no range are skipped.
    pub fn parse(subuid: &[u8]) -> Ranges {
        let range = |line: &[u8]| {
            let mut fields = line.trim_ascii().split(|byte| *byte == b':');
            let owner = fields.next()?.to_vec();
            let (first, nr) = (number(fields.next()?)?, number(fields.next()?)?);
            (nr > 0).then(|| Range { owner, uids: first..=first.saturating_add(nr - 1) })
        };
        Ranges(subuid.split(|byte| *byte == b'\n').filter_map(range).collect())
    }

    /// True if a range has this UID.
    pub fn contains(&self, uid: u32) -> bool {
        self.0.iter().any(|range| range.uids.contains(&uid))
    }
}

/// A decimal number between spaces.
pub(super) fn number(bytes: &[u8]) -> Option<u32> {
    proc_files::number(bytes.trim_ascii())
}

/// The content of a file; empty where there is none.
///
/// # Errors
/// It could not be read, or is too long.
pub(super) fn content(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let file = File::open(path);
    match file.and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)) {
        Ok(_) if bytes.len() as u64 > FILE_BYTES_MAX => {
            Err(format!("`{}` has more than {FILE_BYTES_MAX} bytes", path.display()))
        }
        Ok(_) => Ok(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(format!("`{}` could not be read: {error}", path.display())),
    }
}

/// The users for whom subordinate UIDs count, from the files of a host.
#[derive(Debug)]
pub struct Owners {
    root: PathBuf,
    /// Ranges with the UIDs of their owners.
    ranges: Vec<(RangeInclusive<u32>, u32)>,
    read_at: Option<Instant>,
    failure: Option<String>,
}

impl Owners {
    /// The owners on the host whose files are below `root`.
    pub fn of(root: &Path) -> Owners {
        Owners { root: root.to_path_buf(), ranges: Vec::new(), read_at: None, failure: None }
    }

    /// The owner of the first range that has this UID.
    pub fn owner(&mut self, uid: u32, now: Instant) -> Option<u32> {
        if self.read_at.is_none_or(|at| now.saturating_duration_since(at) >= KEPT) {
            self.read_at = Some(now);
            match self.read() {
                Ok(ranges) => (self.ranges, self.failure) = (ranges, None),
                Err(failure) => self.failure = Some(failure),
            }
        }
        self.ranges.iter().find(|(uids, _)| uids.contains(&uid)).map(|(_, owner)| *owner)
    }

    /// The root of the host.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The reason for which the last read failed.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    fn read(&self) -> Result<Vec<(RangeInclusive<u32>, u32)>, String> {
        let ranges = Ranges::parse(&content(&self.root.join(SUBUID))?).0;
        if ranges.is_empty() {
            return Ok(Vec::new());
        }
        let passwd = content(&self.root.join(PASSWD))?;
        let account = |line: &'_ [u8]| {
            let mut fields = line.split(|byte| *byte == b':');
            Some((fields.next()?.to_vec(), number(fields.nth(1)?)?))
        };
        // The first account of a name counts, as for the C library.
        let accounts = passwd.split(|byte| *byte == b'\n').rev().filter_map(account);
        let accounts: std::collections::HashMap<Vec<u8>, u32> = accounts.collect();
        let owned = |Range { owner, uids }: Range| {
            let listed = accounts.get(&owner).copied().or_else(|| number(&owner));
            // An owner of a directory has one account for each range, and root is not counted.
            let owner = listed.filter(|uid| *uid != 0).unwrap_or(*uids.start());
            (uids, owner)
        };
        Ok(ranges.into_iter().map(owned).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn owners_are_read_once_in_a_while_and_survive_a_failure() {
        let dir = tempfile::tempdir().unwrap();
        let etc = dir.path().join("etc");
        fs::create_dir(&etc).unwrap();
        let (subuid, passwd) = (etc.join("subuid"), etc.join("passwd"));
        fs::write(&passwd, "ana:x:1000:1000::/:/bin/sh\nana:x:7:7::/:/bin/sh\n").unwrap();
        fs::write(&subuid, "ana:100000:10\n1001:200000:10\nfar:300000:10\n").unwrap();
        let mut owners = Owners::of(dir.path());
        let start = Instant::now();
        let at = |owners: &mut Owners, uid, time| owners.owner(uid, start + time);
        let (early, late) = (KEPT - Duration::from_millis(1), KEPT);
        assert_eq!(at(&mut owners, 100_009, Duration::ZERO), Some(1000));
        assert_eq!(at(&mut owners, 200_000, Duration::ZERO), Some(1001));
        assert_eq!(at(&mut owners, 300_009, Duration::ZERO), Some(300_000));
        assert_eq!(at(&mut owners, 300_010, Duration::ZERO), None);
        fs::write(&subuid, "ana:500000:10\n").unwrap();
        assert_eq!(at(&mut owners, 500_000, early), None, "no file is read for each client");
        assert_eq!(at(&mut owners, 500_000, late), Some(1000));
        // A read that failed changes nothing and has a reason.
        fs::remove_file(&subuid).unwrap();
        fs::create_dir(&subuid).unwrap();
        assert_eq!(at(&mut owners, 500_000, late * 2), Some(1000));
        assert!(owners.failure().unwrap().contains("etc/subuid"));
        // A file that has gone has no ranges.
        fs::remove_dir(&subuid).unwrap();
        assert_eq!(at(&mut owners, 500_000, late * 3), None);
        assert_eq!(owners.failure(), None);
    }
}
