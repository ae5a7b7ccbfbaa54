//! Ordinary users at a real daemon: their own view, and nothing of others.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::ask::Asked;
use super::ground::{Daemon, Ground};
use crate::util::{self, Ran, wait_until};

/// A user and a group that no machine has.
const USER: u32 = 54_999;
const GROUP: u32 = 54_777;

/// `tenantctl` as a user with these supplementary groups.
fn as_user(uid: u32, groups: &[u32], socket: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.arg(format!("--reuid={uid}")).arg(format!("--regid={uid}"));
    match groups {
        [] => command.arg("--clear-groups"),
        groups => {
            let groups: Vec<String> = groups.iter().map(u32::to_string).collect();
            command.arg(format!("--groups={}", groups.join(",")))
        }
    };
    command.arg(util::tenantctl().get_program()).arg("--socket").arg(socket).args(arguments);
    command
}

/// False, and the test skipped, where other users cannot run the built programs.
fn can_be_run() -> bool {
    let mut probe = as_user(USER, &[], Path::new("/"), &["--version"]);
    let can = probe.output().is_ok_and(|output| output.status.success());
    if !can {
        util::skipped("setpriv is missing, or other users cannot run the built programs");
    }
    can
}

fn open(path: &Path) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap()
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn a_user_outside_the_group_sees_own_work_only() {
    let policy = "control: { interval: 100ms }\n\
                  tenants: { mine: { match: { users: 54999 } }, shared: { allow: { users: 54999 } }, hidden: {} }";
    if !can_be_run() {
        return;
    }
    let Some(asked) = Asked::begin(policy) else { return };
    open(asked.ground.scratch.path());
    wait_until("the tenants", || asked.ground.weight("hidden").is_some());
    let ask = |arguments: &[&str]| util::run(&mut as_user(USER, &[], &asked.socket(), arguments));
    let names = |view: &Value| -> Vec<String> {
        let tenants = view["tenants"].as_array().unwrap().iter();
        tenants.map(|tenant| tenant["name"].as_str().unwrap().to_string()).collect()
    };
    let me = json(&ask(&["me", "--json"]).exits(0));
    assert_eq!((&me["uid"], names(&me)), (&USER.into(), vec!["mine".to_string()]));
    assert_eq!(me["tenants"][0]["basis"][0], "user");
    assert!(me["tenants"][0]["share_now_cores"].as_f64().unwrap() > 0.0, "{me}");
    assert!(me["tenants"][0]["share_if_busy_cores"].as_f64().unwrap() > 0.0, "{me}");
    // The process of a job asks: it is in another tenant.
    let tenantctl = util::tenantctl().get_program().to_str().unwrap().to_string();
    let socket = asked.socket().to_str().unwrap().to_string();
    let inside =
        ["run", "--tenant", "shared", "--", &tenantctl, "--socket", &socket, "me", "--json"];
    let me = json(&ask(&inside).exits(0));
    let shared = &me["tenants"][1];
    assert_eq!(shared["name"], "shared", "{me}");
    assert_eq!(shared["basis"], serde_json::json!(["job", "process"]), "{me}");
    assert_eq!(me["jobs"][0]["tenant"], "shared", "{me}");
    for command in ["status", "jobs", "explain"] {
        let text = ask(&[command]).exits(0).out;
        assert!(text.starts_with("your own view; ") && !text.contains("hidden"), "{text}");
    }
    for arguments in
        [&["plan"][..], &["explain", "hidden"], &["watch", "--count", "1"], &["metrics"]]
    {
        ask(arguments).exits(77).says("not permitted");
    }
    // A job of another user does not exist for this one.
    let mut of_root = util::tenantctl();
    of_root.arg("--socket").arg(asked.socket());
    let mut of_root =
        of_root.args(["run", "--tenant", "hidden", "--", "sleep", "60"]).spawn().unwrap();
    let mut id = String::new();
    wait_until("the job of root", || {
        id = json(&asked.ask(&["jobs", "--json"]).exits(0))["jobs"][0]["id"].to_string();
        id != "null"
    });
    ask(&["jobs", &id]).exits(1).says("you have no job");
    assert!(!ask(&["jobs", "--all", "--json"]).exits(0).out.contains("hidden"));
    ask(&["cancel", &id]).exits(77);
    of_root.kill().unwrap();
    of_root.wait().unwrap();
    asked.daemon.stop();
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn the_group_of_a_given_socket_reads_all() {
    if !can_be_run() {
        return;
    }
    if Command::new("python3").arg("--version").output().is_err() {
        return util::skipped("python3 is missing");
    }
    let Some(ground) = Ground::take() else { return };
    open(ground.scratch.path());
    let socket = ground.scratch.path().join("given");
    // A socket unit with SocketMode=0666 and SocketGroup=.
    let activate = "import os, socket, sys
given = socket.socket(socket.AF_UNIX)
given.bind(sys.argv[1])
os.chown(sys.argv[1], 0, int(sys.argv[2]))
os.chmod(sys.argv[1], 0o666)
given.listen()
os.dup2(given.fileno(), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid()), LISTEN_FDNAMES='tenantd.socket')
os.execv(sys.argv[3], sys.argv[3:])
";
    let plain = ground.enforce("tenants: { hidden: {} }");
    let mut command = Command::new("python3");
    command.args(["-c", activate]).arg(&socket).arg(GROUP.to_string());
    command.arg(plain.get_program()).args(plain.get_args());
    let daemon = Daemon::start(&mut command);
    wait_until("the given socket", || socket.exists());
    let status = |groups: &[u32]| {
        util::run(&mut as_user(USER, groups, &socket, &["status", "--json"])).exits(0)
    };
    // A service with SupplementaryGroups= is such a process.
    assert_eq!(json(&status(&[GROUP]))["tenants"][0]["name"], "hidden");
    assert_eq!(json(&status(&[GROUP + 1]))["tenants"], serde_json::json!([]));
    status(&[]).says(&format!("the group {GROUP} sees all: sudo "));
    daemon.stop();
}
