//! The rest of a part of this machine, which a daemon in a cgroup namespace takes for all of it.

use std::process::Command;

use super::ground::{Daemon, Ground};
use crate::util::{self, assert_same, wait_until};

/// A script with these lines for each hierarchy that the ground is in, which then becomes its arguments.
fn script(ground: &Ground, line: impl Fn(&str, &str) -> String) -> String {
    let trees = ground.layout.trees.iter().filter(|tree| tree.is_for_all());
    let lines = trees.map(|tree| {
        let [root, mount] = [&tree.root, &tree.mount].map(|path| path.display().to_string());
        line(&root, &mount)
    });
    format!("set -e\n{}exec \"$0\" \"$@\"", lines.collect::<String>())
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn cgroups_of_empty_stay_and_loose_processes_are_claimed() {
    let Some(mut ground) = Ground::take() else { return };
    if util::run(Command::new("unshare").args(["-Cm", "true"])).code != Some(0) {
        return util::skipped("no namespaces can be made");
    }
    ["jobs", "jobs/a", "apps", "apps/b"].iter().for_each(|below| ground.make(below));
    let cpus = std::thread::available_parallelism().unwrap().get();
    let busy = format!("threads={}", 2 * cpus);
    ground.load("jobs/a", &busy);
    let app = ground.load("apps/b", &busy);
    let loose = ground.load("", "threads=0");
    let before = ground.snapshot();
    let policy = ground.policy(
        "tenants:\n  a: { weight: 400, match: { cgroup: /jobs/a } }\n  others: { match: rest }\n",
    );
    // The namespace is that of the cgroups which its first process is in, and its mounts are its own.
    let enter = script(&ground, |root, _| format!("echo $$ > {root}/cgroup.procs\n"));
    let bind = script(&ground, |root, mount| format!("mount --bind {root} {mount}\n"));
    let mut command = Command::new("sh");
    command.args(["-c", &enter, "unshare", "-Cm", "--propagation", "private", "sh", "-c", &bind]);
    command.args([crate::programs::path("tenantd"), "--root", "tenants", "--policy"]).arg(policy);
    command.arg("--state-dir").arg(ground.state_dir());
    let daemon = Daemon::start(&mut command);
    wait_until("the loose process to be claimed", || ground.pids("tenants/others") == [loose]);
    let weight = |below| ground.weight(below).unwrap_or(0.0);
    wait_until("the weights", || {
        ground.is_weighed("apps") && weight("jobs") > 2.5 * weight("apps")
    });
    assert_eq!(ground.pids("apps/b"), [app]);
    assert!(!ground.is_weighed("apps/b"), "what is inside of a part is its own");
    daemon.stop();
    assert_eq!(ground.pids(""), [loose]);
    assert_same(&before, &ground.snapshot(), "stopped");
}
