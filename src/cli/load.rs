//! `tenantctl load` (hidden): the load that the demo and the tests put into a cgroup.
//!
//! It does what it is told, one line of standard input at a time (`threads=2 duty=0.3 memory=67108864`), and
//! ends when its input ends: whoever started it may be killed without leaving it behind. Each thread works
//! for its duty of a 20 ms period by its own CPU clock, so that it asks for the same CPU time however often
//! it is made to wait; memory is touched again every second, so that it stays a working set.

use std::io::{self, BufRead};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::time::{ClockId, clock_gettime};

use super::args::LoadArgs;
use super::exit::Exit;
use crate::sim::Load;

const PERIOD: Duration = Duration::from_millis(20);
const PAGE_BYTES: usize = 4096;
const SLICE_BYTES: usize = 256 * PAGE_BYTES;

/// What the threads are told.
#[derive(Debug, Default)]
struct Orders {
    load: Mutex<Load>,
    changed: Condvar,
}

impl Orders {
    fn get(&self) -> MutexGuard<'_, Load> {
        self.load.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, load: Load) {
        *self.get() = load;
        self.changed.notify_all();
    }

    /// The CPU time that worker `index` wants of each period; waits until it wants any, without a wake-up that
    /// would itself be load.
    fn work(&self, index: u32) -> Duration {
        let idle = |load: &mut Load| index >= load.threads || load.duty == 0.0;
        let load = self.changed.wait_while(self.get(), idle);
        PERIOD.mul_f64(load.unwrap_or_else(PoisonError::into_inner).duty)
    }
}

/// Runs the command.
///
/// # Errors
/// A line that is not understood; a thread that cannot be started.
pub(super) fn run(args: &LoadArgs) -> anyhow::Result<Exit> {
    let orders = Arc::new(Orders::default());
    let mut workers = 0;
    start(&args.load, &orders, &mut workers)?;
    let for_memory = Arc::clone(&orders);
    thread::Builder::new().spawn(move || hold_memory(&for_memory))?;
    for line in io::stdin().lock().lines() {
        start(&line?, &orders, &mut workers)?;
    }
    Ok(Exit::Ok)
}

/// Takes a line of orders, and starts the threads that it needs beyond those that run.
fn start(line: &str, orders: &Arc<Orders>, workers: &mut u32) -> anyhow::Result<()> {
    let load = parse(line)?;
    let threads = load.threads;
    orders.set(load);
    while *workers < threads {
        let (orders, index) = (Arc::clone(orders), *workers);
        thread::Builder::new().spawn(move || work(&orders, index))?;
        *workers += 1;
    }
    Ok(())
}

/// A line of orders: `threads=N duty=0..1 memory=BYTES`, each of them optional.
fn parse(line: &str) -> anyhow::Result<Load> {
    let mut load = Load { threads: 0, duty: 1.0, ..Load::default() };
    for word in line.split_whitespace() {
        let (key, value) = word.split_once('=').with_context(|| format!("`{word}` has no `=`"))?;
        let invalid = || format!("`{word}` is not a valid order");
        match key {
            "threads" => load.threads = value.parse().with_context(invalid)?,
            "duty" => load.duty = value.parse().with_context(invalid)?,
            "memory" => load.working_set_bytes = value.parse().with_context(invalid)?,
            _ => bail!("`{word}`: the orders are threads=, duty= and memory="),
        }
    }
    if !(0.0..=1.0).contains(&load.duty) {
        bail!("duty is a part of one CPU, from 0 to 1");
    }
    Ok(load)
}

/// The line that [`parse`] reads back.
pub(super) fn orders(load: &Load) -> String {
    format!("threads={} duty={} memory={}", load.threads, load.duty, load.working_set_bytes)
}

/// Works for its part of every period.
fn work(orders: &Orders, index: u32) {
    let mut next = Instant::now();
    let mut sum = u64::from(index);
    // CPU time beyond what earlier periods allowed: on a slow or stolen CPU one round may cost many periods.
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
        overdrawn = match allowed < PERIOD {
            true => (overdrawn + used).saturating_sub(allowed),
            false => Duration::ZERO,
        };
        // What could not be done in its period is not made up for: the next one begins now.
        next = (next + PERIOD).max(Instant::now());
        if work < PERIOD {
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }
}

/// The CPU time of the calling thread; zero where the kernel will not say, which ends the work early.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// Holds as much memory as ordered: touches all of it at once when the order changes, and from then on again
/// and again, slowly enough to ask for next to no CPU time even where touching a page is dear.
fn hold_memory(orders: &Orders) {
    let mut held: Vec<u8> = Vec::new();
    loop {
        let wanted = orders.get().working_set_bytes as usize;
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
            }
        }
        thread::sleep(Duration::from_millis(if is_new { 50 } else { 1000 }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_read_back() {
        let load = Load { threads: 3, duty: 0.25, ..Load::default() }.with_working_set(4096);
        let read = parse(&orders(&load)).unwrap();
        assert_eq!((read.threads, read.duty, read.working_set_bytes), (3, 0.25, 4096));
        for bad in ["threads", "threads=x", "duty=2", "duty=NaN", "cpu=1"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
