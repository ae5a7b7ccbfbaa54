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

use tenantd_control::measure::disk::{DiskCounts, PerDisk};
use tenantd_control::measure::sample::{MemorySample, TenantSample};

/// Earlier values of a cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Last {
    /// Its population.
    pub population: Option<Known>,
    /// Its memory.
    pub rest: Option<Rest>,
    /// True if all files must be read.
    pub is_due: bool,
    /// Devices of which the counters are read.
    pub disks: PerDisk<()>,
}

impl Last {
    pub(super) fn rest(&self) -> Option<Rest> {
        self.rest.filter(|_| !self.is_due)
    }

    /// CPU time at which it was seen empty, in µs; `None` if that must be read again.
    pub(super) fn empty_at_usec(&self) -> Option<u64> {
        let empty = self.population.filter(|known| !known.populated && !self.is_due)?;
        empty.usage_usec
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

/// Memory of a cgroup, with the values that show that it is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    usage_usec: u64,
    nr_throttled: Option<u64>,
    memory_some_usec: Option<u64>,
    memory: MemorySample,
    io_some_usec: Option<u64>,
    disks: Option<PerDisk<DiskCounts>>,
    /// Devices of which the counts were read.
    devices: PerDisk<()>,
}

impl Rest {
    /// Makes the record of a sample of `devices`; `None` if its memory or CPU time was unreadable.
    pub fn of(sample: &TenantSample, devices: PerDisk<()>) -> Option<Rest> {
        Some(Rest {
            usage_usec: sample.usage_usec?,
            nr_throttled: sample.nr_throttled,
            memory_some_usec: sample.memory_some_usec,
            memory: sample.memory?,
            io_some_usec: sample.io_some_usec,
            disks: sample.disks,
            devices,
        })
    }

    /// Returns the throttle count if no task ran: only a running task exhausts a quota.
    pub(super) fn nr_throttled(&self, usage_usec: Option<u64>) -> Option<u64> {
        self.nr_throttled.filter(|_| usage_usec == Some(self.usage_usec))
    }

    /// Returns the counts of `devices` if no task ran or waited for a disk until `sample`. Requests that the kernel writes
    /// on behalf of a tenant at rest count with the next reading.
    pub(super) fn disks(
        &self,
        sample: &TenantSample,
        devices: &PerDisk<()>,
    ) -> Option<PerDisk<DiskCounts>> {
        let stands = sample.usage_usec == Some(self.usage_usec)
            && sample.io_some_usec == self.io_some_usec
            && *devices == self.devices;
        self.disks.filter(|_| stands)
    }

    /// Returns the memory if no task ran or waited until `sample`, and the charge is unchanged.
    pub(super) fn memory(&self, sample: &TenantSample, current_bytes: u64) -> Option<MemorySample> {
        let stands = sample.usage_usec == Some(self.usage_usec)
            && sample.memory_some_usec == self.memory_some_usec
            && current_bytes == self.memory.current_bytes;
        stands.then_some(self.memory)
    }
}
