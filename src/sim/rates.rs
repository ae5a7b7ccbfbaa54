//! The rates of processes and cgroups until the next change, as values.

use super::pressure::Activity;
use super::tree::CgroupId;

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
    /// By pid: CPUs of all threads together, and the waiting part of each thread's time.
    pub(super) processes: Vec<(u32, f64, f64)>,
    /// Every cgroup of every hierarchy, with the stalls that follow.
    pub(super) cgroups: Vec<(CgroupId, Activity, [[f64; 2]; 3])>,
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
