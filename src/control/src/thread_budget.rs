//! Whose threads are looked at in a tick.
//!
//! **Problem.** The demand of a pressed tenant is exact where the run and wait times of its threads are read, and that
//! is one read for each thread. A tick must not take longer because a tenant starts ten thousand of them, and no tenant
//! may use up what the others would need.
//!
//! **Algorithm.** A tick reads at most [`PER_TICK`] threads, and of one tenant at most [`PER_TENANT`]: one with more is
//! estimated from its pressure, as is one whose threads are in more cgroups than are looked into. What a tenant may have
//! read, its *allowance*, is the number of threads that it had when they were counted last, rounded up to a power of two;
//! where they were never counted, the most. The smallest allowances come first, so that the most tenants are exact.
//! Among equal ones the tenant that comes first moves on
//! after [`TURN_TICKS`] ticks, because an estimate needs two readings in a row. A tenant that is left out is counted in one
//! of ten ticks.
//!
//! **Properties** (`tests/control/thread_budget.rs`). Never more threads than the budget. Where all fit, all are read.
//! A tenant with few threads is never pushed out by one with many. Of tenants with as many threads as each other, each
//! has its turns.

/// Threads that are read in one tick at most: their files take about a microsecond and a half each.
pub const PER_TICK: usize = 2048;
/// Threads of one tenant that are read in one tick at most.
pub const PER_TENANT: usize = 256;
/// The least allowance: below it a tenant's first threads would change it too often.
const LEAST: usize = 16;
/// Ticks in a row for which the same ones of equal tenants come first.
const TURN_TICKS: u64 = 4;

/// What is to be read of a tenant's threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Look {
    /// Nothing.
    #[default]
    None,
    /// How many there are.
    Count,
    /// Their times, where there are no more than this; else how many there are.
    Read(usize),
}

impl Look {
    /// Whether the times of so many threads are read.
    pub fn reads(self, nr_threads: usize) -> bool {
        matches!(self, Look::Read(most) if nr_threads <= most)
    }
}

/// A tenant that is pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pressed {
    /// Its number.
    pub number: usize,
    /// How many threads it had when they were counted last.
    pub nr_threads: Option<usize>,
}

impl Pressed {
    /// How many of its threads may be read.
    pub fn allowance(self) -> usize {
        self.nr_threads.map_or(PER_TENANT, |nr| nr.max(LEAST).next_power_of_two())
    }
}

/// The tenants whose threads are read in `tick`.
pub fn chosen(pressed: &[Pressed], tick: u64) -> Vec<Pressed> {
    let eligible = pressed.iter().copied().filter(|tenant| tenant.allowance() <= PER_TENANT);
    let mut eligible: Vec<Pressed> = eligible.collect();
    // The sort is stable: equal ones stay in the order of their numbers.
    eligible.sort_by_key(|tenant| tenant.allowance());
    let turn = (tick / TURN_TICKS) as usize;
    for equal in eligible.chunk_by_mut(|a, b| a.allowance() == b.allowance()) {
        let at_once = PER_TICK / equal[0].allowance();
        if equal.len() > at_once {
            equal.rotate_left(turn.wrapping_mul(at_once) % equal.len());
        }
    }
    let mut left = PER_TICK;
    let fits = |tenant: &Pressed| match left.checked_sub(tenant.allowance()) {
        Some(rest) => {
            left = rest;
            true
        }
        None => false,
    };
    eligible.into_iter().take_while(fits).collect()
}
