//! What it costs to start a command as a job.
//!
//! `cargo bench --bench run`, as root. Bar: from submission to exec at most 2 ms in the median, on an idle host.
//! In each round `true` is started three times, each time until it has ended: as it is; `tenantctl --version` in its place,
//! which is what it takes to start `tenantctl` at all; and by `tenantctl run -- true`. What the last takes longer than
//! the second is from submission to exec, and the end of `true` as well.

#![allow(clippy::unwrap_used, reason = "a benchmark measures; it need not handle")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};

const NR_ROUNDS: usize = 500;
const POLICY: &str = "version: 1\nmode: enforce\ntenants: { ci: {}, nightly: {} }\n";

/// A daemon with a root of its own, which ends with this.
struct Daemon(Child);

impl Daemon {
    fn start(dir: &Path) -> Daemon {
        let policy = dir.join("policy.yaml");
        fs::write(&policy, POLICY).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenantd"));
        command.arg("--policy").arg(policy).arg("--state-dir").arg(dir.join("state"));
        command.args(["--root", &format!("tenantd-run-{}", std::process::id())]);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let started = lines.find(|line| line.as_ref().unwrap().contains("started on"));
        assert!(started.is_some(), "tenantd does not start");
        // Its further messages are read, so that it never waits for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        Daemon(child)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.0.id() as i32), Signal::SIGTERM);
        let _ = self.0.wait();
    }
}

/// How long `command` takes from its start to its end.
fn time(command: &mut Command) -> Duration {
    let begin = Instant::now();
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status().unwrap();
    let time = begin.elapsed();
    assert!(status.success(), "{command:?}: {status}");
    time
}

fn ms(sorted: &[Duration], part: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e3
}

fn main() {
    if !Uid::effective().is_root() {
        return eprintln!("making cgroups needs root");
    }
    let dir = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(dir.path());
    let socket: PathBuf = dir.path().join("state/socket");
    let tenantctl = || Command::new(env!("CARGO_BIN_EXE_tenantctl"));
    let mut times = [const { Vec::new() }; 4];
    for _ in 0..NR_ROUNDS {
        let plain = time(&mut Command::new("true"));
        let start = time(tenantctl().arg("--version"));
        let mut run = tenantctl();
        run.arg("--socket").arg(&socket).args(["run", "--tenant", "ci", "--", "true"]);
        let run = time(&mut run);
        for (list, value) in times.iter_mut().zip([plain, start, run, run.saturating_sub(start)]) {
            list.push(value);
        }
    }
    drop(daemon);
    let names =
        ["true", "tenantctl --version", "tenantctl run -- true", "submission to the end of true"];
    println!("{:32} {:>8} {:>8}   ms, {NR_ROUNDS} rounds", "", "p50", "p99");
    for (name, list) in names.iter().zip(&mut times) {
        list.sort();
        println!("{name:32} {:8.2} {:8.2}", ms(list, 0.5), ms(list, 0.99));
    }
    let median = ms(&times[3], 0.5);
    assert!(median <= 2.0, "from submission to exec: {median:.2} ms in the median");
}
