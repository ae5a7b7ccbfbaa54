//! Values of an earlier sample that are still valid.
//!
//! **Problem.** Most tenants of most hosts sleep. `memory.stat` is the most expensive file of a sample: the
//! kernel sums counters of all CPUs and prints sixty lines, for a tenant in which nothing has happened since.
//!
//! **Terms.** A cgroup is *at rest* while none of its tasks has run, none has waited for memory, and its
//! charged memory is unchanged. Each sample reads those three.
//!
//! **Rule.** The other memory counters of a cgroup at rest keep their values: pages come and go with a charge,
//! refaults and failed allocations with a running task. One change may be missed: reclaim may deactivate cache
//! of a tenant at rest without taking any. So all files are read now and then; the caller decides when.
//!
//! A cgroup at rest whose tasks have not waited for a disk either keeps the counts of its requests.
//!
//! The same applies to the process list of a v1 cgroup, which must be opened for each look. An empty cgroup
//! without CPU use since is empty, or has a process that has not run since it came.
//!
//! **Properties** (`tests/agent/at_rest.rs`): a charge is seen in the next sample, at rest or not; a tenant at
//! rest costs fewer reads.

use std::sync::Arc;

use tenantd_control::measure::disk::{DiskCounts, PerDisk};
use tenantd_control::measure::sample::{MemorySample, TenantSample};

/// Earlier values of a cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Last<'a> {
    /// Its population.
    pub population: Option<Known>,
    /// An earlier sample of the same cgroup; it need not be the newest.
    pub sample: Option<&'a TenantSample>,
    /// True if all files must be read.
    pub is_due: bool,
    /// Devices of which the counters are read.
    pub disks: PerDisk<()>,
    /// True if that sample has the counters of other devices.
    pub has_other_disks: bool,
}

impl Last<'_> {
    /// CPU time at which it was seen empty, in µs; `None` if that must be read again.
    pub(super) fn empty_at_usec(&self) -> Option<u64> {
        let empty = self.population.filter(|known| !known.populated && !self.is_due)?;
        empty.usage_usec
    }

    /// Returns the earlier sample if no task has run since.
    fn at_rest(&self, usage_usec: Option<u64>) -> Option<&TenantSample> {
        let unused = |last: &&TenantSample| usage_usec.is_some() && last.usage_usec == usage_usec;
        self.sample.filter(|_| !self.is_due).filter(unused)
    }

    /// Returns the throttle count if no task ran: only a running task exhausts a quota.
    pub(super) fn nr_throttled(&self, usage_usec: Option<u64>) -> Option<u64> {
        self.at_rest(usage_usec)?.nr_throttled
    }

    /// Returns the counts of the devices if no task ran or waited for a disk until `sample`. Requests that the kernel writes
    /// on behalf of a tenant at rest count with the next reading.
    pub(super) fn disks(&self, sample: &TenantSample) -> Option<Arc<PerDisk<DiskCounts>>> {
        let last = self.at_rest(sample.usage_usec).filter(|_| !self.has_other_disks)?;
        last.disks.clone().filter(|_| sample.io_some_usec == last.io_some_usec)
    }

    /// Returns the memory if no task ran or waited until `sample`, and the charge is unchanged.
    pub(super) fn memory(&self, sample: &TenantSample, current_bytes: u64) -> Option<MemorySample> {
        let last = self.at_rest(sample.usage_usec)?;
        let stands = sample.memory_some_usec == last.memory_some_usec;
        last.memory.filter(|memory| stands && memory.current_bytes == current_bytes)
    }
}

/// Last known population of a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// True if it had processes.
    pub populated: bool,
    /// CPU time used by then, in µs.
    pub usage_usec: Option<u64>,
}

impl Known {
    /// Returns the population to assume if it is unreadable now; `None` if an empty cgroup has used CPU time
    /// since.
    pub(super) fn kept(self, usage_usec: Option<u64>) -> Option<bool> {
        let has_used = usage_usec.zip(self.usage_usec).is_some_and(|(now, then)| now > then);
        (self.populated || !has_used).then_some(self.populated)
    }
}
