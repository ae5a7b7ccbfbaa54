//! The way for this user to become a reader of all tenants.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::{Gid, Group, Uid, User};

use tenantd_core::kernel_text::cleaned;

/// Name of this user; its number without an account.
pub fn user_name() -> String {
    name_of(Uid::effective().as_raw())
}

/// Name of a user; the number without an account.
pub fn name_of(uid: u32) -> String {
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    user.map_or_else(|| uid.to_string(), |user| cleaned(&user.name))
}

/// Group whose members may read from `socket`; `None` if root's group owns it.
pub fn group_name(socket: &Path) -> Option<String> {
    let gid = fs::metadata(socket).ok()?.gid();
    if gid == 0 {
        return None;
    }
    let group = Group::from_gid(Gid::from_raw(gid)).ok().flatten();
    Some(group.map_or_else(|| gid.to_string(), |group| cleaned(&group.name)))
}

/// Command that adds this user to `group`: Debian's adduser(8), elsewhere usermod(8), because `adduser` is useradd(8) there.
pub fn command(group: &str) -> String {
    let user = user_name();
    if Path::new("/etc/debian_version").exists() {
        format!("sudo adduser {user} {group}")
    } else {
        format!("sudo usermod -aG {group} {user}")
    }
}

/// Remedy for a user who may not read all that `socket` shows.
pub fn remedy(socket: &Path) -> String {
    match group_name(socket) {
        Some(group) => {
            format!("become root, or a member of the group {group} ({})", command(&group))
        }
        None => {
            "become root, or an entry in the `administrators` of the policy (the socket has no group of readers)"
                .to_string()
        }
    }
}
