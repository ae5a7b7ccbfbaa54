//! Rates of processes and cgroups until the next change, and their inputs, as values.

use super::fluid::{Problem, Solution};
use super::pressure::{Activity, Stalls};
use super::tree::CgroupId;

/// Offset whose addition rounds much smaller numbers to quarters.
const QUARTERS: f64 = (1_u64 << 50) as f64;

/// Rounds `amount` (nanoseconds or bytes, 0 ..= 2^49) to the nearest quarter, so that sums are exact.
#[inline]
pub(super) fn quarters(amount: f64) -> f64 {
    (amount + QUARTERS) - QUARTERS
}

/// Splits `amount` (pages or bytes, at least 0 and below 2^63) into whole and rest. The standard functions
/// are slow calls on processors without a known instruction for them.
#[inline]
pub(super) fn whole_and_rest(amount: f64) -> (u64, f64) {
    let whole = amount as i64;
    (whole as u64, amount - whole as f64)
}

/// Rounds `amount` (as for [`whole_and_rest`]) up; 0 for NaN.
#[inline]
pub(super) fn rounded_up(amount: f64) -> u64 {
    let (whole, rest) = whole_and_rest(amount);
    whole + u64::from(rest > 0.0)
}

#[derive(Debug)]
pub(super) struct Posed {
    pub(super) problem: Problem,
    pub(super) solution: Solution,
    pub(super) group_ids: Vec<CgroupId>,
    /// Cgroups that each process counts for, by index among all living ones.
    pub(super) places: Vec<Vec<usize>>,
    pub(super) all: Vec<CgroupId>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CpuTimes {
    pub(super) user_nsec: f64,
    pub(super) system_nsec: f64,
    pub(super) idle_nsec: f64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Rates {
    /// For every process in order: CPUs of all threads together, and the waiting part of each thread's time.
    pub(super) processes: Vec<(f64, f64)>,
    pub(super) cgroups: Vec<(CgroupId, Activity, Stalls)>,
    /// Groups with a quota and a demand.
    pub(super) quotas: Vec<(CgroupId, QuotaState)>,
    /// Busy part of each CPU, ascending, and the part of that in the kernel.
    pub(super) busy: Vec<(u32, f64)>,
    pub(super) system_ratio: f64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct QuotaState {
    /// CPUs wanted beyond the quota, if it binds; otherwise 0.
    pub(super) over: f64,
    /// Part of time in which the group is stopped, 0 ..= 1.
    pub(super) throttled_ratio: f64,
}
