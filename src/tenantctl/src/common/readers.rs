//! The way for this user to become a reader of all tenants.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::{Gid, Group, Uid, User};

use tenantd_control::words::jobs::HeldUnits;
use tenantd_lab::text::{visible, wrapped};

/// Name of this user; its number without an account.
pub(crate) fn user_name() -> String {
    name_of(Uid::effective().as_raw())
}

/// Name of a user; the number without an account.
pub(crate) fn name_of(uid: u32) -> String {
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    user.map_or_else(|| uid.to_string(), |user| visible(&user.name))
}

/// User and tenant of a job that holds units.
pub(crate) fn owner(held: &HeldUnits) -> String {
    format!("{} ({})", name_of(held.uid), visible(&held.tenant))
}

/// Group whose members may read from `socket`; `None` if root's group owns it.
fn group_name(socket: &Path) -> Option<String> {
    let gid = fs::metadata(socket).ok()?.gid();
    if gid == 0 {
        return None;
    }
    let group = Group::from_gid(Gid::from_raw(gid)).ok().flatten();
    Some(group.map_or_else(|| gid.to_string(), |group| visible(&group.name)))
}

/// Command that adds this user to `group`: Debian's adduser(8), elsewhere usermod(8), because `adduser` is useradd(8) there.
fn command(group: &str) -> String {
    let user = user_name();
    if Path::new("/etc/debian_version").exists() {
        format!("sudo adduser {user} {group}")
    } else {
        format!("sudo usermod -aG {group} {user}")
    }
}

/// Remedy for a user who may not read all that `socket` shows.
pub(crate) fn remedy(socket: &Path) -> String {
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

/// Prints, about an output that shows own work only, how to see the rest; not into the output of programs.
pub(crate) fn print_note(out: &mut impl Write, socket: &Path, is_json: bool) -> io::Result<()> {
    let note = match group_name(socket) {
        Some(group) => format!("your own view; the group {group} sees all: {}", command(&group)),
        None => "your own view; root and the `administrators` of the policy see all".to_string(),
    };
    if is_json {
        writeln!(io::stderr(), "tenantctl: {}", visible(&note))
    } else {
        writeln!(out, "{}", wrapped("", &note))
    }
}
