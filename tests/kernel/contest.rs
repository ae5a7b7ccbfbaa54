//! Another process that rewrites a file of the agent in a loop.

use std::fs;
use std::process::Command;

use super::ask::Asked;
use crate::util::wait_until;

const POLICY: &str = "
control: { interval: 100ms }
tenants: { a: { weight: 100 }, b: { weight: 400 } }";
const THEIRS: f64 = 777.0;

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn a_file_that_another_process_rewrites_is_left_to_it_until_it_ends() {
    let Some(mut asked) = Asked::begin(POLICY) else { return };
    wait_until("the weights", || asked.ground.is_weighed("a"));
    let path = asked.ground.weight_file("a");
    let mut writer = Command::new("/bin/sh");
    let script = format!("while :; do echo {THEIRS} >'{}'; sleep 0.02; done", path.display());
    writer.args(["-c", &script]);
    let pid = asked.ground.spawn("b", writer);
    wait_until("the agent to give way", || asked.status()["nr_contested"] == 1);
    let status = asked.status();
    let findings = status["finding_records"].as_array().unwrap();
    let finding = findings.iter().find(|finding| finding["code"] == "contested").unwrap();
    assert_eq!((&finding["tenant"], &finding["severity"]), (&"a".into(), &"error".into()));
    wait_until("its value", || asked.ground.weight("a") == Some(THEIRS));
    // The agent says so once, and does not write while it has given way.
    let written = |asked: &Asked| {
        let status = asked.status();
        let actions = status["actions"].as_array().unwrap().clone();
        actions.iter().any(|action| action["path"] == path.to_str().unwrap())
    };
    assert!(!written(&asked));
    asked.ground.end(pid);
    // Nothing writes any more; the agent need not wait for the end of its pause.
    asked.ask(&["mode", "enforce"]).exits(0);
    wait_until("the weight of the agent", || asked.ground.weight("a") != Some(THEIRS));
    wait_until("the end of it", || asked.status()["nr_contested"] == 0);
    assert!(fs::read_to_string(&path).is_ok());
    let said = asked.daemon.stop();
    assert!(said.contains("another program keeps overwriting its"), "{said}");
}
