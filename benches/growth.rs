//! What the agent costs as its tenants become more: CPU time per tick and resident set, at 10 to 10,000 tenants.
//!
//! `cargo bench --bench growth`, as root; a few minutes. Bar: CPU time per tick grows at most as tenants^1.1, fitted over all
//! sizes and between the largest two.
//!
//! If the limit on open files is too low for the largest size and cannot be raised, as many tenants are measured as fit,
//! if they are at least twice as many as before: no power can be told from sizes that are nearer.
//!
//! The tenants are cgroups of this kernel, one in ten with a sleeping process. Each size has a process of its own with an
//! agent that observes them, so that one size leaves the other no memory. Beside it, in the same process: a loop that
//! opens, reads and closes the files that the agent keeps open, which is how collectors without descriptors of their own read
//! them; and where `systemd-cgtop -b` runs, its CPU time for the same cgroups.

#![allow(clippy::expect_used, reason = "without a host there is nothing to measure")]

mod bar;
mod crowd;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Uid;

use bar::{Bars, exponent};
use crowd::{Crowd, Noting, allow_files, observer};
use tenantd_host::cgroup::Cgroup;
use tenantd_host::kernfs::RealKernFs;

const SIZES: [usize; 4] = [10, 100, 1_000, 10_000];
/// Two sizes differ at least by this factor.
const FACTOR_MIN: usize = 2;
/// Of the tenants, one in so many has a process.
const ONE_IN: usize = 10;
/// Tenants that are looked at together, in each size: as many ticks as that takes, and no fewer than the least.
const LOOKS: usize = 100_000;
const TICKS_MIN: usize = 20;
const TICKS_MAX: usize = 1_000;
/// Descriptors of this process that are not the agent's for its tenants, and one tenant's more than those of the size before.
const DESCRIPTORS_SPARE: u64 = 200;
const DESCRIPTORS_MORE: u64 = 1;
const CHUNK: usize = 250;
const EXPONENT_BAR: f64 = 1.1;
/// What `systemd-cgtop` does at one start.
const TOPS: u32 = 10;

/// What one size costs.
struct Cost {
    tick: Duration,
    opening: Duration,
    resident_kib: u64,
    nr_open: u64,
}

/// CPU time of this thread, by the clock of the scheduler: times by `getrusage` are as coarse as the timer.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a clock of this kernel");
    Duration::new(time.tv_sec().unsigned_abs(), time.tv_nsec() as u32)
}

fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("this process's own");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.split_whitespace().next())
        .and_then(|kib| kib.parse().ok())
        .expect("a number")
}

/// In a process of its own: prints the CPU time of a tick and of opening all files, in nanoseconds, the resident set in KiB,
/// and the number of descriptors.
fn work(root: &str, size: usize) {
    let mut agent = observer(root, size);
    for second in 1..=3 {
        agent.tick(Duration::from_secs(second));
    }
    let ticks = (LOOKS / size).clamp(TICKS_MIN, TICKS_MAX);
    let before = cpu_time();
    for second in 0..ticks as u64 {
        agent.tick(Duration::from_secs(4 + second));
    }
    let tick = (cpu_time() - before) / ticks as u32;
    // What is kept open, the listing itself not counted.
    let nr_open = fs::read_dir("/proc/self/fd").expect("this process's own").count() - 1;
    let resident_kib = resident_kib();
    drop(agent);
    println!("{} {} {resident_kib} {nr_open}", tick.as_nanos(), opening(root, size).as_nanos());
}

/// CPU time for one look at all files of all tenants with an open and a close around each read.
fn opening(root: &str, size: usize) -> Duration {
    let layout = Crowd::layout(root).expect("as the parent found it");
    let mut taken = Duration::ZERO;
    let mut buffer = vec![0; 16 << 10];
    for first in (0..size).step_by(CHUNK) {
        let mut kernel = Noting { kernel: RealKernFs::new(), kept: Vec::new() };
        for tenant in first..size.min(first + CHUNK) {
            Cgroup::open(&mut kernel, &layout, &format!("t{tenant}")).expect("made by the parent");
        }
        // The first look fills the kernel's own caches of names.
        for is_counted in [false, true] {
            let before = cpu_time();
            for path in &kernel.kept {
                let file = File::open(path).expect("still there");
                file.read_at(&mut buffer, 0).expect("readable");
            }
            if is_counted {
                taken += cpu_time() - before;
            }
        }
    }
    taken
}

fn measure(root: &str, size: usize) -> Cost {
    let program = std::env::current_exe().expect("its own path");
    let ran =
        Command::new(program).args(["work", root, &size.to_string()]).stdin(Stdio::null()).output();
    let ran = ran.expect("this program");
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    let mut numbers = text.split_whitespace().map(|number| number.parse().expect("a number"));
    let mut next =
        || numbers.next().unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&ran.stderr)));
    let (tick, opening) = (Duration::from_nanos(next()), Duration::from_nanos(next()));
    Cost { tick, opening, resident_kib: next(), nr_open: next() }
}

/// CPU time of `systemd-cgtop` for one look at the cgroups of one tree, where it runs.
fn cgtop(crowd: &Crowd) -> Option<Duration> {
    let root = crowd.below_mount()?;
    let children = || {
        let usage = getrusage(UsageWho::RUSAGE_CHILDREN).expect("the usage of children");
        let usec = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
        Duration::from_micros(usec.unsigned_abs())
    };
    let run = |iterations: u32| {
        let before = children();
        let mut top = Command::new("systemd-cgtop");
        top.args(["--batch", "--raw", "--depth=9", "--delay=100ms", "-n", &iterations.to_string()])
            .arg(&root);
        let ran = top.stdin(Stdio::null()).output().ok()?;
        let lists_them = String::from_utf8_lossy(&ran.stdout).contains("/t0");
        (ran.status.success() && lists_them).then(|| children() - before)
    };
    Some(run(1 + TOPS)?.saturating_sub(run(1)?) / TOPS)
}

fn main() -> ExitCode {
    // More than the service may have: what it would take is printed.
    allow_files(1 << 20);
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, word, root, size] = &arguments[..]
        && word == "work"
    {
        work(root, size.parse().expect("a number"));
        return ExitCode::SUCCESS;
    }
    if !Uid::effective().is_root() {
        eprintln!("making cgroups needs root");
        return ExitCode::SUCCESS;
    }
    let mut bars = Bars::default();
    let (mut ticks, mut resident) = (Vec::new(), Vec::new());
    let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit of this process");
    let (mut most, mut last) = (SIZES[0], 0);
    for wanted in SIZES {
        let size = wanted.min(most);
        if size < wanted {
            println!(
                "{wanted} tenants need more than the {limit} descriptors of this process: there is room for {most}"
            );
        }
        if size < FACTOR_MIN * last {
            break;
        }
        last = size;
        let root = format!("tenantd-growth-{}-{size}", std::process::id());
        let begin = Instant::now();
        let crowd = match Crowd::gather(&root, size, ONE_IN) {
            Ok(crowd) => crowd,
            Err(error) => {
                println!("no {size} tenants: no cgroups can be made: {error}");
                break;
            }
        };
        let made = begin.elapsed();
        let cost = measure(&root, size);
        println!(
            "{size} tenants (made in {made:.1?}): a tick {:.3?}, resident {} KiB",
            cost.tick, cost.resident_kib
        );
        let tick = cost.tick.as_secs_f64();
        bars.note(format!("a tick with {size} tenants"), tick * 1e3, "ms of CPU");
        let opened = cost.opening.as_secs_f64();
        bars.note(
            format!("a tick with {size} tenants"),
            tick / opened,
            "x open, read and close of its files",
        );
        if let Some(top) = cgtop(&crowd) {
            bars.note(
                format!("a tick with {size} tenants"),
                tick / top.as_secs_f64(),
                "x a look of systemd-cgtop",
            );
        }
        bars.note(
            format!("resident set with {size} tenants"),
            cost.resident_kib as f64 / 1024.0,
            "MiB",
        );
        bars.note(
            format!("descriptors with {size} tenants"),
            cost.nr_open as f64 / size as f64,
            "a tenant",
        );
        let each = cost.nr_open.div_ceil(size as u64) + DESCRIPTORS_MORE;
        most = (limit.saturating_sub(DESCRIPTORS_SPARE) / each) as usize;
        ticks.push((size as f64, tick));
        resident.push((size as f64, cost.resident_kib as f64));
    }
    if let [.., _, _] = ticks[..] {
        let last = &ticks[ticks.len() - 2..];
        let unit = "as the power of the tenants";
        bars.at_most("CPU time of a tick, all sizes", exponent(&ticks), unit, EXPONENT_BAR);
        bars.at_most(
            "CPU time of a tick, the largest two sizes",
            exponent(last),
            unit,
            EXPONENT_BAR,
        );
        bars.note(
            "resident set, the largest two sizes",
            exponent(&resident[resident.len() - 2..]),
            unit,
        );
    }
    bars.verdict()
}
