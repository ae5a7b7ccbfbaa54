//! The process at the other end of a connection, and its permissions.
//!
//! The kernel reports the peer (SO_PEERCRED, unix(7)): the user and group of the process when it connected,
//! whatever its messages claim. The mode of the socket file decides which processes can connect, and every
//! process that can connect may read. Changes require root or an entry in the `administrators` of the policy.
//!
//! A group of `administrators` contains the users that the account database lists for it, and processes that had
//! it as their effective group when they connected. Supplementary groups of a process alone do not count.
//!
//! Names are looked up on every change, so that a dismissed administrator loses the permission at once. The
//! account database may be remote (nsswitch.conf(5)), and all clients of the calling thread wait for it. So
//! numbers are compared first, and no lookup is made for root or where the policy names no administrators.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::{PeerCredentials, PeerPidfd};
use nix::unistd::{Gid, Group, Uid, User, getgrouplist};

use crate::policy::model::Accounts;

/// The process at the other end of a connection, when it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its effective user.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
    /// Its process ID.
    pub pid: i32,
}

/// The process that connected, as a descriptor that no other process ever has; `None` where the kernel has none
/// (before 6.5).
///
/// # Errors
/// The process has ended, or this one has no descriptors left.
pub fn process(stream: &UnixStream) -> io::Result<Option<OwnedFd>> {
    match getsockopt(stream, PeerPidfd) {
        Ok(process) => Ok(Some(process)),
        Err(Errno::ENOPROTOOPT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

impl Peer {
    /// The peer of `stream`.
    ///
    /// # Errors
    /// The kernel does not report it.
    pub fn of(stream: &UnixStream) -> io::Result<Peer> {
        let credentials = getsockopt(stream, PeerCredentials)?;
        Ok(Peer { uid: credentials.uid(), gid: credentials.gid(), pid: credentials.pid() })
    }

    /// Whether it is one of these accounts, or root.
    pub fn is_among(&self, accounts: &Accounts) -> bool {
        self.uid == 0 || self.is_named(accounts)
    }

    /// Whether it is one of these accounts.
    pub fn is_named(&self, accounts: &Accounts) -> bool {
        if is_numbered(&accounts.users, self.uid) || is_numbered(&accounts.groups, self.gid) {
            return true;
        }
        let users = accounts.users.iter();
        if users.filter_map(|name| user(name)).any(|uid| uid == self.uid) {
            return true;
        }
        let groups: Vec<u32> = accounts.groups.iter().filter_map(|name| group(name)).collect();
        !groups.is_empty() && (groups.contains(&self.gid) || self.is_member_of_any(&groups))
    }

    fn is_member_of_any(&self, groups: &[u32]) -> bool {
        let Ok(Some(user)) = User::from_uid(Uid::from_raw(self.uid)) else { return false };
        let Ok(name) = CString::new(user.name) else { return false };
        let of_user: Vec<Gid> = getgrouplist(&name, user.gid).unwrap_or_default();
        of_user.iter().any(|gid| groups.contains(&gid.as_raw()))
    }
}

/// The peer of `stream`, and the account for which it is counted.
///
/// # Errors
/// The kernel does not report it.
pub fn identify(stream: &UnixStream) -> io::Result<(Peer, u32)> {
    let peer = Peer::of(stream)?;
    Ok((peer, account(&peer, Path::new("/"))))
}

/// The user for whom a peer is counted; never for a permission.
///
/// A user with subordinate UIDs can connect as each of them, so numbers of users alone bound nothing. The kernel keeps
/// who logged in (`/proc/PID/loginuid`); where it does not, a UID in a range of `/etc/subuid` counts as the owner of the
/// range. `root` has both files.
pub fn account(peer: &Peer, root: &Path) -> u32 {
    if peer.uid == 0 {
        return 0;
    }
    let login = fs::read_to_string(root.join(format!("proc/{}/loginuid", peer.pid)));
    let login = login.ok().and_then(|text| text.trim().parse().ok());
    // A session of root that became another user is not root.
    if let Some(login) = login.filter(|login| !matches!(*login, 0 | u32::MAX)) {
        return login;
    }
    let ranges = fs::read(root.join("etc/subuid")).unwrap_or_default();
    let ranges = String::from_utf8_lossy(&ranges);
    let owner = ranges.lines().find_map(|line| {
        let mut fields = line.trim().split(':');
        let (name, first, count) = (fields.next()?, fields.next()?, fields.next()?);
        let (first, count): (u32, u32) = (first.parse().ok()?, count.parse().ok()?);
        (first..first.saturating_add(count)).contains(&peer.uid).then_some((name, first))
    });
    let Some((name, first)) = owner else { return peer.uid };
    // Files only: this is asked of each client, and an account service may not answer. An owner that is not in the file
    // has one account for the whole range.
    let accounts = fs::read(root.join("etc/passwd")).unwrap_or_default();
    let number = |line: &str| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok())?
    };
    let listed =
        name.parse().ok().or_else(|| String::from_utf8_lossy(&accounts).lines().find_map(number));
    listed.filter(|uid| *uid != 0).unwrap_or(first)
}

/// Whether one of `names` is the number `id`, which needs no lookup.
fn is_numbered(names: &[String], id: u32) -> bool {
    names.iter().any(|name| name.parse() == Ok(id))
}

fn user(name: &str) -> Option<u32> {
    let look_up = || User::from_name(name).ok().flatten().map(|user| user.uid.as_raw());
    name.parse().ok().or_else(look_up)
}

fn group(name: &str) -> Option<u32> {
    let look_up = || Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw());
    name.parse().ok().or_else(look_up)
}
