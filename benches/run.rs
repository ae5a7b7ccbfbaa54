//! What it costs to start a command as a job.
//!
//! `cargo bench --bench run`, as root; a minute. Bar: from submission to exec at most 2 ms in the median, on an idle host.
//!
//! Each round starts three programs and waits for the end of each: `true`; `tenantctl help`, which is what it takes to start
//! `tenantctl` at all; and `tenantctl run -- true`. What the last takes longer than the second is from submission to
//! exec, and the run of `true` as well. Then a process is moved from one cgroup to another, without tenantctl: the
//! kernel lets the first move after a while wait for a grace period of RCU (`favordynmods` in its documentation of
//! cgroup v2), and that is a part of every start.

#![allow(clippy::unwrap_used, reason = "a benchmark measures; it need not handle")]

mod bar;
mod cpu_tree;
mod daemon;
#[path = "../tests/programs.rs"]
mod programs;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::unistd::Uid;

use bar::Bars;
use cpu_tree::cpu_tree;
use daemon::Daemon;

const NR_ROUNDS: usize = 150;
/// Before each thing that is measured: longer than a grace period, so that none profits from the one before.
const REST: Duration = Duration::from_millis(100);
const BAR_MS: f64 = 2.0;
const POLICY: &str = "version: 1\nmode: enforce\ntenants: { ci: {}, nightly: {} }\n";

/// How long `command` takes from its start to its end.
fn time(command: &mut Command) -> Duration {
    let begin = Instant::now();
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status().unwrap();
    let time = begin.elapsed();
    assert!(status.success(), "{command:?}: {status}");
    time
}

/// The files of two tenants into which process numbers are written, in the tree of the CPU controller.
fn tenants() -> [PathBuf; 2] {
    let (_, root) = cpu_tree(&root());
    ["ci", "nightly"].map(|tenant| root.join(tenant).join("cgroup.procs"))
}

fn root() -> String {
    format!("tenantd-run-{}", std::process::id())
}

fn ms(sorted: &[Duration], part: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e3
}

fn main() -> ExitCode {
    if !Uid::effective().is_root() {
        eprintln!("making cgroups needs root");
        return ExitCode::SUCCESS;
    }
    let dir = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(dir.path(), &root(), POLICY);
    let tenantctl = || Command::new(crate::programs::path("tenantctl"));
    let tenants = tenants();
    let mut sleeper = Command::new("sleep").arg("1000").spawn().unwrap();
    let mut times = [const { Vec::new() }; 5];
    for round in 0..NR_ROUNDS {
        let rested = |command: &mut Command| {
            sleep(REST);
            time(command)
        };
        let plain = rested(&mut Command::new("true"));
        let start = rested(tenantctl().arg("help"));
        let mut run = tenantctl();
        run.arg("--socket").arg(&daemon.socket).args(["run", "--tenant", "ci", "--", "true"]);
        let run = rested(&mut run);
        sleep(REST);
        let begin = Instant::now();
        fs::write(&tenants[round % 2], sleeper.id().to_string()).unwrap();
        let values = [plain, start, run, run.saturating_sub(start), begin.elapsed()];
        times.iter_mut().zip(values).for_each(|(list, value)| list.push(value));
    }
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    drop(daemon);
    let names = [
        "true",
        "tenantctl help",
        "tenantctl run -- true",
        "submission to the end of true",
        "a move without tenantctl",
    ];
    println!("{:32} {:>8} {:>8}   ms, {NR_ROUNDS} rounds", "", "p50", "p99");
    for (name, list) in names.iter().zip(&mut times) {
        list.sort();
        println!("{name:32} {:8.2} {:8.2}", ms(list, 0.5), ms(list, 0.99));
    }
    let median = ms(&times[3], 0.5);
    let mut bars = Bars::default();
    let start = ms(&times[2], 0.5) / ms(&times[1], 0.5);
    bars.note("tenantctl run -- true, p50", start, "x tenantctl help");
    bars.at_most("submission to the end of true, p50", median, "ms", BAR_MS);
    bars.verdict()
}
