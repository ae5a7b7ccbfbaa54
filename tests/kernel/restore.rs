//! However `tenantd` ends, every file holds what it held before, and what it made is gone.

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use tenantd_host::cgroup::Facet;

use super::ground::{Daemon, Ground};
use crate::util::{self, Snapshot, assert_same, wait_until};

/// An adopted tenant, one that is made, and a group of them.
const POLICY: &str = "\
tenants:
  a: { weight: 100, limit: { cpu: 1, memory: 1GiB } }
  b: { weight: 400 }
  ci: { limit: { memory: 2GiB }, tenants: { nightly: {}, pulls: { weight: 3 } } }
";

/// A daemon that has begun to enforce [`POLICY`], and what was there before.
fn enforced(ground: &mut Ground) -> (Daemon, Snapshot) {
    let daemon = ground.enforce(POLICY);
    enforced_by(ground, daemon)
}

fn enforced_by(ground: &mut Ground, mut daemon: Command) -> (Daemon, Snapshot) {
    ground.make("a");
    ground.give_values("a");
    ground.load("a", "threads=2 memory=16777216");
    let before = ground.snapshot();
    let daemon = Daemon::start(&mut daemon);
    wait_until("all values", || {
        let protected = ["memory.soft_limit_in_bytes", "memory.low"].iter().any(|name| {
            let text = fs::read_to_string(ground.dir(Facet::Memory, "a").join(name));
            text.is_ok_and(|text| text.trim() != "1048576")
        });
        let weighed = ground.is_weighed("b") && ground.is_weighed("ci/pulls");
        ground.weight("a") != Some(77.0) && weighed && protected
    });
    (daemon, before)
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn sigterm_and_sigint_restore_everything() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let Some(mut ground) = Ground::take() else { return };
        let (daemon, before) = enforced(&mut ground);
        let (status, said) = daemon.signal(signal);
        assert!(status.success(), "{status}: {said}");
        assert_same(&before, &ground.snapshot(), signal.as_str());
        assert!(!ground.state_dir().join("journal").exists(), "a journal is left");
    }
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn a_restore_follows_a_kill() {
    let Some(mut ground) = Ground::take() else { return };
    let (daemon, before) = enforced(&mut ground);
    daemon.signal(Signal::SIGKILL);
    assert_ne!(ground.weight("a"), Some(77.0), "a killed daemon puts nothing back");
    util::run(ground.tenantd().arg("--restore")).exits(0).says("restored the values");
    assert_same(&before, &ground.snapshot(), "after --restore");
    util::run(ground.tenantd().arg("--restore")).exits(0).says_in_one_line("nothing to restore");
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn kept_values_are_restored_only_on_request() {
    let Some(mut ground) = Ground::take() else { return };
    let keeping = |ground: &Ground| {
        let (daemon, path) = (ground.enforce(POLICY), ground.scratch.path().join("policy.yaml"));
        let policy = fs::read_to_string(&path).unwrap();
        fs::write(&path, policy.replace("control: {", "control: { on_exit: keep,")).unwrap();
        daemon
    };
    let keep = keeping(&ground);
    let (daemon, before) = enforced_by(&mut ground, keep);
    daemon.signal(Signal::SIGTERM);
    let kept = ground.snapshot();
    let after_a_stop = ["--restore", "--unless-kept"];
    util::run(ground.tenantd().args(after_a_stop)).exits(0).says("on purpose");
    assert_same(&kept, &ground.snapshot(), "kept");
    util::run(ground.tenantd().arg("--restore")).exits(0).says("restored the values");
    assert_same(&before, &ground.snapshot(), "after --restore");
    let daemon = Daemon::start(&mut keeping(&ground));
    wait_until("values", || ground.is_weighed("ci/pulls"));
    daemon.signal(Signal::SIGKILL);
    util::run(ground.tenantd().args(after_a_stop)).exits(0).says("restored the values");
    assert_same(&before, &ground.snapshot(), "after a kill");
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn the_next_start_follows_a_kill() {
    let Some(mut ground) = Ground::take() else { return };
    let (daemon, before) = enforced(&mut ground);
    daemon.signal(Signal::SIGKILL);
    let second = Daemon::start(&mut ground.enforce(POLICY));
    second.says("left changes on this host");
    wait_until("its own values", || ground.is_weighed("ci/pulls"));
    second.stop();
    assert_same(&before, &ground.snapshot(), "after the second daemon");
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn processes_in_a_made_tenant_outlive_it() {
    let Some(mut ground) = Ground::take() else { return };
    let daemon = Daemon::start(&mut ground.enforce(POLICY));
    wait_until("the tenants", || ground.weight("ci/pulls").is_some());
    let pid = ground.load("ci/pulls", "threads=1");
    daemon.stop();
    assert_eq!(ground.pids(""), [pid]);
    assert!(!ground.dir(Facet::Cpu, "ci").exists());
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn claimed_processes_move_with_their_children_and_back() {
    let Some(ground) = Ground::take() else { return };
    claim_and_give_back(ground);
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn claimed_processes_leave_a_tenant_that_was_there_before() {
    let Some(ground) = Ground::take() else { return };
    ground.make("tenants");
    ground.make("tenants/ci");
    claim_and_give_back(ground);
}

fn claim_and_give_back(mut ground: Ground) {
    ground.make("build");
    let mut shell = Command::new("sh");
    shell.args(["-c", "while read line; do sleep 1000 & done; kill $!"]).stdin(Stdio::piped());
    let parent = ground.spawn("build", shell);
    let tree = &ground.layout.trees[ground.layout.tree(Facet::Cpu).unwrap()];
    let pattern = tree.root.strip_prefix(&tree.mount).unwrap().join("build");
    let yaml = format!(
        "tenants: {{ ci: {{ match: {{ cgroup: {}, move: true }} }} }}",
        std::path::Path::new("/").join(pattern).display()
    );
    // The tenants' root is another one than where the build runs, or it would be in its place already.
    let mut command = ground.tenantd();
    command.arg("--policy").arg(ground.policy(&yaml));
    command.arg("--root").arg(format!("{}/tenants", ground.name));
    let before = ground.snapshot();
    let daemon = Daemon::start(&mut command);
    wait_until("the claim", || ground.pids("tenants/ci") == [parent]);
    assert!(ground.pids("build").is_empty());
    ground.say(parent, "fork");
    wait_until("a child", || ground.pids("tenants/ci").len() == 2);
    daemon.stop();
    let mut home = ground.pids("build");
    assert_eq!(home.len(), 2, "{home:?}");
    home.retain(|pid| *pid != parent);
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(home[0] as i32), Signal::SIGKILL).unwrap();
    wait_until("the child's end", || ground.pids("build") == [parent]);
    assert_same(&before, &ground.snapshot(), "after the claims went back");
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn no_value_is_written_that_cannot_be_journaled() {
    let Some(mut ground) = Ground::take() else { return };
    ground.make("a");
    ground.give_values("a");
    ground.load("a", "threads=1");
    let before = ground.snapshot();
    let daemon = ground.enforce(POLICY);
    // A file that may not grow is as full as a disk; the shell keeps the signal for it from killing.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$@\"", "sh"]);
    command.arg(daemon.get_program()).args(daemon.get_args());
    let daemon = Daemon::start(&mut command);
    daemon.says("nothing was written, because it could not be recorded first");
    daemon.stop();
    assert_same(&before, &ground.snapshot(), "after a full disk");
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn a_full_disk_after_a_kill_does_not_prevent_the_restore() {
    let Some(mut ground) = Ground::take() else { return };
    let (daemon, before) = enforced(&mut ground);
    daemon.signal(Signal::SIGKILL);
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$@\"", "sh"]);
    let restore = ground.tenantd();
    command.arg(restore.get_program()).args(restore.get_args()).arg("--restore");
    util::run(&mut command).exits(0).says("restored the values");
    assert_same(&before, &ground.snapshot(), "with a full disk");
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn a_damaged_journal_still_restores_its_intact_entries() {
    let Some(mut ground) = Ground::take() else { return };
    let (daemon, _) = enforced(&mut ground);
    daemon.signal(Signal::SIGKILL);
    let path = ground.state_dir().join("journal");
    let text = fs::read_to_string(&path).unwrap();
    let line =
        text.lines().position(|line| line.contains("cpu.shares") || line.contains("cpu.weight"));
    let at: usize = text.lines().take(line.unwrap()).map(|line| line.len() + 1).sum();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(b"\xff\xff", at as u64 + 5).unwrap();
    file.set_len(text.len() as u64 - 3).unwrap();
    let ran = util::run(ground.tenantd().arg("--restore")).exits(1).says("restored the values");
    assert_eq!(ran.err.matches("this line is damaged").count(), 1, "{}", ran.err);
    assert_eq!(ran.err.matches("cut off and was skipped").count(), 1, "{}", ran.err);
    assert!(ground.state_dir().join("journal.damaged").exists());
    assert!(ground.weight("b").is_none(), "what was made is gone");
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn processes_of_a_tenant_are_there_again_after_a_restart() {
    let Some(mut ground) = Ground::take() else { return };
    let start = |ground: &mut Ground| {
        let daemon = Daemon::start(&mut ground.enforce(POLICY));
        wait_until("a tenant's cgroup", || ground.is_weighed("b"));
        daemon
    };
    let daemon = start(&mut ground);
    // A shell and its child: the child is of nobody's record, and follows its parent.
    let mut shell = Command::new("sh");
    shell.args(["-c", "read go; sleep 600 & wait"]).stdin(Stdio::piped());
    let shell = ground.spawn("b", shell);
    wait_until("the shell in its place", || ground.pids("b") == [shell]);
    let said = daemon.stop();
    assert!(ground.pids("b").is_empty(), "{said}");
    ground.say(shell, "go");
    let mut child = None;
    wait_until("a child", || {
        let children = fs::read_to_string(format!("/proc/{shell}/task/{shell}/children"));
        child = children.ok().and_then(|text| text.trim().parse::<u32>().ok());
        child.is_some()
    });
    let child = child.unwrap();

    let daemon = start(&mut ground);
    daemon.says("moved displaced processes back");
    let mut lives = ground.pids("b");
    lives.sort_unstable();
    assert_eq!(lives, [shell, child]);
    daemon.stop();
    ground.end(shell);
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(child as i32), Signal::SIGKILL).unwrap();
}
