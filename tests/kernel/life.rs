//! `tenantd` as a user runs it: shares of real load, a second one, tenants that come and go.

use std::fs;

use tenantd_host::cgroup::Facet;

use super::ground::{Daemon, Ground};
use crate::util::{self, assert_same, wait_until};

const ONE_TO_FOUR: &str = "tenants: { a: { weight: 100 }, b: { weight: 400 } }";

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn saturating_load_is_shared_by_weight() {
    let Some(mut ground) = Ground::take() else { return };
    let daemon = Daemon::start(&mut ground.enforce(ONE_TO_FOUR));
    wait_until("the tenants", || ground.weight("a").is_some() && ground.weight("b").is_some());
    // One CPU for both: they have to share, however many there are.
    let cpus = std::thread::available_parallelism().unwrap().get();
    for tenant in ["a", "b"] {
        ground.load(tenant, &format!("threads={}", 2 * cpus));
    }
    let ratio = ground.ratio_of_use(["a", "b"]);
    assert!((2.5..6.0).contains(&ratio), "1 : {ratio}");
    daemon.stop();
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn a_second_daemon_names_the_first() {
    let Some(ground) = Ground::take() else { return };
    let first = Daemon::start(&mut ground.enforce(ONE_TO_FOUR));
    wait_until("weights of ours", || ground.is_weighed("a") && ground.is_weighed("b"));
    // The last value of the first tick; the unified hierarchy has another file, which holds this from the start.
    let protection = ground.dir(Facet::Memory, "b").join("memory.soft_limit_in_bytes");
    wait_until("protection of ours", || {
        fs::read_to_string(&protection).map_or(true, |text| text.trim() == "0")
    });
    let before = ground.snapshot();
    util::run(&mut ground.enforce(ONE_TO_FOUR))
        .exits(1)
        .says_in_one_line("is in use by another tenantd: stop it first");
    let mut elsewhere = util::tenantd();
    elsewhere.arg("--state-dir").arg(ground.scratch.path().join("other"));
    elsewhere.arg("--policy").arg(ground.policy(ONE_TO_FOUR)).arg("--root").arg(&ground.name);
    util::run(&mut elsewhere).exits(1).says_in_one_line("is managed by another tenantd");
    util::run(ground.tenantd().arg("--restore"))
        .exits(1)
        .says_in_one_line("is in use by another tenantd");
    assert_same(&before, &ground.snapshot(), "under the first daemon");
    first.stop();
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn a_tenant_that_is_removed_is_made_again() {
    let Some(mut ground) = Ground::take() else { return };
    let daemon = Daemon::start(&mut ground.enforce(ONE_TO_FOUR));
    wait_until("a weight of ours", || ground.is_weighed("b"));
    let ours = ground.weight("b");
    for round in 0..3 {
        ground.load("b", "threads=1");
        ground.remove("b");
        wait_until(&format!("b again, round {round}"), || {
            ground.homes().all(|tree| tree.root.join("b").exists()) && ground.weight("b") == ours
        });
    }
    daemon.stop();
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn what_someone_else_writes_is_repaired() {
    let Some(ground) = Ground::take() else { return };
    let daemon = Daemon::start(&mut ground.enforce(ONE_TO_FOUR));
    wait_until("a weight of ours", || ground.is_weighed("b"));
    let ours = ground.weight("b");
    fs::write(ground.weight_file("b"), "9999").unwrap();
    wait_until("the repair", || ground.weight("b") == ours);
    daemon.says("someone else wrote here");
    assert_eq!(daemon.said().matches("someone else wrote here").count(), 1, "{}", daemon.said());
    daemon.stop();
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn observing_writes_nothing() {
    let Some(mut ground) = Ground::take() else { return };
    ground.make("a");
    ground.give_values("a");
    ground.load("a", "threads=1 memory=1048576");
    let before = ground.snapshot();
    let daemon = Daemon::start(ground.enforce(ONE_TO_FOUR).arg("--observe"));
    daemon.says("started");
    let ticks = ground.used_sec("a") + 0.5;
    wait_until("some ticks", || ground.used_sec("a") > ticks);
    assert_same(&before, &ground.snapshot(), "while observed");
    daemon.stop();
    assert_same(&before, &ground.snapshot(), "after observing");
    assert!(!ground.state_dir().exists(), "an observer keeps no journal");
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn once_decides_writes_and_leaves_the_values_until_they_are_restored() {
    let Some(mut ground) = Ground::take() else { return };
    ground.make("a");
    ground.give_values("a");
    ground.load("a", "threads=1");
    let before = ground.snapshot();
    util::run(ground.enforce(ONE_TO_FOUR).arg("--once")).exits(0);
    assert_ne!(ground.weight("a"), Some(77.0));
    assert!(ground.weight("b").is_some());
    util::run(ground.tenantd().arg("--restore")).exits(0).says("restored the values");
    assert_same(&before, &ground.snapshot(), "after --once and --restore");
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn a_memory_limit_below_usage_kills_no_process() {
    let Some(mut ground) = Ground::take() else { return };
    ground.make("a");
    let pid = ground.load("a", "memory=134217728");
    let file = ground.dir(Facet::Memory, "a").join(if ground.layout.is_unified() {
        "memory.current"
    } else {
        "memory.usage_in_bytes"
    });
    let current = || fs::read_to_string(&file).unwrap().trim().parse::<u64>().unwrap();
    wait_until("128 MiB in use", || current() > 128 << 20);
    let daemon = Daemon::start(&mut ground.enforce("tenants: { a: { limit: { memory: 64MiB } } }"));
    daemon.says("memory limit 64MiB not set yet");
    assert!(ground.pids("a").contains(&pid));
    ground.say(pid, "memory=0");
    let limit = ground.dir(Facet::Memory, "a").join(if ground.layout.is_unified() {
        "memory.max"
    } else {
        "memory.limit_in_bytes"
    });
    wait_until("the limit", || fs::read_to_string(&limit).unwrap().trim() == "67108864");
    assert!(ground.pids("a").contains(&pid));
    daemon.stop();
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn the_legacy_host_of_a_hybrid_has_no_controllers_for_a_unified_policy() {
    let Some(ground) = Ground::take() else { return };
    if ground.layout.is_unified() {
        return util::skipped("this machine has the unified hierarchy alone");
    }
    let before = ground.snapshot();
    let ran =
        util::run(&mut ground.enforce(&format!("host: {{ hierarchy: unified }}\n{ONE_TO_FOUR}")));
    let words = match ground.layout.tree(Facet::Pressure) {
        Some(_) => "neither the cpu nor the memory controller is available",
        None => "is not mounted here",
    };
    ran.exits(1).says_in_one_line(words);
    assert_same(&before, &ground.snapshot(), "after a start that failed");
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn a_tenant_cannot_fork_beyond_its_limit() {
    let Some(mut ground) = Ground::take() else { return };
    if ground.layout.tree(Facet::Pids).is_none() {
        return util::skipped("this machine has no pids controller");
    }
    let before = ground.snapshot();
    let daemon =
        Daemon::start(&mut ground.enforce("tenants: { a: { limit: { pids: 5 } }, b: {} }"));
    let file = |tenant: &str| ground.dir(Facet::Pids, tenant).join("pids.max");
    let (limited, free) = (file("a"), file("b"));
    let holds = |path: &std::path::Path| fs::read_to_string(path).unwrap_or_default();
    wait_until("the limit", || holds(&limited).trim() == "5");
    assert_eq!(holds(&free).trim(), "max");
    let mut forks = std::process::Command::new("sh");
    forks.stdin(std::process::Stdio::piped());
    forks.args(["-c", "read go; for i in 1 2 3 4 5 6 7 8; do sleep 1000 & done; wait"]);
    let pid = ground.spawn("a", forks);
    ground.say(pid, "go");
    daemon.says("pids.max");
    assert!(ground.pids("a").len() <= 5, "{:?}", ground.pids("a"));
    for pid in ground.pids("a") {
        let pid = nix::unistd::Pid::from_raw(pid as i32);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).ok();
    }
    ground.end(pid);
    wait_until("the end of the forks", || ground.pids("a").is_empty());
    daemon.stop();
    assert_same(&before, &ground.snapshot(), "stopped");
}
