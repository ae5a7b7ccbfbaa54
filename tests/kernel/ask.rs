//! A daemon on this machine's kernel, asked and administered by `tenantctl`.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tenantd_control::why::explain::Explanation;
use tenantd_host::cgroup::Facet;

use super::ground::{Daemon, Ground};
use crate::util::{self, Ran, assert_same, fits_a_terminal, wait_until};

const TWO: &str = "tenants: { a: { weight: 100 }, b: { weight: 400 } }";

/// A daemon on a ground of its own, and its socket.
pub(super) struct Asked {
    pub(super) ground: Ground,
    policy: PathBuf,
    pub(super) daemon: Daemon,
}

impl Asked {
    pub(super) fn begin(yaml: &str) -> Option<Asked> {
        Ground::take().map(|ground| Asked::on(ground, yaml))
    }

    pub(super) fn on(ground: Ground, yaml: &str) -> Asked {
        let policy = util::file(ground.scratch.path(), "policy.yaml", enforced(yaml));
        let mut command = ground.tenantd();
        command.arg("--policy").arg(&policy).arg("--root").arg(&ground.name);
        let daemon = Daemon::start(&mut command);
        let asked = Asked { ground, policy, daemon };
        wait_until("the socket", || asked.socket().exists());
        asked
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.ground.state_dir().join("socket")
    }

    pub(super) fn write(&self, yaml: &str) {
        std::fs::write(&self.policy, enforced(yaml)).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = util::tenantctl();
        command.args(arguments).arg("--socket").arg(self.socket());
        command
    }

    pub(super) fn ask(&self, arguments: &[&str]) -> Ran {
        util::run(&mut self.command(arguments))
    }

    pub(super) fn status(&self) -> Value {
        serde_json::from_str(&self.ask(&["status", "--json"]).exits(0).out).unwrap()
    }
}

fn enforced(yaml: &str) -> String {
    format!("version: 1\nmode: enforce\n{yaml}\n")
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
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
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn a_policy_is_reloaded_on_request_and_on_sighup() {
    let Some(asked) = Asked::begin(TWO) else { return };
    wait_until("weights", || asked.ground.is_weighed("a"));
    asked.write("tenants: { a: { weight: 100 }, c: {} }");
    let told = asked.ask(&["diff", asked.policy.to_str().unwrap()]).exits(0).out;
    assert_eq!(told, "- b: removed\n+ c: added\n");
    assert_eq!(asked.ask(&["reload"]).exits(0).out, format!("{told}reloaded\n"));
    wait_until("the new tenant", || asked.ground.weight("c").is_some());
    assert!(asked.ground.weight("b").is_none());

    asked.write("tenants: { a: { weight: -1 } }");
    asked.ask(&["reload"]).exits(78).says("P025").says("the running policy stays in force");
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
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn mode_changes_and_restore_leave_no_trace() {
    let Some(ground) = Ground::take() else { return };
    let before = ground.snapshot();
    let asked = Asked::on(ground, TWO);
    wait_until("weights", || asked.ground.is_weighed("a"));
    assert_eq!(asked.ask(&["mode", "observe"]).exits(0).out, "mode observe, was enforce\n");
    assert_same(&before, &asked.ground.snapshot(), "while observing");
    assert_eq!(asked.ask(&["mode", "enforce"]).exits(0).out, "mode enforce, was observe\n");
    wait_until("weights again", || asked.ground.is_weighed("a"));
    asked.ask(&["restore"]).exits(0);
    assert_same(&before, &asked.ground.snapshot(), "restored");
    assert_eq!(asked.status()["mode"], "observe");
    let Asked { ground, daemon, .. } = asked;
    daemon.stop();
    assert_same(&before, &ground.snapshot(), "after the stop");
}

/// The same command as a user without any right; `None`, said in one line, where that cannot be.
pub(super) fn as_nobody(command: &Command) -> Option<Command> {
    let mut nobody = Command::new("setpriv");
    nobody.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
    nobody.arg(command.get_program());
    let mut probe = Command::new("setpriv");
    probe.args(nobody.get_args()).arg("--version");
    if !probe.output().is_ok_and(|output| output.status.success()) {
        util::skipped("setpriv is missing, or the user nobody cannot run the built programs");
        return None;
    }
    nobody.args(command.get_args());
    Some(nobody)
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn every_user_may_connect_and_only_some_may_change() {
    let Some(asked) = Asked::begin(TWO) else { return };
    let open = |path: PathBuf, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    open(asked.ground.scratch.path().to_path_buf(), 0o755);
    let Some(mut status) = as_nobody(&asked.command(&["plan"])) else { return };
    util::run(&mut status).exits(77).says_in_one_line("shows all tenants; become root");
    open(asked.socket(), 0o600);
    util::run(&mut status).exits(77).says_in_one_line("not permitted to connect to");
    open(asked.socket(), 0o666);
    let mut reload = as_nobody(&asked.command(&["reload"])).unwrap();
    util::run(&mut reload).exits(77).says_in_one_line("Reload requires root");
    asked.write("administrators: { users: 65534 }\ntenants: { a: {} }");
    asked.ask(&["reload"]).exits(0);
    util::run(&mut status).exits(0);
    util::run(&mut reload).exits(0);
    asked.daemon.stop();
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn the_service_manager_is_notified() {
    let Some(ground) = Ground::take() else { return };
    let notify = ground.scratch.path().join("notify");
    let manager = UnixDatagram::bind(&notify).unwrap();
    manager.set_read_timeout(Some(util::PATIENCE)).unwrap();
    let hears = |words: &str| {
        let mut bytes = [0; 512];
        loop {
            let count = manager.recv(&mut bytes).unwrap_or_else(|error| panic!("{words}: {error}"));
            let said = String::from_utf8_lossy(&bytes[..count]).into_owned();
            if said.contains(words) {
                return said;
            }
            // It is alive all the time.
            assert_eq!(said, "WATCHDOG=1", "instead of {words}");
        }
    };
    let policy = util::file(ground.scratch.path(), "policy.yaml", enforced(TWO));
    let mut command = ground.tenantd();
    command.arg("--policy").arg(&policy).arg("--root").arg(&ground.name);
    command.env("NOTIFY_SOCKET", &notify).env("WATCHDOG_USEC", "400000");
    let daemon = Daemon::start(&mut command);
    assert!(hears("READY=1").contains("STATUS=2 tenants, mode enforce"));
    hears("WATCHDOG=1");
    kill(Pid::from_raw(daemon.pid()), Signal::SIGHUP).unwrap();
    assert!(hears("RELOADING=1").contains("MONOTONIC_USEC="));
    hears("READY=1");
    kill(Pid::from_raw(daemon.pid()), Signal::SIGTERM).unwrap();
    hears("STOPPING=1");
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn a_socket_that_is_given_is_served_and_left_alone() {
    let Some(ground) = Ground::take() else { return };
    let socket = ground.scratch.path().join("given");
    let policy = util::file(ground.scratch.path(), "policy.yaml", enforced(TWO));
    // What systemd does for a socket unit: the third descriptor is the socket, and the variables say so.
    let activate = "import os, socket, sys
given = socket.socket(socket.AF_UNIX)
given.bind(sys.argv[1])
given.listen()
os.dup2(given.fileno(), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid()), LISTEN_FDNAMES='tenantd.socket')
os.execv(sys.argv[2], sys.argv[2:])
";
    let plain = {
        let mut command = ground.tenantd();
        command.arg("--policy").arg(&policy).arg("--root").arg(&ground.name);
        command
    };
    let mut command = Command::new("python3");
    command.args(["-c", activate]).arg(&socket).arg(plain.get_program()).args(plain.get_args());
    if Command::new("python3").arg("--version").output().is_err() {
        util::skipped("python3 is missing");
        return;
    }
    let daemon = Daemon::start(&mut command);
    wait_until("the given socket", || socket.exists());
    let mut status = util::tenantctl();
    status.args(["status", "--socket"]).arg(&socket);
    util::run(&mut status).exits(0);
    assert!(!ground.state_dir().join("socket").exists());
    daemon.stop();
    assert!(socket.exists(), "whoever made it removes it");
}

/// Work beside a tenant, in a cgroup of its own or directly in the parent of the tenant's, is named as the reason that
/// the tenant lacks CPUs.
#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn work_beside_a_tenant_is_named() {
    let Some(mut asked) = Asked::begin("tenants: { a: {} }") else { return };
    wait_until("a weight", || asked.ground.weight("a").is_some());
    asked.ground.make("other");
    let cpus = std::thread::available_parallelism().unwrap().get();
    asked.ground.load("a", &format!("threads={cpus}"));
    let busy = format!("threads={}", 2 * cpus);
    let mut places = vec![(format!("/{}/other", asked.ground.name), false)];
    asked.ground.load("other", &busy);
    // The unified hierarchy has no processes beside cgroups.
    if !asked.ground.layout.is_unified() {
        places.push((format!("/{}", asked.ground.name), true));
        asked.ground.load("", &busy);
    }
    let is_named = |place: &str, is_direct: bool| {
        let ran = asked.ask(&["explain", "a", "--json"]).exits(0);
        let explanation: Explanation = serde_json::from_str(&ran.out).unwrap();
        let outsiders = explanation.reasons.iter().flat_map(|reason| &reason.outsiders);
        outsiders
            .filter(|it| it.is_direct == is_direct && it.cores > 0.05)
            .any(|it| it.cgroup.ends_with(place) && it.command.as_deref() == Some("tenantctl"))
    };
    for (place, is_direct) in &places {
        wait_until(&format!("{place} in the explanation"), || is_named(place, *is_direct));
    }
    wait_until("the reason in the status", || {
        let status = asked.ask(&["status"]).exits(0);
        fits_a_terminal(&status.out);
        status.out.contains("! a lacks ") && status.out.contains("work of no tenant")
    });
    asked.daemon.stop();
}

/// Cgroups where they are, and processes into a cgroup of the tenant's; a kill and another daemon in between.
#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn work_is_attached_taken_up_again_and_given_back() {
    let Some(mut ground) = Ground::take() else { return };
    ["jobs", "jobs/1", "jobs/2"].iter().for_each(|below| ground.make(below));
    let pids = ["jobs/1", "jobs/2"].map(|below| ground.load(below, "threads=1"));
    let before = ground.snapshot();
    let asked = Asked::on(ground, TWO);
    let job = asked.ground.dir(Facet::Cpu, "jobs/1").display().to_string();
    let pid = pids[1].to_string();
    asked.ask(&["attach", "a", "--cgroup", &job]).exits(0);
    let done = asked.ask(&["attach", "b", "--leave-unit", "--json", &pid]).exits(0);
    let reply: Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(reply["pids"], serde_json::json!([pids[1]]));
    for (arguments, status) in [
        (&["attach", "none", "--cgroup", &job][..], 1),
        (&["attach", "b", "--cgroup", &job], 1),
        (&["attach", "b"], 2),
        (&["attach", "b", "0"], 2),
        (&["detach", "--cgroup", "/gone"], 1),
    ] {
        asked.ask(arguments).exits(status);
    }
    // The only one in its parent has the whole of that.
    let is_held = |asked: &Asked| {
        asked.ground.is_weighed("jobs") && asked.ground.pids("b").contains(&pids[1])
    };
    wait_until("the work in its tenants", || is_held(&asked));
    let Asked { ground, daemon, .. } = asked;
    daemon.signal(Signal::SIGKILL);
    let asked = Asked::on(ground, TWO);
    // The socket of the one that was killed is still there.
    let answers = || asked.command(&["status"]).output().unwrap().status.success();
    wait_until("an answer", answers);
    wait_until("the work in its tenants again", || is_held(&asked));
    asked.ask(&["detach", &pid]).exits(0);
    assert_eq!(asked.ground.pids("jobs/2"), [pids[1]]);
    let Asked { ground, daemon, .. } = asked;
    daemon.stop();
    assert_same(&before, &ground.snapshot(), "stopped");
}
