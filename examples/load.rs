//! The load of one tenant in a comparison, and a count of what it got done.
//!
//! Usage: `load KIND FILE ARGUMENTS…`. Each thread keeps the number of units that it has done in eight bytes of `FILE`
//! (little endian, one place for each thread); a unit is 10,000 steps. Waiting times, in microseconds, are appended to
//! `FILE.waits` as four bytes each.
//!
//! | kind and arguments | what it does |
//! |---|---|
//! | `spin THREADS` | threads that work without end |
//! | `burst THREADS UNITS PERIOD_MS` | once per period so many units, divided among the threads; a wait is from the time at which the burst was due until its last unit |
//! | `answer PER_SECOND UNITS` | a client asks a server in another thread, which works so many units for an answer; a wait is from the time at which the request was due |
//! | `barrier RUN_MS` | runs of that length, one after the other, each with a thread for each CPU that it sees then; phases of ten units, between which all threads spin until the last one is done; a phase counts as one |
//! | `hold MIB THREADS` | memory that is in use: threads that work without end, and touch a page of it per unit |
//! | `direct THREADS KIB DISK` | threads that read so much at random places of a disk, past the page cache; counts KiB |
//! | `lookup PER_SECOND KIB DISK` | the same in one thread at fixed times; a wait is from the time at which a read was due |
//!
//! Requests and bursts are due at fixed times whether or not the one before is done, so that a wait is not hidden by the
//! requests that were not made meanwhile (coordinated omission).

use std::fs::{File, OpenOptions};
use std::hint;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

/// Steps of a unit.
const STEPS: u64 = 10_000;
/// Units of a phase between two barriers, divided among the threads.
const UNITS_IN_PHASE: u64 = 10;
/// Units after which a count is written.
const UNITS_COUNTED: u64 = 10;
const PAGE: usize = 4096;
/// Of Linux on x86-64: reads go past the page cache.
const O_DIRECT: i32 = 0o40_000;

/// Steps of work that no compiler leaves out: each needs the result of the one before.
fn compute(steps: u64) {
    let mut x = 1_u64;
    for _ in 0..steps {
        // Not affine: several steps of a mere multiply and add would be folded into one.
        x = (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }
    hint::black_box(x);
}

/// The number of units that one thread has done, since the file was made.
struct Count<'a> {
    file: &'a File,
    place: u64,
    done: u64,
}

impl<'a> Count<'a> {
    fn new(file: &'a File, thread: usize) -> io::Result<Count<'a>> {
        let place = 8 * thread as u64;
        let mut before = [0; 8];
        // A place that was never written is zero, also beyond the end.
        let _ = file.read_at(&mut before, place)?;
        Ok(Count { file, place, done: u64::from_le_bytes(before) })
    }

    fn add(&mut self, units: u64) -> io::Result<()> {
        self.done += units;
        self.file.write_all_at(&self.done.to_le_bytes(), self.place)
    }

    /// Works so many units, and counts them as it goes.
    fn work(&mut self, units: u64) -> io::Result<()> {
        let mut left = units;
        while left > 0 {
            let now = left.min(UNITS_COUNTED);
            compute(now * STEPS);
            self.add(now)?;
            left -= now;
        }
        Ok(())
    }
}

/// Times at which something is due.
struct Due {
    next: Instant,
    period: Duration,
}

impl Due {
    /// From now on, so often.
    fn per_second(times: u64) -> Due {
        Due { next: Instant::now(), period: Duration::from_secs(1) / times.max(1) as u32 }
    }

    /// Waits for the next time and returns it; at once where it is over.
    fn wait(&mut self) -> Instant {
        let due = self.next;
        sleep(due.saturating_duration_since(Instant::now()));
        self.next += self.period;
        due
    }
}

fn log(waits: &mut File, due: Instant) -> io::Result<()> {
    let usec = u32::try_from(due.elapsed().as_micros()).unwrap_or(u32::MAX);
    waits.write_all(&usec.to_le_bytes())
}

/// Waits for threads, and returns the first failure.
fn joined(threads: Vec<thread::ScopedJoinHandle<'_, io::Result<()>>>) -> io::Result<()> {
    let panicked = |_| Err(io::Error::other("a thread panicked"));
    threads.into_iter().try_for_each(|one| one.join().unwrap_or_else(panicked))
}

/// Runs `work` in so many threads, which get their number, and returns the first failure.
fn on_each(threads: usize, work: impl Fn(usize) -> io::Result<()> + Sync) -> io::Result<()> {
    thread::scope(|scope| {
        let work = &work;
        let all: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        joined(all)
    })
}

fn spin(file: &File, threads: usize) -> io::Result<()> {
    on_each(threads, |thread| {
        let mut count = Count::new(file, thread)?;
        loop {
            count.work(UNITS_COUNTED)?;
        }
    })
}

fn burst(
    file: &File,
    waits: &mut File,
    threads: usize,
    units: u64,
    period: Duration,
) -> io::Result<()> {
    let mut due = Due { next: Instant::now(), period };
    loop {
        let now = due.wait();
        on_each(threads, |thread| Count::new(file, thread)?.work(units / threads as u64))?;
        log(waits, now)?;
    }
}

fn answer(file: &File, waits: &mut File, per_second: u64, units: u64) -> io::Result<()> {
    let (mut client, mut server) = UnixStream::pair()?;
    let file = file.try_clone()?;
    thread::spawn(move || -> io::Result<()> {
        let mut count = Count::new(&file, 0)?;
        let mut request = [0];
        loop {
            server.read_exact(&mut request)?;
            count.work(units)?;
            server.write_all(&request)?;
        }
    });
    let mut due = Due::per_second(per_second);
    let mut reply = [0];
    loop {
        let now = due.wait();
        client.write_all(&[1])?;
        client.read_exact(&mut reply)?;
        log(waits, now)?;
    }
}

fn barrier(file: &File, run: Duration) -> io::Result<()> {
    // What the kernel lets this process run on, not what the machine has.
    let threads = thread::available_parallelism()?.get();
    let (phase, arrived, end) = (AtomicU64::new(0), AtomicUsize::new(0), Instant::now() + run);
    on_each(threads, |thread| {
        let mut count = Count::new(file, thread)?;
        for here in 0.. {
            compute(UNITS_IN_PHASE * STEPS / threads as u64);
            if arrived.fetch_add(1, Ordering::AcqRel) + 1 == threads {
                count.add(1)?;
                arrived.store(0, Ordering::Relaxed);
                phase.store(
                    if Instant::now() < end { here + 1 } else { u64::MAX },
                    Ordering::Release,
                );
            }
            while phase.load(Ordering::Acquire) == here {
                hint::spin_loop();
            }
            if phase.load(Ordering::Acquire) == u64::MAX {
                break;
            }
        }
        Ok(())
    })
}

fn hold(file: &File, mib: usize, threads: usize) -> io::Result<()> {
    let mut held = vec![0_u8; (mib << 20).max(PAGE * threads)];
    // All of it is there before any work is counted.
    held.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
    let part = held.len() / threads;
    thread::scope(|scope| {
        let work = |(thread, pages): (usize, &mut [u8])| {
            let mut count = Count::new(file, thread)?;
            loop {
                for at in (0..pages.len()).step_by(PAGE) {
                    pages[at] = pages[at].wrapping_add(1);
                    count.work(1)?;
                }
            }
        };
        let parts = held.chunks_mut(part).take(threads).enumerate();
        let all: Vec<_> = parts.map(|part| scope.spawn(move || work(part))).collect();
        joined(all)
    })
}

/// Reads at random places of a disk.
struct DirectReader {
    disk: File,
    /// Number of pieces on the disk.
    pieces: u64,
    /// Holds a piece from its first page boundary on.
    buffer: Vec<u8>,
    piece: usize,
    seed: u64,
}

impl DirectReader {
    fn new(disk: &str, kib: u64, seed: u64) -> io::Result<DirectReader> {
        let piece = (kib << 10) as usize;
        let mut disk = OpenOptions::new().read(true).custom_flags(O_DIRECT).open(disk)?;
        let pieces = disk.seek(SeekFrom::End(0))? / piece as u64;
        Ok(DirectReader { disk, pieces, buffer: vec![0; piece + PAGE], piece, seed: seed + 1 })
    }

    fn read(&mut self) -> io::Result<()> {
        // Xorshift of Marsaglia, with 64 bits.
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        let begin = self.buffer.as_ptr().align_offset(PAGE);
        let place = self.seed % self.pieces * self.piece as u64;
        self.disk.read_exact_at(&mut self.buffer[begin..begin + self.piece], place)
    }
}

fn direct(file: &File, threads: usize, kib: u64, disk: &str) -> io::Result<()> {
    on_each(threads, |thread| {
        let mut count = Count::new(file, thread)?;
        let mut reader = DirectReader::new(disk, kib, thread as u64)?;
        loop {
            reader.read()?;
            count.add(kib)?;
        }
    })
}

fn lookup(file: &File, waits: &mut File, per_second: u64, kib: u64, disk: &str) -> io::Result<()> {
    let mut count = Count::new(file, 0)?;
    let mut reader = DirectReader::new(disk, kib, 0)?;
    let mut due = Due::per_second(per_second);
    loop {
        let now = due.wait();
        reader.read()?;
        log(waits, now)?;
        count.add(kib)?;
    }
}

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage =
        || io::Error::other("usage: load KIND FILE ARGUMENTS (see the head of examples/load.rs)");
    let kind = arguments.next().ok_or_else(usage)?;
    let path = arguments.next().ok_or_else(usage)?;
    let mut arguments: Vec<String> = arguments.collect();
    let disk = match kind.as_str() {
        "direct" | "lookup" => arguments.pop().ok_or_else(usage)?,
        _ => String::new(),
    };
    let numbers: Vec<u64> = arguments
        .iter()
        .map(|text| text.parse().map_err(|error| io::Error::other(format!("{text}: {error}"))))
        .collect::<io::Result<_>>()?;
    let file =
        OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path)?;
    let mut waits = OpenOptions::new().create(true).append(true).open(format!("{path}.waits"))?;
    match (kind.as_str(), numbers.as_slice()) {
        ("spin", &[threads]) => spin(&file, threads as usize),
        ("burst", &[threads, units, period]) => {
            burst(&file, &mut waits, threads.max(1) as usize, units, Duration::from_millis(period))
        }
        ("answer", &[per_second, units]) => answer(&file, &mut waits, per_second, units),
        ("barrier", &[run_ms]) => loop {
            barrier(&file, Duration::from_millis(run_ms))?;
        },
        ("hold", &[mib, threads]) => hold(&file, mib as usize, threads.max(1) as usize),
        ("direct", &[threads, kib]) => direct(&file, threads as usize, kib.max(4), &disk),
        ("lookup", &[per_second, kib]) => lookup(&file, &mut waits, per_second, kib.max(4), &disk),
        _ => Err(usage()),
    }
}
