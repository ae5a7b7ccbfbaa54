//! What is free, and the jobs that were overtaken as often as allowed.

use super::fit::{Free, Lack, Need};
use super::state::Admission;
use super::types::JobId;

impl Admission {
    /// What is free if no job ran, and nothing outside.
    pub(super) fn free_of_empty(&self) -> Free {
        Free::new(self.slots(), &self.capacity, 0)
    }

    /// What is free if no job ran.
    pub(super) fn free_without_jobs(&self) -> Free {
        Free::new(self.slots(), &self.capacity, self.measured.outside_bytes)
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

    /// What a job lacks. One whose tenant has left the policy lacks nothing: it is about to leave the queue.
    pub(super) fn lack(&self, need: &Need, free: &Free) -> Option<Lack> {
        free.lack(self.terms(need.tenant)?, need)
    }

    /// Whether a job fits, and no senior goes first.
    pub(super) fn may_start(&self, id: JobId, free: &Free) -> bool {
        let need = &self.jobs[&id].need;
        self.lack(need, free).is_none() && self.senior_before(id, need, free).is_none()
    }

    /// The senior before which a job may not start.
    pub(super) fn senior_before(&self, id: JobId, need: &Need, free: &Free) -> Option<JobId> {
        let blocks = |senior: &&JobId| {
            let Some(job) = self.jobs.get(senior) else { return false };
            let lack = self.lack(&job.need, free);
            // Waiting for others to end would not help one that lacks what no job has.
            lack.is_some_and(|lack| lack.is_taken_by(&job.need, need))
                && self.lack(&job.need, &self.free_without_jobs()).is_none()
        };
        self.seniors.iter().take_while(|senior| **senior != id).find(blocks).copied()
    }
}
