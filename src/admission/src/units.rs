//! Indices of units: taken at a start, kept by sets and over a restart ([`tenantd_queue::indices`]).

use std::collections::BTreeSet;

use super::fit::Free;
use super::job::{Job, Kind};
use super::state::Admission;
use super::types::JobId;
use tenantd_queue::indices::{self, Indices};

impl Admission {
    /// Held indices of a resource.
    fn held_indices(&self, name: &str, counts: impl Fn(&Job) -> bool) -> BTreeSet<u32> {
        let active = self.active.iter().filter_map(|id| self.jobs.get(id));
        active.filter(|job| counts(job)).flat_map(|job| job.indices.of(name)).collect()
    }

    /// Bounds the free units by the indices that these jobs do not hold: more are held than running jobs need by those
    /// that linger, and by sets after a restart.
    pub(super) fn bound_units(&self, free: &mut Free, counts: impl Fn(&Job) -> bool) {
        for (left, (name, units)) in free.units.iter_mut().zip(&self.capacity.units) {
            *left = (*left).min(indices::free(*units, &self.held_indices(name, &counts)));
        }
    }

    /// Gives a job the indices for what has just started: itself, or a task of it.
    pub(super) fn take_indices(&mut self, id: JobId, started: JobId) {
        let Some(need) = self.jobs.get(&started).map(|job| job.need.units.clone()) else { return };
        for (at, wanted) in need.into_iter().enumerate().filter(|(_, wanted)| *wanted > 0) {
            let Some((name, units)) = self.capacity.units.get(at).cloned() else { continue };
            let held = self.held_indices(&name, |_| true);
            if let Some(job) = self.jobs.get_mut(&id) {
                job.indices.take(&name, wanted, units, &held);
            }
        }
    }

    /// Brings the indices of a set in line with its running tasks.
    pub(super) fn keep_indices(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id) else { return };
        let Some(runs) = job.set().filter(|_| !job.indices.is_empty()) else { return };
        let (running, in_use) = (runs.running.len() as u32, runs.in_use.clone());
        let names = self.capacity.units.iter().map(|(name, _)| name);
        let wanted = names.zip(&job.need.units);
        let wanted: Vec<(String, u32)> =
            wanted.map(|(name, each)| (name.clone(), each.saturating_mul(running))).collect();
        for (name, wanted) in wanted {
            if let Some(job) = self.jobs.get_mut(&id) {
                job.indices.keep(&name, wanted, &in_use);
            }
        }
    }

    /// Notes the indices in use by the tasks of a set, before [`Admission::report_tasks`].
    pub fn use_indices(&mut self, id: JobId, in_use: Indices) {
        if let Some(Job { kind: Kind::Set(runs), .. }) = self.jobs.get_mut(&id) {
            runs.in_use = in_use;
        }
    }

    /// Gives a job of an earlier agent the indices that it had.
    pub fn hold_indices(&mut self, id: JobId, held: Indices) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.indices = held;
            self.nr_changes += 1;
        }
    }

    /// Gives indices to the running jobs of an earlier agent that had none, after all others have theirs.
    pub fn complete_indices(&mut self) {
        let lacking = self.runs().map(|(id, _)| id);
        let lacking: Vec<JobId> = lacking
            .filter(|id| self.jobs[id].indices.is_empty() && !self.jobs[id].is_task())
            .collect();
        lacking.into_iter().for_each(|id| self.take_indices(id, id));
    }
}
