//! Reasons, positions and estimated times of waiting jobs.

use std::collections::BTreeSet;

use super::fit::{Free, Lack, Need};
use super::reason::Reason;
use super::state::Admission;
use super::types::{JobId, Request, Reserve};

/// Outlook of a waiting job.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlook {
    /// The job.
    pub job: JobId,
    /// Position among all waiting jobs, from 1.
    pub position: u64,
    /// Obstacle to its start.
    pub reason: Reason,
    /// Estimated remaining wait, in seconds; `None` before any job has ended.
    pub estimate_seconds: Option<f64>,
    /// CPUs that its tenant used beside its jobs while they all waited: they count for its turn.
    pub beside_cores: f64,
}

impl Admission {
    /// Outlooks of all waiting jobs, in the order in which they would start if no new ones came and none
    /// lacked anything; those that wait for others come last. O(waiting · (log waiting + seniors)).
    pub fn outlooks(&self, now: f64) -> Vec<Outlook> {
        if self.nr_waiting() == 0 {
            return Vec::new();
        }
        let free = self.free_now();
        let outlook = |(index, job): (usize, JobId)| Outlook {
            job,
            position: index as u64 + 1,
            reason: self.reason(job, &free),
            // Nothing is known about the end of other jobs.
            estimate_seconds: self
                .estimate_seconds(index)
                .filter(|_| !self.graph.is_blocked(job.0)),
            beside_cores: self.beside_cores(job),
        };
        self.order(now).into_iter().enumerate().map(outlook).collect()
    }

    /// Obstacle to the start of a waiting job; `None` for one that does not wait.
    pub fn why(&self, id: JobId) -> Option<Reason> {
        let is_waiting = self.jobs.get(&id).is_some_and(|job| job.is_waiting());
        is_waiting.then(|| self.reason(id, &self.free_now()))
    }

    /// Obstacle of each waiting job, in the order of submission. O(waiting · seniors + running).
    pub fn reasons(&self) -> Vec<(JobId, Reason)> {
        let free = self.free_now();
        let waiting = self.jobs.iter().filter(|(_, job)| job.is_waiting());
        waiting.map(|(id, _)| (*id, self.reason(*id, &free))).collect()
    }

    fn reason(&self, id: JobId, free: &Free) -> Reason {
        let mut after = self.graph.requirements(id.0);
        if let Some((first, must_succeed)) = after.next() {
            let count = after.count() as u32 + 1;
            return Reason::After { job: JobId(first), count, must_succeed };
        }
        if let Some((leaving, tenant)) = self.leaves_for(id) {
            return Reason::Evicting { job: leaving, tenant, is_own: true };
        }
        let job = &self.jobs[&id];
        let lack = self.lack(&job.need, free);
        let is_full = free.busy >= self.workers();
        if let Some(max) = self.rules.max_running.filter(|_| is_full && lack.is_none()) {
            return Reason::Running { max };
        }
        if let Some(lack) = lack {
            return match lack {
                Lack::Reserve => self.reserve_reason(&job.request),
                lack => self.reason_of(lack, &job.need, free),
            };
        }
        match self.senior_before(id, &job.need, free) {
            Some(job) if self.is_reserved_for(job) => {
                let tenant = self.jobs[&job].request.tenant.clone();
                Reason::Evicting { job, tenant, is_own: false }
            }
            Some(job) => Reason::Overtaken { job, times: self.rules.overtakes_max },
            None => Reason::Turn,
        }
    }

    fn reserve_reason(&self, request: &Request) -> Reason {
        let Some(Reserve { workers, below }) = self.rules.reserve else { return Reason::Turn };
        let (total, expected) = (self.workers(), request.expected);
        Reason::Reserve { kept: workers.min(total), total, below, expected }
    }

    pub(super) fn reason_of(&self, lack: Lack, need: &Need, free: &Free) -> Reason {
        let terms = self.terms(need.tenant);
        let memory = self.capacity.memory_bytes.unwrap_or(0);
        match lack {
            Lack::TenantRunning => Reason::TenantRunning {
                max: terms.and_then(|terms| terms.max_running).unwrap_or(0),
            },
            Lack::UserRunning => Reason::UserRunning {
                max: terms.and_then(|terms| terms.max_running_per_user).unwrap_or(0),
            },
            Lack::TenantMemory => {
                let total = terms.and_then(|terms| terms.memory_max_bytes).unwrap_or(0);
                let free = total.saturating_sub(free.reserved_of(need.tenant));
                Reason::TenantMemory { wanted: need.memory_bytes, free, total }
            }
            Lack::Units(at) => {
                let (name, total) = self.capacity.units.get(at).cloned().unwrap_or_default();
                let of = |units: &[u32]| units.get(at).copied().unwrap_or(0);
                Reason::Units { name, wanted: of(&need.units), free: of(&free.units), total }
            }
            // An empty machine has one for any job.
            Lack::Reserve => Reason::Turn,
            Lack::Memory => Reason::Memory {
                wanted: need.memory_bytes,
                free: free.memory_bytes.unwrap_or(memory),
                total: memory,
            },
            Lack::Slots => Reason::Slots {
                wanted: need.floor,
                free: free.slots_for(need.tenant),
                left_to: free
                    .most_lacking(need.tenant)
                    .filter(|_| need.floor <= free.slots.min(free.widest))
                    .map(|(tenant, owed)| (tenant.to_string(), owed)),
                // One job gets at most the width of the machine.
                total: u64::from(if need.floor > free.widest {
                    self.widest()
                } else {
                    self.slots()
                }),
            },
        }
    }

    fn order(&self, now: f64) -> Vec<JobId> {
        let (mut queue, mut order) = (self.queue.clone(), self.seniors.clone());
        // A job may have entries of donors.
        let mut known: BTreeSet<JobId> = order.iter().copied().collect();
        while let Some(tenant) = queue.next(0, now) {
            let Some(picked) = queue.take(tenant, now) else { break };
            let id = JobId(picked.request.id);
            if known.insert(id) {
                order.push(id);
            }
        }
        // Older ones first: none waits for a younger one.
        order.extend(self.graph.blocked().map(JobId));
        order
    }

    /// Assumes the recent rate of ending jobs, on all workers together.
    fn estimate_seconds(&self, nr_before: usize) -> Option<f64> {
        let nr_turns = (nr_before + 1) as f64 / f64::from(self.workers());
        Some(self.pace_seconds? * nr_turns)
    }
}
