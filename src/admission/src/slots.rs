//! Price of slots that a tenant keeps its own jobs from using.
//!
//! # Problem
//! A job pays for its CPU time, but what it holds is slots. A tenant that uses CPU time beside its jobs slows them: they hold
//! their slots longer, pay no more, and the jobs of other tenants wait.
//!
//! # Rule
//! The running jobs of a tenant pay together for its whole CPU time while they run, each at most for the time of its slots. So a
//! job that others slow, or that waits for a device, still pays for its CPU time only, and so does any job of a tenant without
//! other processes.
//!
//! # Algorithm
//! At each tick, the CPU time of the tenant since the last one, less that of its jobs (also of those that have ended), is
//! divided among its running jobs in proportion to what they have not used of the time of their slots. An idle job holds none.

use std::collections::BTreeMap;

use super::state::Admission;
use super::types::JobId;
use tenantd_queue::TenantId;

impl Admission {
    /// Charges running jobs for CPU time that their tenants have used beside their jobs. `total_seconds` is the CPU time of a
    /// tenant since a fixed time, `None` if it is not known.
    pub fn charge_others(&mut self, total_seconds: impl Fn(&str) -> Option<f64>, now: f64) {
        let mut jobs_of: BTreeMap<TenantId, Vec<JobId>> = BTreeMap::new();
        for (id, _) in self.runs() {
            jobs_of.entry(self.jobs[&id].need.tenant).or_default().push(id);
        }
        self.tenant_use.retain(|tenant| jobs_of.contains_key(&tenant));
        for (tenant, jobs) in jobs_of {
            let total = self.terms(tenant).and_then(|terms| total_seconds(&terms.path));
            let seen = total.and_then(|total| self.tenant_use.look(tenant, total, now));
            let (others, since) = seen.unwrap_or((0.0, now));
            let unused: Vec<f64> = jobs.iter().map(|id| self.unused(*id, since, now)).collect();
            let sum: f64 = unused.iter().sum();
            for (id, unused) in jobs.into_iter().zip(unused) {
                let Some(job) = self.jobs.get_mut(&id) else { continue };
                job.seen_seconds = job.cpu_seconds;
                if sum > 0.0 && others > 0.0 {
                    job.other_seconds += unused * (others / sum).min(1.0);
                    self.pay(id, now);
                }
            }
        }
    }

    /// Time of the slots of a running job that it has not used, since the last look.
    fn unused(&self, id: JobId, since: f64, now: f64) -> f64 {
        let Some(job) = self.jobs.get(&id) else { return 0.0 };
        let started = job.run().map_or(now, |run| run.since);
        let held = job.held_slots() as f64 * (now - since.max(started));
        (held - (job.cpu_seconds - job.seen_seconds)).max(0.0)
    }
}
