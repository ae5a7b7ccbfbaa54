//! What the kernel said at one instant: raw counters, each absent where it could not be read.
//!
//! An absent counter is never a zero. A controller that took a vanished tenant for an idle one would hand its
//! share to others and starve it on return; so every field that a kernel, a hierarchy or a race can withhold
//! is an `Option`, and each missing one is listed beside the samples as a [`SampleGap`].

use tenantd_core::codec::{Coded, In, Layout, Out, Torn, coded};
use tenantd_core::resource::{PerResource, Resource};
use tenantd_core::units::Bytes;

/// The counters of one tenant's cgroup at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantSample {
    /// Inode number of the cgroup: a different number means a different cgroup, whatever its name.
    pub generation: u64,
    /// Whether any process is in it.
    pub populated: Option<bool>,
    /// CPU time used since the cgroup was made, in µs.
    pub usage_usec: Option<u64>,
    /// Periods in which `cpu.max` held it back.
    pub nr_throttled: Option<u64>,
    /// Time at least one task waited for a CPU, in µs (PSI `cpu` `some` `total`).
    pub cpu_some_usec: Option<u64>,
    /// Its memory.
    pub memory: Option<MemorySample>,
    /// Time at least one task waited for memory, in µs (PSI `memory` `some` `total`).
    pub memory_some_usec: Option<u64>,
    /// Time all tasks that were not idle waited for memory at once, in µs (PSI `memory` `full` `total`).
    pub memory_full_usec: Option<u64>,
    /// Time at least one task waited for input or output, in µs (PSI `io` `some` `total`); taken only where the
    /// tenant lacks something.
    pub io_some_usec: Option<u64>,
    /// Run and wait times of its threads; taken only where the demand is in question.
    pub threads: Option<Vec<ThreadSample>>,
}

/// The memory counters of one cgroup, in bytes and events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemorySample {
    /// Everything charged to it.
    pub current_bytes: u64,
    /// File cache it has not touched lately: what reclaim takes first.
    pub inactive_file_bytes: u64,
    /// File cache in use.
    pub active_file_bytes: u64,
    /// Anonymous and shared memory: what only swap could take. Absent where it was not read.
    pub anon_bytes: Option<u64>,
    /// Kernel caches that reclaim takes like file cache; absent where the kernel does not tell them apart.
    pub slab_reclaimable_bytes: Option<u64>,
    /// Memory that reclaim took since the cgroup was made, in MiB (`pgsteal`); only where the kernel keeps pages in
    /// generations, and file cache is inactive however often it is read.
    pub stolen_mib: Option<u64>,
    /// Pages read back soon after they were reclaimed, since the cgroup was made.
    pub refaults: Option<u64>,
    /// Reclaims from it although it was within its protection; absent where the kernel does not count them.
    pub nr_low_events: Option<u64>,
    /// Allocations that met `memory.high`; absent where the kernel has no such file.
    pub nr_high_events: Option<u64>,
    /// Allocations that met the hard limit.
    pub nr_max_events: Option<u64>,
    /// Processes killed for want of memory.
    pub nr_oom_kills: Option<u64>,
}

/// Kept between what cannot be reclaimed and a limit that is set: page tables, stacks and sockets in flight.
const LIMIT_MARGIN: Bytes = Bytes::mib(16);

impl MemorySample {
    /// Whether a limit of `limit_bytes` could be met without killing: it is not reached, or reclaim gets
    /// there with a margin.
    pub fn fits(&self, limit_bytes: u64) -> bool {
        self.current_bytes <= limit_bytes
            || self.unreclaimable_bytes().saturating_add(LIMIT_MARGIN.0) <= limit_bytes
    }

    /// What reclaim could not take back quickly: all but file cache and the kernel's own caches.
    pub fn unreclaimable_bytes(&self) -> u64 {
        let slab = self.slab_reclaimable_bytes.unwrap_or(0);
        let cache = self.inactive_file_bytes.saturating_add(self.active_file_bytes);
        let cache = cache.saturating_add(slab);
        self.current_bytes.saturating_sub(cache)
    }

    /// The working set: all but the file cache that was not touched lately.
    pub fn working_set_bytes(&self) -> u64 {
        self.current_bytes.saturating_sub(self.inactive_file_bytes).max(self.unreclaimable_bytes())
    }
}

impl TenantSample {
    /// What it holds of a resource that is held, not used for a time.
    pub fn held(&self, resource: Resource) -> Option<f64> {
        match resource {
            Resource::Cpu => None,
            Resource::Memory => self.memory.map(|memory| memory.working_set_bytes() as f64),
        }
    }
}

/// The processes of one cgroup and all below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PidsSample {
    /// The identity of the cgroup.
    pub generation: u64,
    /// Processes and threads now.
    pub nr_current: u64,
    /// Forks that were refused since the cgroup was made; absent where the kernel does not count them.
    pub nr_refused: Option<u64>,
}

/// One thread's `/proc/TID/schedstat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadSample {
    /// Thread number.
    pub tid: u32,
    /// Time on a CPU, in ns.
    pub run_nsec: u64,
    /// Time runnable but waiting for a CPU, in ns.
    pub wait_nsec: u64,
}

/// The counters of the host at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HostSample {
    /// CPUs online.
    pub nr_cpus: u32,
    /// CPU time that was not idle, all CPUs together, in µs.
    pub busy_usec: Option<u64>,
    /// CPU time in which nothing ran, all CPUs together, in µs. It is not what is left of the busy time: a host that
    /// is not given its CPUs counts neither.
    pub idle_usec: Option<u64>,
    /// All memory of the host, in bytes.
    pub memory_total_bytes: u64,
    /// Memory that could be had without swapping, in bytes (`MemAvailable`).
    pub memory_available_bytes: Option<u64>,
    /// Memory that nothing uses, in bytes (`MemFree`).
    pub memory_free_bytes: Option<u64>,
    /// Time all tasks of the host that were not idle waited for memory at once, in µs.
    pub memory_full_usec: Option<u64>,
    /// Memory that reclaim cannot take without swap: all that is neither free nor file cache nor one of the
    /// kernel's caches.
    pub unreclaimable_bytes: Option<u64>,
    /// The part of it that swap could take: anonymous and shared memory.
    pub anon_bytes: Option<u64>,
    /// Free swap; 0 where there is none.
    pub swap_free_bytes: Option<u64>,
    /// Memory that the kernel keeps free; absent where it does not say.
    pub kept_free_bytes: Option<u64>,
}

impl HostSample {
    /// What the machine has of each resource.
    pub fn machine(&self) -> PerResource<f64> {
        PerResource::from_fn(|resource| match resource {
            Resource::Cpu => f64::from(self.nr_cpus),
            Resource::Memory => self.memory_total_bytes as f64,
        })
    }

    /// What everything on the machine holds of a resource that is held, not used for a time.
    pub fn in_use(&self, resource: Resource) -> Option<f64> {
        match resource {
            Resource::Cpu => None,
            Resource::Memory => {
                Some(self.memory_total_bytes as f64 - self.memory_available_bytes? as f64)
            }
        }
    }
}

/// Something that should have been readable and was not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleGap {
    /// The tenant it concerns; `None` for the host.
    pub tenant: Option<String>,
    /// The error, with its file.
    pub message: String,
}

// --- recorded ---

coded!(struct MemorySample {
    current_bytes, inactive_file_bytes, active_file_bytes, anon_bytes, slab_reclaimable_bytes, stolen_mib, refaults,
    nr_low_events, nr_high_events, nr_max_events, nr_oom_kills,
});
coded!(struct TenantSample {
    generation, populated, usage_usec, nr_throttled, cpu_some_usec, memory, memory_some_usec,
    memory_full_usec, io_some_usec, threads,
});
coded!(struct PidsSample { generation, nr_current, nr_refused });
coded!(struct HostSample {
    nr_cpus, busy_usec, idle_usec, memory_total_bytes, memory_available_bytes, memory_free_bytes, memory_full_usec,
    unreclaimable_bytes, anon_bytes, swap_free_bytes, kept_free_bytes,
});

impl Coded for ThreadSample {
    fn blank() -> Self {
        ThreadSample { tid: 0, run_nsec: 0, wait_nsec: 0 }
    }

    fn put(&self, last: &mut Self, out: &mut Out) {
        let ThreadSample { tid, run_nsec, wait_nsec } = self;
        tid.put(&mut last.tid, out);
        run_nsec.put(&mut last.run_nsec, out);
        wait_nsec.put(&mut last.wait_nsec, out);
    }

    fn take(last: &mut Self, from: &mut In<'_>) -> Result<Self, Torn> {
        Ok(ThreadSample {
            tid: u32::take(&mut last.tid, from)?,
            run_nsec: u64::take(&mut last.run_nsec, from)?,
            wait_nsec: u64::take(&mut last.wait_nsec, from)?,
        })
    }

    fn layout(to: &mut Layout) {
        to.note("ThreadSample: tid, run_nsec, wait_nsec, by tid");
    }

    /// Threads come and go: each is compared with itself, and its number with that of the one before it in the list.
    fn put_all(all: &[Self], last: &mut Vec<Self>, out: &mut Out) {
        let mut tid = 0;
        for thread in all {
            thread.tid.put(&mut tid, out);
            thread.put(&mut known(thread.tid, last), out);
        }
        *last = all.to_vec();
    }

    fn take_all(count: usize, last: &mut Vec<Self>, from: &mut In<'_>) -> Result<Vec<Self>, Torn> {
        let mut tid = 0;
        let mut all = Vec::new();
        for _ in 0..count {
            let tid = u32::take(&mut tid, from)?;
            all.push(ThreadSample::take(&mut known(tid, last), from)?);
        }
        last.clone_from(&all);
        Ok(all)
    }
}

/// The thread with this number in the list before, or one that has not run yet.
fn known(tid: u32, last: &[ThreadSample]) -> ThreadSample {
    match last.binary_search_by_key(&tid, |thread| thread.tid) {
        Ok(index) => last[index],
        Err(_) => ThreadSample { tid, run_nsec: 0, wait_nsec: 0 },
    }
}
