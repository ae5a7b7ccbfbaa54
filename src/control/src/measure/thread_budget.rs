//! Choice of the tenants whose threads are read in a tick.
//!
//! **Problem.** A pressed tenant's demand is exact if the run and wait times of its threads are read, one
//! read per thread. A tenant with ten thousand threads must neither slow a tick down nor use up the budget
//! of the others.
//!
//! **Algorithm.** A tick reads at most [`PER_TICK`] threads, and at most [`PER_TENANT`] of one tenant;
//! larger tenants, and those with too many cgroups, are estimated from their pressure. A tenant's
//! *allowance* is its last thread count, rounded up to a power of two, or the maximum if it was never
//! counted. The smallest allowances come first, so that most tenants are exact. Among equal ones the first
//! changes after [`TURN_TICKS`] ticks, because an estimate needs two readings in a row. A tenant that is
//! left out is counted every 10 ticks.
//!
//! **Properties** (`tests/control/thread_budget.rs`). The budget is never exceeded. If all fit, all are
//! read. A small tenant is never pushed out by a large one. Tenants of equal size take turns.

/// Most threads read in one tick; each takes about 1.5 µs.
pub const PER_TICK: usize = 2048;
/// Most threads of one tenant read in one tick.
pub const PER_TENANT: usize = 256;
/// Least allowance: below it a tenant's first threads would change it too often.
const LEAST: usize = 16;
const TURN_TICKS: u64 = 4;

/// Mode of reading a tenant's threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Look {
    /// Reads nothing.
    #[default]
    None,
    /// Counts the threads.
    Count,
    /// Reads their times if there are no more than this; else counts them.
    Read(usize),
}

impl Look {
    /// True if the times of `nr_threads` threads are read.
    pub fn reads(self, nr_threads: usize) -> bool {
        matches!(self, Look::Read(most) if nr_threads <= most)
    }
}

/// A pressed tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pressed {
    /// Position of the tenant.
    pub at: usize,
    /// Last thread count.
    pub nr_threads: Option<usize>,
}

impl Pressed {
    /// Number of its threads that may be read.
    pub fn allowance(self) -> usize {
        self.nr_threads.map_or(PER_TENANT, |nr| nr.max(LEAST).next_power_of_two())
    }
}

/// Tenants whose threads are read in `tick`.
pub fn chosen(pressed: &[Pressed], tick: u64) -> Vec<Pressed> {
    let eligible = pressed.iter().copied().filter(|tenant| tenant.allowance() <= PER_TENANT);
    let mut eligible: Vec<Pressed> = eligible.collect();
    // The sort is stable: equal ones stay in the order of their positions.
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
