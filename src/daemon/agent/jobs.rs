//! Jobs: submitted, started, charged, ended. [`crate::daemon::jobs`] says how it works.

use std::io;
use std::sync::Arc;

use tracing::{debug, info, warn};

use super::job_valves::remove_valve;
use super::start::Agent;
use crate::admission::{Capacity, JobId, Measured, Phase, Request};
use crate::daemon::jobs::listing::list;
use crate::daemon::jobs::record::{JobProcess, Record};
pub use crate::daemon::jobs::reply::JobAnswer;
use crate::daemon::jobs::reply::{self, refusal};
use crate::daemon::jobs::terms;
use crate::daemon::jobs::watch::{Watch, is_alive};
use crate::dop::target::Width;
use crate::host::kernfs::KernFs;
use crate::host::process;
use crate::policy::model::Mode;
use crate::resource::MEMORY;
use crate::varlink::bridge::{Allowed, Caller, Submission, Ticket};
use crate::varlink::error::CallError;
use crate::varlink::jobs::{CancelReply, ListReply, SubmitParameters, SubmitReply};

/// Characters of a class, of a resource's name, and of what is shown of a command.
const NAME_MAX: usize = 64;
const COMMAND_MAX: usize = 256;
/// Counted resources that one job asks for.
const UNITS_MAX: usize = 16;
/// While more jobs wait, one that is submitted is told its exact place with the next tick.
const PLACES_MAX: usize = 64;

impl<K: KernFs> Agent<K> {
    /// A client submits itself as a job; `now` is in seconds of a clock that does not stop between two agents. What it
    /// is told comes with [`Agent::take_job_answers`].
    pub fn submit_job(&mut self, ticket: Ticket, submission: &Submission, now: f64) {
        match self.try_submit(ticket, submission, now) {
            Ok(job) => {
                self.start_jobs(now);
                self.tell_submitted(job, submission, now);
            }
            Err(error) => self.jobs.outbox.push((ticket, JobAnswer::Submitted(Err(error)))),
        }
    }

    fn try_submit(
        &mut self,
        ticket: Ticket,
        submission: &Submission,
        now: f64,
    ) -> Result<JobId, CallError> {
        if self.mode() != Mode::Enforce {
            return Err(CallError::OnlyObserves {});
        }
        self.renew_job_terms(now);
        let tenant = self.tenant_of_job(submission)?;
        let request = request(&submission.parameters, &tenant, submission.uid)?;
        let process = self.process_of_job(submission)?;
        if self.jobs.records.is_empty() {
            self.measure_for_jobs(now);
        }
        let job = self.jobs.admission.submit(request, now);
        let job = job.map_err(|why| refusal(&why, &tenant))?;
        let command = submission.parameters.command.as_deref();
        let command = command.map(|text| text.chars().take(COMMAND_MAX).collect());
        let record = Record { ticket: Some(ticket), process, command, told: None, home: None };
        self.jobs.records.insert(job, record);
        self.jobs.has_changed = true;
        Ok(job)
    }

    /// The tenant that a job is submitted to: the one that it names, or that of its user.
    fn tenant_of_job(&self, submission: &Submission) -> Result<String, CallError> {
        let own = self.tenant_of_user(submission.uid);
        let Some(named) = &submission.parameters.tenant else {
            let leaves = |allowed: &Vec<String>| -> Vec<String> {
                let is_in = |path: &str| allowed.iter().any(|it| is_in_group(path, it));
                let leaves = self.nodes().iter().filter(|node| node.is_leaf);
                leaves.filter(|node| is_in(&node.path)).map(|node| node.path.clone()).collect()
            };
            let tenants = match &submission.allowed {
                Allowed::All => Vec::new(),
                Allowed::These(allowed) => leaves(allowed),
            };
            return match (own, &tenants[..]) {
                (Some(own), _) => Ok(own),
                (None, [only]) => Ok(only.clone()),
                (None, _) => Err(CallError::NoOwnTenant { tenants }),
            };
        };
        let is_allowed = match &submission.allowed {
            Allowed::All => true,
            Allowed::These(allowed) => allowed.iter().any(|it| is_in_group(named, it)),
        };
        let node = self.nodes().iter().find(|node| node.path == *named);
        match node {
            _ if !is_allowed && own.as_ref() != Some(named) => Err(CallError::PermissionDenied {}),
            None => Err(CallError::NoSuchTenant { tenant: named.clone(), tenants: Vec::new() }),
            Some(node) if !node.is_leaf => {
                let reason = format!("{named} is a group: name one of the tenants in it");
                Err(CallError::Failed { reason })
            }
            Some(_) => Ok(named.clone()),
        }
    }

    /// The tenant whose rules name this user.
    fn tenant_of_user(&self, uid: u32) -> Option<String> {
        let policy = if self.base.has_templates { &self.base.expanded } else { &*self.policy };
        let number = |name: &String| name.parse().ok().or(self.base.numbers.user(name));
        let is_of_user =
            |users: &[String]| users.iter().filter_map(number).any(|known| known == uid);
        let leaves = policy.leaves();
        let mut own = leaves.iter().filter(|(_, tenant)| is_of_user(&tenant.matches.users));
        own.next().map(|(path, _)| path.clone())
    }

    /// The process that submits itself, if it is still the one that connected, and of the same user.
    fn process_of_job(&mut self, submission: &Submission) -> Result<JobProcess, CallError> {
        let (proc, pid) = (self.host.proc(), submission.pid);
        let kernel = &mut self.host.kernel;
        let start_ticks = process::start_ticks(kernel, proc, pid);
        let user = process::user(kernel, proc, pid);
        let handle = submission.process.clone();
        let is_job = |record: &Record| {
            (record.process.pid, Some(record.process.start_ticks)) == (pid, start_ticks)
        };
        if self.jobs.records.values().any(is_job) {
            return Err(CallError::Failed { reason: format!("process {pid} is a job already") });
        }
        let is_there = pid > 1 && handle.as_ref().is_none_or(|handle| is_alive(handle));
        match (start_ticks.filter(|_| is_there), user) {
            (Some(start_ticks), Some(user)) if user == submission.uid => {
                Ok(JobProcess { pid, start_ticks, handle })
            }
            (Some(_), Some(_)) => Err(CallError::PermissionDenied {}),
            _ => Err(CallError::Failed { reason: format!("process {pid} has ended") }),
        }
    }

    /// Tells the client of a job that was just submitted that it waits, where it does.
    fn tell_submitted(&mut self, job: JobId, submission: &Submission, now: f64) {
        let Some(reason) = self.jobs.admission.why(job) else { return };
        if submission.parameters.no_wait == Some(true) {
            let reason = reply::reason(&reason);
            self.jobs.answer(job, JobAnswer::Submitted(Err(CallError::WouldWait { reason })));
            return self.withdraw_job(job, now);
        }
        match self.jobs.admission.nr_waiting() <= PLACES_MAX {
            true => self.tell_waiting(now),
            false => self.tell_last(job, &reason),
        }
    }

    fn tell_last(&mut self, job: JobId, reason: &crate::admission::Reason) {
        let nr_waiting = self.jobs.admission.nr_waiting();
        let outlook = crate::admission::Outlook {
            job,
            position: nr_waiting as u64,
            reason: reason.clone(),
            estimate_seconds: None,
        };
        self.jobs.tell(&outlook, nr_waiting);
    }

    /// Tells each client that waits what has changed for it.
    fn tell_waiting(&mut self, now: f64) {
        let outlooks = self.jobs.admission.outlooks(now);
        outlooks.iter().for_each(|outlook| self.jobs.tell(outlook, outlooks.len()));
    }

    /// The client of a job that waits has gone, or asks for its end.
    fn withdraw_job(&mut self, job: JobId, now: f64) {
        if self.jobs.admission.cancel(job, now) {
            self.jobs.records.remove(&job);
            self.jobs.has_changed = true;
        }
    }

    /// The client of this ticket has closed its connection. One that has started has, too: it executes its command.
    pub fn job_client_left(&mut self, ticket: Ticket, now: f64) {
        if let Some(job) = self.jobs.of_ticket(ticket) {
            self.withdraw_job(job, now);
            // It may have held others back.
            self.start_jobs(now);
        }
    }

    /// Somebody asks for the end of a job.
    pub fn cancel_job(&mut self, ticket: Ticket, id: u64, caller: Caller, now: f64) {
        let answer = self.try_cancel(JobId(id), caller, now);
        self.jobs.outbox.push((ticket, JobAnswer::Cancelled(answer)));
        self.start_jobs(now);
    }

    fn try_cancel(
        &mut self,
        job: JobId,
        caller: Caller,
        now: f64,
    ) -> Result<CancelReply, CallError> {
        let Some(view) = self.jobs.admission.job(job) else {
            return Err(CallError::NoSuchJob { id: job.0 });
        };
        if caller.user.is_some_and(|user| user != view.request.user) {
            return Err(CallError::PermissionDenied {});
        }
        if matches!(view.phase, Phase::Waiting { .. }) {
            let reason = format!("job {job} was cancelled");
            self.jobs.answer(job, JobAnswer::Submitted(Err(CallError::Cancelled { reason })));
            self.withdraw_job(job, now);
            return Ok(CancelReply { is_running: false, pids: Vec::new() });
        }
        let home = self.jobs.records.get(&job).and_then(|record| record.home.as_ref());
        let (kernel, layout) = (&mut self.host.kernel, &self.host.layout);
        let pids = home.map(|home| home.cgroup.processes(kernel, layout)).unwrap_or_default();
        Ok(CancelReply { is_running: true, pids })
    }

    /// Lets the kernel wake the agent for its jobs; `add` takes the descriptor that is readable then.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub(in crate::daemon) fn watch_jobs(
        &mut self,
        add: impl FnOnce(&Watch) -> io::Result<()>,
    ) -> io::Result<()> {
        let watch = Watch::new()?;
        add(&watch)?;
        self.jobs.watch = Some(watch);
        Ok(())
    }

    /// What clients are to be told.
    pub fn take_job_answers(&mut self) -> Vec<(Ticket, JobAnswer)> {
        std::mem::take(&mut self.jobs.outbox)
    }

    /// All jobs, where anything has changed since the last call.
    pub fn take_job_list(&mut self, now: f64) -> Option<ListReply> {
        std::mem::take(&mut self.jobs.has_changed).then(|| list(&self.jobs, now))
    }

    /// Looks after the jobs: charges those that run, takes note of those that have ended, starts others. With a tick the
    /// machine is measured as well.
    pub fn tend_jobs(&mut self, is_tick: bool, now: f64) {
        if is_tick && self.mode() == Mode::Enforce {
            self.renew_job_terms(now);
            self.adopt_jobs(now);
            if !self.jobs.records.is_empty() {
                self.measure_for_jobs(now);
            }
        }
        if let Some(watch) = &self.jobs.watch {
            watch.clear();
        }
        self.charge_jobs(now);
        self.start_jobs(now);
        self.weigh_jobs();
        if is_tick {
            self.audit_valves();
            self.tell_waiting(now);
            let has_homes = self.jobs.homes().next().is_some();
            self.jobs.has_changed |= has_homes;
            if !self.jobs.admission.is_unused() {
                self.jobs.store.keep_queue(&self.jobs.admission);
            }
        }
    }

    /// Takes up the policy in force, where it is another one.
    fn renew_job_terms(&mut self, now: f64) {
        let nodes = self.control.tree().shared_nodes();
        let rules = terms::rules(&self.policy);
        let is_same = Arc::ptr_eq(&self.policy, &self.jobs.policy);
        if is_same && Arc::ptr_eq(&nodes, &self.jobs.nodes) {
            return;
        }
        let policy = if self.base.has_templates { &self.base.expanded } else { &*self.policy };
        let gone = self.jobs.admission.policy(rules, terms::of(&nodes, policy), now);
        (self.jobs.nodes, self.jobs.policy) = (nodes, Arc::clone(&self.policy));
        for job in gone {
            let reason = "its tenant has left the policy".to_string();
            self.jobs.answer(job, JobAnswer::Submitted(Err(CallError::Cancelled { reason })));
            self.jobs.records.remove(&job);
            self.jobs.has_changed = true;
        }
    }

    /// Measures what jobs share.
    fn measure_for_jobs(&mut self, now: f64) {
        let slots = self.reporter.trace().slots.max(1);
        let sample = match self.host.machine.sample(&mut self.host.kernel) {
            Ok(sample) => sample,
            Err(error) => return warn!("the memory for jobs is not known: {error}"),
        };
        let total = sample.memory_total_bytes;
        let reserve = self.policy.host.reserve[MEMORY].on(Some(total)).unwrap_or(0);
        let memory_bytes = Some(total.saturating_sub(reserve));
        let units = self.policy.host.resources.clone();
        self.jobs.admission.capacity(Capacity { slots, memory_bytes, units }, now);
        let views = self.jobs.admission.jobs();
        let of_jobs: u64 = views.filter_map(|view| view.used_bytes).sum();
        if let Some(available) = sample.memory_available_bytes {
            let used = total.saturating_sub(available);
            self.jobs.measured = Measured { outside_bytes: used.saturating_sub(of_jobs) };
        }
    }

    /// Charges the jobs that run, and takes note of those that have ended.
    fn charge_jobs(&mut self, now: f64) {
        self.remove_left_cgroups();
        let proc = self.host.proc();
        let mut ended = Vec::new();
        let has_home = self.jobs.homes().map(|(job, _)| job).collect::<Vec<_>>();
        for job in has_home {
            let Some(record) = self.jobs.records.get(&job) else { continue };
            let Some(home) = &record.home else { continue };
            let kernel = &mut self.host.kernel;
            let sample = match home.cgroup.sample(kernel) {
                Ok(sample) => sample,
                Err(_) => {
                    ended.push(job);
                    continue;
                }
            };
            let runs = match &record.process.handle {
                Some(handle) => is_alive(handle),
                None => {
                    let process = &record.process;
                    process::start_ticks(kernel, proc, process.pid) == Some(process.start_ticks)
                }
            };
            if let Some(usec) = sample.usage_usec {
                let used = sample.memory.map(|memory| memory.unreclaimable_bytes());
                self.jobs.admission.charge(job, usec as f64 / 1e6, used, now);
            }
            let view = self.jobs.admission.job(job);
            let is_running = view.is_some_and(|view| matches!(view.phase, Phase::Running { .. }));
            if sample.populated == Some(false) {
                ended.push(job);
            } else if !runs && is_running {
                debug!("job {job} has left processes behind");
                self.jobs.admission.left_daemons(job, now);
                self.jobs.forget_process(job);
                self.jobs.has_changed = true;
            }
        }
        if !ended.is_empty() {
            ended.into_iter().for_each(|job| self.end_job(job, now));
            self.keep_jobs();
        }
    }

    /// A job has ended.
    pub(super) fn end_job(&mut self, job: JobId, now: f64) {
        self.jobs.forget_process(job);
        self.jobs.admission.ended(job, now);
        self.jobs.has_changed = true;
        let Some(home) = self.jobs.records.remove(&job).and_then(|record| record.home) else {
            return;
        };
        remove_valve(home.valve);
        let (kernel, layout) = (&mut self.host.kernel, &self.host.layout);
        self.jobs.left.extend(home.cgroup.end(kernel, layout));
    }

    /// Tries again to remove the cgroups of jobs that have ended: their last processes may not be gone at once.
    fn remove_left_cgroups(&mut self) {
        let (kernel, layout) = (&mut self.host.kernel, &self.host.layout);
        let left = std::mem::take(&mut self.jobs.left).into_iter();
        self.jobs.left = left.filter_map(|cgroup| cgroup.end(kernel, layout)).collect();
    }

    pub(super) fn keep_jobs(&mut self) {
        let kept = self.jobs.kept();
        self.jobs.store.keep_jobs(kept);
    }

    /// Takes up the jobs of an earlier agent, once.
    fn adopt_jobs(&mut self, now: f64) {
        let Some((kept, queue)) = self.jobs.store.take_up() else { return };
        if let Some(mut queue) = queue {
            queue.resume(now);
            self.jobs.admission = queue;
            self.jobs.nodes = Arc::from([]);
            self.renew_job_terms(now);
        }
        self.measure_for_jobs(now);
        let nr_kept = kept.len();
        for job in kept {
            self.adopt_job(job, now);
        }
        let known: Vec<JobId> = self.jobs.admission.jobs().map(|view| view.job).collect();
        for job in known.into_iter().filter(|job| !self.jobs.records.contains_key(job)) {
            self.jobs.admission.ended(job, now);
        }
        if nr_kept > 0 {
            let nr_found = self.jobs.records.len();
            info!(action = "start", "{nr_found} of {nr_kept} jobs of the last tenantd run on");
            self.keep_jobs();
        }
    }
}

/// Whether the node `path` is `group`, or in it.
fn is_in_group(path: &str, group: &str) -> bool {
    path.strip_prefix(group).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// What a client asks for, as the queue takes it.
fn request(parameters: &SubmitParameters, tenant: &str, user: u32) -> Result<Request, CallError> {
    let wrong = |parameter: &str| CallError::InvalidParameter { parameter: parameter.to_string() };
    let width = match (parameters.dop, parameters.max_dop) {
        (Some(0), _) | (Some(_), Some(_)) => return Err(wrong("dop")),
        (_, Some(0)) => return Err(wrong("max_dop")),
        (Some(dop), None) => Width::Manual(dop.into()),
        (None, Some(max)) => Width::AtMost(max.into()),
        (None, None) => Width::Auto,
    };
    let is_name = |name: &str| {
        !name.is_empty() && name.len() <= NAME_MAX && !name.chars().any(char::is_control)
    };
    if parameters.class.as_ref().is_some_and(|class| !is_name(class)) {
        return Err(wrong("class"));
    }
    let units = parameters.units.as_deref().unwrap_or_default();
    if units.len() > UNITS_MAX || !units.iter().all(|it| is_name(&it.name)) {
        return Err(wrong("units"));
    }
    Ok(Request {
        tenant: tenant.to_string(),
        user,
        class: parameters.class.clone(),
        memory_bytes: parameters.memory_bytes.unwrap_or(0),
        width,
        units: units.iter().map(|it| (it.name.clone(), it.count)).collect(),
    })
}

/// The reply that a job has started.
pub(super) fn started_reply(
    job: JobId,
    tenant: &str,
    started: crate::varlink::jobs::Started,
) -> JobAnswer {
    let reply = SubmitReply {
        id: job.0,
        tenant: tenant.to_string(),
        waiting: None,
        started: Some(started),
    };
    JobAnswer::Submitted(Ok(reply))
}
