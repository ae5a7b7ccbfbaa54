//! Jobs that end for others and wait again, through a real daemon.

use std::fs;
use std::path::Path;
use std::process::Child;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::run::daemon;
use super::sets::Set;
use crate::util::{self, wait_until};

/// Seconds by which running jobs are made older: more than the least run before an eviction.
const OLDER: f64 = 120.0;

/// Number of the first job after a kill of the daemon, which sets a thousand numbers aside.
const LATER: u64 = 1002;

/// A job of `nightly` that may be evicted and has the whole machine.
fn evictable(set: &Set, options: &[&str], script: &str) -> Child {
    let slots = 2 * std::thread::available_parallelism().unwrap().get();
    let slots = slots.to_string();
    let first = ["run", "--tenant", "nightly", "--dop", slots.as_str(), "--requeue"];
    let arguments = [&first[..], options, &["--", "sh", "-c", script]].concat();
    set.tenantctl(&arguments).spawn().unwrap()
}

/// Moves the starts of running jobs in the stored queue back. Returns false if none runs.
fn age(state_dir: &Path) -> bool {
    let path = state_dir.join("queue.json");
    let Ok(text) = fs::read(&path) else { return false };
    let Ok(mut kept) = serde_json::from_slice::<Value>(&text) else { return false };
    let inner = kept["queue"].as_str().unwrap_or_default();
    let Ok(mut queue) = serde_json::from_str::<Value>(inner) else { return false };
    let mut has_any = false;
    for (_, job) in queue["jobs"].as_object_mut().unwrap() {
        if let Some(since) = job["state"]["Running"]["since"].as_f64() {
            job["state"]["Running"]["since"] = Value::from(since - OLDER);
            has_any = true;
        }
    }
    kept["queue"] = Value::from(queue.to_string());
    fs::write(&path, kept.to_string()).unwrap();
    has_any
}

/// Restarts the daemon after a kill, with older jobs.
fn restart_later(set: &mut Set) {
    let state_dir = set.ground.state_dir().to_path_buf();
    let is_kept = || {
        let text = fs::read_to_string(state_dir.join("queue.json")).unwrap_or_default();
        text.contains("Running")
    };
    wait_until("the stored queue", is_kept);
    set.daemon.take().unwrap().signal(Signal::SIGKILL);
    assert!(age(&state_dir));
    set.daemon = Some(daemon(&set.ground));
}

fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().lines().map(str::to_string).collect()
}

fn job(set: &Set, id: u64) -> Value {
    let list = set.json(&["jobs", "--json"]);
    let mut jobs = list["jobs"].as_array().unwrap().iter();
    jobs.find(|job| job["id"] == id).cloned().unwrap_or_default()
}

/// A run that ignores SIGTERM and has orphans in another session ends for a job of another tenant, and runs again.
#[test]
#[ignore = "makes cgroups"]
fn an_evicted_job_runs_again_and_nothing_is_left() {
    let Some(mut set) = Set::begin() else { return };
    let (runs, begun) = (set.file("runs"), set.file("begun"));
    let script = format!(
        "echo $TENANTD_RUN >> {0}; test $TENANTD_RUN = 2 && exit 7; trap 'echo term >> {0}' TERM; \
         setsid sh -c 'trap \"\" TERM; while true; do sleep 1000; done' & \
         echo $! > {1}; while true; do wait; done",
        runs.display(),
        begun.display()
    );
    let client = evictable(&set, &["--grace", "1s"], &script);
    wait_until("the first run", || !lines(&begun).is_empty());
    restart_later(&mut set);
    let other = set.tenantctl(&["run", "--tenant", "ci", "--", "sh", "-c", "exit 3"]);
    let mut other = other;
    let other = other.spawn().unwrap();
    util::finish(other).exits(3);
    let ran = util::finish(client).exits(7);
    let expected =
        format!("tenantctl: tenantd ended this job for job {LATER} of ci; it waits again, run 2\n");
    assert_eq!((ran.out, ran.err), (String::new(), expected));
    assert_eq!(lines(&runs)[0], "1");
    assert_eq!(lines(&runs).last().unwrap(), "2");
    assert!(lines(&runs).contains(&"term".to_string()), "{:?}", lines(&runs));
    let orphan: i32 = lines(&begun)[0].parse().unwrap();
    assert!(kill(Pid::from_raw(orphan), None).is_err(), "the orphan has ended");
    wait_until("the record", || set.last_finished()["id"] == 1);
    let record = set.last_finished();
    assert_eq!((&record["exit_code"], &record["run"]), (&7.into(), &2.into()), "{record}");
    assert_eq!(record["text"], "exited with code 7; run 2");
    wait_until("the cgroup to be removed", || set.nr_cgroups_of("nightly") == 0);
    set.daemon.unwrap().stop();
}

/// Both sides of an eviction in the list, and the kill of the daemon and of the client while it is under way.
#[test]
#[ignore = "makes cgroups"]
fn a_kill_during_an_eviction_is_counted_right() {
    let Some(mut set) = Set::begin() else { return };
    let begun = set.file("begun");
    let script =
        format!("trap '' TERM; echo $$ > {}; while true; do sleep 1; done", begun.display());
    let mut client = evictable(&set, &["--grace", "10min"], &script);
    wait_until("the first run", || !lines(&begun).is_empty());
    restart_later(&mut set);
    let other = set.tenantctl(&["run", "--tenant", "ci", "--", "true"]).spawn().unwrap();
    wait_until("the eviction", || job(&set, 1)["eviction"]["ending"] == true);
    let shown = set.ask(&["jobs"]).exits(0).out;
    let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains(&format!("tenantd ends run 1 of this job for job {LATER} of ci")),
        "{shown}"
    );
    wait_until("the reason", || job(&set, LATER)["waiting"]["reason"]["kind"] == "evicting");
    assert_eq!(job(&set, LATER)["waiting"]["reason"]["job"], 1);
    // The stored queue has the eviction.
    let stored = set.ground.state_dir().join("queue.json");
    wait_until("it to be stored", || {
        fs::read_to_string(&stored).unwrap().contains("leaving\\\":{\\\"1")
    });
    set.daemon.take().unwrap().signal(Signal::SIGKILL);
    set.daemon = Some(daemon(&set.ground));
    wait_until("the client", || job(&set, 1)["eviction"]["ending"] == true);
    wait_until("the waiting job", || job(&set, LATER)["state"] == "waiting");
    // The client is killed: what it started runs on, and its slots are free.
    client.kill().unwrap();
    client.wait().unwrap();
    util::finish(other).exits(0);
    wait_until("the record", || set.json(&["jobs", "--json"])["jobs"][0]["state"] == "lingering");
    let process: i32 = lines(&begun)[0].parse().unwrap();
    kill(Pid::from_raw(process), Signal::SIGKILL).unwrap();
    wait_until("the cgroup to be removed", || set.nr_cgroups_of("nightly") == 0);
    assert_eq!(set.json(&["jobs", "--json"])["jobs"], Value::Array(Vec::new()));
    set.daemon.unwrap().stop();
}

/// A signal to the client reaches the command, and the exit code is its own.
#[test]
#[ignore = "makes cgroups"]
fn a_client_passes_signals_and_the_exit_code_on() {
    let Some(set) = Set::begin() else { return };
    let begun = set.file("begun");
    let script =
        format!("trap 'exit 5' TERM; echo > {}; while true; do sleep 0.1; done", begun.display());
    let client = evictable(&set, &[], &script);
    wait_until("the run", || begun.exists());
    kill(Pid::from_raw(client.id() as i32), Signal::SIGTERM).unwrap();
    util::finish(client).exits(5);
    util::finish(evictable(&set, &[], "kill -9 $$")).exits(137);
    wait_until("the record", || set.last_finished()["exit_signal"] == 9);
    util::finish(evictable(&set, &["--background"], "exit 4")).exits(0);
    set.ask(&["wait", "3"]).exits(4);
    wait_until("the cgroup to be removed", || set.nr_cgroups_of("nightly") == 0);
    set.daemon.unwrap().stop();
}
