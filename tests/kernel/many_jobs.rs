//! Many jobs one after the other, and many submissions at once: nothing grows and nothing is left.
//!
//! `TENANTD_JOBS` is their number (10000 for the bar; a few hundred by default).

use std::fs;
use std::process::Stdio;

use serde_json::json;

use super::ask::Asked;
use super::ground::Ground;
use super::jobs::{Client, command, has_no_job_cgroups, is_empty, jobs, nr_open_files};
use crate::util::{assert_same, wait_until};

const AT_ONCE: usize = 100;

fn nr_jobs() -> usize {
    std::env::var("TENANTD_JOBS").ok().and_then(|text| text.parse().ok()).unwrap_or(300)
}

/// Resident memory of the daemon, in KiB.
fn resident(asked: &Asked) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", asked.daemon.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// The files of the state directory and below, except those of the waiting and of the finished jobs: each is one, and
/// is written when there is time.
fn nr_files(asked: &Asked) -> usize {
    let mut dirs = vec![asked.ground.state_dir()];
    let mut count = 0;
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap().flatten() {
            if entry.path().is_dir() {
                dirs.push(entry.path())
            } else {
                let name = entry.file_name();
                count += usize::from(name != "queue.json" && name != "finished.json")
            }
        }
    }
    count
}

fn run(asked: &Asked, count: usize) {
    for _ in 0..count.div_ceil(AT_ONCE) {
        let arguments = ["--each", &AT_ONCE.to_string(), "true"];
        let mut all = command(asked, &json!({ "tenant": "a" }), &arguments);
        let output = all.stdout(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(said.lines().last(), Some("failed 0"), "{said}");
    }
    wait_until("no job", || is_empty(asked));
    wait_until("no cgroup of a job", || has_no_job_cgroups(asked, "a"));
}

/// After thousands of jobs the cgroup tree, the state directory and the daemon's open files are what they were, and its
/// memory is that of the first hundred.
#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn many_jobs_leave_nothing() {
    let Some(ground) = Ground::take() else { return };
    let before = ground.snapshot();
    let asked = Asked::on(ground, "admission: { max_running: 8 }\ntenants: { a: {} }");
    run(&asked, AT_ONCE);
    let (files, open, memory) = (nr_files(&asked), nr_open_files(&asked), resident(&asked));
    run(&asked, nr_jobs());
    wait_until("no file more than before in the state directory", || nr_files(&asked) <= files);
    wait_until("no file more than before", || nr_open_files(&asked) <= open);
    let grown = resident(&asked).saturating_sub(memory);
    println!("{} jobs: resident {memory} KiB, then {grown} KiB more", nr_jobs());
    assert!(grown < 2048, "{grown} KiB more than after the first {AT_ONCE}");
    let Asked { ground, daemon, .. } = asked;
    daemon.stop();
    assert_same(&before, &ground.snapshot(), "after the stop");
}

/// However many one user submits, so many wait as may, and each of the others gets a clear answer.
#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn submissions_of_one_user_are_bounded() {
    let policy = "admission: { max_running: 1, max_waiting_per_user: 50 }\ntenants: { a: {} }";
    let Some(asked) = Asked::begin(policy) else { return };
    let mut first = Client::submit(&asked, &json!({ "tenant": "a" }), &["cat"]);
    first.starts();
    // These wait until the first ends; what comes beyond them is refused at once.
    let mut waiting = command(&asked, &json!({ "tenant": "a" }), &["--each", "50", "true"]);
    let waiting = waiting.stdout(Stdio::piped()).spawn().unwrap();
    wait_until("a full queue", || jobs(&asked).len() == 51);
    let memory = resident(&asked);
    let mut nr_refused = 0;
    for _ in 0..nr_jobs().div_ceil(AT_ONCE) {
        let arguments = ["--each", &AT_ONCE.to_string(), "true"];
        let mut more = command(&asked, &json!({ "tenant": "a" }), &arguments);
        let output = more.stdout(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        nr_refused += said.matches("io.tenantd.Jobs.QueueFull").count();
        assert!(said.contains("50 jobs of yours wait, as many as may"), "{said}");
    }
    assert_eq!(nr_refused, nr_jobs().div_ceil(AT_ONCE) * AT_ONCE);
    assert_eq!(jobs(&asked).len(), 51);
    let grown = resident(&asked).saturating_sub(memory);
    println!("{nr_refused} refused: resident {memory} KiB, then {grown} KiB more");
    assert!(grown < 2048, "{grown} KiB");
    first.end();
    let said = waiting.wait_with_output().unwrap().stdout;
    assert_eq!(String::from_utf8(said).unwrap().lines().last(), Some("failed 0"));
    wait_until("no job", || is_empty(&asked));
    asked.daemon.stop();
}
