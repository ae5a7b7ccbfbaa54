//! What it costs to look: sampling 1,000 tenants on this machine's own cgroups, and the whole tick around it.
//!
//! Every tenant holds one sleeping process, so that all of its files are read; the tenants are cgroups made
//! below this process's own, and gone at the end. As root; elsewhere it says so and measures nothing.
//!
//! Bars: sampling at most 1.05 times a bare loop of `pread` over the same files, in the same run; of the tick's CPU
//! time at most 15 % outside system calls at 1,000 tenants, and no more for each tenant with a thousand of them than
//! with a hundred.

#![allow(clippy::expect_used, reason = "without a host there is nothing to measure")]

mod bar;
mod crowd;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bar::Bars;
use crowd::{Crowd, Noting, allow_files, cpu_times, observer};
use tenantd_control::measure::disk::{Device, PerDisk};
use tenantd_host::cgroup::{Cgroup, Last};
use tenantd_host::kernfs::RealKernFs;

const TENANTS: [usize; 2] = [100, 1_000];
/// Times a bare loop of `pread`.
const SAMPLING_BAR: f64 = 1.05;
const BEYOND_BAR_PERCENT: f64 = 15.0;
const ROUNDS: usize = 31;
/// Tenants whose files are open at once while sampling is measured.
const CHUNK: usize = 250;
const TICKS: usize = 200;

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn time(act: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    act();
    begin.elapsed()
}

/// Sampling against the bare loop, in turns; of so many tenants at a time that the files of both fit into the limit on
/// open files.
fn sampling(crowd: &Crowd, size: usize, bars: &mut Bars) {
    let (mut bare, mut ours, mut opened, mut nr_files) =
        (Duration::ZERO, Duration::ZERO, Duration::ZERO, 0);
    for first in (0..size).step_by(CHUNK) {
        let part = sample_part(crowd, first..size.min(first + CHUNK));
        (bare, ours, opened) = (bare + part.bare, ours + part.ours, opened + part.opened);
        nr_files += part.nr_files;
    }
    println!(
        "sampling {size} tenants ({nr_files} files): {ours:.2?}, a bare loop of pread {bare:.2?}"
    );
    let ratio = ours.as_secs_f64() / bare.as_secs_f64();
    let name = format!("sampling {size} tenants");
    bars.at_most(name, ratio, "x a bare loop of pread", SAMPLING_BAR);
    let opened = opened.as_secs_f64() / bare.as_secs_f64();
    bars.note(format!("open, read and close for {size} tenants"), opened, "x a bare loop of pread");
}

/// Medians of reading the same files in three ways.
struct Part {
    bare: Duration,
    ours: Duration,
    /// With an open and a close around each read.
    opened: Duration,
    nr_files: usize,
}

fn sample_part(crowd: &Crowd, tenants: std::ops::Range<usize>) -> Part {
    // Any disk: what is read does not depend on it.
    let disks = PerDisk::of([(Device { major: 8, minor: 0 }, ())]);
    let last = Last { disks, ..Last::default() };
    let mut kernel = Noting { kernel: RealKernFs::new(), kept: Vec::new() };
    let open = |tenant: usize| Cgroup::open(&mut kernel, &crowd.layout, &format!("t{tenant}"));
    let cgroups: Vec<Cgroup> = tenants.map(open).collect::<Result<_, _>>().expect("made above");
    let open = |path: &PathBuf| File::open(path).expect("opened above");
    let files: Vec<File> = kernel.kept.iter().map(open).collect();
    let mut buffer = vec![0; 16 << 10];
    let (mut bare, mut ours, mut opened) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        bare.push(time(|| {
            for file in &files {
                file.read_at(&mut buffer, 0).expect("readable");
            }
        }));
        ours.push(time(|| {
            let mut gaps = Vec::new();
            for cgroup in &cgroups {
                cgroup.sample(&mut kernel, false, &last, &mut gaps).expect("still there");
            }
            assert!(gaps.is_empty(), "{:?}", gaps.first());
        }));
        opened.push(time(|| {
            for path in &kernel.kept {
                File::open(path).expect("still there").read_at(&mut buffer, 0).expect("readable");
            }
        }));
    }
    let (bare, ours, opened) = (median(bare), median(ours), median(opened));
    Part { bare, ours, opened, nr_files: files.len() }
}

/// The whole tick of an observer.
fn tick(root: &str, size: usize, bars: &mut Bars) {
    let mut agent = observer(root, size);
    for second in 1..=3 {
        agent.tick(Duration::from_secs(second));
    }
    let before = cpu_times();
    for second in 0..TICKS as u64 {
        agent.tick(Duration::from_secs(4 + second));
    }
    let after = cpu_times();
    let (user, system) = (after.0 - before.0, after.1 - before.1);
    let ticks = TICKS as u32;
    println!(
        "a tick with {size} tenants: {:.2?} of CPU, {:.2?} a tenant outside system calls",
        (user + system) / ticks,
        user / ticks / size as u32
    );
    let percent = 100.0 * user.as_secs_f64() / (user + system).as_secs_f64();
    let (name, unit) =
        (format!("a tick with {size} tenants beyond its system calls"), "% of its CPU time");
    match size {
        1_000 => bars.at_most(name, percent, unit, BEYOND_BAR_PERCENT),
        _ => bars.note(name, percent, unit),
    }
}

fn main() -> ExitCode {
    let mut bars = Bars::default();
    // All files of a thousand tenants, twice.
    allow_files(1 << 16);
    for size in TENANTS {
        let root = format!("tenantd-bench-{}-{size}", std::process::id());
        match Crowd::gather(&root, size, 1) {
            Ok(crowd) => {
                sampling(&crowd, size, &mut bars);
                tick(&root, size, &mut bars);
            }
            Err(error) => {
                println!("nothing is measured: no cgroups can be made: {error}");
                return ExitCode::SUCCESS;
            }
        }
    }
    bars.verdict()
}
