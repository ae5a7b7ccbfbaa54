//! How soon a build is as wide as it is told.
//!
//! `cargo bench --bench valve`; two minutes. Bar: at most a second from the order until it is in effect, beyond the piece of
//! work in progress, for make both ways and for cargo. make runs commands of 0.3 s; cargo checks this crate with all its
//! dependencies in a directory of its own. Wider is in effect when all new tokens are in use, which takes work that is
//! ready; narrower, when all tokens that are too many have been taken out.

#![allow(clippy::unwrap_used, reason = "a benchmark measures; it need not handle")]

mod bar;

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use bar::Bars;
use tenantd_dop::environment::{self, Jobserver, Width};
use tenantd_host::valve::Valve;

/// What a command of make takes, in seconds.
const PIECE: f64 = 0.3;
const WIDE: u32 = 5;
const NARROW: u32 = 1;
/// Between two orders.
const REST: Duration = Duration::from_secs(2);
/// Between two looks: the precision of what is printed.
const LOOK: Duration = Duration::from_micros(200);
const NR_ROUNDS: usize = 8;

fn start(program: &str, arguments: &[&str], valve: &Valve) -> Child {
    let fifo = valve.fifo();
    let fifo = fifo.to_str().unwrap();
    let width = Width {
        dop: WIDE + 1,
        is_pinned: true,
        jobserver: Some(Jobserver { fifo, descriptors: Some((8, 9)) }),
        cgroup: "",
    };
    let line: Vec<OsString> = vec![program.into()];
    let mut command = Command::new("sh");
    command.args(["-c", r#"exec 8<>"$0" 9<>"$0"; exec "$@""#, fifo, program]).args(arguments);
    for name in ["MAKEFLAGS", "MFLAGS", "CARGO_MAKEFLAGS", "MAKELEVEL"] {
        command.env_remove(name);
    }
    command.envs(environment::variables(&width, &line, |_| false));
    command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Waits until `is_so` or the build has ended; `None` for the latter.
fn until(build: &mut Child, is_so: impl Fn() -> bool) -> Option<Duration> {
    let begin = Instant::now();
    while !is_so() {
        if build.try_wait().unwrap().is_some() {
            return None;
        }
        sleep(LOOK);
    }
    Some(begin.elapsed())
}

/// How long orders took until they were in effect, in both directions.
#[derive(Default)]
struct Times {
    wider: Vec<Duration>,
    narrower: Vec<Duration>,
}

impl Times {
    fn widen(&mut self, valve: &mut Valve, build: &mut Child) {
        sleep(REST);
        valve.set(WIDE).unwrap();
        self.wider.extend(until(build, || valve.free().unwrap() == 0));
    }

    fn narrow(&mut self, valve: &mut Valve, build: &mut Child) {
        sleep(REST);
        valve.set(NARROW).unwrap();
        self.narrower.extend(until(build, || valve.debt() == 0));
    }

    /// `piece` is how long a piece of work takes, in seconds.
    fn tell(mut self, name: &str, piece: f64, bars: &mut Bars) {
        for (what, times) in [("wider", &mut self.wider), ("narrower", &mut self.narrower)] {
            times.sort();
            let Some(longest) = times.last().map(Duration::as_secs_f64) else { continue };
            let shown: Vec<String> =
                times.iter().map(|it| format!("{:.3}", it.as_secs_f64())).collect();
            println!("{name:6} {what:9} s: {}", shown.join(" "));
            let title = format!("{name} is {what}, the longest of {}", times.len());
            bars.at_most(title, longest - piece, "s beyond a piece of work", 1.0);
        }
    }
}

fn make(dir: &Path, bars: &mut Bars) {
    let targets: Vec<String> = (0..10_000).map(|number| format!("t{number}")).collect();
    let all = targets.join(" ");
    let text = format!("all: {all}\n.PHONY: {all}\n{all}:\n\t@sleep {PIECE}\n");
    fs::write(dir.join("Makefile"), text).unwrap();
    let mut valve = valve(dir, WIDE);
    let mut build = start("make", &["-C", dir.to_str().unwrap()], &valve);
    let mut times = Times::default();
    for _ in 0..NR_ROUNDS {
        times.narrow(&mut valve, &mut build);
        times.widen(&mut valve, &mut build);
    }
    end(build);
    times.tell("make", PIECE, bars);
}

/// cargo gives a token back only when no crate is ready for it, and so gets narrower when it likes: measured is how it gets
/// wider, in builds from nothing.
fn cargo(dir: &Path, bars: &mut Bars) {
    let mut times = Times::default();
    for round in 0..NR_ROUNDS {
        let target = dir.join(format!("target{round}"));
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let arguments = ["check", "--locked", "--manifest-path", manifest, "--target-dir"];
        let arguments: Vec<&str> =
            arguments.into_iter().chain([target.to_str().unwrap()]).collect();
        let mut valve = valve(dir, NARROW);
        let mut build = start("cargo", &arguments, &valve);
        times.widen(&mut valve, &mut build);
        end(build);
    }
    times.tell("cargo", 0.0, bars);
}

fn valve(dir: &Path, tokens: u32) -> Valve {
    Valve::create(&dir.join("valve"), nix::unistd::getuid().as_raw(), tokens).unwrap()
}

fn end(mut build: Child) {
    // It may have ended by itself.
    let _ = killpg(Pid::from_raw(build.id() as i32), Signal::SIGKILL);
    build.wait().unwrap();
}

fn main() -> ExitCode {
    let mut bars = Bars::default();
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), &mut bars);
    cargo(dir.path(), &mut bars);
    bars.verdict()
}
