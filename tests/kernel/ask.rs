//! A daemon on this machine's kernel, asked and administered by `tenantctl`.

use std::path::PathBuf;
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::ground::{Daemon, Ground};
use crate::util::{self, Ran, assert_same, fits_a_terminal, wait_until};

const TWO: &str = "tenants: { a: { weight: 100 }, b: { weight: 400 } }";

struct Asked {
    ground: Ground,
    policy: PathBuf,
    daemon: Daemon,
}

impl Asked {
    fn begin(yaml: &str) -> Option<Asked> {
        Ground::take().map(|ground| Asked::on(ground, yaml))
    }

    fn on(ground: Ground, yaml: &str) -> Asked {
        let policy = util::file(ground.scratch.path(), "policy.yaml", enforced(yaml));
        let mut command = ground.tenantd();
        command.arg("--policy").arg(&policy).arg("--root").arg(&ground.name);
        let daemon = Daemon::start(&mut command);
        let asked = Asked { ground, policy, daemon };
        wait_until("the socket", || asked.socket().exists());
        asked
    }

    fn socket(&self) -> PathBuf {
        self.ground.state_dir().join("socket")
    }

    fn write(&self, yaml: &str) {
        std::fs::write(&self.policy, enforced(yaml)).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = util::tenantctl();
        command.args(arguments).arg("--socket").arg(self.socket());
        command
    }

    fn ask(&self, arguments: &[&str]) -> Ran {
        util::run(&mut self.command(arguments))
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.ask(&["status", "--json"]).exits(0).out).unwrap()
    }
}

fn enforced(yaml: &str) -> String {
    format!("version: 1\nmode: enforce\n{yaml}\n")
}

#[test]
fn a_person_asks() {
    let Some(mut asked) = Asked::begin(TWO) else { return };
    wait_until("the tenant", || asked.ground.weight("a").is_some());
    asked.ground.load("a", "threads=1");
    wait_until("rates", || asked.status()["tenants"][0]["usage_cores"].is_number());
    let status = asked.status();
    assert_eq!((&status["mode"], &status["tenants"][1]["name"]), (&"enforce".into(), &"b".into()));
    assert!(status["agent"]["resident_bytes"].as_u64().unwrap() > 1 << 20);
    fits_a_terminal(asked.ask(&["status"]).exits(0).out.split("\nnote: ").next().unwrap());
    let explained = asked.ask(&["explain", "a", "--json"]).exits(0);
    let explained: Value = serde_json::from_str(&explained.out).unwrap();
    for value in explained["values"].as_array().unwrap() {
        let path = value["path"].as_str().unwrap();
        let holds = std::fs::read_to_string(path).unwrap();
        // The weight of a tenant whose load has just begun may be another by now.
        assert!(!holds.is_empty() && !value["reason"].as_str().unwrap().is_empty(), "{path}");
    }
    asked.ask(&["explain", "a"]).exits(0);
    asked.ask(&["explain", "c"]).exits(1).says("no tenant `c`");
    let plan = asked.ask(&["plan", "--json"]).exits(0);
    assert!(serde_json::from_str::<Value>(&plan.out).unwrap()["actions"].is_array());
    let watched = asked.ask(&["watch", "--json", "--count", "3"]).exits(0);
    assert_eq!(watched.out.lines().count(), 3);
    asked.daemon.stop();
}

#[test]
fn a_policy_is_taken_up_again_on_request_and_on_sighup() {
    let Some(asked) = Asked::begin(TWO) else { return };
    wait_until("weights", || asked.ground.is_weighed("a"));
    asked.write("tenants: { a: { weight: 100 }, c: {} }");
    let told = asked.ask(&["diff", asked.policy.to_str().unwrap()]).exits(0).out;
    assert_eq!(told, "- b: removed\n+ c: added\n");
    assert_eq!(asked.ask(&["reload"]).exits(0).out, format!("{told}reloaded\n"));
    wait_until("the new tenant", || asked.ground.weight("c").is_some());
    assert!(asked.ground.weight("b").is_none());

    asked.write("tenants: { a: { weight: -1 } }");
    asked.ask(&["reload"]).exits(78).says("P025").says("the running one stays");
    kill(Pid::from_raw(asked.daemon.pid()), Signal::SIGHUP).unwrap();
    wait_until("the second report", || asked.daemon.said().matches("error[P025]").count() == 2);
    assert_eq!(asked.status()["tenants"].as_array().unwrap().len(), 2);

    asked.write("control: { watch_policy: true, interval: 200ms }\ntenants: { a: {} }");
    kill(Pid::from_raw(asked.daemon.pid()), Signal::SIGHUP).unwrap();
    wait_until("one tenant", || asked.status()["tenants"].as_array().unwrap().len() == 1);
    assert_eq!(asked.status()["interval_seconds"], 0.2);
    // From now on nobody has to say that the file is another.
    let fresh = asked.policy.with_extension("new");
    std::fs::write(&fresh, enforced("tenants: { a: {}, d: {}, e: {} }")).unwrap();
    std::fs::rename(&fresh, &asked.policy).unwrap();
    wait_until("three tenants", || asked.status()["tenants"].as_array().unwrap().len() == 3);
    asked.daemon.stop();
}

#[test]
fn modes_and_restore_leave_nothing_behind() {
    let Some(ground) = Ground::take() else { return };
    let before = ground.snapshot();
    let asked = Asked::on(ground, TWO);
    wait_until("weights", || asked.ground.is_weighed("a"));
    assert_eq!(asked.ask(&["mode", "observe"]).exits(0).out, "mode observe, it was enforce\n");
    assert_same(&before, &asked.ground.snapshot(), "while observing");
    assert_eq!(asked.ask(&["mode", "enforce"]).exits(0).out, "mode enforce, it was observe\n");
    wait_until("weights again", || asked.ground.is_weighed("a"));
    asked.ask(&["restore"]).exits(0);
    assert_same(&before, &asked.ground.snapshot(), "restored");
    assert_eq!(asked.status()["mode"], "observe");
    let Asked { ground, daemon, .. } = asked;
    daemon.stop();
    assert_same(&before, &ground.snapshot(), "after the stop");
}

#[test]
fn who_is_nobody_may_ask_nothing() {
    let Some(asked) = Asked::begin(TWO) else { return };
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
    let plain = asked.command(&["reload"]);
    command.arg(plain.get_program()).args(plain.get_args());
    if command.output().is_ok_and(|output| output.status.code() == Some(77)) {
        asked.daemon.stop();
        return;
    }
    // Where setpriv is not there, or nobody may not run the program, there is nothing to be seen.
    let ran = command.output();
    let is_absent = ran.as_ref().map_or(true, |ran| ran.status.code() != Some(0));
    assert!(is_absent, "{ran:?}");
    eprintln!("skipped: setpriv is not there, or nobody may not run the built programs");
}
