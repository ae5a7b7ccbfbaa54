//! The own view of an ordinary user, and the commands that fall back to it.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use tenantd_control::report::status::ReasonStatus;
use tenantd_core::resource::PerResource;
use tenantd_policy::model::Mode;
use tenantd_varlink::jobs::{FinishedJob, Job, ListReply};
use tenantd_varlink::own_view::{OwnBasis, OwnTenant, OwnView};

use super::{as_nobody, open_scratch};
use crate::util::{self, Ran, fits_a_terminal};

const MANAGER: &str = "io.tenantd.Manager";
const JOBS: &str = "io.tenantd.Jobs";
/// The user of the calls to the fake daemon.
const UID: u32 = 65534;

/// A daemon that takes every caller for a user outside the group, or for a reader.
struct Fake {
    dir: tempfile::TempDir,
}

impl Fake {
    fn start(is_reader: bool, tenants: Vec<OwnTenant>) -> Fake {
        let dir = open_scratch();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        // Its thread ends with the test program.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                serve(&stream.unwrap(), is_reader, &tenants);
            }
        });
        Fake { dir }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = util::tenantctl();
        command.arg("--socket").arg(self.socket()).args(arguments);
        command
    }

    fn ask(&self, arguments: &[&str]) -> Ran {
        util::run(&mut self.command(arguments))
    }
}

fn serve(stream: &UnixStream, is_reader: bool, tenants: &[OwnTenant]) {
    let mut calls = BufReader::new(stream);
    loop {
        let mut call = Vec::new();
        if calls.read_until(0, &mut call).unwrap_or(0) == 0 {
            return;
        }
        let call: Value = serde_json::from_slice(&call[..call.len() - 1]).unwrap();
        let reply = answer(call["method"].as_str().unwrap(), is_reader, tenants);
        if (&*stream).write_all(format!("{reply}\0").as_bytes()).is_err() {
            return;
        }
    }
}

fn answer(method: &str, is_reader: bool, tenants: &[OwnTenant]) -> Value {
    let (interface, name) = method.rsplit_once('.').unwrap();
    let job = |id, uid| Job { id, uid, tenant: "users/ana".into(), ..Job::default() };
    let parameters = match (interface, name) {
        (MANAGER, "GetOwnView") => {
            let tenants = tenants.to_vec();
            let view =
                OwnView { uid: UID, tick: 7, mode: Mode::Enforce, tenants, ..OwnView::default() };
            json!({ "view": view })
        }
        (JOBS, "List") => {
            let mut list =
                ListReply { jobs: vec![job(11, UID), job(12, 1)], ..ListReply::default() };
            if !is_reader {
                list = list.only_of(UID);
            }
            json!(list)
        }
        (JOBS, "Finished") => {
            let finished = |id| FinishedJob {
                id,
                uid: UID,
                tenant: "users/ana".into(),
                text: "ended".into(),
                ..FinishedJob::default()
            };
            json!({ "jobs": (1..=8).map(finished).collect::<Vec<_>>() })
        }
        (MANAGER, "Explain") if is_reader => json!({ "explanation": { "tenant": "users/ana" } }),
        (MANAGER, "GetStatus") if is_reader => json!({ "status": {} }),
        _ => return json!({ "error": "org.varlink.service.PermissionDenied", "parameters": {} }),
    };
    json!({ "parameters": parameters })
}

fn tenant() -> OwnTenant {
    let reason = ReasonStatus {
        text: "other tenants have 0.25 CPUs more".into(),
        ..ReasonStatus::default()
    };
    OwnTenant {
        name: "users/ana".into(),
        basis: vec![OwnBasis::User],
        is_one_user: true,
        share_now: PerResource([0.5, 1e9]),
        share_if_busy: PerResource([Some(0.25), Some(5e8)]),
        nr_sharing: 12,
        shared_cores: Some(4.0),
        missing: PerResource([Some(0.25), Some(0.0)]),
        reasons: vec![reason],
        ..OwnTenant::default()
    }
}

#[test]
fn a_user_sees_shares_reasons_and_jobs() {
    let fake = Fake::start(false, vec![tenant()]);
    let text = fake.ask(&["me"]).exits(0).out;
    fits_a_terminal(&text);
    for words in [
        "share now",
        "share if busy",
        "0.50",
        "12 users share 4",
        "other tenants have",
        "the last 5 of 8",
    ] {
        assert!(text.contains(words), "{words:?} is not in:\n{text}");
    }
    let me: Value = serde_json::from_str(&fake.ask(&["me", "--json"]).exits(0).out).unwrap();
    assert_eq!(me["tenants"][0]["share_now_cores"], 0.5);
    assert_eq!(me["jobs"].as_array().unwrap().len(), 1);
    assert_eq!(me["finished"].as_array().unwrap().len(), 8);
    let line = fake.ask(&["me", "--line"]).exits(0);
    assert_eq!(line.out, "you have 0.5 CPUs now; 12 users share 4\n");
    // A reader gets the jobs of others as well, which are not own ones.
    let reader = Fake::start(true, vec![tenant()]);
    let me: Value = serde_json::from_str(&reader.ask(&["me", "--json"]).exits(0).out).unwrap();
    assert_eq!(me["jobs"].as_array().unwrap().len(), 1);
}

#[test]
fn commands_without_an_argument_fall_back_to_the_own_view() {
    let fake = Fake::start(false, vec![tenant()]);
    // A group that this machine has, whose members may read.
    let is_grouped = chown(fake.socket(), None, Some(1)).is_ok();
    for command in ["status", "jobs", "explain"] {
        let text = fake.ask(&[command]).exits(0).out;
        fits_a_terminal(&text);
        assert!(text.starts_with("your own view; "), "{command}: {text}");
        if is_grouped {
            let line = text.lines().next().unwrap();
            let user = nix::unistd::User::from_uid(nix::unistd::Uid::effective()).unwrap().unwrap();
            let (adduser, usermod) = (
                format!("adduser {} daemon", user.name),
                format!("usermod -aG daemon {}", user.name),
            );
            assert!(line.contains("the group daemon"), "{line}");
            assert!(line.contains(&adduser) || line.contains(&usermod), "{line}");
        }
        let json = fake.ask(&[command, "--json"]).exits(0);
        serde_json::from_str::<Value>(&json.out).unwrap();
        json.says("your own view; ");
    }
    let text = fake.ask(&["status"]).exits(0).out;
    assert!(text.contains("share if busy"), "{text}");
    for arguments in [&["plan"][..], &["watch"], &["explain", "web"], &["metrics"]] {
        fake.ask(arguments).exits(77).says("tenantctl me");
    }
    fake.ask(&["jobs", "11"]).exits(0);
    fake.ask(&["reload"]).exits(77).says("Reload requires root");
}

#[test]
fn a_reader_explains_the_own_tenant_without_an_argument() {
    let reader = Fake::start(true, vec![tenant()]);
    let text = reader.ask(&["explain"]).exits(0).out;
    assert!(text.starts_with("users/ana: tick"), "{text}");
    let none = Fake::start(true, Vec::new());
    none.ask(&["explain"]).exits(1).says("no tenant of the policy is yours");
    let text = none.ask(&["me"]).exits(0).out;
    assert!(text.contains("no tenant of the policy is yours"), "{text}");
}

#[test]
fn a_line_at_a_login_is_silent_without_a_share() {
    let none = Fake::start(false, Vec::new());
    let silent = |ran: Ran| assert_eq!((ran.out.as_str(), ran.err.as_str()), ("", ""));
    silent(none.ask(&["me", "--line"]).exits(0));
    // No daemon, one that is stopped, and one of another version.
    let dir = util::scratch();
    let socket = dir.path().join("socket");
    let line = || {
        let mut command = util::tenantctl();
        command.args(["me", "--line", "--timeout", "0.05", "--socket"]).arg(&socket);
        util::run(&mut command).exits(0)
    };
    silent(line());
    let _stopped = UnixListener::bind(&socket).unwrap();
    silent(line());
}

/// The snippet for login shells, run as they run it.
#[test]
fn a_login_goes_on_whatever_the_daemon_does() {
    let snippet = std::fs::canonicalize("packaging/login/tenantd.sh").unwrap();
    let run = |shell: &str, programs: &str| {
        let mut login = Command::new(shell);
        let script = format!("set -eu; . {}; echo in", snippet.display());
        login.args(["-c", &script]).env("PATH", format!("{programs}:/usr/bin:/bin"));
        util::run(&mut login).exits(0)
    };
    let dir = util::scratch();
    util::script(dir.path(), "tenantctl", "#!/bin/sh\necho \"$*\"; echo noise >&2; exit 3\n");
    let programs = dir.path().to_str().unwrap();
    // Not in a shell without a terminal, as that of scp: its output is a protocol.
    let ran = run("sh", programs);
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("in\n", ""));
    // In an interactive shell, whose terminal `script` provides.
    let Some(mut terminal) = util::optional("script", "bsdutils") else { return };
    let inner = format!("PATH={programs}:$PATH sh -i -c '. {}; echo in'", snippet.display());
    terminal.args(["--quiet", "--return", "--command", &inner, "/dev/null"]);
    let ran = util::run(&mut terminal).exits(0);
    assert!(ran.out.contains("me --line") && ran.out.contains("in\r\n"), "{}", ran.out);
    assert!(!ran.out.contains("noise"), "{}", ran.out);
}

#[test]
fn a_run_that_is_not_permitted_runs_without_a_turn_on_request() {
    let fake = Fake::start(false, vec![tenant()]);
    fake.ask(&["run", "--", "echo", "done"]).exits(77);
    let ran = fake.ask(&["run", "--or-run", "--", "echo", "done"]).exits(0);
    assert_eq!(ran.out, "done\n");
    ran.says("runs without a turn");
    // The same where the socket does not let the user connect.
    std::fs::set_permissions(fake.socket(), std::fs::Permissions::from_mode(0o600)).unwrap();
    let command = fake.command(&["run", "--or-run", "--", "echo", "done"]);
    let Some(mut command) = as_nobody(&command) else { return };
    let ran = util::run(&mut command).exits(0).says("not permitted to connect to");
    assert_eq!(ran.out, "done\n");
}
