//! Jobs that give way to a guarantee, on this machine's kernel: narrowed, frozen for a while, and always thawed.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::Signal;
use tenantd_host::cgroup::Facet;

use super::ground::{Daemon, Ground};
use crate::util::{self, wait_until};

/// Two tenants: one with a guarantee that is nearly the machine, or in a group that has it, and one with a job. Weights that
/// another program set are left to it, so that the guarantee can be broken.
fn policy(freeze: &str, is_of_group: bool) -> String {
    let cpus = std::thread::available_parallelism().unwrap().get() as f64;
    let guarantee = format!("guarantee: {{ cpu: {} }}", cpus - 0.2);
    let due = if is_of_group {
        format!("site: {{ {guarantee}, tenants: {{ web: {{}} }} }}")
    } else {
        format!("web: {{ {guarantee} }}")
    };
    format!(
        "version: 1\nmode: enforce\nadmission: {{ freeze: {freeze} }}\nhost: {{ reserve: {{ cpu: 0 }} }}\n\
         control: {{ interval: 100ms, on_drift: accept }}\n\
         tenants: {{ {due}, batch: {{}} }}\n",
    )
}

fn daemon(ground: &Ground, policy: String) -> Daemon {
    let policy = util::file(ground.scratch.path(), "policy.yaml", policy);
    let mut command = ground.tenantd();
    let daemon = Daemon::start(command.arg("--policy").arg(policy).arg("--root").arg(&ground.name));
    wait_until("the daemon to answer", || ctl(ground, &["status"]).0);
    daemon
}

/// Whether `tenantctl` with these arguments succeeds, and what it says.
fn ctl(ground: &Ground, arguments: &[&str]) -> (bool, String) {
    let mut command = util::tenantctl();
    command.arg("--socket").arg(ground.state_dir().join("socket")).args(arguments);
    let output = command.output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A job of `batch` that is as busy as the machine allows, killed at the end.
struct Job(Child);

impl Job {
    fn start(ground: &Ground) -> Job {
        let cpus = std::thread::available_parallelism().unwrap().get();
        let script = format!("for i in $(seq {cpus}); do while :; do :; done & done; wait");
        let mut command = util::tenantctl();
        command.arg("--socket").arg(ground.state_dir().join("socket"));
        command.args(["run", "--tenant", "batch", "--", "sh", "-c", &script]);
        Job(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The file that freezes the one job of `batch`.
fn freeze_file(ground: &Ground) -> Option<PathBuf> {
    let tenant = ground.dir(Facet::Pressure, "batch");
    let entries = fs::read_dir(tenant).ok()?.flatten();
    let mut jobs = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("job-"));
    Some(jobs.next()?.path().join("cgroup.freeze"))
}

/// How wide the one job is.
fn width(ground: &Ground) -> Option<u64> {
    let (_, text) = ctl(ground, &["jobs", "--json"]);
    let list: serde_json::Value = serde_json::from_str(&text).ok()?;
    list["jobs"][0]["started"]["dop"].as_u64()
}

fn is_frozen(ground: &Ground) -> bool {
    let file = freeze_file(ground).expect("the cgroup of the job");
    fs::read_to_string(file).unwrap().trim() == "1"
}

/// Breaks the guarantee at `due`, where `web` then has a load: a tiny weight that the agent leaves as it is.
fn starve(ground: &mut Ground, due: &str, web: &str) {
    let cpus = std::thread::available_parallelism().unwrap().get();
    wait_until("the weight", || ground.is_weighed(due));
    ground.load(web, &format!("threads={cpus}"));
    let file = ground.weight_file(due);
    // The agent may write once more before it sees another's value, and the load changes what it wants.
    wait_until("a weight of another program that stays", || {
        fs::write(&file, "2").unwrap();
        ctl(ground, &["status", "--json"]).1.contains("left_to_others")
    });
}

fn begin(freeze: &str) -> Option<(Ground, Daemon, Job)> {
    let mut ground = Ground::take()?;
    if ground.layout.tree(Facet::Pressure).is_none() {
        util::skipped("no tree of the unified hierarchy: nothing can be frozen");
        return None;
    }
    let daemon = daemon(&ground, policy(freeze, false));
    let job = Job::start(&ground);
    wait_until("the job", || freeze_file(&ground).is_some());
    starve(&mut ground, "web", "web");
    Some((ground, daemon, job))
}

/// Without the key no job is frozen, and jobs of others are narrowed.
#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn jobs_of_others_are_narrowed_where_a_guarantee_is_due() {
    let Some((ground, daemon, job)) = begin("off") else { return };
    daemon.says("jobs of others leave");
    wait_until("a narrow job", || width(&ground) == Some(1));
    assert!(!is_frozen(&ground));
    assert!(!daemon.said().contains("is frozen"));
    drop(job);
    daemon.stop();
}

/// A guarantee that only a group has is one as well, whatever its tenants have.
#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn jobs_of_others_are_narrowed_where_the_guarantee_of_a_group_is_due() {
    let Some(mut ground) = Ground::take() else { return };
    let daemon = daemon(&ground, policy("off", true));
    let job = Job::start(&ground);
    wait_until("the job", || width(&ground).is_some());
    starve(&mut ground, "site", "site/web");
    daemon.says("jobs of others leave");
    wait_until("a narrow job", || width(&ground) == Some(1));
    drop(job);
    daemon.stop();
}

/// What is frozen is thawed at the bound, and by the end of the daemon.
#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn a_frozen_job_is_thawed_at_the_bound_and_at_the_end() {
    let Some((ground, daemon, job)) = begin("1s") else { return };
    daemon.says("is frozen: a guarantee is due");
    let used = || ground.used_sec("web");
    let before = used();
    wait_until("work of web", || used() > before + 0.2);
    daemon.says("is thawed");
    wait_until("a thawed job", || !is_frozen(&ground));
    wait_until("the job frozen again", || is_frozen(&ground));
    daemon.stop();
    assert!(!is_frozen(&ground), "the daemon has stopped");
    drop(job);
}

/// After a kill the next daemon thaws it before anything else, and so does a restore.
#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn a_job_that_a_killed_daemon_froze_is_thawed() {
    let Some((ground, first, job)) = begin("10m") else { return };
    wait_until("a frozen job", || is_frozen(&ground));
    let (_, jobs) = ctl(&ground, &["jobs"]);
    assert!(jobs.contains("frozen"), "{jobs}");
    first.signal(Signal::SIGKILL);
    assert!(is_frozen(&ground), "nobody has thawed it yet");
    let mut restore: Command = ground.tenantd();
    util::run(restore.arg("--restore")).exits(0);
    assert!(!is_frozen(&ground), "restored");
    // The restore has taken its tenant's cgroup out of the agent's hands; the job goes on in it.
    let second = daemon(&ground, policy("10m", false));
    wait_until("a thawed job", || !is_frozen(&ground));
    drop(job);
    second.stop();
}
