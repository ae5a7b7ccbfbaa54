//! Who is at the other end, and what they may.
//!
//! The kernel says who connected (SO_PEERCRED, unix(7)): the user and group of the process at that moment,
//! whatever the message claims. Who may connect at all is decided by the mode of the socket file, and whoever
//! may connect may read. Changes are for root and for the policy's `administrators`.
//!
//! A group of `administrators` counts for those whom the machine's account database has in it, and for whoever
//! had it as the effective group when connecting; supplementary groups that only a process carries do not.
//!
//! The database is asked anew each time, in the thread that asks, and it may be one of another machine
//! (nsswitch.conf(5)): whoever is served by that thread waits for it. Numbers are compared first, root is asked
//! for nothing, and neither is anybody where the policy names no administrators.

use std::ffi::CString;
use std::io;
use std::os::unix::net::UnixStream;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::{Gid, Group, Uid, User, getgrouplist};

use crate::policy::model::Accounts;

/// The process at the other end of a connection, when it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its effective user.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
    /// Its number.
    pub pid: i32,
}

impl Peer {
    /// Who is at the other end of `stream`.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn of(stream: &UnixStream) -> io::Result<Peer> {
        let credentials = getsockopt(stream, PeerCredentials)?;
        Ok(Peer { uid: credentials.uid(), gid: credentials.gid(), pid: credentials.pid() })
    }

    /// Whether it may change the agent.
    ///
    /// Names are looked up each time: an administrator who was dismissed is not one any more.
    pub fn may_change(&self, administrators: &Accounts) -> bool {
        if self.uid == 0 {
            return true;
        }
        if is_numbered(&administrators.users, self.uid)
            || is_numbered(&administrators.groups, self.gid)
        {
            return true;
        }
        let users = administrators.users.iter();
        if users.filter_map(|name| user(name)).any(|uid| uid == self.uid) {
            return true;
        }
        let groups: Vec<u32> =
            administrators.groups.iter().filter_map(|name| group(name)).collect();
        !groups.is_empty() && (groups.contains(&self.gid) || self.is_member_of_any(&groups))
    }

    fn is_member_of_any(&self, groups: &[u32]) -> bool {
        let Ok(Some(user)) = User::from_uid(Uid::from_raw(self.uid)) else { return false };
        let Ok(name) = CString::new(user.name) else { return false };
        let of_user: Vec<Gid> = getgrouplist(&name, user.gid).unwrap_or_default();
        of_user.iter().any(|gid| groups.contains(&gid.as_raw()))
    }
}

/// Whether one of `names` is the number `id`, which needs no looking up.
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
