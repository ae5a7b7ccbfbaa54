//! `tenantctl load` (hidden): the load of a cgroup for the demo and the tests.
//!
//! It reads orders from standard input, one line at a time (`threads=2 duty=0.3 memory=67108864`), and ends
//! with its input, so that a killed parent leaves no load behind. Each thread works for its duty of a 20 ms
//! period by its own CPU clock, so that it asks for the same CPU time however often it has to wait. Memory
//! is touched again every second, so that it stays a working set. `hot=BYTES` reads a file of that size
//! from end to end every few seconds, like a program that depends on its cache; `scan=BYTES` reads one as
//! fast as it can, with several threads, like a backup. The files have no name: they vanish with the load.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use nix::time::{ClockId, clock_gettime};
use tracing::warn;

use crate::args::LoadArgs;
use tenantd::exit::Exit;

const PERIOD: Duration = Duration::from_millis(20);
const PAGE_BYTES: usize = 4096;
const SLICE_BYTES: usize = 256 * PAGE_BYTES;

/// Shortest time of one reading of the hot file: slow enough to cost almost no CPU time.
pub(crate) const HOT_PASS: Duration = Duration::from_secs(3);

/// Number of scanning threads, each with a file of its own: a single one would get little of a busy machine.
const SCANS: u32 = 8;

/// Directory of the files: on a disk, so that their pages can be reclaimed.
const FILES: &str = "/var/tmp";

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Want {
    pub(crate) threads: u32,
    pub(crate) duty: f64,
    /// Anonymous memory that it keeps touching.
    pub(crate) memory_bytes: u64,
    /// Size of a file that it rereads slowly.
    pub(crate) hot_bytes: u64,
    /// Size of a file that it rereads as fast as it can. It has no contents and takes no space on disk.
    pub(crate) scan_bytes: u64,
}

impl Default for Want {
    fn default() -> Self {
        Want { threads: 0, duty: 1.0, memory_bytes: 0, hot_bytes: 0, scan_bytes: 0 }
    }
}

#[derive(Debug, Default)]
struct Orders {
    want: Mutex<Want>,
    changed: Condvar,
}

impl Orders {
    fn get(&self) -> MutexGuard<'_, Want> {
        self.want.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, want: Want) {
        *self.get() = want;
        self.changed.notify_all();
    }

    /// Waits until `is_idle` no longer holds, without a wake-up that would itself be load.
    fn wait(&self, is_idle: impl Fn(&Want) -> bool) -> Want {
        let want = self.changed.wait_while(self.get(), |want| is_idle(want));
        *want.unwrap_or_else(PoisonError::into_inner)
    }

    /// CPU time per period for worker `index`; waits until it wants any.
    fn work(&self, index: u32) -> Duration {
        let want = self.wait(|want| index >= want.threads || want.duty == 0.0);
        PERIOD.mul_f64(want.duty)
    }
}

/// Number of running threads, which only grows.
#[derive(Debug, Default)]
struct Running {
    nr_workers: u32,
    is_scanning: bool,
}

pub(crate) fn run(args: &LoadArgs) -> anyhow::Result<Exit> {
    let orders = Arc::new(Orders::default());
    let mut running = Running::default();
    start(&args.load, &orders, &mut running)?;
    for work in [hold_memory, read_hot_file] {
        let orders = Arc::clone(&orders);
        thread::Builder::new().spawn(move || work(&orders))?;
    }
    for line in io::stdin().lock().lines() {
        start(&line?, &orders, &mut running)?;
    }
    Ok(Exit::Ok)
}

/// Applies a line of orders, and starts the missing threads.
fn start(line: &str, orders: &Arc<Orders>, running: &mut Running) -> anyhow::Result<()> {
    let want = parse(line)?;
    orders.set(want);
    while running.nr_workers < want.threads {
        let (orders, index) = (Arc::clone(orders), running.nr_workers);
        thread::Builder::new().spawn(move || work(&orders, index))?;
        running.nr_workers += 1;
    }
    if want.scan_bytes > 0 && !running.is_scanning {
        for _ in 0..SCANS {
            let orders = Arc::clone(orders);
            thread::Builder::new().spawn(move || scan_file(&orders))?;
        }
        running.is_scanning = true;
    }
    Ok(())
}

/// Parses a line of orders: `threads=N duty=0..1 memory=BYTES hot=BYTES scan=BYTES`, each of them optional.
fn parse(line: &str) -> anyhow::Result<Want> {
    let mut want = Want::default();
    for word in line.split_whitespace() {
        let (key, value) = word.split_once('=').with_context(|| format!("`{word}` has no `=`"))?;
        let invalid = || format!("`{word}` is not a valid order");
        match key {
            "threads" => want.threads = value.parse().with_context(invalid)?,
            "duty" => want.duty = value.parse().with_context(invalid)?,
            "memory" => want.memory_bytes = value.parse().with_context(invalid)?,
            "hot" => want.hot_bytes = value.parse().with_context(invalid)?,
            "scan" => want.scan_bytes = value.parse().with_context(invalid)?,
            _ => bail!("`{word}`: the orders are threads=, duty=, memory=, hot= and scan="),
        }
    }
    if !(0.0..=1.0).contains(&want.duty) {
        bail!("duty is a part of one CPU, from 0 to 1");
    }
    Ok(want)
}

/// Inverse of [`parse`].
pub(crate) fn orders(want: &Want) -> String {
    let Want { threads, duty, memory_bytes, hot_bytes, scan_bytes } = want;
    format!("threads={threads} duty={duty} memory={memory_bytes} hot={hot_bytes} scan={scan_bytes}")
}

/// True if files of loads would be cached from a disk here. Pages of a file system in memory are its only
/// copy: they cannot be reclaimed without swap.
pub(crate) fn has_disk() -> bool {
    let Ok(found) = statfs(FILES) else { return false };
    let kind = found.filesystem_type();
    // The lower file system of an overlay cannot be determined; for containers it is a disk.
    kind != TMPFS_MAGIC
}

fn work(orders: &Orders, index: u32) {
    let mut next = Instant::now();
    let mut sum = u64::from(index);
    // CPU time beyond the allowance of earlier periods: on a slow or stolen CPU one round may cost many
    // periods.
    let mut overdrawn = Duration::ZERO;
    let mut begin = cpu_time();
    loop {
        let allowed = orders.work(index);
        let work = allowed.saturating_sub(overdrawn);
        while cpu_time().saturating_sub(begin) < work {
            for _ in 0..2000 {
                sum = std::hint::black_box(sum.wrapping_mul(6364136223846793005).wrapping_add(1));
            }
        }
        // Periods are counted from end to end, so that falling asleep and waking up are part of the work.
        let end = cpu_time();
        let used = end.saturating_sub(begin);
        begin = end;
        overdrawn = if allowed < PERIOD {
            (overdrawn + used).saturating_sub(allowed)
        } else {
            Duration::ZERO
        };
        // Work missed in its period is dropped: the next period begins now.
        next = (next + PERIOD).max(Instant::now());
        if work < PERIOD {
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }
}

/// CPU time of the calling thread; zero if the kernel does not report it, which ends the work early.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// Holds the ordered memory: touches all of it at once when the order changes, and then again and again,
/// slowly enough to need almost no CPU time even if touching a page is expensive.
fn hold_memory(orders: &Orders) {
    let mut held: Vec<u8> = Vec::new();
    loop {
        let wanted = orders.get().memory_bytes as usize;
        let is_new = held.len() != wanted;
        if is_new {
            drop(held);
            // Zeroed memory costs nothing until it is touched.
            held = vec![0; wanted];
        }
        for slice in held.chunks_mut(SLICE_BYTES) {
            let begin = cpu_time();
            for page in slice.chunks_mut(PAGE_BYTES) {
                page[0] = page[0].wrapping_add(1);
            }
            if !is_new {
                thread::sleep(cpu_time().saturating_sub(begin) * 99);
                // A pass over expensive pages takes a minute: a new order does not wait for its end.
                if orders.get().memory_bytes as usize != wanted {
                    break;
                }
            }
        }
        thread::sleep(Duration::from_millis(if is_new { 50 } else { 1000 }));
    }
}

/// Reads the hot file from end to end, a slice at a time with pauses between them.
fn read_hot_file(orders: &Orders) {
    let mut file: Option<(u64, File)> = None;
    let mut slice = vec![0; SLICE_BYTES];
    loop {
        let bytes = orders.wait(|want| want.hot_bytes == 0).hot_bytes;
        if file.as_ref().is_none_or(|(size, _)| *size != bytes) {
            match full_file(bytes) {
                Ok(full) => file = Some((bytes, full)),
                Err(error) => return warn!("no file to read again in {FILES}: {error}"),
            }
        }
        let Some((_, file)) = &file else { continue };
        let slices = bytes.div_ceil(SLICE_BYTES as u64).max(1);
        for number in 0..slices {
            let begin = cpu_time();
            if let Err(error) = file.read_at(&mut slice, number * SLICE_BYTES as u64) {
                return warn!("cannot read the file in {FILES} again: {error}");
            }
            // Reading is not part of the ordered CPU time: if it is expensive, it takes longer.
            let pause = cpu_time().saturating_sub(begin) * 99;
            thread::sleep(pause.max(HOT_PASS.div_f64(slices as f64)));
        }
    }
}

/// Reads a file without contents as fast as it can, each slice twice: pages read only once would be
/// reclaimed first.
fn scan_file(orders: &Orders) {
    let mut bytes = orders.wait(|want| want.scan_bytes == 0).scan_bytes;
    let mut slice = vec![0; SLICE_BYTES];
    let file = match nameless_file() {
        Ok(file) => file,
        Err(error) => return warn!("no file to scan in {FILES}: {error}"),
    };
    let mut at = 0;
    loop {
        // An unwritten file has no blocks on the disk, and its pages are cached like any others.
        if let Err(error) = file.set_len(bytes) {
            return warn!("no file to scan in {FILES}: {error}");
        }
        for _ in 0..2 {
            if let Err(error) = file.read_at(&mut slice, at) {
                return warn!("cannot scan the file in {FILES}: {error}");
            }
        }
        at = if at + SLICE_BYTES as u64 >= bytes { 0 } else { at + SLICE_BYTES as u64 };
        bytes = orders.wait(|want| want.scan_bytes == 0).scan_bytes;
    }
}

/// Creates a file of `bytes`, written to disk: dirty pages cannot be reclaimed.
fn full_file(bytes: u64) -> io::Result<File> {
    let mut file = nameless_file()?;
    let slice = vec![0x5a; SLICE_BYTES];
    let mut left = bytes;
    while left > 0 {
        let part = left.min(SLICE_BYTES as u64);
        file.write_all(&slice[..part as usize])?;
        left -= part;
    }
    file.sync_data()?;
    Ok(file)
}

/// Creates an empty file that is deleted when its descriptor is closed.
fn nameless_file() -> io::Result<File> {
    let thread = format!("{:?}", thread::current().id());
    let number: String = thread.chars().filter(char::is_ascii_digit).collect();
    let path = Path::new(FILES).join(format!(".tenantd-load-{}-{number}", std::process::id()));
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_read_back() {
        let want =
            Want { threads: 3, duty: 0.25, memory_bytes: 4096, hot_bytes: 8192, scan_bytes: 1 };
        assert_eq!(parse(&orders(&want)).unwrap(), want);
        for bad in ["threads", "threads=x", "duty=2", "duty=NaN", "cpu=1"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn files_of_loads_have_no_name() {
        let file = full_file(SLICE_BYTES as u64 + 1).unwrap();
        assert_eq!(file.metadata().unwrap().len(), SLICE_BYTES as u64 + 1);
        let own = format!(".tenantd-load-{}-", std::process::id());
        let left = fs::read_dir(FILES).unwrap().flatten();
        assert!(!left.into_iter().any(|e| e.file_name().to_string_lossy().starts_with(&own)));
    }
}
