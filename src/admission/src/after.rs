//! Jobs that wait for the end of others, and the entries of donors ([`tenantd_queue::donation`]).

use std::collections::BTreeSet;

use super::state::Admission;
use super::types::{JobId, Requirement};
use tenantd_queue::TenantId;

impl Admission {
    /// Records the end of a job, or that it will not come. Jobs without a further requirement enter the queue; those whose
    /// requirement has failed are returned, for the caller to cancel.
    pub fn requirement_ended(&mut self, id: JobId, has_succeeded: bool, now: f64) -> Vec<JobId> {
        let unblocked = self.graph.ended(id.0, has_succeeded);
        for ready in unblocked.ready.into_iter().map(JobId) {
            if self.jobs.contains_key(&ready) {
                self.enqueue(ready, now);
            }
        }
        if !unblocked.failed.is_empty() {
            // Their other roots have lost donors.
            let roots: Vec<JobId> = self.donors.keys().copied().collect();
            roots.into_iter().for_each(|root| self.renew_donors(root, now));
        }
        self.renew_donors(id, now);
        unblocked.failed.into_iter().map(JobId).collect()
    }

    /// True if a job waits for this one.
    pub fn is_required(&self, id: JobId) -> bool {
        self.graph.is_required(id.0)
    }

    /// Jobs that others wait for, present or not.
    pub fn required(&self) -> impl Iterator<Item = JobId> {
        self.graph.required().map(JobId)
    }

    /// Requirements of a job that have not ended.
    pub fn requirements(&self, id: JobId) -> impl Iterator<Item = Requirement> {
        let all = self.graph.requirements(id.0);
        all.map(|(job, must_succeed)| Requirement { job: JobId(job), must_succeed })
    }

    /// Gives the roots of a blocked job the entries of its tenant.
    pub(super) fn donate_for(&mut self, id: JobId, now: f64) {
        for root in self.graph.roots(id.0) {
            self.renew_donors(JobId(root), now);
        }
    }

    /// Brings the entries of donors in line with the jobs that wait for this one.
    pub(super) fn renew_donors(&mut self, id: JobId, now: f64) {
        let wanted = self.wanted_donors(id);
        if wanted.is_empty() && !self.donors.contains_key(&id) {
            return;
        }
        let present = self.donors.remove(&id).unwrap_or_default();
        for tenant in present.difference(&wanted) {
            self.queue.withdraw(*tenant, id.0, now);
        }
        for tenant in wanted.difference(&present) {
            self.enqueue_for(id, *tenant, now);
        }
        if !wanted.is_empty() {
            self.donors.insert(id, wanted);
        }
    }

    /// Tenants of jobs that wait for this one, if it is in the queue.
    fn wanted_donors(&self, id: JobId) -> BTreeSet<TenantId> {
        let is_queued = |id: JobId| {
            !self.graph.is_blocked(id.0) && self.jobs.get(&id).is_some_and(|job| job.is_waiting())
        };
        if !self.graph.is_required(id.0) || !is_queued(id) {
            return BTreeSet::new();
        }
        let waiting = self.graph.waiting_for(id.0).into_iter();
        let waiting = waiting.filter_map(|it| Some(self.jobs.get(&JobId(it))?.need.tenant));
        let own = self.jobs[&id].need.tenant;
        waiting.filter(|it| *it != own && self.terms(*it).is_some()).collect()
    }
}
