//! What users can use up of the daemon: root is served, and no work of others is handed over.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Command;

use serde_json::json;
use tenantd_host::cgroup::Facet;

use super::ask::Asked;
use super::ground::Ground;
use super::jobs::{Client, jobs, nr_open_files};
use crate::util::{self, wait_until};

fn policy(nr_tenants: usize) -> String {
    let tenants: Vec<String> = (0..nr_tenants).map(|number| format!("t{number}: {{}}")).collect();
    format!("tenants: {{ {} }}", tenants.join(", "))
}

/// Where users and tenants have taken every descriptor, an administrator connects, reloads, and stops the daemon, which restores.
#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn root_is_served_without_a_descriptor_left() {
    let Some(ground) = Ground::take() else { return };
    let before = ground.snapshot();
    let asked = Asked::on(ground, &policy(2));
    let pid = asked.daemon.pid().to_string();
    let limit = Command::new("prlimit").args(["--pid", &pid, "--nofile=256:256"]).status();
    assert!(limit.unwrap().success());
    asked.write(&policy(60));
    asked.ask(&["reload"]);
    // A tenant opens all of its files or none; clients take the few that are left.
    let socket = asked.ground.state_dir().join("socket");
    let mut clients: Vec<UnixStream> = Vec::new();
    wait_until("no descriptor left", || {
        clients.extend((clients.len() < 16).then(|| UnixStream::connect(&socket).unwrap()));
        nr_open_files(&asked) >= 192
    });
    for _ in 0..3 {
        asked.ask(&["status"]).exits(0);
    }
    asked.write(&policy(2));
    asked.ask(&["reload"]).exits(0);
    asked.daemon.stop();
    util::assert_same(&before, &asked.ground.snapshot(), "after the stop");
}

/// The files of a job are closed when only what it left behind runs.
#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn a_job_that_lingers_keeps_no_file_open() {
    let Some(asked) = Asked::begin("tenants: { a: {} }") else { return };
    let submit = || Client::submit(&asked, &json!({ "tenant": "a" }), &["cat"]);
    let mut first = submit();
    first.starts();
    first.end();
    wait_until("no job", || jobs(&asked).is_empty());
    let before = nr_open_files(&asked);
    let script = "sleep 1000 <&- >&- 2>&- & echo $!";
    let daemons: Vec<i32> = (0..4)
        .map(|_| {
            let mut client =
                Client::submit(&asked, &json!({ "tenant": "a" }), &["sh", "-c", script]);
            client.starts();
            let daemon = client.says().as_i64().unwrap() as i32;
            util::ended(&mut client.child);
            daemon
        })
        .collect();
    let lingering = || jobs(&asked).iter().filter(|job| job["state"] == "lingering").count();
    wait_until("jobs that linger", || lingering() == 4);
    wait_until("closed files", || nr_open_files(&asked) <= before + 2);
    // Their use is charged, and their end is seen.
    for daemon in daemons {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(daemon), nix::sys::signal::SIGKILL)
            .unwrap();
    }
    wait_until("no job", || jobs(&asked).is_empty());
    asked.daemon.stop();
}

/// On legacy hierarchies one path has processes of its own in each tree.
#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn a_user_hands_over_no_memory_of_others() {
    let Some(mut ground) = Ground::take() else { return };
    if ground.layout.is_unified() {
        return util::skipped("there is one tree");
    }
    ground.make("x");
    let path = format!("/{}/x", ground.name);
    // A tree of which the tests have a part alone has another cgroup at this path.
    let cpu = ground.layout.tree(Facet::Cpu);
    let trees = ground.layout.trees.iter().enumerate();
    let mut same = trees.filter(|(number, tree)| {
        Some(*number) != cpu && tree.is_for_all() && tree.dir_of(&path) == tree.root.join("x")
    });
    let Some((_, tree)) = same.next() else {
        return util::skipped("no other tree has this path");
    };
    let list = tree.root.join("x/cgroup.procs");
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "1500", "--clear-groups", "sleep", "1000"]);
    let own = ground.spawn("x", command);
    let mut other = Command::new("sleep").arg("1000").spawn().unwrap();
    fs::write(&list, other.id().to_string()).unwrap();
    wait_until("its user", || {
        let status = fs::read_to_string(format!("/proc/{own}/status")).unwrap();
        status.contains("Uid:\t1500")
    });
    let asked = Asked::on(ground, "tenants: { a: { allow: { users: [1500] } } }");
    for open in [asked.ground.scratch.path().to_path_buf(), asked.ground.state_dir()] {
        fs::set_permissions(open, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let attach = || {
        let mut command = Command::new("setpriv");
        let tenantctl = util::tenantctl().get_program().to_os_string();
        command.args(["--reuid", "1500", "--clear-groups"]).arg(tenantctl);
        command.args(["attach", "a", "--cgroup", &path, "--socket"]).arg(asked.socket());
        util::run(&mut command)
    };
    attach().exits(77).says("is not yours (UID 1500) but of");
    other.kill().unwrap();
    other.wait().unwrap();
    attach().exits(0);
    asked.daemon.stop();
}

/// A real-time process stays in every tree, with one finding, and a job's command that asks for such a policy is explained.
#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn a_real_time_process_stays_where_it_is() {
    let Some(ground) = Ground::take() else { return };
    let file = ground.dir(Facet::Cpu, "").join("cpu.rt_runtime_us");
    if !fs::read_to_string(&file).is_ok_and(|text| text.trim() == "0") {
        return util::skipped("real-time tasks need no time of their cgroup here");
    }
    let mut command = Command::new("chrt");
    command.args(["-f", "10", "setpriv", "--reuid", "1501", "--clear-groups", "sleep", "1000"]);
    let mut real_time = command.spawn().unwrap();
    let mut normal = Command::new("setpriv");
    normal.args(["--reuid", "1501", "--clear-groups", "sleep", "1000"]);
    let mut normal = normal.spawn().unwrap();
    let places = |pid: u32| fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let before = places(real_time.id());
    let asked = Asked::on(ground, "tenants: { a: { match: { users: [1501], move: true } } }");
    let claimed = format!("/{}/a", asked.ground.name);
    wait_until("the normal one in its tenant", || places(normal.id()).contains(&claimed));
    let findings = || -> Vec<String> {
        let status = asked.status();
        let texts = status["findings"].as_array().unwrap().iter().map(|it| it.to_string());
        texts.filter(|text| text.contains("rt_runtime")).collect()
    };
    wait_until("the finding", || !findings().is_empty());
    let first = asked.status()["tick"].as_u64().unwrap();
    wait_until("more searches", || asked.status()["tick"].as_u64().unwrap() > first + 20);
    let findings = findings();
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert!(findings[0].contains("1 real-time process stays"), "{findings:?}");
    assert_eq!(places(real_time.id()), before, "it stays in all trees");
    let mut run = util::tenantctl();
    run.args(["run", "--tenant", "a", "--socket"]).arg(asked.socket());
    util::run(run.args(["--", "chrt", "-f", "10", "true"])).says("cpu.rt_runtime_us");
    asked.daemon.stop();
    for child in [&mut real_time, &mut normal] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
