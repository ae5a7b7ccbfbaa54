//! Sets of tasks and jobs that wait for others, through a real daemon.

use std::fs::{self, OpenOptions};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use serde_json::Value;
use tenantd_host::cgroup::Facet;

use super::ground::{Daemon, Ground};
use super::run::daemon;
use crate::util::{self, Ran, wait_until};

/// A daemon with a place for the files of tasks.
pub(super) struct Set {
    pub(super) ground: Ground,
    pub(super) daemon: Option<Daemon>,
}

impl Set {
    pub(super) fn begin() -> Option<Set> {
        let ground = Ground::take()?;
        let daemon = Some(daemon(&ground));
        wait_until("the tenant", || ground.weight("ci").is_some());
        Some(Set { ground, daemon })
    }

    pub(super) fn tenantctl(&self, arguments: &[&str]) -> Command {
        let mut command = util::tenantctl();
        command.arg("--socket").arg(self.ground.state_dir().join("socket")).args(arguments);
        command.env("XDG_STATE_HOME", self.ground.scratch.path().join("home"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(super) fn ask(&self, arguments: &[&str]) -> Ran {
        util::run(&mut self.tenantctl(arguments))
    }

    pub(super) fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.ask(arguments).exits(0).out).unwrap()
    }

    fn run(&self, options: &[&str], script: &str) -> Child {
        let arguments = [&["run", "--tenant", "ci"], options, &["--", "sh", "-c", script]].concat();
        self.tenantctl(&arguments).spawn().unwrap()
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.ground.scratch.path().join(name)
    }

    /// A script that notes its index and then waits at a gate.
    fn gated(&self) -> String {
        let (starts, gate) = (self.file("starts"), self.file("gate"));
        if !gate.exists() {
            mkfifo(&gate, Mode::S_IRWXU).unwrap();
        }
        format!("echo {{index}} >> {}; cat {} > /dev/null", starts.display(), gate.display())
    }

    /// Opens the gate for the scripts that wait at it.
    pub(super) fn open_gate(&self) {
        drop(OpenOptions::new().read(true).write(true).open(self.file("gate")).unwrap());
    }

    /// Indices in the order of their starts.
    fn starts(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.file("starts")).unwrap_or_default();
        let mut starts: Vec<u32> = text.lines().map(|line| line.parse().unwrap()).collect();
        // Tasks that start together write in any order.
        starts.sort_unstable();
        starts
    }

    /// The tasks of the only job that is not finished.
    fn tasks(&self) -> Value {
        let list = self.json(&["jobs", "--json"]);
        list["jobs"][0]["tasks"].clone()
    }

    pub(super) fn last_finished(&self) -> Value {
        let list = self.json(&["jobs", "--all", "--json"]);
        list["finished"].as_array().and_then(|all| all.last()).cloned().unwrap_or_default()
    }

    fn nr_cgroups(&self) -> usize {
        self.nr_cgroups_of("ci")
    }

    /// Cgroups of jobs of a tenant.
    pub(super) fn nr_cgroups_of(&self, tenant: &str) -> usize {
        let entries = fs::read_dir(self.ground.dir(Facet::Cpu, tenant)).unwrap();
        entries.filter(|entry| entry.as_ref().unwrap().path().is_dir()).count()
    }

    /// Opens the gate until a set has ended.
    fn finish(&self, mut set: Child) -> Ran {
        wait_until("the end of the set", || {
            self.open_gate();
            set.try_wait().unwrap().is_some()
        });
        util::finish(set)
    }
}

#[test]
#[ignore = "makes cgroups"]
fn each_task_of_a_set_runs_once_and_nothing_is_left() {
    let Some(set) = Set::begin() else { return };
    let starts = set.file("starts");
    let script = format!(
        "test $TENANTD_ARRAY_INDEX = {{index}} && grep -q /ci/job- /proc/self/cgroup && echo {{index}} >> {}",
        starts.display()
    );
    let ran = util::finish(set.run(&["--array", "1-300"], &script)).exits(0);
    assert_eq!((ran.out, ran.err), (String::new(), String::new()));
    let mut indices = set.starts();
    indices.sort_unstable();
    assert_eq!(indices, (1..=300).collect::<Vec<u32>>());
    wait_until("the record", || set.last_finished()["tasks"]["succeeded"] == 300);
    let record = set.last_finished();
    assert_eq!((&record["id"], &record["exit_code"]), (&1.into(), &0.into()), "one record");
    wait_until("the cgroup to be removed", || set.nr_cgroups() == 0);
    assert_eq!(set.json(&["jobs", "--json"])["jobs"], Value::Array(Vec::new()));
    set.daemon.unwrap().stop();
}

#[test]
#[ignore = "makes cgroups"]
fn failed_tasks_are_counted_and_may_stop_a_set() {
    let Some(set) = Set::begin() else { return };
    // Signals that no shell ignores for what it starts in the background.
    let script = "test {index} != 4 && test {index} != 6 || kill -{index} $$";
    let ran = util::finish(set.run(&["--array", "4-9"], script)).exits(123);
    assert!(ran.err.contains("2 of 6 tasks failed"), "{}", ran.err);
    assert!(ran.err.contains("4 (SIGILL)") && ran.err.contains("6 (SIGABRT)"), "{}", ran.err);
    let options = ["--array", "1-6%1", "--stop-on-failure"];
    let ran = util::finish(set.run(&options, "test {index} != 3")).exits(123);
    assert!(ran.err.contains("1 of 6 tasks failed: 3 (exit code 1); 3 not started"), "{}", ran.err);
    wait_until("the record", || set.last_finished()["tasks"]["succeeded"] == 2);
    let text = set.last_finished()["text"].to_string();
    assert!(text.contains("6 tasks: 2 succeeded, 1 failed, 3 not started"), "{text}");
    set.daemon.unwrap().stop();
}

/// The daemon is killed while tasks run and others wait: none starts twice, and none is forgotten.
#[test]
#[ignore = "makes cgroups"]
fn a_set_outlives_the_daemon() {
    let Some(mut set) = Set::begin() else { return };
    let script = set.gated();
    let child = set.run(&["--array", "1-8%2"], &script);
    wait_until("two tasks", || set.starts().len() == 2);
    wait_until("their figures", || set.tasks()["running"] == 2);
    set.daemon.take().unwrap().signal(Signal::SIGKILL);
    // Both end while no daemon runs.
    let tasks = || fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap();
    wait_until("their ends", || {
        set.open_gate();
        tasks().trim().is_empty()
    });
    assert_eq!(set.starts().len(), 2, "no task starts without a turn");
    set.daemon = Some(daemon(&set.ground));
    wait_until("two more", || set.starts().len() == 4);
    assert_eq!(set.tasks()["succeeded"], 2);
    set.daemon.take().unwrap().signal(Signal::SIGKILL);
    set.daemon = Some(daemon(&set.ground));
    set.finish(child).exits(0);
    let mut indices = set.starts();
    indices.sort_unstable();
    assert_eq!(indices, (1..=8).collect::<Vec<u32>>());
    wait_until("the record", || set.last_finished()["tasks"]["succeeded"] == 8);
    wait_until("the cgroup to be removed", || set.nr_cgroups() == 0);
    set.daemon.take().unwrap().stop();
}

#[test]
#[ignore = "makes cgroups"]
fn a_killed_client_or_task_is_counted_right() {
    let Some(set) = Set::begin() else { return };
    let script = format!("{}; true", set.gated());
    // A task.
    let child = set.run(&["--array", "1-2%1"], &script);
    wait_until("a task", || set.starts().len() == 1);
    let path = format!("/proc/{0}/task/{0}/children", child.id());
    let task: i32 = fs::read_to_string(path).unwrap().trim().parse().unwrap();
    kill(Pid::from_raw(task), Signal::SIGKILL).unwrap();
    wait_until("the next task", || set.starts().len() == 2);
    assert_eq!(set.tasks()["failed"], 1);
    let ran = set.finish(child).exits(123);
    assert!(ran.err.contains("1 of 2 tasks failed: 1 (SIGKILL)"), "{}", ran.err);
    // The client: its tasks linger, and no other one starts.
    let mut child = set.run(&["--array", "1-9%2"], &script);
    wait_until("two tasks", || set.starts().len() == 4);
    wait_until("their figures", || set.tasks()["running"] == 2);
    // Its output stays open: its tasks have it.
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("the record", || set.last_finished()["tasks"]["count"] == 9);
    let tasks = set.last_finished()["tasks"].clone();
    assert_eq!((&tasks["running"], &tasks["succeeded"]), (&2.into(), &0.into()), "{tasks}");
    assert_eq!(set.json(&["jobs", "--json"])["jobs"][0]["state"], "lingering");
    wait_until("the cgroup to be removed", || {
        set.open_gate();
        set.nr_cgroups() == 0
    });
    assert_eq!(set.starts().len(), 4);
    set.daemon.unwrap().stop();
}

#[test]
#[ignore = "makes cgroups"]
fn a_cancelled_set_starts_nothing_more() {
    let Some(set) = Set::begin() else { return };
    let script = set.gated();
    let child = set.run(&["--array", "5-9%2"], &script);
    wait_until("two tasks", || set.starts().len() == 2);
    let shown = set.ask(&["jobs"]).exits(0).out;
    let figures = "5 tasks: 0 succeeded, 2 running, 0 failed, 3 waiting, at most 2 at a time";
    assert!(shown.split_whitespace().collect::<Vec<_>>().join(" ").contains(figures), "{shown}");
    set.ask(&["cancel", "1"]).exits(0);
    util::finish(child);
    wait_until("the record", || set.last_finished()["reason"] == "cancelled");
    wait_until("the cgroup to be removed", || set.nr_cgroups() == 0);
    assert_eq!(set.starts(), [5, 6]);
    set.daemon.unwrap().stop();
}

#[test]
#[ignore = "makes cgroups"]
fn a_job_waits_for_others_and_knows_their_results() {
    let Some(set) = Set::begin() else { return };
    let gated = set.gated().replace("{index}", "1");
    let begin = |options: &[&str], script: &str| {
        let child = set.run(&[&["--background"], options].concat(), script);
        util::finish(child).exits(0).out.trim().to_string()
    };
    let first = begin(&[], &format!("{gated}; exit 3"));
    let second = begin(&["--after", &first], "exit 0");
    let third = begin(&["--after-ok", &second], "exit 0");
    let strict = set.run(&["--after-ok", &first], "exit 0");
    let last = set.run(&["--after", &first, "--after", &third], "exit 0");
    wait_until("all of them", || {
        set.json(&["jobs", "--json"])["jobs"].as_array().unwrap().len() == 5
    });
    let shown = set.ask(&["jobs"]).exits(0).out;
    assert!(shown.contains(&format!("├ {second} sh -c exit 0 (after {first})")), "{shown}");
    assert!(shown.contains(&format!("it waits for the end of job {first}")), "{shown}");
    wait_until("the gate", || set.starts().len() == 1);
    set.open_gate();
    let ran = util::finish(strict).exits(66);
    assert!(
        ran.err.contains(&format!("job {first} had to succeed first, and exited with code 3")),
        "{}",
        ran.err
    );
    util::finish(last).exits(0);
    set.ask(&["wait", &third]).exits(0);
    // Results that are known already.
    util::finish(set.run(&["--after-ok", &third], "exit 0")).exits(0);
    util::finish(set.run(&["--after-ok", &first], "exit 0")).exits(66);
    let ran = util::finish(set.run(&["--after", "99999"], "exit 0")).exits(65);
    assert!(ran.err.contains("no job 99999"), "{}", ran.err);
    set.daemon.unwrap().stop();
}

/// Jobs that wait for others keep their numbers, and so their order, when the daemon is killed.
#[test]
#[ignore = "makes cgroups"]
fn waiting_jobs_keep_their_numbers() {
    let Some(mut set) = Set::begin() else { return };
    let gated = set.gated().replace("{index}", "1");
    let first = set.run(&["--background"], &gated);
    let first = util::finish(first).exits(0).out.trim().to_string();
    let second = set.run(&["--background", "--after-ok", &first], "exit 0");
    let second = util::finish(second).exits(0).out.trim().to_string();
    let third = set.run(&["--after-ok", &second], "exit 0");
    wait_until("all of them", || {
        set.json(&["jobs", "--json"])["jobs"].as_array().unwrap().len() == 3
    });
    set.daemon.take().unwrap().signal(Signal::SIGKILL);
    set.daemon = Some(daemon(&set.ground));
    let ids = || {
        let list = set.json(&["jobs", "--json"]);
        let jobs = list["jobs"].as_array().unwrap().iter();
        jobs.map(|job| job["id"].as_u64().unwrap()).collect::<Vec<u64>>()
    };
    wait_until("their return", || ids() == [1, 2, 3]);
    wait_until("the gate", || set.starts().len() == 1);
    set.open_gate();
    util::finish(third).exits(0);
    set.ask(&["wait", &second]).exits(0);
    set.daemon.take().unwrap().stop();
}
