//! What an earlier sample still says of a cgroup.
//!
//! **Problem.** Most tenants of most hosts sleep. `memory.stat` is the dearest of the files that a sample reads: the kernel
//! adds up counters of all CPUs and prints sixty lines, for a tenant in which nothing has happened since.
//!
//! **Terms.** A cgroup is *at rest* while no task in it has run, none has waited for memory, and as much memory is charged
//! to it as before. Those three are read in each sample.
//!
//! **Rule.** What else there is of the memory counters of a cgroup at rest stands as it was read. Pages come and go with a charge,
//! refaults and failed allocations with a task that runs. One thing may pass unseen: that reclaim took cache of a tenant at rest
//! for inactive without taking any of it. So all is read now and then whatever stands; when is for the caller to say.
//!
//! The same holds of the list of processes of a cgroup of a legacy tree, which has to be opened anew for each look: an empty
//! cgroup in which no CPU time was used since is empty, or holds a process that has not run since it came.
//!
//! **Properties** (`tests/agent/at_rest.rs`): a charge is seen in the next sample, at rest or not; a tenant at rest costs fewer
//! reads.

use tenantd_control::sample::{MemorySample, TenantSample};

/// What is known of a cgroup from before.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Last {
    /// Whether it held processes.
    pub population: Option<Known>,
    /// Its memory.
    pub rest: Option<Rest>,
    /// Whether all is read, whatever seems to stand.
    pub is_due: bool,
}

impl Last {
    /// What may stand.
    pub(super) fn rest(&self) -> Option<Rest> {
        self.rest.filter(|_| !self.is_due)
    }

    /// The CPU time that was used by when it was seen to be empty, in µs; `None` where that is to be seen again.
    pub(super) fn empty_at_usec(&self) -> Option<u64> {
        let empty = self.population.filter(|known| !known.populated && !self.is_due)?;
        empty.usage_usec
    }
}

/// What was read last of whether a cgroup holds processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Whether it held any.
    pub populated: bool,
    /// The CPU time that was used by then, in µs.
    pub usage_usec: Option<u64>,
}

impl Known {
    /// What stays of it where that cannot be read any more: all, unless CPU time was used in a cgroup that was empty.
    pub(super) fn kept(self, usage_usec: Option<u64>) -> Option<bool> {
        let has_used = usage_usec.zip(self.usage_usec).is_some_and(|(now, then)| now > then);
        (self.populated || !has_used).then_some(self.populated)
    }
}

/// The memory of a cgroup, and what shows that it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    usage_usec: u64,
    nr_throttled: Option<u64>,
    memory_some_usec: Option<u64>,
    memory: MemorySample,
}

impl Rest {
    /// What a sample says of the next one; `None` where its memory or its CPU time could not be read.
    pub fn of(sample: &TenantSample) -> Option<Rest> {
        Some(Rest {
            usage_usec: sample.usage_usec?,
            nr_throttled: sample.nr_throttled,
            memory_some_usec: sample.memory_some_usec,
            memory: sample.memory?,
        })
    }

    /// How often it was throttled, where no task ran: only one that runs uses up what there is for a period.
    pub(super) fn nr_throttled(&self, usage_usec: Option<u64>) -> Option<u64> {
        self.nr_throttled.filter(|_| usage_usec == Some(self.usage_usec))
    }

    /// The memory, where no task ran or waited until the times of `sample` and so much is charged now.
    pub(super) fn memory(&self, sample: &TenantSample, current_bytes: u64) -> Option<MemorySample> {
        let stands = sample.usage_usec == Some(self.usage_usec)
            && sample.memory_some_usec == self.memory_some_usec
            && current_bytes == self.memory.current_bytes;
        stands.then_some(self.memory)
    }
}
