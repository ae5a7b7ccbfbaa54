//! A daemon on this kernel, for a benchmark.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A daemon with a root of its own, which ends with this.
pub(crate) struct Daemon {
    child: Child,
    /// Where it is asked.
    pub(crate) socket: PathBuf,
}

impl Daemon {
    /// Starts it with the cgroup `root` and its files in `dir`; returns when it has started.
    pub(crate) fn start(dir: &Path, root: &str, policy: &str) -> Daemon {
        let file = dir.join("policy.yaml");
        fs::write(&file, policy).unwrap();
        let mut command = Command::new(crate::programs::path("tenantd"));
        command.arg("--policy").arg(file).arg("--state-dir").arg(dir.join("state"));
        command.args(["--root", root]);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let started = lines.find(|line| line.as_ref().unwrap().contains("started on"));
        assert!(started.is_some(), "tenantd does not start");
        // Its further messages are read, so that it never waits for a reader.
        thread::spawn(move || lines.for_each(drop));
        Daemon { child, socket: dir.join("state/socket") }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM);
        let _ = self.child.wait();
    }
}
