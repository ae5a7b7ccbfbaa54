//! Who may change the agent.

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
fn root_may_and_others_only_where_the_policy_names_them() {
    let nobody_named = Accounts::default();
    assert!(peer(0, 0).may_change(&nobody_named));
    assert!(!peer(54321, 54321).may_change(&nobody_named));
    // To be in the group of root is not to be root.
    assert!(!peer(54321, 0).may_change(&nobody_named));
    assert!(peer(54321, 1).may_change(&accounts(&["54321"], &[])));
    assert!(!peer(54322, 1).may_change(&accounts(&["54321"], &[])));
    assert!(peer(54321, 777).may_change(&accounts(&[], &["777"])));
    assert!(!peer(54321, 778).may_change(&accounts(&[], &["777"])));
    // Who has no name is nobody's, and a number is a number of its kind.
    assert!(!peer(777, 1).may_change(&accounts(&["no-such-user"], &["777", "no-such-group"])));
}

#[test]
fn names_are_looked_up() {
    // Every Linux machine has these two, and `daemon` in its own group (Linux Standard Base, ch. 23).
    assert!(peer(1, 60000).may_change(&accounts(&["daemon"], &[])));
    assert!(peer(1, 60000).may_change(&accounts(&[], &["daemon"])), "by the account database");
    assert!(peer(60001, 1).may_change(&accounts(&[], &["daemon"])), "by the effective group");
    assert!(!peer(60001, 60001).may_change(&accounts(&["daemon"], &["daemon"])));
}

#[test]
fn the_kernel_says_who_connects() {
    let (here, _there) = UnixStream::pair().unwrap();
    let peer = Peer::of(&here).unwrap();
    assert_eq!(peer.uid, nix::unistd::Uid::effective().as_raw());
    assert_eq!(peer.pid, std::process::id() as i32);
}
