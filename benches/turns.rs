//! How long small jobs wait beside long ones, on this kernel.
//!
//! `cargo bench --bench turns`, as root; about a minute. Bar: the small jobs of one tenant beside a tenant with long ones
//! wait at most a tenth of what they wait under FIFO, in one run.
//!
//! For FIFO and for the default discipline a daemon of its own: one tenant submits its long jobs at once, each busy for a
//! second, and then the other a small one (`true`) every half second. Two jobs run at a time. What is measured is the
//! time from the start of `tenantctl run -- true` to its end; a `true` without tenantctl stands beside it.

#![allow(clippy::unwrap_used, reason = "a benchmark measures; it need not handle")]

mod bar;
mod daemon;
#[path = "../tests/programs.rs"]
mod programs;

use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};

use bar::Bars;
use daemon::Daemon;

const NR_LONG: usize = 30;
const NR_SMALL: usize = 16;
const PAUSE: Duration = Duration::from_millis(500);
const END: Duration = Duration::from_secs(3);
const LONG: &str = "timeout 1 sh -c 'while :; do :; done'; true";
const BAR: f64 = 0.1;

/// A daemon that admits two jobs at a time by this discipline.
fn start(dir: &Path, discipline: Option<&str>) -> Daemon {
    let discipline = discipline.map(|name| format!(", discipline: {name}")).unwrap_or_default();
    let policy = format!(
        "version: 1\nmode: enforce\nadmission: {{ max_running: 2{discipline} }}\n\
         tenants: {{ long: {{}}, small: {{}} }}\n"
    );
    Daemon::start(dir, &format!("tenantd-turns-{}", std::process::id()), &policy)
}

fn run(daemon: &Daemon, tenant: &str, command: &[&str]) -> Child {
    let mut run = Command::new(crate::programs::path("tenantctl"));
    run.arg("--socket").arg(&daemon.socket).args(["run", "--tenant", tenant, "--"]).args(command);
    run.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// What each small job took, in seconds, in order.
fn waits(discipline: Option<&str>) -> Vec<f64> {
    let dir = tempfile::tempdir().unwrap();
    let daemon = start(dir.path(), discipline);
    let mut long: Vec<Child> =
        (0..NR_LONG).map(|_| run(&daemon, "long", &["sh", "-c", LONG])).collect();
    sleep(2 * PAUSE);
    let small = |_| {
        let (begin, mut child) = (Instant::now(), run(&daemon, "small", &["true"]));
        let waiter = thread::spawn(move || {
            assert!(child.wait().unwrap().success());
            begin.elapsed().as_secs_f64()
        });
        sleep(PAUSE);
        waiter
    };
    let waiters: Vec<_> = (0..NR_SMALL).map(small).collect();
    let mut waits: Vec<f64> = waiters.into_iter().map(|it| it.join().unwrap()).collect();
    for child in &mut long {
        // Those that still wait leave the queue.
        let _ = kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM);
        let _ = child.wait();
    }
    // What the last of them started ends, and their cgroups go with it.
    sleep(END);
    waits.sort_by(f64::total_cmp);
    waits
}

fn main() -> ExitCode {
    if !Uid::effective().is_root() {
        eprintln!("making cgroups needs root");
        return ExitCode::SUCCESS;
    }
    let plain = |_| {
        let begin = Instant::now();
        Command::new("true").status().unwrap();
        begin.elapsed().as_secs_f64()
    };
    let plain: f64 = (0..NR_SMALL).map(plain).sum::<f64>() / NR_SMALL as f64;
    println!("{:24} {:>8} {:>8} {:>8}   seconds", "", "mean", "p50", "longest");
    println!("{:24} {plain:8.3}", "true, without tenantctl");
    let mut means = Vec::new();
    for discipline in [Some("fifo"), None] {
        let waits = waits(discipline);
        let mean = waits.iter().sum::<f64>() / waits.len() as f64;
        let (middle, longest) = (waits[waits.len() / 2], waits[waits.len() - 1]);
        let name = discipline.unwrap_or("the default discipline");
        println!("{name:24} {mean:8.3} {middle:8.3} {longest:8.3}");
        means.push(mean);
    }
    let mut bars = Bars::default();
    bars.at_most("small jobs beside long ones, mean wait", means[1] / means[0], "x FIFO", BAR);
    bars.verdict()
}
