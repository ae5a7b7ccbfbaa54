//! Free resources, and the jobs that were overtaken as often as allowed.

use super::fit::{Free, Lack, Need};
use super::job::{Job, State};
use super::state::Admission;
use super::types::JobId;

impl Admission {
    /// Free resources without jobs and without outside usage.
    pub(super) fn free_of_empty(&self) -> Free {
        Free::new((self.slots(), self.widest()), &self.capacity, 0)
    }

    pub(super) fn free_without_jobs(&self) -> Free {
        let mut free =
            Free::new((self.slots(), self.widest()), &self.capacity, self.measured.outside_bytes)
                .withholding(&self.withheld)
                .reserving(self.rules.reserve.map(|it| it.workers), self.workers());
        // Those of lingering jobs may stay held for as long as a daemon runs.
        self.bound_units(&mut free, |job| matches!(job.state, State::Lingering { .. }));
        free
    }

    pub(super) fn free_now(&self) -> Free {
        self.free_after(&[])
    }

    /// Free resources after the end of these running jobs.
    pub(super) fn free_after(&self, ended: &[JobId]) -> Free {
        let mut free = self.free_without_jobs();
        for (id, _) in self.runs().filter(|(id, _)| !ended.contains(id)) {
            let job = &self.jobs[&id];
            free.take(&job.need, job.held_slots(), job.reserved_bytes());
        }
        // The indices of a task are its set's.
        let has_ended = |job: &Job| {
            job.set().is_some_and(|runs| runs.running.iter().any(|task| ended.contains(task)))
        };
        self.bound_units(&mut free, |job| !has_ended(job));
        free
    }

    /// Everything that a job lacks. A job of a removed tenant lacks nothing: it is about to leave the queue.
    pub(super) fn lacks<'a>(
        &self,
        need: &'a Need,
        free: &'a Free,
    ) -> impl Iterator<Item = Lack> + use<'a> {
        let terms = self.terms(need.tenant);
        terms.map(|terms| free.lacks(terms, need)).into_iter().flatten()
    }

    pub(super) fn lack(&self, need: &Need, free: &Free) -> Option<Lack> {
        self.lacks(need, free).next()
    }

    /// True if a job fits, and no senior goes first.
    pub(super) fn may_start(&self, id: JobId, free: &Free) -> bool {
        let need = &self.jobs[&id].need;
        self.lack(need, free).is_none() && self.senior_before(id, need, free).is_none()
    }

    /// The senior that blocks a job: one that lacks something which the job takes, or would again lack units
    /// that it has lacked.
    ///
    /// All lacks of a senior count, not only the reported one. While jobs start, a senior never lacks less, so
    /// a blocked job stays blocked to the end of the dispatch; and the start of another job of the senior's
    /// tenant does not open its other lacks to everyone. Units that it has lacked are kept for it when they are
    /// free while it lacks something else: two resources that are free in turn would delay it without bound.
    /// Its tenant's limits are not kept: other jobs of the tenant run while the units are held elsewhere.
    pub(super) fn senior_before(&self, id: JobId, need: &Need, free: &Free) -> Option<JobId> {
        let blocks = |senior: &&JobId| {
            let Some(job) = self.jobs.get(senior) else { return false };
            let is_kept = |at: &usize| free.is_for_one(*at, &job.need, need);
            let mut lacks = self.lacks(&job.need, free);
            (lacks.any(|lack| lack.is_taken_by(&job.need, need))
                || job.lacked_units.iter().any(is_kept))
                && self.is_helped_by_ends(&job.need)
        };
        self.seniors.iter().take_while(|senior| **senior != id).find(blocks).copied()
    }

    /// True if a job could start once all running ones have ended. Waiting for them does not help one that lacks more than
    /// they hold.
    pub(super) fn is_helped_by_ends(&self, need: &Need) -> bool {
        self.lack(need, &self.free_without_jobs()).is_none()
    }

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
