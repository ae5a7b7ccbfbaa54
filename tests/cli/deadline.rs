//! A daemon that is stopped (SIGSTOP) keeps its socket and answers nothing: every command ends at its deadline.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::GOOD;
use crate::util;

/// A `tenantd` that only observes, on a socket of its own; killed when dropped.
pub(crate) struct Observer {
    child: Child,
    pub(crate) socket: PathBuf,
    _dir: tempfile::TempDir,
}

impl Observer {
    pub(crate) fn start() -> Observer {
        let dir = util::scratch();
        let policy = util::file(dir.path(), "policy.yaml", GOOD);
        let socket = dir.path().join("socket");
        let mut command = util::tenantd();
        command.arg("--observe").arg("--policy").arg(policy).arg("--socket").arg(&socket);
        command.arg("--state-dir").arg(dir.path().join("state"));
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let observer = Observer { child, socket, _dir: dir };
        util::wait_until("the socket of tenantd", || {
            util::run(&mut observer.ctl(&["status"])).code == Some(0)
        });
        observer
    }

    pub(crate) fn ctl(&self, arguments: &[&str]) -> Command {
        let mut command = util::tenantctl();
        command.args(arguments).arg("--socket").arg(&self.socket);
        command
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    /// Stops it. A thread on another CPU may run on for a moment after the signal.
    pub(crate) fn stop(&self) {
        kill(self.pid(), Signal::SIGSTOP).unwrap();
        let stopped = waitpid(self.pid(), Some(WaitPidFlag::WUNTRACED)).unwrap();
        assert_eq!(stopped, WaitStatus::Stopped(self.pid(), Signal::SIGSTOP));
    }

    pub(crate) fn carry_on(&self) {
        kill(self.pid(), Signal::SIGCONT).unwrap();
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        // SIGKILL ends a stopped process as well; an observer has nothing to restore.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_stopped_daemon_ends_every_command_at_its_deadline() {
    let daemon = Observer::start();
    daemon.stop();
    for arguments in [
        &["status"][..],
        &["status", "--json"],
        &["watch"],
        &["explain", "web"],
        &["plan"],
        &["reload"],
        &["mode", "observe"],
        &["restore"],
        &["top"],
    ] {
        let mut command = daemon.ctl(arguments);
        let ran = util::run(command.args(["--timeout", "0.2"])).exits(69);
        ran.says_in_one_line("did not answer on").says("within 200ms: it is stopped or overloaded");
    }
    let metrics = util::run(daemon.ctl(&["metrics"]).args(["--timeout", "0.2"])).exits(69);
    assert!(metrics.out.contains("tenantd_up 0"), "{}", metrics.out);
    daemon.carry_on();
    util::run(&mut daemon.ctl(&["status"])).exits(0);
}

#[test]
fn a_timeout_is_a_positive_number_of_seconds() {
    for wrong in ["0", "-1", "nan", "ten", "2592001", "31days", "1e99"] {
        let mut command = util::tenantctl();
        command.args(["status", &format!("--timeout={wrong}")]);
        util::run(&mut command).exits(2).says("must be a number of seconds");
    }
}
