//! A program of the kind that starts one thread for each CPU that it sees, and does a fixed amount of work.
//!
//! Usage: `one_per_cpu KIND AMOUNT`. It prints how many threads it started.
//!
//! | kind | what it is like | an item of `AMOUNT` |
//! |---|---|---|
//! | `barrier` | a solver: phases, between which all threads wait for the last one, spinning (OpenMP with `OMP_WAIT_POLICY=active`, MPI) | a phase of 50,000 steps, divided among the threads |
//! | `ticket` | a store behind a fair spin lock (as many databases have), a fifth of the work inside | 1,000 steps outside and 250 inside |
//! | `mutex` | the same behind `std::sync::Mutex`, whose waiters sleep | the same |
//! | `independent` | a renderer: threads that never meet | 50,000 steps |
//!
//! Whoever spins for somebody who is not running wastes the CPU time of both. Nothing can be done about that
//! from the outside but to see to it that there are not more threads than CPUs for them.

use std::hint;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

/// Steps in a phase, and in a piece of independent work.
const STEPS: u64 = 50_000;
const STEPS_OUTSIDE: u64 = 1_000;
const STEPS_INSIDE: u64 = 250;

/// The ways in which threads depend on each other, in the order of the table above.
pub(crate) const KINDS: [&str; 4] = ["barrier", "ticket", "mutex", "independent"];

/// Does `amount` items of work of a kind with a thread for each CPU; returns how many threads those were.
///
/// # Errors
/// There is no such kind, or no telling how many CPUs there are.
pub(crate) fn run(kind: &str, amount: u64) -> io::Result<usize> {
    // What the kernel lets this process run on, not what the machine has.
    let nr_threads = thread::available_parallelism()?.get();
    match kind {
        "barrier" => barrier(nr_threads, amount),
        "ticket" => locked(nr_threads, amount, &Ticket::default()),
        "mutex" => locked(nr_threads, amount, &Mutex::new(())),
        "independent" => on_each(nr_threads, |index| {
            for _ in 0..part(amount, nr_threads, index) {
                compute(STEPS);
            }
        }),
        _ => {
            let message = format!("{kind} is none of the kinds: {}", KINDS.join(", "));
            return Err(io::Error::other(message));
        }
    }
    Ok(nr_threads)
}

/// Steps of work that no compiler leaves out: each needs the result of the one before.
fn compute(steps: u64) {
    let mut x = 1_u64;
    for _ in 0..steps {
        // Not affine: several steps of a mere multiply and add would be folded into one.
        x = (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }
    hint::black_box(x);
}

/// What thread `index` of `nr_threads` does of `total`.
fn part(total: u64, nr_threads: usize, index: usize) -> u64 {
    let (nr_threads, index) = (nr_threads as u64, index as u64);
    total / nr_threads + u64::from(index < total % nr_threads)
}

fn on_each(nr_threads: usize, work: impl Fn(usize) + Sync) {
    thread::scope(|scope| {
        for index in 0..nr_threads {
            let work = &work;
            scope.spawn(move || work(index));
        }
    });
}

fn barrier(nr_threads: usize, nr_phases: u64) {
    let (phase, arrived) = (AtomicU64::new(0), AtomicUsize::new(0));
    on_each(nr_threads, |index| {
        for here in 0..nr_phases {
            compute(part(STEPS, nr_threads, index));
            if arrived.fetch_add(1, Ordering::AcqRel) + 1 == nr_threads {
                arrived.store(0, Ordering::Relaxed);
                phase.store(here + 1, Ordering::Release);
            }
            while phase.load(Ordering::Acquire) == here {
                hint::spin_loop();
            }
        }
    });
}

/// Something that one thread at a time may hold.
trait Lock: Sync {
    fn with(&self, act: impl FnOnce());
}

impl Lock for Mutex<()> {
    fn with(&self, act: impl FnOnce()) {
        // No thread panics while it holds this, and if one did there is nothing to be broken.
        let _guard = self.lock();
        act();
    }
}

/// A lock that is taken in the order of asking (Mellor-Crummey and Scott, ACM TOCS 1991, §2.2).
#[derive(Debug, Default)]
struct Ticket {
    next: AtomicU64,
    serving: AtomicU64,
}

impl Lock for Ticket {
    fn with(&self, act: impl FnOnce()) {
        let mine = self.next.fetch_add(1, Ordering::Relaxed);
        while self.serving.load(Ordering::Acquire) != mine {
            hint::spin_loop();
        }
        act();
        self.serving.store(mine + 1, Ordering::Release);
    }
}

fn locked(nr_threads: usize, amount: u64, lock: &impl Lock) {
    on_each(nr_threads, |index| {
        for _ in 0..part(amount, nr_threads, index) {
            compute(STEPS_OUTSIDE);
            lock.with(|| compute(STEPS_INSIDE));
        }
    });
}

#[allow(dead_code, reason = "benches/gain.rs takes this file in as a module")]
fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(kind), Some(amount)) = (arguments.next(), arguments.next()) else {
        return Err(io::Error::other("usage: one_per_cpu KIND AMOUNT"));
    };
    let nr_threads = run(&kind, amount.parse().map_err(io::Error::other)?)?;
    println!("{nr_threads}");
    Ok(())
}
