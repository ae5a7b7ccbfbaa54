//! All jobs of the agent, with the state that they share.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::cgroup::JobCgroup;
use super::finish_time::Round;
use super::finished::FinishedJobs;
use super::pace::Pace;
use super::records::{Home, Records};
use super::reply::JobAnswer;
use super::reply::waiting;
use super::scope::Scopes;
use super::store::{KeptJob, Store};
use super::waits::{End, Expected, Waits};
use super::watch::{ARRIVAL, REFRESH, Watch};
use tenantd_admission::{
    Admission, Capacity, Dispatch, JobId, Measured, Outlook, Phase, Preemption, Rules,
};
use tenantd_control::tree::TreeNode;
use tenantd_dop::CpuSet;
use tenantd_policy::model::Policy;
use tenantd_varlink::bridge::Ticket;
use tenantd_varlink::jobs::SubmitReply;

#[derive(Debug)]
pub(crate) struct JobRoom {
    pub(crate) admission: Admission,
    pub(crate) records: Records,
    pub(crate) store: Store,
    pub(crate) unkept: BTreeSet<JobId>,
    pub(crate) submitted: Vec<Submitted>,
    pub(crate) outbox: Vec<(Ticket, JobAnswer)>,
    pub(crate) has_changed: bool,
    /// `None` for a kernel in memory.
    pub(crate) watch: Option<Watch>,
    /// Nodes that the terms of tenants were read from, to detect a change.
    pub(crate) nodes: Arc<[TreeNode]>,
    /// Policy of the present rules, to detect a change.
    pub(crate) policy: Arc<Policy>,
    pub(crate) measured: Measured,
    pub(crate) left: Vec<JobCgroup>,
    pub(crate) placed: Vec<Placed>,
    pub(crate) listed: f64,
    pub(crate) charged: f64,
    pub(crate) lingering_charged: f64,
    pub(crate) preemption: Preemption,
    pub(crate) scopes: Scopes,
    /// JobRoom started, by tenant; only tenants of the policy that ever had a job.
    pub(crate) tallies: BTreeMap<String, Tally>,
    pub(crate) finished: FinishedJobs,
    /// Changes of the finished jobs in the last publication.
    pub(crate) finished_published: Option<u64>,
    pub(crate) waits: Waits,
    /// Ends of jobs that others wait for.
    pub(crate) ends: VecDeque<End>,
    pub(crate) expected: Expected,
    /// Sets with reports since the last batch of calls.
    pub(crate) reported: BTreeSet<JobId>,
    /// Sets with reports since they were written to the state directory.
    pub(crate) progressed: BTreeSet<JobId>,
    pub(crate) pace: Pace,
    pub(crate) round: Round,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Submitted {
    pub(crate) job: JobId,
    /// True if the job must start at once or be refused.
    pub(crate) no_wait: bool,
}

/// JobRoom that are placed together, on these CPUs, each with its width.
pub(crate) type Placed = (CpuSet, Vec<(JobId, u32)>);

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) nr_started: u64,
    pub(crate) waited_seconds: f64,
}

impl JobRoom {
    pub(crate) fn new(store: Store) -> JobRoom {
        let finished = FinishedJobs::from_kept(store.load_finished());
        JobRoom {
            admission: Admission::new(Rules::default(), Capacity::default()),
            records: Records::default(),
            store,
            unkept: BTreeSet::new(),
            submitted: Vec::new(),
            outbox: Vec::new(),
            has_changed: true,
            watch: None,
            nodes: Arc::from([]),
            policy: Arc::default(),
            measured: Measured::default(),
            left: Vec::new(),
            placed: Vec::new(),
            listed: f64::NEG_INFINITY,
            charged: f64::NEG_INFINITY,
            lingering_charged: f64::NEG_INFINITY,
            preemption: Preemption::default(),
            scopes: Scopes::default(),
            tallies: BTreeMap::new(),
            finished,
            finished_published: None,
            waits: Waits::default(),
            ends: VecDeque::new(),
            expected: Expected::default(),
            reported: BTreeSet::new(),
            progressed: BTreeSet::new(),
            pace: Pace::default(),
            round: Round::default(),
        }
    }

    /// Started jobs with their cgroups, including those whose scope has not started.
    pub(crate) fn homes(&self) -> impl Iterator<Item = (JobId, &Home)> {
        let active = self.admission.active();
        active.filter_map(|view| Some((view.job, self.records.get(&view.job)?.home.as_ref()?)))
    }

    /// Time between two looks at the jobs between ticks; `None` if none is needed.
    pub(crate) fn refresh_every(&self, now: f64) -> Option<Duration> {
        if self.scopes.is_any_new(now) {
            return Some(ARRIVAL);
        }
        // Those that linger are looked at with ticks.
        let lingers = |job: JobId| {
            let view = self.admission.job(job);
            view.is_some_and(|view| matches!(view.phase, Phase::Lingering { .. }))
        };
        let has_any = !self.left.is_empty() || self.homes().any(|(job, _)| !lingers(job));
        has_any.then_some(REFRESH)
    }

    pub(crate) fn dispatch(&mut self, now: f64) -> Dispatch {
        let dispatch = self.admission.dispatch(self.measured, now);
        self.has_changed |= !dispatch.starts.is_empty() || !dispatch.widths.is_empty();
        dispatch
    }

    /// Sends the outlook of a waiting job to its client if it has changed.
    pub(crate) fn tell(&mut self, outlook: &Outlook, nr_waiting: usize) {
        let waiting = waiting(outlook, nr_waiting);
        let Some(view) = self.admission.job(outlook.job) else { return };
        let Some(record) = self.records.get_mut(&outlook.job) else { return };
        // A set that has begun learns its turns only.
        let Some(ticket) = record.ticket.filter(|_| record.home.is_none()) else { return };
        if record.told.as_ref() == Some(&waiting) {
            return;
        }
        record.told = Some(waiting.clone());
        let tenant = view.request.tenant.clone();
        let reply = SubmitReply {
            id: outlook.job.0,
            tenant,
            waiting: Some(waiting),
            ..SubmitReply::default()
        };
        self.outbox.push((ticket, JobAnswer::Waits(reply)));
    }

    pub(crate) fn forget_process(&mut self, job: JobId) {
        let record = self.records.get_mut(&job);
        let handle = record.and_then(|record| record.process.handle.take());
        if let (Some(watch), Some(handle)) = (&self.watch, handle) {
            watch.forget(&handle);
        }
    }

    /// Record of a started job for the next agent; `None` if it is gone or waits.
    fn kept(&self, job: JobId) -> Option<KeptJob> {
        let record = self.records.get(&job)?;
        let is_starting = self.scopes.starting.contains_key(&job);
        let home = record.home.as_ref().filter(|_| !is_starting)?;
        let view = self.admission.job(job)?;
        let (since, lingers) = match view.phase {
            Phase::Running { since, .. } => (since, false),
            Phase::Lingering { since } => (since, true),
            Phase::Waiting { .. } => return None,
        };
        Some(KeptJob {
            id: job.0,
            request: Some(view.request.clone()),
            submitted: view.submitted,
            since,
            pid: record.process.pid,
            start_ticks: record.process.start_ticks,
            command: record.command.clone(),
            below: home.cgroup.below.clone(),
            unit: home.cgroup.unit.clone(),
            path: home.path.clone(),
            inode: home.cgroup.inode(),
            cpus: home.cpus.as_ref().map(ToString::to_string),
            ineffective: home.ineffective.clone(),
            lingers,
            supervised: record.seen.is_supervised,
            tasks: record.seen.tasks,
            indices: view.indices.clone(),
            devices: home.cgroup.devices.clone(),
        })
    }

    /// Writes changed jobs to the state directory, for the next agent.
    pub(crate) fn keep_changed(&mut self) {
        for job in std::mem::take(&mut self.unkept) {
            match self.kept(job) {
                Some(kept) => self.store.keep_job(&kept),
                None => self.store.forget_job(job),
            }
        }
    }

    pub(crate) fn answer(&mut self, job: JobId, answer: JobAnswer) {
        if let Some(ticket) = self.records.take_ticket(job) {
            self.outbox.push((ticket, answer));
        }
    }
}
