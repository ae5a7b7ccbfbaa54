//! `reload`, `mode`, `restore` and `diff`: their JSON, their exit codes, and the journal that a restore takes.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::asking::{Oracle, good_policy};
use super::deadline::Observer;
use crate::util;

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

#[test]
fn changes_are_json_on_request() {
    let change = json!({ "kind": "added", "tenant": "db", "key": null, "from": null, "to": null });
    let reply = json!({ "changes": [change], "findings": [] });
    let ran = Oracle::answers(&reply).ask(&["reload", "--json"]).exits(0);
    let reload = parsed(&ran.out);
    assert_eq!(
        (&reload["reloaded"], &reload["changes"][0]["tenant"]),
        (&json!(true), &json!("db"))
    );
    let reply = json!({ "before": "observe", "failures": [] });
    let ran = Oracle::answers(&reply).ask(&["mode", "enforce", "--json"]).exits(0);
    let expected = json!({ "mode": "enforce", "before": "observe", "failures": [] });
    assert_eq!(parsed(&ran.out), expected);
    let reply = json!({ "files": 3, "processes": 2, "cgroups": 1, "failures": ["/x: busy"] });
    let ran = Oracle::answers(&reply).ask(&["restore", "--json"]).exits(1);
    assert_eq!(ran.err, "", "the failures are in the JSON");
    let restored = parsed(&ran.out);
    assert_eq!((&restored["files"], &restored["by_daemon"]), (&json!(3), &json!(true)));
    assert_eq!(restored["failures"], json!(["/x: busy"]));
}

#[test]
fn a_refused_policy_is_json_on_request() {
    let bad = json!({ "report": "error[P025]: no\n", "findings": [] });
    let bad = Oracle::refuses("io.tenantd.Manager.BadPolicy", &bad);
    let ran = bad.ask(&["reload", "--json"]).exits(78);
    assert_eq!(parsed(&ran.out), json!({ "reloaded": false, "findings": [] }));
    assert!(!ran.err.contains("P025"), "{}", ran.err);
}

#[test]
fn a_difference_is_an_exit_code_on_request() {
    let dir = util::scratch();
    let policy = good_policy(dir.path());
    let policy = policy.to_str().unwrap();
    let empty = json!({ "path": null, "policy": { "settings": [], "tenants": [] } });
    Oracle::answers(&empty).ask(&["diff", policy]).exits(0);
    Oracle::answers(&empty).ask(&["diff", policy, "--exit-code"]).exits(1);
    let daemon = Observer::start();
    let same = util::run(&mut daemon.ctl(&["diff", "--exit-code", policy])).exits(0);
    assert_eq!(same.out, "no differences from the running policy\n");
}

fn restore(socket: &Path) -> Command {
    let mut command = util::tenantctl();
    command.arg("restore").arg("--socket").arg(socket);
    command
}

/// A socket does not name the journal of its agent, so the default journal may belong to another agent.
#[test]
fn a_restore_without_a_daemon_takes_no_journal_that_was_not_named() {
    let dir = util::scratch();
    let socket = dir.path().join("socket");
    let ran = util::run(&mut restore(&socket)).exits(69);
    let named = format!("--state-dir {}", dir.path().display());
    ran.says_in_one_line("restore needs the state directory").says(&named);
    let mut command = restore(&socket);
    command.arg("--json").arg("--state-dir").arg(dir.path().join("state"));
    let restored = parsed(&util::run(&mut command).exits(0).out);
    assert_eq!((&restored["files"], &restored["by_daemon"]), (&json!(0), &json!(false)));
}
