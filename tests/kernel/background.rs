//! `tenantctl run --background`, `wait`, `logs` and `jobs --all` through a real daemon.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::ask::Asked;
use crate::util::{self, Ran, wait_until};

const POLICY: &str = "control: { interval: 100ms, oversubscription: 2.0 }\ntenants: { ci: {} }";

/// A daemon whose tenant has its cgroup; `None` where no cgroup can be made.
fn ready() -> Option<Asked> {
    let asked = Asked::begin(POLICY)?;
    wait_until("the tenant", || asked.ground.weight("ci").is_some());
    Some(asked)
}

/// `tenantctl` with these arguments and a state directory of the test.
fn tenantctl(asked: &Asked, arguments: &[&str]) -> Command {
    let mut command = util::tenantctl();
    command.arg("--socket").arg(asked.socket()).args(arguments);
    command.env("XDG_STATE_HOME", asked.ground.scratch.path().join("home"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn ask(asked: &Asked, arguments: &[&str]) -> Ran {
    util::run(&mut tenantctl(asked, arguments))
}

/// Starts a script in the background; its number.
fn begin(asked: &Asked, options: &[&str], script: &str) -> String {
    let mut arguments = vec!["run", "--tenant", "ci", "--background"];
    arguments.extend(options);
    arguments.extend(["--", "sh", "-c", script]);
    ask(asked, &arguments).exits(0).out.trim().to_string()
}

/// Fails unless standard output holds `words`.
#[track_caller]
fn prints(ran: &Ran, words: &str) {
    assert!(ran.out.contains(words), "{words:?} is not in:\n{}{}", ran.out, ran.err);
}

fn finished(asked: &Asked, id: &str) -> Value {
    let shown = ask(asked, &["jobs", id, "--json"]).exits(0).out;
    serde_json::from_str::<Value>(&shown).unwrap()["finished"].take()
}

#[test]
#[ignore = "makes cgroups"]
fn a_job_in_the_background_has_output_and_status() {
    let Some(asked) = ready() else { return };
    let end = asked.ground.scratch.path().join("end");
    let hook = format!("echo $TENANTD_JOB_ID $TENANTD_EXIT $TENANTD_REASON > {}", end.display());
    let script = "cat; echo out; echo err >&2; env | grep -c ^TENANTCTL_ROLE; exit 3";
    let id = begin(&asked, &["--on-end", &hook], script);
    prints(&ask(&asked, &["wait", &id]).exits(3), "exited with code 3");
    // Also when it has ended already.
    ask(&asked, &["wait", &id]).exits(3);
    let log = ask(&asked, &["logs", &id, "-f"]).exits(0).out;
    assert_eq!(log, "out\nerr\n0\n");
    let file = asked.ground.scratch.path().join(format!("home/tenantd/jobs/{id}.log"));
    assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    let told = || fs::read_to_string(&end).unwrap_or_default();
    wait_until("the command at the end", || told().ends_with('\n'));
    assert_eq!(told(), format!("{id} 3 exited\n"));
    let record = finished(&asked, &id);
    assert_eq!((&record["exit_code"], &record["reason"]), (&3.into(), &"exited".into()));
    assert!(record["peak_memory_bytes"].as_u64().is_some(), "{record}");
    let all = ask(&asked, &["jobs", "--all"]).exits(0).out;
    assert!(all.contains("exit 3"), "{all}");
    ask(&asked, &["wait", "99999"]).exits(1).says("no job 99999");
    asked.daemon.stop();
}

#[test]
#[ignore = "makes cgroups"]
fn a_wait_ends_with_128_and_the_signal() {
    let Some(asked) = ready() else { return };
    let id = begin(&asked, &[], "kill -USR1 $$; sleep 1000");
    let waited = ask(&asked, &["wait", &id]).exits(128 + Signal::SIGUSR1 as i32);
    prints(&waited, "SIGUSR1");
    // A cancelled one has the signal of the cancellation, and its reason.
    let id = begin(&asked, &[], "echo runs; exec sleep 1000");
    wait_until("its output", || ask(&asked, &["logs", &id]).out == "runs\n");
    let wait = tenantctl(&asked, &["wait", &id]).spawn().unwrap();
    ask(&asked, &["cancel", &id]).exits(0);
    util::finish(wait).exits(128 + Signal::SIGTERM as i32);
    assert_eq!(finished(&asked, &id)["reason"], "cancelled");
    asked.daemon.stop();
}

#[test]
#[ignore = "makes cgroups"]
fn an_unknown_status_is_not_guessed() {
    let Some(asked) = ready() else { return };
    let run = ["run", "--tenant", "ci", "--", "sh", "-c", "exit 7"];
    ask(&asked, &run).exits(7);
    let list = || -> Value {
        let shown = ask(&asked, &["jobs", "--all", "--json"]).exits(0).out;
        serde_json::from_str(&shown).unwrap()
    };
    wait_until("the record", || list()["finished"].as_array().is_some_and(|it| it.len() == 1));
    let record = list()["finished"][0].take();
    assert_eq!((&record["reason"], &record["exit_code"]), (&"ended".into(), &Value::Null));
    let waited = ask(&asked, &["wait", &record["id"].to_string()]).exits(125);
    prints(&waited, "not known");
    // A supervisor that was killed reports nothing, and no wait hangs.
    let id = begin(&asked, &[], "echo $PPID; exec sleep 1000");
    wait_until("its output", || ask(&asked, &["logs", &id]).out.ends_with('\n'));
    let supervisor = ask(&asked, &["logs", &id]).out.trim().parse().unwrap();
    kill(Pid::from_raw(supervisor), Signal::SIGKILL).unwrap();
    ask(&asked, &["cancel", &id]).exits(0);
    prints(&ask(&asked, &["wait", &id]).exits(125), "cancelled");
    asked.daemon.stop();
}

#[test]
#[ignore = "makes cgroups"]
fn a_refused_job_has_the_message_and_the_exit_code_of_the_foreground() {
    let Some(asked) = ready() else { return };
    let run = |arguments: &[&str]| ask(&asked, &[&["run", "--background"], arguments].concat());
    run(&["--tenant", "none", "--", "true"]).exits(1).says("no tenant `none`");
    run(&["--tenant", "ci", "--", "no-such-command-7"]).exits(127).says("no-such-command-7");
    let logs = asked.ground.scratch.path().join("home/tenantd/jobs");
    assert_eq!(fs::read_dir(logs).map_or(0, Iterator::count), 0, "no log is left");
    asked.daemon.stop();
}

/// A job that the kernel kills at its declared memory has the figures and the remedy.
#[test]
#[ignore = "makes cgroups"]
fn a_job_killed_at_its_memory_is_told_how_much_to_declare() {
    let Some(asked) = ready() else { return };
    let script = "x=a; while :; do x=$x$x; done";
    let id = begin(&asked, &["--memory", "64MiB"], script);
    prints(&ask(&asked, &["wait", &id]).exits(137), "run with --memory");
    let record = finished(&asked, &id);
    assert_eq!(record["reason"], "killed", "{record}");
    assert!(record["nr_oom_kills"].as_u64().unwrap() >= 1, "{record}");
    asked.daemon.stop();
}
