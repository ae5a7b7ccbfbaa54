//! `tenantctl check` on hosts with other accounts: files of our own in the place of `/etc/passwd` and `/etc/group`, in a
//! private mount namespace.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::util;

const PASSWD: &str = "\
root:x:0:0:root:/root:/bin/sh
200:x:2000:100::/:/bin/sh
007:x:2007:100::/:/bin/sh
svc:x:300:300::/:/bin/sh
ana:x:1500:100::/:/bin/sh
";

/// The output of `check` on a host with these groups; `None` where no namespace can be made.
fn check(dir: &Path, group: &[u8], policy: &str) -> Option<String> {
    let files = [
        ("passwd", PASSWD.as_bytes()),
        ("group", group),
        ("nsswitch.conf", b"passwd: files\ngroup: files\n"),
    ];
    let mut script = "set -e\n".to_string();
    for (name, content) in files {
        let path = dir.join(name);
        fs::write(&path, content).unwrap();
        // The last one is not on every host, and `files` is what a host without it uses.
        script += &format!("[ ! -e /etc/{name} ] || mount --bind {} /etc/{name}\n", path.display());
    }
    let at = dir.join("p.yaml");
    fs::write(&at, format!("version: 1\n{policy}")).unwrap();
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "true"]);
    if util::run(&mut command).code != Some(0) {
        util::skipped("no namespaces can be made");
        return None;
    }
    script += "exec \"$0\" check \"$1\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-c", &script]);
    command.arg(crate::programs::path("tenantctl")).arg(at);
    let ran = util::run(&mut command);
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    // Messages are wrapped.
    let words: Vec<&str> = ran.out.split_whitespace().chain(ran.err.split_whitespace()).collect();
    Some(words.join(" "))
}

#[test]
#[ignore = "tier 2: needs root and mount namespaces"]
fn digits_are_the_account_with_that_name() {
    let dir = util::scratch();
    let policy = "\
tenants:
  a: { match: { users: [\"200\", \"007\", \"300\"] } }
  b: { match: { users: [200] } }
administrators: { users: [\"200\"] }
";
    let Some(text) = check(dir.path(), b"root:x:0:\n", policy) else { return };
    for part in [
        "`200` stands for the user with the name `200`, UID 2000, and not UID 200",
        "`007` stands for the user with the name `007`, UID 2007, and not UID 7",
        "`200` stands for UID 200, and not the user with the name `200`, UID 2000",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("`300`"), "{text}");
}

#[test]
#[ignore = "tier 2: needs root and mount namespaces"]
fn a_group_of_more_than_a_mebibyte_is_found_and_hides_no_other() {
    let dir = util::scratch();
    let mut group = b"root:x:0:\nfirst:x:10:\nbig:x:7000:".to_vec();
    group.extend((0..50_000).flat_map(|n| format!("student{n}@example.edu,").into_bytes()));
    group.extend(b"ana\nlast:x:11:ana\n400:x:4000:\ndomain users:x:12:\n");
    let groups = "[first, big, last, \"400\", \"domain users\", nosuchgroup, \"401\"]";
    let policy = format!("tenants:\n  s: {{ match: {{ groups: {groups} }} }}\n");
    let Some(text) = check(dir.path(), &group, &policy) else { return };
    assert!(text.contains("this machine has no group `nosuchgroup`"), "{text}");
    assert!(text.contains("`400` stands for the group with the name `400`, GID 4000"), "{text}");
    for known in ["first", "big", "last", "domain users"] {
        for words in [format!("no group `{known}`"), format!("`{known}` could not be looked up")] {
            assert!(!text.contains(&words), "{text}");
        }
    }
    // What getent(1) cannot answer and the file does not have is reported, and is not taken for none.
    assert!(text.contains("`401` could not be looked up"), "{text}");
}
