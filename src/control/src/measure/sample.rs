//! Raw kernel counters at one instant.
//!
//! An absent counter is never a zero. A controller that took a lost tenant for an idle one would hand its
//! share to others and starve it on return. So every field that a kernel, a hierarchy or a race can
//! withhold is an `Option`, and each missing one is listed as a [`SampleGap`].

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::disk::{DiskCounts, DiskSample, PerDisk};
use tenantd_core::resource::{PerResource, Resource};
use tenantd_core::units::Bytes;

/// Counters of one tenant's cgroup at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantSample {
    /// Inode number of the cgroup; it differs for a new cgroup of the same name.
    pub generation: u64,
    /// True if it has a process.
    pub populated: Option<bool>,
    /// CPU time since the cgroup was made, in µs.
    pub usage_usec: Option<u64>,
    /// Periods throttled by `cpu.max`.
    pub nr_throttled: Option<u64>,
    /// Time in which a task waited for a CPU, in µs (PSI `cpu` `some` `total`).
    pub cpu_some_usec: Option<u64>,
    /// Memory counters.
    pub memory: Option<MemorySample>,
    /// Time in which a task stalled on memory, in µs (PSI `memory` `some` `total`).
    pub memory_some_usec: Option<u64>,
    /// Time in which all non-idle tasks stalled on memory, in µs (PSI `memory` `full` `total`).
    pub memory_full_usec: Option<u64>,
    /// Time in which a task stalled on IO, in µs (PSI `io` `some` `total`).
    pub io_some_usec: Option<u64>,
    /// Requests to the sampled devices; absent without such a counter. The samples of a cgroup at rest share them.
    pub disks: Option<Arc<PerDisk<DiskCounts>>>,
    /// Run and wait times of its threads; read only if the demand is uncertain.
    pub threads: Option<Vec<ThreadSample>>,
}

/// Memory counters of one cgroup, in bytes and events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemorySample {
    /// All charged memory.
    pub current_bytes: u64,
    /// Inactive file cache, which reclaim takes first.
    pub inactive_file_bytes: u64,
    /// Active file cache.
    pub active_file_bytes: u64,
    /// Anonymous and shared memory, which only swap could take. Absent if it was not read.
    pub anon_bytes: Option<u64>,
    /// Reclaimable kernel caches; absent if the kernel does not report them.
    pub slab_reclaimable_bytes: Option<u64>,
    /// Memory reclaimed since the cgroup was made, in MiB (`pgsteal`); only on kernels with generations,
    /// where file cache is inactive however often it is read.
    pub stolen_mib: Option<u64>,
    /// Refaulted pages since the cgroup was made.
    pub refaults: Option<u64>,
    /// Reclaims within its protection; absent if the kernel does not count them.
    pub nr_low_events: Option<u64>,
    /// Allocations that met `memory.high`; absent without such a file.
    pub nr_high_events: Option<u64>,
    /// Allocations that met the hard limit.
    pub nr_max_events: Option<u64>,
    /// OOM kills.
    pub nr_oom_kills: Option<u64>,
}

/// Room between unreclaimable memory and a new limit, for page tables, stacks and sockets in flight.
const LIMIT_MARGIN: Bytes = Bytes::mib(16);

impl MemorySample {
    /// True if a limit of `limit_bytes` can be met without a kill: usage is below it, or reclaim gets there
    /// with a margin.
    pub fn fits(&self, limit_bytes: u64) -> bool {
        self.current_bytes <= limit_bytes
            || self.unreclaimable_bytes().saturating_add(LIMIT_MARGIN.0) <= limit_bytes
    }

    /// Memory that reclaim cannot take quickly: all but file cache and reclaimable slab.
    pub fn unreclaimable_bytes(&self) -> u64 {
        let slab = self.slab_reclaimable_bytes.unwrap_or(0);
        let cache = self.inactive_file_bytes.saturating_add(self.active_file_bytes);
        let cache = cache.saturating_add(slab);
        self.current_bytes.saturating_sub(cache)
    }

    /// Working set: all memory but inactive file cache.
    pub fn working_set_bytes(&self) -> u64 {
        self.current_bytes.saturating_sub(self.inactive_file_bytes).max(self.unreclaimable_bytes())
    }
}

impl TenantSample {
    /// Amount held of a resource such as memory; `None` for CPU.
    pub fn held(&self, resource: Resource) -> Option<f64> {
        match resource {
            Resource::Cpu => None,
            Resource::Memory => self.memory.map(|memory| memory.working_set_bytes() as f64),
        }
    }
}

/// Process counts of one cgroup and all below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PidsSample {
    /// Identity of the cgroup.
    pub generation: u64,
    /// Current processes and threads.
    pub nr_current: u64,
    /// Refused forks since the cgroup was made; absent if the kernel does not count them.
    pub nr_refused: Option<u64>,
}

/// `/proc/TID/schedstat` of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadSample {
    /// Thread number.
    pub tid: u32,
    /// Time on a CPU, in ns.
    pub run_nsec: u64,
    /// Time runnable but waiting for a CPU, in ns.
    pub wait_nsec: u64,
}

/// Counters of the host at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostSample {
    /// Online CPUs.
    pub nr_cpus: u32,
    /// CPU time that was not idle, all CPUs together, in µs.
    pub busy_usec: Option<u64>,
    /// Idle CPU time of all CPUs, in µs. It is not the complement of the busy time: stolen time of a
    /// virtual host counts as neither.
    pub idle_usec: Option<u64>,
    /// Memory of the host without huge pages, in bytes.
    pub memory_total_bytes: u64,
    /// Memory set aside as huge pages, in bytes: no cgroup is charged for it, and it is never reclaimed.
    pub huge_pages_bytes: u64,
    /// Memory available without swapping, in bytes (`MemAvailable`).
    pub memory_available_bytes: Option<u64>,
    /// Free memory, in bytes (`MemFree`).
    pub memory_free_bytes: Option<u64>,
    /// Time in which all non-idle tasks of the host stalled on memory, in µs.
    pub memory_full_usec: Option<u64>,
    /// Memory that reclaim cannot take without swap: neither free, nor file cache, nor reclaimable slab.
    pub unreclaimable_bytes: Option<u64>,
    /// Part of it that swap could take: anonymous and shared memory.
    pub anon_bytes: Option<u64>,
    /// Free swap; 0 without swap.
    pub swap_free_bytes: Option<u64>,
    /// Memory that the kernel keeps free; absent if unknown.
    pub kept_free_bytes: Option<u64>,
    /// The busiest devices; empty if the kernel does not count them.
    pub disks: PerDisk<DiskSample>,
}

impl HostSample {
    /// Capacity of the machine, per resource.
    pub fn machine(&self) -> PerResource<f64> {
        PerResource::from_fn(|resource| match resource {
            Resource::Cpu => f64::from(self.nr_cpus),
            Resource::Memory => self.memory_total_bytes as f64,
        })
    }

    /// Amount of a held resource in use on the whole machine; `None` for CPU.
    pub fn in_use(&self, resource: Resource) -> Option<f64> {
        match resource {
            Resource::Cpu => None,
            Resource::Memory => {
                Some(self.memory_total_bytes as f64 - self.memory_available_bytes? as f64)
            }
        }
    }
}

/// A counter that should have been readable and was not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleGap {
    /// Affected tenant; `None` for the host.
    pub tenant: Option<String>,
    /// Error with its file.
    pub message: String,
}
