//! The permission to change the agent.

use std::os::unix::net::UnixStream;

use tenantd::policy::model::Accounts;
use tenantd::varlink::peers::Peer;

fn accounts(users: &[&str], groups: &[&str]) -> Accounts {
    let texts = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
    Accounts { users: texts(users), groups: texts(groups) }
}

fn peer(uid: u32, gid: u32) -> Peer {
    Peer { uid, gid, pid: 1 }
}

#[test]
fn only_root_and_named_administrators_may_change() {
    let none_named = Accounts::default();
    assert!(peer(0, 0).is_among(&none_named));
    assert!(!peer(54321, 54321).is_among(&none_named));
    // The group of root is not root.
    assert!(!peer(54321, 0).is_among(&none_named));
    assert!(peer(54321, 1).is_among(&accounts(&["54321"], &[])));
    assert!(!peer(54322, 1).is_among(&accounts(&["54321"], &[])));
    assert!(peer(54321, 777).is_among(&accounts(&[], &["777"])));
    assert!(!peer(54321, 778).is_among(&accounts(&[], &["777"])));
    // A name that does not exist matches no one; the number of a group is not that of a user.
    assert!(!peer(777, 1).is_among(&accounts(&["no-such-user"], &["777", "no-such-group"])));
}

#[test]
fn names_are_resolved_by_the_account_database() {
    // Every Linux machine has these two, and `daemon` in its own group (Linux Standard Base, ch. 23).
    assert!(peer(1, 60000).is_among(&accounts(&["daemon"], &[])));
    assert!(peer(1, 60000).is_among(&accounts(&[], &["daemon"])), "by the account database");
    assert!(peer(60001, 1).is_among(&accounts(&[], &["daemon"])), "by the effective group");
    assert!(!peer(60001, 60001).is_among(&accounts(&["daemon"], &["daemon"])));
}

#[test]
fn the_peer_is_the_one_that_the_kernel_reports() {
    let (here, _there) = UnixStream::pair().unwrap();
    let peer = Peer::of(&here).unwrap();
    assert_eq!(peer.uid, nix::unistd::Uid::effective().as_raw());
    assert_eq!(peer.pid, std::process::id() as i32);
}
