//! Clients of the queue that do not behave: they claim to be others, end at any point, and let others have their number.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tenantd_host::cgroup::Facet;

use super::ask::Asked;
use super::jobs::{Client, call, has_no_job_cgroups, is_empty, jobs, nr_open_files};
use crate::util::{self, wait_until};

const CLIENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernel/job_clients.py");

fn clients(asked: &Asked, what: &str, more: &[&str]) -> Command {
    let mut command = Command::new("python3");
    command.arg(CLIENTS).arg(what).arg(asked.socket()).arg("a").args(more);
    command.stdout(Stdio::piped());
    command
}

/// A process cannot submit another one: no parameter names one, and the connection decides.
#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn no_message_names_a_process() {
    let Some(asked) = Asked::begin("tenants: { a: {} }") else { return };
    for forged in [json!({ "tenant": "a", "pid": 1 }), json!({ "tenant": "a", "uid": 0 })] {
        let mut client = Client::submit(&asked, &forged, &["cat"]);
        assert_eq!(client.says()["error"], "org.varlink.service.InvalidParameter");
    }
    assert!(is_empty(&asked));
    let started = Client::submit(&asked, &json!({ "tenant": "a" }), &["cat"]).starts();
    assert!(started["id"].is_u64(), "{started}");
    asked.daemon.stop();
}

/// The client of a job that waits ends, its connection stays open elsewhere, and its number becomes that of another
/// process: that one is not moved, and the job does not start.
#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn a_number_that_was_given_again_is_no_job() {
    let Some(asked) = Asked::begin("admission: { max_running: 1 }\ntenants: { a: {} }") else {
        return;
    };
    let mut first = Client::submit(&asked, &json!({ "tenant": "a" }), &["cat"]);
    first.starts();
    let mut child = clients(&asked, "reuse", &[]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut says = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    if says()["pid"].is_null() {
        util::skipped("the kernel gives no process a chosen number (ns_last_pid)");
        util::ended(&mut child);
        return;
    }
    first.end();
    let answer = says();
    assert_eq!(answer["reply"]["error"], "io.tenantd.Manager.Failed", "{answer}");
    assert!(!answer["cgroup"].as_str().unwrap().contains("/job-"), "{answer}");
    util::ended(&mut child);
    wait_until("no job", || is_empty(&asked));
    let next = Client::submit(&asked, &json!({ "tenant": "a" }), &["cat"]).starts();
    assert!(next["id"].is_u64(), "its worker is free again: {next}");
    asked.daemon.stop();
}

/// Clients that are killed before, while and after they submit, wait and start leave nothing behind.
#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn clients_that_are_killed_in_every_state_leave_nothing() {
    let Some(asked) = Asked::begin("admission: { max_running: 4 }\ntenants: { a: {} }") else {
        return;
    };
    // What the first connection opens stays open.
    jobs(&asked);
    let before = nr_open_files(&asked);
    let killed = util::run(&mut clients(&asked, "chaos", &["60"])).exits(0);
    assert!(killed.out.contains("60"), "{}", killed.out);
    wait_until("no job", || is_empty(&asked));
    wait_until("no cgroup", || has_no_job_cgroups(&asked, "a"));
    wait_until("no file more than before", || nr_open_files(&asked) <= before + 1);
    let left = std::fs::read_dir(asked.ground.state_dir().join("jobs")).map(Iterator::count);
    assert_eq!(left.unwrap_or(0), 0);
    let refused = call(&asked.socket(), "Cancel", json!({ "id": 1 }));
    assert_eq!(refused["error"], "io.tenantd.Jobs.NoSuchJob");
    assert!(asked.ground.dir(Facet::Cpu, "a").exists());
    asked.daemon.stop();
}
