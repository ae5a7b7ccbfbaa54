//! The permission to change the agent.

use std::os::unix::net::UnixStream;

use tenantd::policy::model::Accounts;
use tenantd::varlink::peers::{self, Peer};

use crate::util;

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

#[test]
fn a_peer_counts_for_the_user_that_logged_in_or_owns_the_range() {
    let dir = util::scratch();
    for sub in ["etc", "proc/10", "proc/11", "proc/12"] {
        std::fs::create_dir_all(dir.path().join(sub)).unwrap();
    }
    let write = |name: &str, text: &[u8]| std::fs::write(dir.path().join(name), text).unwrap();
    write("proc/10/loginuid", b"1000");
    write("proc/11/loginuid", b"4294967295");
    write("proc/12/loginuid", b"0");
    write("etc/subuid", b"\xff:1:1\nana:100000:65536\n1001:165536:65536\nfar:300000:65536\nroot:400000:10\nbad:x:1\n");
    write("etc/passwd", b"root:x:0:0::/:/bin/sh\nana:x:1000:1000:A\xff:/home/ana:/bin/sh\n");
    let account = |uid: u32, pid: i32| peers::account(&Peer { uid, gid: uid, pid }, dir.path());
    // The login, whatever user the process has become; root counts as root, and root's login does not.
    assert_eq!([account(1000, 10), account(100_007, 10), account(0, 10)], [1000, 1000, 0]);
    assert_eq!([account(1002, 12), account(1002, 11), account(1002, 99)], [1002; 3]);
    // Without a login: the owner of the range, by name or number.
    assert_eq!(
        [account(100_000, 11), account(165_535, 11), account(165_536, 11)],
        [1000, 1000, 1001]
    );
    // An owner that no file lists is one account, and root's range does not count as root.
    assert_eq!(
        [account(300_000, 11), account(365_535, 11), account(400_003, 11)],
        [300_000, 300_000, 400_000]
    );
    assert_eq!(account(365_536, 11), 365_536);
}
