//! How soon a build is as wide as it is told.
//!
//! `cargo bench --bench valve`; two minutes. Bar: at most a second from the order until it is in effect, beyond the piece of
//! work in progress, for make and for cargo, both ways. make runs commands of 0.3 s; cargo checks this crate with all its
//! dependencies in a directory of its own. Wider is in effect when all new tokens are in use, which takes work that is
//! ready; narrower, when all tokens that are too many have been taken out.

#![allow(clippy::unwrap_used, reason = "a benchmark measures; it need not handle")]

mod bar;

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use bar::Bars;
use tenantd::dop::environment::{self, Jobserver, Width};
use tenantd::valve::Valve;

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
        jobserver: Some(Jobserver { fifo, read: 8, write: 9 }),
    };
    let line: Vec<OsString> = vec![program.into()];
    let mut command = Command::new("sh");
    command.args(["-c", r#"exec 8<>"$0" 9<>"$0"; exec "$@""#, fifo, program]).args(arguments);
    for name in ["MAKEFLAGS", "MFLAGS", "CARGO_MAKEFLAGS", "MAKELEVEL"] {
        command.env_remove(name);
    }
    command.envs(environment::variables(&width, &line, |_| false));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
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

/// `piece` is how long a piece of work takes, in seconds, where all take the same.
fn measure(dir: &Path, tool: (&str, &[&str]), piece: Option<f64>, bars: &mut Bars) {
    let (program, arguments) = tool;
    let name = program;
    let uid = nix::unistd::getuid().as_raw();
    let mut valve = Valve::create(&dir.join("valve"), uid, WIDE).unwrap();
    let mut build = start(program, arguments, &valve);
    let (mut wider, mut narrower) = (Vec::new(), Vec::new());
    for _ in 0..NR_ROUNDS {
        sleep(REST);
        valve.set(NARROW).unwrap();
        narrower.extend(until(&mut build, || valve.debt() == 0));
        sleep(REST);
        valve.set(WIDE).unwrap();
        wider.extend(until(&mut build, || valve.free().unwrap() == 0));
    }
    let _ = build.kill();
    build.wait().unwrap();
    for (what, times) in [("wider", &mut wider), ("narrower", &mut narrower)] {
        times.sort();
        let shown: Vec<String> =
            times.iter().map(|it| format!("{:.3}", it.as_secs_f64())).collect();
        println!("{name:6} {what:9} s: {}", shown.join(" "));
        let longest = times.last().map_or(f64::INFINITY, Duration::as_secs_f64);
        let (title, unit) = (format!("{name} is {what}, the longest of {NR_ROUNDS}"), "s");
        match piece {
            Some(piece) => bars.at_most(title, longest - piece, "s beyond a piece of work", 1.0),
            None => bars.note(title, longest, unit),
        }
    }
}

fn main() -> ExitCode {
    let mut bars = Bars::default();
    let dir = tempfile::tempdir().unwrap();
    let targets: Vec<String> = (0..1000).map(|number| format!("t{number}")).collect();
    let all = targets.join(" ");
    let text = format!("all: {all}\n.PHONY: {all}\n{all}:\n\t@sleep {PIECE}\n");
    fs::write(dir.path().join("Makefile"), text).unwrap();
    let make = ["-C", dir.path().to_str().unwrap()];
    measure(dir.path(), ("make", &make), Some(PIECE), &mut bars);
    let target = dir.path().join("target");
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let arguments = ["check", "--locked", "--manifest-path", manifest, "--target-dir"];
    let arguments: Vec<&str> = arguments.into_iter().chain([target.to_str().unwrap()]).collect();
    measure(dir.path(), ("cargo", &arguments), None, &mut bars);
    bars.verdict()
}
