//! What is free, and the jobs that were overtaken as often as allowed.

use super::fit::{Free, Lack, Need};
use super::state::Admission;
use super::types::JobId;

impl Admission {
    /// What is free if no job ran, and nothing outside.
    pub(super) fn free_of_empty(&self) -> Free {
        Free::new((self.slots(), self.widest()), &self.capacity, 0)
    }

    /// What is free if no job ran.
    pub(super) fn free_without_jobs(&self) -> Free {
        Free::new((self.slots(), self.widest()), &self.capacity, self.measured.outside_bytes)
            .withholding(&self.withheld)
    }

    /// What is free now.
    pub(super) fn free_now(&self) -> Free {
        let mut free = self.free_without_jobs();
        for (id, _) in self.runs() {
            let job = &self.jobs[&id];
            free.take(&job.need, job.reserved_bytes());
        }
        free
    }

    /// All that a job lacks. One whose tenant has left the policy lacks nothing: it is about to leave the queue.
    pub(super) fn lacks<'a>(
        &self,
        need: &'a Need,
        free: &'a Free,
    ) -> impl Iterator<Item = Lack> + use<'a> {
        let terms = self.terms(need.tenant);
        terms.map(|terms| free.lacks(terms, need)).into_iter().flatten()
    }

    /// The first that a job lacks; `None` where it fits.
    pub(super) fn lack(&self, need: &Need, free: &Free) -> Option<Lack> {
        self.lacks(need, free).next()
    }

    /// Whether a job fits, and no senior goes first.
    pub(super) fn may_start(&self, id: JobId, free: &Free) -> bool {
        let need = &self.jobs[&id].need;
        self.lack(need, free).is_none() && self.senior_before(id, need, free).is_none()
    }

    /// The senior before which a job may not start: one that lacks something which the job takes, or would lack units again
    /// that it has lacked.
    ///
    /// All that a senior lacks counts, not what it is told. While jobs start, a senior never lacks less, so a job that it
    /// keeps from starting is kept to the end of the dispatch; and what it lacks beside the limits of its tenant is not
    /// taken from it each time when its tenant has just begun another job. Units that it has lacked are kept for it when
    /// they are free while it lacks something else: two things that are free in turn would keep it waiting without bound. Its
    /// tenant's limits are not: other jobs of the tenant run while the units are held elsewhere.
    pub(super) fn senior_before(&self, id: JobId, need: &Need, free: &Free) -> Option<JobId> {
        let blocks = |senior: &&JobId| {
            let Some(job) = self.jobs.get(senior) else { return false };
            // Waiting for others to end would not help one that lacks what no job has.
            let is_kept = |at: &usize| free.is_for_one(*at, &job.need, need);
            let mut lacks = self.lacks(&job.need, free);
            (lacks.any(|lack| lack.is_taken_by(&job.need, need))
                || job.lacked_units.iter().any(is_kept))
                && self.lack(&job.need, &self.free_without_jobs()).is_none()
        };
        self.seniors.iter().take_while(|senior| **senior != id).find(blocks).copied()
    }

    /// Notes the units that seniors lack at the end of a dispatch.
    pub(super) fn note_lacked_units(&mut self, free: &Free) {
        for senior in self.seniors.clone() {
            let Some(job) = self.jobs.get(&senior) else { continue };
            let lacked: Vec<usize> = self.lacks(&job.need, free).filter_map(Lack::units).collect();
            if let Some(job) = self.jobs.get_mut(&senior) {
                let nr_before = job.lacked_units.len();
                job.lacked_units.extend(lacked);
                self.nr_changes += u64::from(job.lacked_units.len() > nr_before);
            }
        }
    }
}
