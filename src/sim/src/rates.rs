//! The rates of processes and cgroups until the next change, and what they are computed from, as values.

use super::fluid::{Problem, Solution};
use super::pressure::{Activity, Stalls};
use super::tree::CgroupId;

/// Adding this rounds what is far smaller to quarters.
const QUARTERS: f64 = (1_u64 << 50) as f64;

/// `amount` (of nanoseconds or bytes, 0 ..= 2^49) to the nearest quarter: sums of such are exact.
#[inline]
pub(super) fn quarters(amount: f64) -> f64 {
    (amount + QUARTERS) - QUARTERS
}

/// `amount` (of pages or bytes, at least 0 and below 2^63) rounded down, and the rest. The functions of the standard library
/// are calls where the processor is not known to have an instruction for it.
#[inline]
pub(super) fn whole_and_rest(amount: f64) -> (u64, f64) {
    let whole = amount as i64;
    (whole as u64, amount - whole as f64)
}

/// `amount` (as for [`whole_and_rest`]) rounded up; 0 for what is no number.
#[inline]
pub(super) fn rounded_up(amount: f64) -> u64 {
    let (whole, rest) = whole_and_rest(amount);
    whole + u64::from(rest > 0.0)
}

/// The scheduling problem, and the owner of each part.
#[derive(Debug)]
pub(super) struct Posed {
    pub(super) problem: Problem,
    /// What came of it last.
    pub(super) solution: Solution,
    pub(super) group_ids: Vec<CgroupId>,
    /// The cgroups that each process counts for, by their place among all living ones.
    pub(super) places: Vec<Vec<usize>>,
    /// Every cgroup of every hierarchy.
    pub(super) all: Vec<CgroupId>,
}

/// The time of one CPU: a line of `/proc/stat`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CpuTimes {
    pub(super) user_nsec: f64,
    pub(super) system_nsec: f64,
    pub(super) idle_nsec: f64,
}

/// All rates until the next change.
#[derive(Clone, Debug, Default)]
pub(super) struct Rates {
    /// Of every process in order: CPUs of all threads together, and the waiting part of each thread's time.
    pub(super) processes: Vec<(f64, f64)>,
    /// Every cgroup of every hierarchy, with the stalls that follow.
    pub(super) cgroups: Vec<(CgroupId, Activity, Stalls)>,
    /// Groups with a quota that want to run.
    pub(super) quotas: Vec<(CgroupId, QuotaState)>,
    /// Busy part of each CPU, ascending, and the part of that in the kernel.
    pub(super) busy: Vec<(u32, f64)>,
    pub(super) system_ratio: f64,
}

/// How a quota meets the demand under it.
#[derive(Clone, Copy, Debug)]
pub(super) struct QuotaState {
    /// CPUs that are wanted beyond the quota, where it is what holds the group; otherwise 0.
    pub(super) over: f64,
    /// The part of time that the group is stopped, 0 ..= 1.
    pub(super) throttled_ratio: f64,
}
