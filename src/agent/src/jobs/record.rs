//! The state of the room.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::cgroup::JobCgroup;
use super::records::{Home, Records};
use super::reply::JobAnswer;
use super::reply::waiting;
use super::scope::Scopes;
use super::store::{KeptJob, Store};
use super::watch::{ARRIVAL, REFRESH, Watch};
use tenantd_admission::{
    Admission, Capacity, Dispatch, JobId, Measured, Outlook, Phase, Preemption, Rules,
};
use tenantd_control::tree::TreeNode;
use tenantd_dop::CpuSet;
use tenantd_policy::model::Policy;
use tenantd_varlink::bridge::Ticket;
use tenantd_varlink::jobs::SubmitReply;

/// All jobs of the agent.
#[derive(Debug)]
pub(crate) struct Jobs {
    pub(crate) admission: Admission,
    pub(crate) records: Records,
    pub(crate) store: Store,
    /// Jobs that started, moved or ended since they were kept.
    pub(crate) unkept: BTreeSet<JobId>,
    /// Jobs of the present batch of calls, whose clients have no answer yet.
    pub(crate) submitted: Vec<Submitted>,
    /// Answers that are to be sent.
    pub(crate) outbox: Vec<(Ticket, JobAnswer)>,
    /// Whether anything changed that readers see.
    pub(crate) has_changed: bool,
    /// What wakes the agent; `None` for a kernel in memory.
    pub(crate) watch: Option<Watch>,
    /// The policy's nodes that the terms of tenants were read from.
    pub(crate) nodes: Arc<[TreeNode]>,
    /// The same, for what is not in the nodes.
    pub(crate) policy: Arc<Policy>,
    pub(crate) measured: Measured,
    /// Cgroups of ended jobs that could not be removed yet.
    pub(crate) left: Vec<JobCgroup>,
    /// Where jobs were placed last.
    pub(crate) placed: Vec<Placed>,
    /// When the list of jobs was made last.
    pub(crate) listed: f64,
    /// When running jobs were charged last.
    pub(crate) charged: f64,
    /// When those that linger were looked at last.
    pub(crate) lingering_charged: f64,
    /// What jobs give up while a guarantee is due.
    pub(crate) preemption: Preemption,
    /// Jobs in slices of systemd's.
    pub(crate) scopes: Scopes,
    /// What has started of each tenant of the policy that ever had a job.
    pub(crate) tallies: BTreeMap<String, Tally>,
}

/// A job that was just submitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Submitted {
    pub(crate) job: JobId,
    /// It is refused where it cannot start at once.
    pub(crate) no_wait: bool,
}

/// Jobs that are placed together: on which CPUs, and how wide each is.
pub(crate) type Placed = (CpuSet, Vec<(JobId, u32)>);

/// What started since the agent did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) nr_started: u64,
    pub(crate) waited_seconds: f64,
}

impl Jobs {
    /// No jobs, and nothing that keeps them.
    pub(crate) fn new(store: Store) -> Jobs {
        Jobs {
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
        }
    }

    /// The started jobs with their cgroups, also those whose scope is only asked for.
    pub(crate) fn homes(&self) -> impl Iterator<Item = (JobId, &Home)> {
        let active = self.admission.active();
        active.filter_map(|view| Some((view.job, self.records.get(&view.job)?.home.as_ref()?)))
    }

    /// How often jobs have to be looked at between ticks.
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

    /// Starts what may start.
    pub(crate) fn dispatch(&mut self, now: f64) -> Dispatch {
        let dispatch = self.admission.dispatch(self.measured, now);
        self.has_changed |= !dispatch.starts.is_empty() || !dispatch.widths.is_empty();
        dispatch
    }

    /// Tells the client of a job that it waits, unless it knows that already.
    pub(crate) fn tell(&mut self, outlook: &Outlook, nr_waiting: usize) {
        let waiting = waiting(outlook, nr_waiting);
        let Some(view) = self.admission.job(outlook.job) else { return };
        let Some(record) = self.records.get_mut(&outlook.job) else { return };
        let Some(ticket) = record.ticket else { return };
        if record.told.as_ref() == Some(&waiting) {
            return;
        }
        record.told = Some(waiting.clone());
        let tenant = view.request.tenant.clone();
        let reply =
            SubmitReply { id: outlook.job.0, tenant, waiting: Some(waiting), started: None };
        self.outbox.push((ticket, JobAnswer::Waits(reply)));
    }

    /// The first process of a job has ended.
    pub(crate) fn forget_process(&mut self, job: JobId) {
        let record = self.records.get_mut(&job);
        let handle = record.and_then(|record| record.process.handle.take());
        if let (Some(watch), Some(handle)) = (&self.watch, handle) {
            watch.forget(&handle);
        }
    }

    /// A started job, for the next agent; `None` for one that is gone, or waits.
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
        })
    }

    /// Keeps what has changed of the jobs for the next agent.
    pub(crate) fn keep_changed(&mut self) {
        for job in std::mem::take(&mut self.unkept) {
            match self.kept(job) {
                Some(kept) => self.store.keep_job(&kept),
                None => self.store.forget_job(job),
            }
        }
    }

    /// Answers the client of a job for the last time.
    pub(crate) fn answer(&mut self, job: JobId, answer: JobAnswer) {
        if let Some(ticket) = self.records.take_ticket(job) {
            self.outbox.push((ticket, answer));
        }
    }
}
