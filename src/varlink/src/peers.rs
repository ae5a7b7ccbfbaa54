//! The process at the other end of a connection, and its permissions.
//!
//! The kernel reports the peer (SO_PEERCRED, unix(7)): user and group of the process when it connected,
//! whatever its messages claim. Every process may connect. Changes require root or an entry in the `administrators` of
//! the policy; reading about others requires that, or membership in the group of the socket file.
//!
//! **Readers.** A client is a member if its process has the group, as effective or as supplementary group; that is what
//! the kernel checks for a socket with mode 0660, and it needs no account service. `/proc/PID/status` has the supplementary
//! groups. The number of a process that has ended may belong to another one, so the effective user and group there must
//! be those of the connection. Failing that, the account database decides: a user who was just added to the group need
//! not log in again.
//!
//! A group of `administrators` contains the users that the account database lists for it, and processes with it
//! as their effective group when they connected. Supplementary groups of a process alone do not count.
//!
//! The socket thread never waits for the account database ([`tenantd_policy::accounts`]). A permission needs a
//! recent answer, so that a dismissed administrator loses it within half a minute; until then the call is kept
//! ([`Permission::Later`]). A name that could not be looked up permits nothing, and its digits are not taken
//! for a number.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::{PeerCredentials, PeerPidfd};
use nix::unistd::Uid;

use tracing::warn;

use tenantd_core::kernel_text::proc_files::{self, Owner};
use tenantd_policy::accounts::ranges::Owners;
use tenantd_policy::accounts::{self, Answer, Need, meaning};
use tenantd_policy::model::Accounts as Names;

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

/// Membership of a client in the group of readers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Membership {
    /// There is no such group, so the client is not in it.
    #[default]
    None,
    /// Its process has the group, or the user of this daemon.
    Member,
    /// Its process does not have this group; its user may be in it by the account database.
    Unproven(u32),
}

/// Function that returns the membership of a peer in the group with this number.
pub type Admit = fn(&Peer, Option<u32>) -> Membership;

/// Membership of `peer` by its process.
pub fn membership(peer: &Peer, group: Option<u32>) -> Membership {
    if peer.uid == 0 || peer.uid == Uid::effective().as_raw() {
        return Membership::Member;
    }
    let Some(group) = group else { return Membership::None };
    let is_member =
        peer.gid == group || owner(peer).is_some_and(|owner| owner.groups.contains(&group));
    if is_member { Membership::Member } else { Membership::Unproven(group) }
}

/// Owner of the process of `peer`, with its groups; `None` if the process has ended, or is not the peer's any more.
pub(super) fn owner(peer: &Peer) -> Option<Owner> {
    let text = fs::read(format!("/proc/{}/status", peer.pid)).ok()?;
    proc_files::owner(&text).filter(|owner| (owner.euid, owner.egid) == (peer.uid, peer.gid))
}

/// Descriptor of the process that connected, which is never reused; `None` if the kernel has none (before 6.5).
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
    /// Peer of `stream`.
    ///
    /// # Errors
    /// The kernel does not report it.
    pub fn of(stream: &UnixStream) -> io::Result<Peer> {
        let credentials = getsockopt(stream, PeerCredentials)?;
        Ok(Peer { uid: credentials.uid(), gid: credentials.gid(), pid: credentials.pid() })
    }

    /// Permission for these accounts and root.
    pub fn is_among(&self, names: &Names, accounts: &accounts::Accounts) -> Permission {
        if self.uid == 0 { Permission::Granted } else { self.is_named(names, accounts) }
    }

    /// Permission to read about all tenants.
    pub fn may_read(
        &self,
        membership: Membership,
        administrators: &Names,
        accounts: &accounts::Accounts,
    ) -> Permission {
        let group = match membership {
            Membership::Member => return Permission::Granted,
            Membership::None => None,
            Membership::Unproven(group) => Some(group),
        };
        let as_administrator = self.is_among(administrators, accounts);
        let Some(group) = group.filter(|_| as_administrator != Permission::Granted) else {
            return as_administrator;
        };
        match accounts.owner(self.uid, Need::Permission) {
            Answer::Known(user) if user.groups.contains(&group) => Permission::Granted,
            Answer::Pending => Permission::Later,
            Answer::Known(_) | Answer::Missing | Answer::Unknown(_) => as_administrator,
        }
    }

    /// Permission for these accounts.
    pub fn is_named(&self, names: &Names, accounts: &accounts::Accounts) -> Permission {
        let mut is_pending = false;
        let mut number = |answer: Answer<u32>| {
            is_pending |= answer == Answer::Pending;
            answer.known()
        };
        let user = |name: &String| meaning(name, |name| accounts.user(name, Need::Permission));
        let group = |name: &String| meaning(name, |name| accounts.group(name, Need::Permission));
        if names.users.iter().any(|name| number(user(name)) == Some(self.uid)) {
            return Permission::Granted;
        }
        let groups: Vec<u32> = names.groups.iter().filter_map(|name| number(group(name))).collect();
        if groups.contains(&self.gid) {
            return Permission::Granted;
        }
        if !groups.is_empty() {
            match accounts.owner(self.uid, Need::Permission) {
                Answer::Known(user) if user.groups.iter().any(|gid| groups.contains(gid)) => {
                    return Permission::Granted;
                }
                Answer::Pending => is_pending = true,
                Answer::Known(_) | Answer::Missing | Answer::Unknown(_) => {}
            }
        }
        if is_pending { Permission::Later } else { Permission::Refused }
    }
}

/// Peer of `stream`, and the account for which it is counted.
///
/// # Errors
/// The kernel does not report it.
pub fn identify(stream: &UnixStream, owners: &mut Owners) -> io::Result<(Peer, u32)> {
    let peer = Peer::of(stream)?;
    Ok((peer, account(&peer, owners)))
}

/// User for whom a peer is counted; never for a permission.
///
/// A user with subordinate UIDs can connect as each of them, so numbers of users alone bound nothing. The kernel keeps
/// who logged in (`/proc/PID/loginuid`); where it does not, a UID in a range of subordinate UIDs counts as the owner of the
/// range.
pub fn account(peer: &Peer, owners: &mut Owners) -> u32 {
    if peer.uid == 0 {
        return 0;
    }
    let login = fs::read_to_string(owners.root().join(format!("proc/{}/loginuid", peer.pid)));
    let login = login.ok().and_then(|text| text.trim().parse().ok());
    // A session of root that became another user is not root.
    if let Some(login) = login.filter(|login| !matches!(*login, 0 | u32::MAX)) {
        return login;
    }
    let had_failed = owners.failure().is_some();
    let owner = owners.owner(peer.uid, Instant::now());
    if let Some(failure) = owners.failure().filter(|_| !had_failed) {
        warn!(
            "{failure}; clients with subordinate UIDs that are not known yet count as users of their own"
        );
    }
    owner.unwrap_or(peer.uid)
}

/// Permission of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// The client has the permission.
    Granted,
    /// The client lacks the permission.
    Refused,
    /// An account is being looked up: ask again.
    Later,
}
