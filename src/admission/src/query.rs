//! Queries of the queue.

use super::job::{Job, Run, State};
use super::reason::Refusal;
use super::state::{Admission, workers};
use super::types::{Capacity, JobId, JobView, Phase, Rules, Terms};
use tenantd_queue::TenantId;

impl Admission {
    /// All jobs, in the order of submission.
    pub fn jobs(&self) -> impl Iterator<Item = JobView<'_>> {
        self.jobs.keys().filter_map(|id| self.job(*id))
    }

    /// Jobs that do not wait, in the same order; also sets of which a task has started.
    pub fn active(&self) -> impl Iterator<Item = JobView<'_>> {
        self.active.iter().filter_map(|id| self.job(*id))
    }

    /// Job with this number.
    pub fn job(&self, id: JobId) -> Option<JobView<'_>> {
        let job = self.jobs.get(&id).filter(|job| !job.is_task())?;
        let view = view(id, job);
        Some(if let Some(runs) = job.set() { self.with_tasks(view, runs) } else { view })
    }

    /// Policy for all tenants.
    pub fn rules(&self) -> Rules {
        self.rules
    }

    /// True if no job was ever submitted.
    pub fn is_unused(&self) -> bool {
        self.next_job == 1
    }

    /// Number of waiting jobs.
    pub fn nr_waiting(&self) -> usize {
        self.waiting_of_users.values().map(|count| *count as usize).sum()
    }

    /// Number of waiting jobs of one tenant; entries of donors do not count.
    pub(super) fn waiting_of(&self, tenant: TenantId) -> usize {
        if self.graph.nr_blocked() == 0 {
            return self.queue.waiting_of(tenant);
        }
        let is_its = |job: &&Job| job.is_waiting() && job.need.tenant == tenant;
        self.jobs.values().filter(is_its).count()
    }

    /// Number of jobs that may run at once.
    pub fn workers(&self) -> u32 {
        workers(&self.rules, &self.capacity)
    }

    /// Worker for the next job: a free one, or one beyond while idle jobs lend theirs.
    pub(super) fn next_worker(&self) -> u32 {
        self.free_workers.first().copied().unwrap_or_else(|| {
            let beyond = self.runs().map(|(_, run)| run.worker + 1).max().unwrap_or(0);
            beyond.max(self.workers())
        })
    }

    /// Number of divided slots: at least one per worker.
    pub fn slots(&self) -> u32 {
        self.capacity.slots.max(self.workers())
    }

    /// Largest width of a job: workers beyond the slots let more jobs run, not wider ones.
    pub fn widest(&self) -> u32 {
        self.capacity.slots.max(1)
    }

    /// Resources of the machine.
    pub fn resources(&self) -> &Capacity {
        &self.capacity
    }

    /// Free slots (beyond the floors of running jobs), memory and units.
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

    /// Refusal of a further job of this tenant and user because too many ended jobs have left processes
    /// behind, each of which the agent keeps watching.
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

    /// Counter of changes of the stored state.
    pub fn nr_changes(&self) -> u64 {
        self.nr_changes
    }

    /// Number of the next job.
    pub fn next_number(&self) -> u64 {
        self.next_job
    }

    /// Continues numbering from `first`, because an earlier agent may have used the numbers below.
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
            // Replaced by the view of a set.
            State::Parked => Phase::Waiting { overtaken: 0 },
        },
        indices: &known.indices,
        cpu_seconds: known.cpu_seconds,
        used_bytes: known.used_bytes,
        is_idle: known.is_idle,
        used_cores: known.used_cores(),
        set: None,
        eviction: None,
        is_leaving: false,
    }
}
