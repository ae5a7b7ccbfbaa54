//! Usage of processes that a tenant claims and an observer does not move.
//!
//! **Problem.** While the agent only observes, tenants that claim processes have no cgroup and so no counters.
//! A day of observation would show nothing of them.
//!
//! **Algorithm.** The [search](super::claims) finds the processes of each tenant, one part in each tick. Their
//! CPU times are read in every tick from `/proc/PID/stat`, and their memory from `/proc/PID/statm` whenever the
//! search finds them. A process counts from its find on; its use until it was last seen stays in the sum. The
//! sums replace the sample of a cgroup.
//!
//! **Limits.** Memory is the private memory of all processes plus the largest shared part of one of them,
//! because shared pages are reported again for each process. Unmapped file cache is not counted, nor the time
//! of processes that end between two searches. Pressure is unknown.

use std::collections::{BTreeMap, BTreeSet};

use super::access::HostAccess;
use super::place::Sampled;
use tenantd_control::measure::sample::{MemorySample, TenantSample};
use tenantd_control::tree::Tree;
use tenantd_core::node::{NodeId, NodeMap};
use tenantd_host::kernfs::KernFs;
use tenantd_host::process::{self, Claim, ResidentMemory, Work};

#[derive(Debug, Default)]
pub(super) struct Unmoved {
    of: NodeMap<Tenant>,
}

#[derive(Debug, Default)]
struct Tenant {
    processes: BTreeMap<u32, Seen>,
    /// CPU time of processes that left, from find to last sight.
    past_usec: u64,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    start_ticks: u64,
    /// CPU time at the find, and at the last sight.
    first_usec: u64,
    last_usec: u64,
    memory: ResidentMemory,
}

impl Seen {
    fn used_usec(&self) -> u64 {
        self.last_usec.saturating_sub(self.first_usec)
    }
}

impl Unmoved {
    /// Adds the claimed processes that a part of the search found. A known process for which `is_of_part` holds
    /// is not claimed any more if this part did not find it again.
    pub(super) fn take_part<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        claims: &[(NodeId, &Claim)],
        is_of_part: impl Fn(u32) -> bool,
    ) {
        let found: BTreeSet<(NodeId, u32)> = claims.iter().map(|(id, it)| (*id, it.pid)).collect();
        for (node, tenant) in self.of.iter_mut() {
            tenant.keep(|pid| !is_of_part(pid) || found.contains(&(node, pid)));
        }
        let proc = host.proc();
        for (node, claim) in claims {
            let Some(memory) = process::resident(&mut host.kernel, proc, claim.pid) else {
                continue;
            };
            let Some(work) = process::work(&mut host.kernel, proc, claim.pid) else { continue };
            let tenant = self.of.or_default(*node);
            let known = tenant.processes.get_mut(&claim.pid);
            match known.filter(|known| known.start_ticks == work.start_ticks) {
                Some(known) => known.memory = memory,
                None => tenant.begin(claim.pid, &work, memory),
            }
        }
    }

    pub(super) fn sample<K: KernFs>(&mut self, host: &mut HostAccess<K>, node: NodeId) -> Sampled {
        let proc = host.proc();
        let tenant = self.of.or_default(node);
        for (pid, seen) in &mut tenant.processes {
            let work = process::work(&mut host.kernel, proc, *pid);
            if let Some(work) = work.filter(|work| work.start_ticks == seen.start_ticks) {
                seen.last_usec = process::usec(work.cpu_ticks);
            }
        }
        let now_usec: u64 = tenant.processes.values().map(Seen::used_usec).sum();
        let sample = TenantSample {
            populated: Some(!tenant.processes.is_empty()),
            usage_usec: Some(tenant.past_usec + now_usec),
            memory: Some(tenant.memory()),
            ..TenantSample::default()
        };
        Sampled { sample, nr_oom_kills: None, nr_threads: None, gaps: Vec::new() }
    }

    /// Drops the tenants that are not in `tree`.
    pub(super) fn follow(&mut self, tree: &Tree) {
        self.of.retain(|id| tree.find(id).is_some());
    }

    pub(super) fn clear(&mut self) {
        self.of = NodeMap::default();
    }
}

impl Tenant {
    /// Counts a process, instead of an earlier one with its pid.
    fn begin(&mut self, pid: u32, work: &Work, memory: ResidentMemory) {
        let usec = process::usec(work.cpu_ticks);
        let start_ticks = work.start_ticks;
        let seen = Seen { start_ticks, first_usec: usec, last_usec: usec, memory };
        if let Some(before) = self.processes.insert(pid, seen) {
            self.past_usec += before.used_usec();
        }
    }

    fn keep(&mut self, stays: impl Fn(u32) -> bool) {
        let past_usec = &mut self.past_usec;
        self.processes.retain(|pid, seen| {
            let stays = stays(*pid);
            *past_usec += if stays { 0 } else { seen.used_usec() };
            stays
        });
    }

    fn memory(&self) -> MemorySample {
        let all = || self.processes.values().map(|seen| seen.memory);
        let anon_bytes: u64 = all().map(|memory| memory.private_bytes).sum();
        let shared_bytes = all().map(|memory| memory.shared_bytes).max().unwrap_or(0);
        MemorySample {
            current_bytes: anon_bytes + shared_bytes,
            active_file_bytes: shared_bytes,
            anon_bytes: Some(anon_bytes),
            ..MemorySample::default()
        }
    }
}
