//! Accounts of this machine, through the C library (nsswitch.conf(5)).
//!
//! The library may block without a limit. Only the thread of [`super::Accounts`] and commands call this.
//!
//! **Large entries.** The nix crate gives an entry at most 1 MiB, a group of about 37,000 members, and the
//! `files` module fails for every entry behind a larger one. Such a look-up is repeated with getent(1), whose
//! buffer grows; only the first fields of its output are read. getent takes digits as numbers, so names of
//! digits are looked for in the file itself. Considered: only the file, which does not cover directories.

use std::ffi::CString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::unistd::{Gid, Group, Uid, User as Account, getgrouplist};

use super::answer::{Directory, Outcome, User, digits};

/// Database of the C library.
#[derive(Clone, Copy, Debug)]
pub struct Nss;

impl Directory for Nss {
    fn user(&mut self, name: &str) -> Outcome<u32> {
        match Account::from_name(name) {
            Ok(account) => Ok(account.map(|account| account.uid.as_raw())),
            Err(Errno::ERANGE) => large("passwd", name),
            Err(errno) => Err(errno.desc().to_string()),
        }
    }

    fn group(&mut self, name: &str) -> Outcome<u32> {
        match Group::from_name(name) {
            Ok(group) => Ok(group.map(|group| group.gid.as_raw())),
            Err(Errno::ERANGE) => large("group", name),
            Err(errno) => Err(errno.desc().to_string()),
        }
    }

    fn owner(&mut self, uid: u32) -> Outcome<User> {
        let account =
            Account::from_uid(Uid::from_raw(uid)).map_err(|errno| errno.desc().to_string())?;
        let Some(account) = account else { return Ok(None) };
        let name = CString::new(account.name.as_str()).map_err(|error| error.to_string())?;
        let groups = getgrouplist(&name, account.gid).map_err(|errno| errno.desc().to_string())?;
        let groups = groups.into_iter().map(Gid::as_raw).collect();
        Ok(Some(User { name: account.name, groups }))
    }

    fn group_name(&mut self, gid: u32) -> Outcome<String> {
        match Group::from_gid(Gid::from_raw(gid)) {
            Ok(group) => Ok(group.map(|group| group.name)),
            Err(Errno::ERANGE) => {
                Ok(getent("group", &gid.to_string())?.and_then(|fields| fields.into_iter().next()))
            }
            Err(errno) => Err(errno.desc().to_string()),
        }
    }
}

/// Number of an entry by name, after the C library has failed for a large one.
fn large(database: &str, name: &str) -> Outcome<u32> {
    let by_getent = match digits(name) {
        None => getent(database, name),
        Some(_) => Err("an entry is larger than 1 MiB".to_string()),
    };
    match by_getent {
        Ok(fields) => Ok(fields.and_then(|fields| fields.get(2)?.parse().ok())),
        // An entry of the file is valid; a missing one may be in a directory.
        Err(why) => match number_in(Path::new("/etc").join(database).as_path(), name) {
            Some(number) => Ok(Some(number)),
            None => Err(why),
        },
    }
}

/// Number of `name` in a file in the form of passwd(5) or group(5).
fn number_in(path: &Path, name: &str) -> Option<u32> {
    let mut lines = BufReader::new(File::open(path).ok()?.take(FILE_BYTES_MAX));
    let mut line = Vec::new();
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line).ok()? == 0 {
            return None;
        }
        let mut fields = line.split(|byte| *byte == b':');
        if fields.next() == Some(name.as_bytes()) {
            return std::str::from_utf8(fields.nth(1)?).ok()?.parse().ok();
        }
    }
}

const FILE_BYTES_MAX: u64 = 256 << 20;
/// Longest first three fields of an entry, in bytes.
const FIELDS_BYTES_MAX: u64 = 4096;
const GETENT_PATIENCE: Duration = Duration::from_secs(30);

fn getent(database: &str, key: &str) -> Outcome<Vec<String>> {
    let failed =
        |error: std::io::Error| format!("an entry is larger than 1 MiB, and getent: {error}");
    let (output, input) = UnixStream::pair().map_err(failed)?;
    output.set_read_timeout(Some(GETENT_PATIENCE)).map_err(failed)?;
    let mut getent = Command::new("getent");
    getent.args(["--", database, key]).stdin(Stdio::null()).stderr(Stdio::null());
    getent.stdout(Stdio::from(OwnedFd::from(input)));
    let mut child = getent.spawn().map_err(failed)?;
    // Closes its copy of the pipe, so that the end of the output is seen.
    drop(getent);
    let mut text = Vec::new();
    let mut reader = BufReader::new(output.take(FIELDS_BYTES_MAX));
    let read = (0..3).try_for_each(|_| reader.read_until(b':', &mut text).map(|_| ()));
    drop(reader);
    let text = String::from_utf8_lossy(&text);
    let fields: Vec<String> = text.split_terminator(':').map(str::to_string).collect();
    if fields.len() == 3 || read.is_err() {
        // It would write the members or wait. Otherwise it has ended, and its status counts.
        let _ = child.kill();
    }
    let status = child.wait().map_err(failed)?;
    read.map_err(failed)?;
    match (fields.len(), status.code()) {
        (3, _) => Ok(Some(fields)),
        // getent(1): no such entry.
        (_, Some(2)) => Ok(None),
        _ => Err(format!("an entry is larger than 1 MiB, and getent ended with {status}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_searched_past_long_lines_and_bytes_that_are_no_text() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("group");
        let mut text = b"a:x:10:\nb\xff:x:11:\nbig:x:7000:".to_vec();
        text.extend(b"studentN@example.edu,".repeat(100_000));
        text.extend(b"\n200:x:2000:\nbroken\nlast:x:12:");
        std::fs::write(&path, text).unwrap();
        let number = |name| number_in(&path, name);
        assert_eq!([number("a"), number("big"), number("200")], [Some(10), Some(7000), Some(2000)]);
        assert_eq!(
            [number("last"), number("broken"), number("x"), number("7000")],
            [Some(12), None, None, None]
        );
    }

    #[test]
    fn getent_tells_an_entry_from_none() {
        assert_eq!(getent("group", "root").unwrap().unwrap()[2], "0");
        assert_eq!(getent("group", "no-such-group-here"), Ok(None));
        assert_eq!(large("passwd", "root"), Ok(Some(0)));
        assert!(getent("no-such-database", "root").is_err());
    }
}
