//! `tenantctl run`, `jobs` and `cancel` beside a daemon that a test plays.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::{Pid, tcgetpgrp};
use serde_json::{Value, json};
use tenantd_host::valve::Valve;

use crate::face::terminal::OnTerminal;
use crate::util;

/// A socket on which the test answers.
struct Daemon {
    dir: tempfile::TempDir,
    listener: UnixListener,
}

/// A call, and the connection on which it came.
struct Call {
    stream: UnixStream,
    parameters: Value,
}

impl Daemon {
    fn new() -> Daemon {
        let dir = util::scratch();
        let listener = UnixListener::bind(dir.path().join("socket")).unwrap();
        Daemon { dir, listener }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    /// `tenantctl run` with these arguments.
    fn run(&self, arguments: &[&str]) -> Command {
        // Where the tests run in the background, they and what they start ignore some signals.
        let mut command = Command::new("env");
        command.args(["--default-signal=HUP,INT", crate::programs::path("tenantctl"), "--socket"]);
        command.arg(self.socket()).arg("run").args(arguments).env("COLUMNS", "80");
        for name in ["MAKEFLAGS", "OMP_NUM_THREADS", "GOMAXPROCS", "TENANTD_DOP"] {
            command.env_remove(name);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// The next call of `Submit`.
    fn submitted(&self) -> Call {
        let mut ready = [PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
        let patience = PollTimeout::try_from(util::PATIENCE).unwrap();
        assert_eq!(poll(&mut ready, patience).unwrap(), 1, "nothing was submitted");
        let (stream, _) = self.listener.accept().unwrap();
        stream.set_read_timeout(Some(util::PATIENCE)).unwrap();
        let mut message = Vec::new();
        BufReader::new(&stream).read_until(0, &mut message).unwrap();
        let mut call: Value = serde_json::from_slice(&message[..message.len() - 1]).unwrap();
        assert_eq!(call["method"], "io.tenantd.Jobs.Submit");
        assert_eq!(call["more"], true);
        Call { stream, parameters: call["parameters"].take() }
    }
}

impl Call {
    fn say(&mut self, message: &Value) {
        self.stream.write_all(format!("{message}\0").as_bytes()).unwrap();
    }

    fn waits(&mut self, position: u64, text: &str) {
        let reason = json!({ "kind": "turn", "text": text });
        let waiting =
            json!({ "position": position, "total": 9, "reason": reason, "estimate_seconds": 40.0 });
        let reply = json!({ "id": 7, "tenant": "ci", "waiting": waiting, "started": null });
        self.say(&json!({ "parameters": reply, "continues": true }));
    }

    fn starts(&mut self, dop: u32, valve: &Value) {
        let started = json!({
            "dop": dop, "cpus": "0-1", "cgroup": "/ci/7", "valve": valve, "ineffective": [],
        });
        let reply = json!({ "id": 7, "tenant": "ci", "waiting": null, "started": started });
        self.say(&json!({ "parameters": reply }));
    }

    fn refuses(&mut self, error: &str, parameters: &Value) {
        self.say(&json!({ "error": error, "parameters": parameters }));
    }

    /// Waits until the other side is closed: it has left the queue.
    fn until_closed(mut self) {
        match self.stream.read(&mut [0; 64]) {
            Ok(count) => assert_eq!(count, 0),
            // It had not read all.
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
        }
    }
}

/// What `command` prints after its start with this width.
fn started(daemon: &Daemon, command: &mut Command, dop: u32) -> util::Ran {
    let child = command.spawn().unwrap();
    daemon.submitted().starts(dop, &Value::Null);
    util::finish(child)
}

#[test]
fn the_process_becomes_the_command() {
    let daemon = Daemon::new();
    let script =
        "echo $$ $TENANTD_DOP $OMP_NUM_THREADS $1 ${GOMAXPROCS-unset} $MAKEFLAGS; cat; exit 42";
    let mut child = daemon.run(&["--", "sh", "-c", script, "sh", "<{dop}>"]).spawn().unwrap();
    let pid = child.id();
    let mut call = daemon.submitted();
    child.stdin.take().unwrap().write_all(b"through\n").unwrap();
    call.waits(2, "others go first");
    call.starts(3, &Value::Null);
    let ran = util::finish(child).exits(42);
    assert_eq!(ran.out, format!("{pid} 3 3 <3> unset -j3\nthrough\n"));
    // No terminal, no line that tells what it waits for.
    assert_eq!(ran.err, "");
    call.until_closed();
}

#[test]
fn what_is_asked_for_is_what_was_said() {
    let daemon = Daemon::new();
    let asks = |arguments: &[&str]| {
        let child = daemon.run(arguments).spawn().unwrap();
        let mut call = daemon.submitted();
        let parameters = call.parameters.take();
        call.refuses("io.tenantd.Manager.Busy", &json!({}));
        util::finish(child).exits(75).says_in_one_line("try again");
        let object = parameters.as_object().unwrap().clone();
        Value::Object(object.into_iter().filter(|(_, value)| !value.is_null()).collect())
    };
    assert_eq!(asks(&["true", "-x", "--memory"]), json!({ "command": "true -x --memory" }));
    let all = [
        "--tenant",
        "ci/nightly",
        "--class",
        "lint",
        "--memory",
        "2GiB",
        "--gpu",
        "1",
        "--resource",
        "licence=3",
        "--max-dop",
        "4",
        "--no-wait",
        "--",
        "true",
    ];
    let expected = json!({
        "tenant": "ci/nightly", "class": "lint", "memory_bytes": 2_u64 << 30, "max_dop": 4,
        "units": [{ "name": "gpu", "count": 1 }, { "name": "licence", "count": 3 }],
        "no_wait": true, "command": "true",
    });
    assert_eq!(asks(&all), expected);
    assert_eq!(asks(&["--dop", "2", "true"]), json!({ "dop": 2, "command": "true" }));
}

#[test]
fn a_signal_ends_the_command_itself() {
    let daemon = Daemon::new();
    let mut child = daemon.run(&["sh", "-c", "echo runs; exec sleep 1000"]).spawn().unwrap();
    daemon.submitted().starts(1, &Value::Null);
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 5]).unwrap();
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(util::ended(&mut child).signal(), Some(Signal::SIGTERM as i32));
}

#[test]
fn an_interrupted_job_leaves_the_queue() {
    let daemon = Daemon::new();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGKILL] {
        let mut child = daemon.run(&["echo", "never"]).spawn().unwrap();
        let mut call = daemon.submitted();
        call.waits(1, "no slot is free");
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        call.until_closed();
        assert_eq!(util::ended(&mut child).signal(), Some(signal as i32));
    }
}

#[test]
fn a_job_that_waits_too_long_leaves_the_queue() {
    let daemon = Daemon::new();
    let child = daemon.run(&["--timeout", "0.2", "echo", "never"]).spawn().unwrap();
    let mut call = daemon.submitted();
    call.waits(1, "no slot is free");
    util::finish(child).exits(75).says_in_one_line("did not start within 200ms");
    call.until_closed();
}

#[test]
fn each_refusal_has_its_exit_code() {
    let daemon = Daemon::new();
    let reason = json!({ "kind": "slots", "text": "2 slots are wanted, 1 is free" });
    for (error, parameters, code, words) in [
        (
            "io.tenantd.Jobs.QueueFull",
            json!({ "reason": "ci has 100 jobs waiting" }),
            75,
            "100 jobs",
        ),
        ("io.tenantd.Jobs.WouldWait", json!({ "reason": reason }), 75, "1 is free"),
        ("io.tenantd.Jobs.NoOwnTenant", json!({ "tenants": ["ci"] }), 77, "name one of ci"),
        ("io.tenantd.Jobs.NoOwnTenant", json!({ "tenants": vec!["t"; 20] }), 77, "t and 12 others"),
        ("org.varlink.service.PermissionDenied", json!({}), 77, "`allow` of the tenant"),
        ("io.tenantd.Jobs.OnlyObserves", json!({}), 69, "in mode enforce"),
        ("io.tenantd.Jobs.NeverFits", json!({ "reason": "9 TiB are more than" }), 65, "9 TiB"),
        ("io.tenantd.Jobs.Cancelled", json!({ "reason": "cancelled by ana" }), 125, "by ana"),
        ("org.varlink.service.InterfaceNotFound", json!({ "interface": "i" }), 69, "older"),
    ] {
        // None of them is a daemon that does not answer.
        let child = daemon.run(&["echo", "never"]).spawn().unwrap();
        daemon.submitted().refuses(error, &parameters);
        let ran = util::finish(child).exits(code).says_in_one_line(words);
        assert_eq!(ran.out, "");
    }
}

#[test]
fn a_command_waits_for_a_tenant_that_a_template_may_make() {
    let daemon = Daemon::new();
    let missing = "io.tenantd.Manager.NoSuchTenant";
    let awaited = json!({ "tenant": "jobs/a", "tenants": [], "awaited": true });
    for (error, parameters) in [
        (missing, &awaited),
        ("io.tenantd.Jobs.NoOwnTenant", &json!({ "tenants": [], "awaited": true })),
    ] {
        let child = daemon.run(&["echo", "runs"]).spawn().unwrap();
        (0..2).for_each(|_| daemon.submitted().refuses(error, parameters));
        daemon.submitted().starts(1, &Value::Null);
        assert_eq!(util::finish(child).exits(0).out, "runs\n");
    }
    let child = daemon.run(&["--array", "1-1", "--", "echo", "runs"]).spawn().unwrap();
    daemon.submitted().refuses(missing, &awaited);
    daemon.submitted().refuses("io.tenantd.Jobs.OnlyObserves", &json!({}));
    util::finish(child).exits(69).says_in_one_line("only observes");
    // One that must not wait.
    let child = daemon.run(&["--no-wait", "echo", "never"]).spawn().unwrap();
    daemon.submitted().refuses(missing, &awaited);
    util::finish(child).exits(1).says_in_one_line("no tenant `jobs/a`");
}

#[test]
fn without_a_daemon_it_says_so_or_runs() {
    let daemon = Daemon::new();
    std::fs::remove_file(daemon.socket()).unwrap();
    let alone = |arguments: &[&str]| util::run(daemon.run(arguments).stdin(Stdio::null()));
    let ran = alone(&["echo", "never"]).exits(69).says_in_one_line("does not answer");
    assert_eq!(ran.out, "");
    let ran = alone(&["--or-run", "sh", "-c", "echo ${TENANTD_DOP-unset}; exit 3"]).exits(3);
    assert_eq!(ran.out, "unset\n");
    assert!(ran.err.contains("without a turn"), "{}", ran.err);

    // A process that stays as supervisor waits for no event then.
    for supervised in [&["--array", "1-2"][..], &["--requeue", "--grace", "2min"]] {
        let arguments = [supervised, &["--", "echo", "never"]].concat();
        let ran = alone(&arguments).exits(69).says_in_one_line("does not answer");
        assert_eq!(ran.out, "");
    }
    let ran = alone(&["--requeue", "--or-run", "sh", "-c", "echo ${TENANTD_RUN-unset}; exit 3"]);
    assert_eq!(ran.exits(3).out, "unset\n");
}

#[test]
fn a_command_that_cannot_run_fails_as_in_a_shell() {
    let daemon = Daemon::new();
    // Not after its turn: nothing is submitted, and nobody answers here.
    let run = |command: &str| util::run(daemon.run(&["--", command]).stdin(Stdio::null()));
    run("no-such-command-7").exits(127).says_in_one_line("no-such-command-7");
    run("/no/such/command").exits(127).says_in_one_line("/no/such/command");
    let file = util::file(daemon.dir.path(), "data", "no program");
    let mut command = daemon.run(&["--", file.to_str().unwrap()]);
    started(&daemon, &mut command, 1).exits(126).says_in_one_line("data");
}

#[test]
fn a_job_returns_to_the_queue_of_a_daemon_that_restarts() {
    let mut daemon = Daemon::new();
    let child = daemon.run(&["echo", "ran"]).spawn().unwrap();
    let mut call = daemon.submitted();
    call.waits(1, "no slot is free");
    std::fs::remove_file(daemon.socket()).unwrap();
    drop(call);
    daemon.listener = UnixListener::bind(daemon.socket()).unwrap();
    daemon.submitted().starts(1, &Value::Null);
    assert_eq!(util::finish(child).exits(0).out, "ran\n");
    // So does one whose connection was closed unread, because its user had opened too many at once.
    let child = daemon.run(&["echo", "again"]).spawn().unwrap();
    drop(daemon.submitted());
    daemon.submitted().starts(1, &Value::Null);
    assert_eq!(util::finish(child).exits(0).out, "again\n");
}

#[test]
fn make_gets_the_job_server() {
    if util::optional("make", "make").is_none() {
        return;
    }
    let daemon = Daemon::new();
    let uid = nix::unistd::getuid().as_raw();
    let valve = Valve::create(&daemon.dir.path().join("valve"), uid, 2).unwrap();
    // Each command waits for the two others: it ends only if three run at once.
    let dir = daemon.dir.path();
    let makefile = "all: a b c\na b c:\n\t@touch $@; for f in a b c; do until [ -e $$f ]; do sleep .01; done; done\n";
    util::file(dir, "Makefile", makefile);
    let child = daemon.run(&["make", "-C", dir.to_str().unwrap()]).spawn().unwrap();
    let fifo = valve.fifo();
    daemon.submitted().starts(3, &json!({ "fifo": fifo, "tokens": 2 }));
    assert_eq!(util::finish(child).exits(0).err, "");
    util::wait_until("all tokens are back", || valve.free().unwrap() == 2);
}

/// A shell with job control on a terminal of its own.
fn shell(daemon: &Daemon) -> Option<OnTerminal> {
    drop(util::optional("bash", "bash")?);
    let mut shell = Command::new("env");
    shell.args([
        "--default-signal=HUP,INT",
        "setsid",
        "--ctty",
        "bash",
        "--norc",
        "--noprofile",
        "-i",
    ]);
    shell.env("PS1", "$ ");
    let mut shell = OnTerminal::start(&mut shell);
    let path = crate::programs::path("tenantctl");
    let socket = daemon.socket();
    type_line(&mut shell, &format!("run() {{ {path} --socket {} run \"$@\"; }}", socket.display()));
    Some(shell)
}

fn type_line(shell: &mut OnTerminal, line: &str) {
    shell.master.write_all(format!("{line}\n").as_bytes()).unwrap();
}

#[test]
fn a_terminal_shows_what_is_waited_for() {
    let daemon = Daemon::new();
    let Some(mut shell) = shell(&daemon) else { return };
    type_line(&mut shell, "run -- echo its tu''rn");
    let mut call = daemon.submitted();
    call.waits(2, "no slot is free");
    shell.until("\rwaiting as 2 of 9 in ci: no slot is free; about 40 s\x1b[K");
    call.waits(1, "no slot is free");
    shell.until("\rwaiting as 1 of 9");
    call.starts(1, &Value::Null);
    shell.until("\r\x1b[Kits turn");
    // Ctrl-C leaves the queue, and the shell goes on.
    type_line(&mut shell, "run -- echo never");
    let mut call = daemon.submitted();
    call.waits(5, "no slot is free");
    shell.until("waiting as 5");
    shell.master.write_all(b"\x03").unwrap();
    call.until_closed();
    type_line(&mut shell, "echo code $?");
    shell.until("code 130");
}

#[test]
fn job_control_is_that_of_the_command() {
    let daemon = Daemon::new();
    let Some(mut shell) = shell(&daemon) else { return };
    // A full-screen program or a password prompt does what this one does. No process is made after `ready`: a shell that
    // is stopped between vfork(2) and exec(2) of another is not seen to be stopped.
    let script = "stty -echo -icanon; echo rea''dy; read line; stty sane; echo do''ne";
    type_line(&mut shell, &format!("run -- sh -c \"{script}\""));
    daemon.submitted().starts(1, &Value::Null);
    shell.until("ready");
    let command = tcgetpgrp(&shell.master).unwrap();
    shell.master.write_all(b"\x1a").unwrap();
    shell.until("Stopped");
    type_line(&mut shell, "fg");
    // What is typed before it has the terminal is the shell's.
    util::wait_until("the terminal", || tcgetpgrp(&shell.master).unwrap() == command);
    shell.master.write_all(b"xyz\n").unwrap();
    shell.until("done");
    type_line(&mut shell, "echo co''de $?");
    shell.until("code 0");
}

/// Programs that ask for the terminal themselves: one that reads a password from it, and one that fills its screen.
#[test]
fn a_password_prompt_and_a_full_screen_program_have_the_terminal() {
    if util::optional("python3", "python3").is_none() {
        return;
    }
    let daemon = Daemon::new();
    let Some(mut shell) = shell(&daemon) else { return };
    let script = "import getpass; print('of', len(getpass.getpass('Se''cret: ')), 'characters')";
    type_line(&mut shell, &format!("run -- python3 -c \"{script}\""));
    daemon.submitted().starts(1, &Value::Null);
    shell.until("Secret: ");
    assert!(!tcgetattr(&shell.master).unwrap().local_flags.contains(LocalFlags::ECHO));
    type_line(&mut shell, "xyzzy");
    shell.until("of 5 characters");

    let script = "import curses; curses.wrapper(lambda screen: screen.getkey() == 'q' or exit(1))";
    type_line(&mut shell, &format!("TERM=xterm run -- python3 -c \"{script}\"; echo co''de $?"));
    daemon.submitted().starts(1, &Value::Null);
    // The other screen of the terminal, a key without a newline, and the first screen back.
    shell.until("\x1b[?1049h");
    shell.master.write_all(b"q").unwrap();
    shell.until("\x1b[?1049l");
    shell.until("code 0");
}

#[test]
fn a_pipeline_is_a_pipeline() {
    let daemon = Daemon::new();
    let Some(mut shell) = shell(&daemon) else { return };
    // yes(1) ends by SIGPIPE, which tenantctl itself ignores.
    type_line(&mut shell, "run -- yes | head -n 2; echo codes ${PIPESTATUS[@]}");
    daemon.submitted().starts(1, &Value::Null);
    shell.until("codes 141 0");
}

/// A process that sleeps, to be ended.
fn sleeper() -> Child {
    Command::new("sleep").arg("1000").spawn().unwrap()
}

#[test]
fn a_cancelled_job_gets_a_signal_from_the_caller() {
    let daemon = Daemon::new();
    let (mut ended, mut spared) = (sleeper(), sleeper());
    let listener = daemon.listener.try_clone().unwrap();
    let pids = [ended.id(), spared.id()];
    // The second process left the job between the two answers.
    let server = std::thread::spawn(move || {
        for pids in [&pids[..], &pids[..1]] {
            let (mut stream, _) = listener.accept().unwrap();
            BufReader::new(&stream).read_until(0, &mut Vec::new()).unwrap();
            let reply = json!({ "parameters": { "is_running": true, "pids": pids } });
            stream.write_all(format!("{reply}\0").as_bytes()).unwrap();
        }
    });
    let mut cancel = util::tenantctl();
    let ran = util::run(cancel.args(["cancel", "7", "--socket"]).arg(daemon.socket())).exits(0);
    server.join().unwrap();
    assert_eq!(ran.out, format!("job 7: sent SIGTERM to {}\n", ended.id()));
    assert_eq!(util::ended(&mut ended).signal(), Some(Signal::SIGTERM as i32));
    assert_eq!(spared.try_wait().unwrap(), None);
    spared.kill().unwrap();
    spared.wait().unwrap();
}
