//! The permissions to change the agent and to read about others.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenantd_policy::accounts::ranges::Owners;
use tenantd_policy::accounts::{Accounts, Directory, Outcome, Question, Record, User};
use tenantd_policy::model::Accounts as Names;
use tenantd_varlink::peers::{self, Membership, Peer, Permission};

use crate::util;

fn names(users: &[&str], groups: &[&str]) -> Names {
    let texts = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
    Names { users: texts(users), groups: texts(groups) }
}

fn peer(uid: u32, gid: u32) -> Peer {
    Peer { uid, gid, pid: 1 }
}

/// Whether a peer is among these, by the accounts of this machine.
fn may(peer: Peer, users: &[&str], groups: &[&str]) -> bool {
    peer.is_among(&names(users, groups), &Accounts::default()) == Permission::Granted
}

#[test]
fn only_root_and_named_administrators_may_change() {
    assert!(may(peer(0, 0), &[], &[]));
    assert!(!may(peer(54321, 54321), &[], &[]));
    // The group of root is not root.
    assert!(!may(peer(54321, 0), &[], &[]));
    assert!(may(peer(54321, 1), &["54321"], &[]));
    assert!(!may(peer(54322, 1), &["54321"], &[]));
    assert!(may(peer(54321, 777), &[], &["777"]));
    assert!(!may(peer(54321, 778), &[], &["777"]));
    // A name that does not exist matches no one; the number of a group is not that of a user.
    assert!(!may(peer(777, 1), &["no-such-user"], &["777", "no-such-group"]));
}

#[test]
fn names_are_resolved_by_the_account_database() {
    // Every Linux machine has these two, and `daemon` in its own group (Linux Standard Base, ch. 23).
    assert!(may(peer(1, 60000), &["daemon"], &[]));
    assert!(may(peer(1, 60000), &[], &["daemon"]), "by the account database");
    assert!(may(peer(60001, 1), &[], &["daemon"]), "by the effective group");
    assert!(!may(peer(60001, 60001), &["daemon"], &["daemon"]));
}

#[test]
fn a_permission_waits_for_a_recent_answer_and_is_refused_without_one() {
    let time = Arc::new(AtomicU64::new(0));
    let clock = Arc::clone(&time);
    let seconds = move || Duration::from_secs(clock.load(Ordering::Relaxed));
    let (accounts, desk) = Accounts::with_desk(seconds);
    let admins = names(&["ana"], &["wheel"]);
    let ana = || peer(1500, 1500).is_among(&admins, &accounts);
    assert_eq!((ana(), ana()), (Permission::Later, Permission::Later));
    while let Some(question) = desk.next() {
        desk.answer(&question, Err("no route to host".into()));
    }
    assert_eq!(ana(), Permission::Refused, "an error permits nothing");
    time.store(40, Ordering::Relaxed);
    ana();
    while let Some(question) = desk.next() {
        let number = if question == Question::User("ana".into()) { 1500 } else { 50 };
        desk.answer(&question, Ok(Some(Record::Number(number))));
    }
    assert_eq!(ana(), Permission::Granted);
    // A member of the group, whose groups are asked for first.
    let ben = || peer(1600, 1600).is_among(&admins, &accounts);
    assert_eq!(ben(), Permission::Later);
    let question = desk.next().unwrap();
    assert_eq!(question, Question::Owner(1600));
    let user = User { name: "ben".into(), groups: vec![1600, 50] };
    desk.answer(&question, Ok(Some(Record::User(user))));
    assert_eq!(ben(), Permission::Granted);
    // The service hangs: the old answer is awaited for a while, and is in use after that.
    time.store(80, Ordering::Relaxed);
    assert_eq!(ana(), Permission::Later);
    time.store(86, Ordering::Relaxed);
    assert_eq!(ana(), Permission::Granted);
    // Dismissed.
    while let Some(question) = desk.next() {
        desk.answer(&question, Ok(None));
    }
    assert_eq!((ana(), ben()), (Permission::Refused, Permission::Refused));
}

/// Answers all questions about names by `known`, which fails where it says so.
fn by(known: fn(&str) -> Result<Option<u32>, String>) -> Accounts {
    struct Named(fn(&str) -> Result<Option<u32>, String>);
    impl Directory for Named {
        fn user(&mut self, name: &str) -> Outcome<u32> {
            (self.0)(name)
        }

        fn group(&mut self, name: &str) -> Outcome<u32> {
            (self.0)(name)
        }

        fn owner(&mut self, _: u32) -> Outcome<User> {
            Ok(None)
        }
    }
    Accounts::direct(Named(known))
}

#[test]
fn digits_are_a_name_first_and_no_number_after_an_error() {
    let named = by(|name| Ok((name == "200").then_some(2000)));
    let nobody = by(|_| Ok(None));
    let failing = by(|_| Err("no route to host".to_string()));
    let users = |name: &str, uid, accounts: &Accounts| {
        peer(uid, 9).is_among(&names(&[name], &[]), accounts)
    };
    let groups = |name: &str, gid, accounts: &Accounts| {
        peer(9, gid).is_among(&names(&[], &[name]), accounts)
    };
    let (yes, no) = (Permission::Granted, Permission::Refused);
    for may in [users, groups] {
        assert_eq!((may("200", 2000, &named), may("200", 200, &named)), (yes, no));
        assert_eq!((may("200", 2000, &nobody), may("200", 200, &nobody)), (no, yes));
        assert_eq!((may("200", 2000, &failing), may("200", 200, &failing)), (no, no));
        // Without quotes in the policy.
        assert_eq!((may("+200", 2000, &named), may("+200", 200, &named)), (no, yes));
        assert_eq!(may("+200", 200, &failing), yes);
    }
}

#[test]
fn readers_are_root_administrators_and_members_of_the_group() {
    let (nobody, admins) = (names(&[], &[]), names(&["54321"], &[]));
    let accounts = Accounts::default();
    let may = |peer: Peer, group, admins| {
        let membership = peers::membership(&peer, group);
        peer.may_read(membership, admins, &accounts) == Permission::Granted
    };
    assert!(may(peer(0, 0), None, &nobody));
    assert!(may(peer(54321, 9), None, &admins));
    assert!(may(peer(54321, 777), Some(777), &nobody), "by the effective group");
    assert!(!may(peer(54321, 778), Some(777), &nobody));
    assert!(!may(peer(54321, 0), None, &nobody), "the group of root has no readers");
    // `daemon` is in its own group by the account database (Linux Standard Base, ch. 23).
    assert!(may(peer(1, 60000), Some(1), &nobody));
    assert!(!may(peer(60001, 60001), Some(1), &nobody));
}

#[test]
fn a_supplementary_group_counts_for_the_process_that_has_it() {
    if !nix::unistd::Uid::effective().is_root() {
        return util::skipped("only root can start a process with other groups");
    }
    let mut child = Command::new("setpriv")
        .args(["--reuid=54321", "--regid=54321", "--groups=54322,777", "--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Once it copies its input it is the program with these groups.
    let mut byte = [0];
    child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
    let pid = child.id() as i32;
    let of = |uid, gid, group| peers::membership(&Peer { uid, gid, pid }, Some(group));
    assert_eq!(of(54321, 54321, 777), Membership::Member);
    assert_eq!(of(54321, 54321, 778), Membership::Unproven(778));
    // The number belongs to the process of another user or group by now.
    assert_eq!(of(54320, 54321, 777), Membership::Unproven(777));
    assert_eq!(of(54321, 54320, 777), Membership::Unproven(777));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(of(54321, 54321, 777), Membership::Unproven(777), "it has ended");
}

#[test]
fn a_member_that_a_look_up_must_prove_waits_for_it() {
    let (accounts, desk) = Accounts::with_desk(|| Duration::ZERO);
    let none = names(&[], &[]);
    let ask = || peer(1600, 1600).may_read(Membership::Unproven(50), &none, &accounts);
    assert_eq!(ask(), Permission::Later);
    let question = desk.next().unwrap();
    assert_eq!(question, Question::Owner(1600));
    let user = User { name: "ben".into(), groups: vec![1600, 50] };
    desk.answer(&question, Ok(Some(Record::User(user))));
    assert_eq!(ask(), Permission::Granted);
    // A process with the group needs no account service.
    assert_eq!(
        peer(1700, 1700).may_read(Membership::Member, &none, &accounts),
        Permission::Granted
    );
    assert!(desk.next().is_none());
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
    let mut owners = Owners::of(dir.path());
    let mut account =
        |uid: u32, pid: i32| peers::account(&Peer { uid, gid: uid, pid }, &mut owners);
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
