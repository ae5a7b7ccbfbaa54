//! What is asked of the queue.

use super::reason::Refusal;
use super::state::{Admission, Job, Run, State, workers};
use super::types::{Capacity, JobId, JobView, Phase, Rules, Terms};
use tenantd_queue::TenantId;

impl Admission {
    /// Every job, in the order in which they were submitted.
    pub fn jobs(&self) -> impl Iterator<Item = JobView<'_>> {
        self.jobs.iter().map(|(id, job)| view(*id, job))
    }

    /// Those that do not wait, in the same order.
    pub fn active(&self) -> impl Iterator<Item = JobView<'_>> {
        self.active.iter().filter_map(|id| self.job(*id))
    }

    /// One job.
    pub fn job(&self, id: JobId) -> Option<JobView<'_>> {
        self.jobs.get(&id).map(|job| view(id, job))
    }

    /// The part of the policy that is the same for all tenants.
    pub fn rules(&self) -> Rules {
        self.rules
    }

    /// Whether no job was ever submitted.
    pub fn is_unused(&self) -> bool {
        self.next_job == 1
    }

    /// Jobs that wait.
    pub fn nr_waiting(&self) -> usize {
        self.queue.waiting()
    }

    /// Jobs that may run at once.
    pub fn workers(&self) -> u32 {
        workers(&self.rules, &self.capacity)
    }

    /// Slots that are divided: at least one for each worker.
    pub fn slots(&self) -> u32 {
        self.capacity.slots.max(self.workers())
    }

    /// The width that no job exceeds: workers beyond the slots let more jobs run, not wider ones.
    pub fn widest(&self) -> u32 {
        self.capacity.slots.max(1)
    }

    /// What there is.
    pub fn resources(&self) -> &Capacity {
        &self.capacity
    }

    /// What is free of slots (beyond the floors of running jobs), memory and units.
    pub fn free(&self) -> Capacity {
        let free = self.free_now();
        let names = self.capacity.units.iter().map(|(name, _)| name.clone());
        Capacity {
            slots: u32::try_from(free.slots).unwrap_or(u32::MAX),
            memory_bytes: free.memory_bytes,
            units: names.zip(free.units).collect(),
        }
    }

    pub(super) fn terms(&self, tenant: TenantId) -> Option<&Terms> {
        self.tenants.get(tenant.0 as usize)?.as_ref()
    }

    /// Why no further job of this tenant and user is taken: too many have ended and left processes behind, each of which
    /// the agent goes on looking after.
    pub(super) fn too_many_linger(&self, tenant: TenantId, user: u32) -> Option<Refusal> {
        let lingering = self.active.iter().filter_map(|id| self.jobs.get(id));
        let lingering = lingering.filter(|job| matches!(job.state, State::Lingering { .. }));
        let (mut of_user, mut of_tenant) = (0, 0);
        for job in lingering {
            of_user += u32::from(job.request.user == user);
            of_tenant += u32::from(job.need.tenant == tenant);
        }
        let (rules, full) =
            (&self.rules, |max, is_of_tenant| Refusal::TooManyLinger { max, is_of_tenant });
        if of_user >= rules.max_waiting_per_user {
            return Some(full(rules.max_waiting_per_user, false));
        }
        (of_tenant >= rules.max_waiting).then(|| full(rules.max_waiting, true))
    }

    pub(super) fn runs(&self) -> impl Iterator<Item = (JobId, &Run)> {
        self.active.iter().filter_map(|id| Some((*id, self.jobs.get(id)?.run()?)))
    }

    /// Counts up with every change of what is kept.
    pub fn nr_changes(&self) -> u64 {
        self.nr_changes
    }

    /// The number of the next job.
    pub fn next_number(&self) -> u64 {
        self.next_job
    }

    /// Jobs get numbers from `first` on, because an earlier agent may have given those below.
    pub fn skip_numbers(&mut self, first: u64) {
        self.next_job = self.next_job.max(first);
    }
}

fn view(job: JobId, known: &Job) -> JobView<'_> {
    JobView {
        job,
        request: &known.request,
        submitted: known.submitted,
        phase: match known.state {
            State::Waiting { overtaken } => Phase::Waiting { overtaken },
            State::Running(run) => Phase::Running { since: run.since, dop: run.dop },
            State::Lingering { since } => Phase::Lingering { since },
        },
        cpu_seconds: known.cpu_seconds,
        used_bytes: known.used_bytes,
    }
}
