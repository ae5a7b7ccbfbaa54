//! Jobs from submission to end. [`crate::jobs`] describes the algorithm.

use std::io;
use std::sync::Arc;

use tracing::{debug, info, warn};

use super::valves::remove_valve;
use crate::agent::start::Agent;
use crate::jobs::listing::list;
use crate::jobs::reply::JobAnswer;
use crate::jobs::summary;
use crate::jobs::terms;
use crate::jobs::watch::{REFRESH, Watch};
use tenantd_admission::{Capacity, JobId, JobView, Measured, Phase};
use tenantd_control::measure::sample::TenantSample;
use tenantd_core::resource::MEMORY;
use tenantd_host::kernfs::{KernError, KernFs};
use tenantd_policy::model::Mode;
use tenantd_varlink::bridge::{Caller, Ticket};
use tenantd_varlink::error::CallError;
use tenantd_varlink::jobs::{CancelReply, ListReply, SubmitReply};

/// Up to this many jobs, a list is made at each change. Each further job adds this time between two lists: half
/// a second for a thousand jobs.
const LISTED_AT_ONCE: usize = 64;
const LIST_SECONDS: f64 = 0.0005;
/// Time between two looks at jobs whose first process has ended while others still run.
const LINGERING_SECONDS: f64 = 1.0;

impl<K: KernFs> Agent<K> {
    pub(crate) fn tell_waiting(&mut self, now: f64) {
        let outlooks = self.jobs.admission.outlooks(now);
        outlooks.iter().for_each(|outlook| self.jobs.tell(outlook, outlooks.len()));
    }

    /// Withdraws a waiting job: its client has left, or asks for its end.
    pub(crate) fn withdraw_job(&mut self, job: JobId, now: f64) {
        if self.jobs.admission.cancel(job, now) {
            self.jobs.records.remove(&job);
            self.jobs.has_changed = true;
        }
    }

    /// Handles a closed connection. Clients of started jobs close theirs too: they execute the command.
    pub fn job_client_left(&mut self, ticket: Ticket, now: f64) {
        if let Some(job) = self.jobs.records.of_ticket(ticket) {
            // No client reads this answer, but the call counts as in flight until it is answered.
            let reason = "its client has left".to_string();
            self.jobs.answer(job, JobAnswer::Submitted(Err(CallError::Cancelled { reason })));
            self.withdraw_job(job, now);
        }
    }

    /// Answers a request to end a job.
    pub fn cancel_job(&mut self, ticket: Ticket, id: u64, caller: Caller, now: f64) {
        let answer = self.try_cancel(JobId(id), caller, now);
        self.jobs.outbox.push((ticket, JobAnswer::Cancelled(answer)));
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
        let Some(record) = self.jobs.records.get(&job) else {
            return Err(CallError::NoSuchJob { id: job.0 });
        };
        let (kernel, layout) = (&mut self.host.kernel, &self.host.layout);
        let pids = match &record.home {
            // A first process that left its cgroup is not among the processes in there.
            Some(home) if home.cgroup.is_there() && !home.is_left => {
                home.cgroup.processes(kernel, layout)
            }
            // The process is on its way to its scope, or has left it.
            _ => vec![record.process.pid],
        };
        Ok(CancelReply { is_running: true, pids })
    }

    /// Makes the kernel wake the agent for its jobs; `add` registers the descriptor to poll.
    pub(crate) fn watch_jobs(
        &mut self,
        add: impl FnOnce(&Watch) -> io::Result<()>,
    ) -> io::Result<()> {
        let watch = Watch::new()?;
        add(&watch)?;
        self.jobs.watch = Some(watch);
        Ok(())
    }

    /// Returns the pending answers to clients.
    pub fn take_job_answers(&mut self) -> Vec<(Ticket, JobAnswer)> {
        std::mem::take(&mut self.jobs.outbox)
    }

    /// Adds the jobs to the status of the last tick.
    pub fn note_jobs(&mut self, now: f64) {
        let jobs = &self.jobs;
        self.reporter.amend(|status| summary::tell(jobs, status, now));
    }

    /// Returns all jobs if a job changed since the last list and that list is old enough.
    pub fn take_job_list(&mut self, now: f64) -> Option<ListReply> {
        // Bounds the time spent on lists if there are many jobs.
        let nr_many = self.jobs.records.len().saturating_sub(LISTED_AT_ONCE);
        let pause = nr_many as f64 * LIST_SECONDS;
        if !self.jobs.has_changed || now < self.jobs.listed + pause {
            return None;
        }
        (self.jobs.has_changed, self.jobs.listed) = (false, now);
        Some(list(&self.jobs, now))
    }

    /// Charges running jobs, records ended ones and starts others. With a tick it measures the machine as well.
    pub fn tend_jobs(&mut self, is_tick: bool, now: f64) {
        if is_tick && self.mode() == Mode::Enforce {
            self.renew_job_terms(now);
            self.adopt_jobs(now);
            if !self.jobs.records.is_empty() {
                self.measure_for_jobs(now);
            }
        }
        let has_ended = self.jobs.watch.as_ref().is_none_or(Watch::clear);
        self.settle_scopes(now);
        if !is_tick && !has_ended && now - self.jobs.charged < REFRESH.as_secs_f64() / 2.0 {
            // The wake-up was for jobs on their way to their scopes.
            return self.start_jobs(now);
        }
        self.jobs.charged = now;
        self.charge_jobs(now);
        self.preempt_jobs(is_tick, now);
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

    pub(crate) fn renew_job_terms(&mut self, now: f64) {
        let nodes = self.control.tree().shared_nodes();
        let rules = terms::rules(&self.base.written);
        let is_same = Arc::ptr_eq(&self.base.written, &self.jobs.policy);
        if is_same && Arc::ptr_eq(&nodes, &self.jobs.nodes) {
            return;
        }
        let policy = self.base.in_force();
        let gone = self.jobs.admission.policy(rules, terms::of(&nodes, policy), now);
        let is_there = |tenant: &String| nodes.iter().any(|node| node.path == *tenant);
        self.jobs.tallies.retain(|tenant, _| is_there(tenant));
        (self.jobs.nodes, self.jobs.policy) = (nodes, Arc::clone(&self.base.written));
        for job in gone {
            let reason = "its tenant has left the policy".to_string();
            self.jobs.answer(job, JobAnswer::Submitted(Err(CallError::Cancelled { reason })));
            self.jobs.records.remove(&job);
            self.jobs.has_changed = true;
        }
    }

    pub(crate) fn measure_for_jobs(&mut self, now: f64) {
        let slots = self.reporter.trace().slots.max(1);
        let sample = match self.host.machine.sample(&mut self.host.kernel) {
            Ok(sample) => sample,
            Err(error) => return warn!("the memory for jobs is not known: {error}"),
        };
        let total = sample.memory_total_bytes;
        let reserve = self.base.written.host.reserve[MEMORY].on(Some(total)).unwrap_or(0);
        let memory_bytes = Some(total.saturating_sub(reserve));
        let units = self.base.written.host.resources.clone();
        self.jobs.admission.capacity(Capacity { slots, memory_bytes, units }, now);
        let views = self.jobs.admission.active();
        let of_jobs: u64 = views.filter_map(|view| view.used_bytes).sum();
        if let Some(available) = sample.memory_available_bytes {
            let used = total.saturating_sub(available);
            self.jobs.measured = Measured { outside_bytes: used.saturating_sub(of_jobs) };
        }
    }

    fn charge_jobs(&mut self, now: f64) {
        self.remove_left_cgroups();
        let proc = self.host.proc();
        let mut ended = Vec::new();
        let takes_all = now - self.jobs.lingering_charged >= LINGERING_SECONDS;
        if takes_all {
            self.jobs.lingering_charged = now;
        }
        let lingers = |job: &JobView<'_>| matches!(job.phase, Phase::Lingering { .. });
        let active = self.jobs.admission.active().filter(|job| takes_all || !lingers(job));
        let has_home: Vec<JobId> = active.map(|view| view.job).collect();
        for job in has_home {
            let is_starting = self.jobs.scopes.starting.contains_key(&job);
            let Some(record) = self.jobs.records.get_mut(&job) else { continue };
            let Some(home) = record.home.as_mut().filter(|_| !is_starting) else { continue };
            let (kernel, layout) = (&mut self.host.kernel, &self.host.layout);
            let sample = home.cgroup.sample(kernel, layout);
            let is_empty = is_empty(&sample);
            let runs = record.process.runs(kernel, proc);
            // `su -` and similar programs move a process into a session of its own.
            let is_left = runs && is_empty;
            self.jobs.has_changed |= std::mem::replace(&mut home.is_left, is_left) != is_left;
            if let Ok(sample) = sample
                && let Some(usec) = sample.usage_usec
            {
                let used = sample.memory.map(|memory| memory.unreclaimable_bytes());
                self.jobs.admission.charge(job, usec as f64 / 1e6, used, now);
            }
            let view = self.jobs.admission.job(job);
            if view.as_ref().is_some_and(&lingers) && !self.jobs.preemption.is_frozen(job) {
                home.cgroup.rest(kernel);
            }
            let is_running = view.is_some_and(|view| matches!(view.phase, Phase::Running { .. }));
            if is_empty && !runs {
                ended.push(job);
            } else if !runs && is_running {
                debug!("job {job} has left processes behind");
                self.jobs.admission.left_daemons(job, now);
                self.jobs.forget_process(job);
                // Only leftover processes could still take tokens.
                let record = self.jobs.records.get_mut(&job);
                remove_valve(record.and_then(|it| it.home.as_mut()?.valve.take()));
                self.jobs.has_changed = true;
            }
        }
        if !ended.is_empty() {
            ended.into_iter().for_each(|job| self.end_job(job, now));
            self.jobs.keep_changed();
        }
    }

    pub(crate) fn end_job(&mut self, job: JobId, now: f64) {
        self.jobs.admission.ended(job, now);
        self.clear_away(job);
    }

    /// Removes the cgroups of ended jobs without starting others, because the agent stops. There may be no next
    /// agent with this state directory to remove them.
    pub(crate) fn clear_ended_jobs(&mut self) {
        self.remove_left_cgroups();
        let proc = self.host.proc();
        let (kernel, layout) = (&mut self.host.kernel, &self.host.layout);
        let homes = self.jobs.homes().filter(|(_, home)| home.cgroup.is_there());
        let mut ended = Vec::new();
        for (job, home) in homes {
            let process = self.jobs.records.get(&job).map(|record| &record.process);
            if is_empty(&home.cgroup.sample(kernel, layout))
                && !process.is_some_and(|process| process.runs(kernel, proc))
            {
                ended.push(job);
            }
        }
        ended.into_iter().for_each(|job| self.clear_away(job));
        self.jobs.keep_changed();
    }

    fn clear_away(&mut self, job: JobId) {
        self.jobs.forget_process(job);
        self.jobs.unkept.insert(job);
        self.jobs.scopes.starting.remove(&job);
        self.jobs.has_changed = true;
        let Some(home) = self.jobs.records.remove(&job).and_then(|record| record.home) else {
            return;
        };
        remove_valve(home.valve);
        self.forget_frozen(job, &home.cgroup);
        let (kernel, layout) = (&mut self.host.kernel, &self.host.layout);
        self.jobs.left.extend(home.cgroup.end(kernel, layout));
    }

    fn remove_left_cgroups(&mut self) {
        let (kernel, layout) = (&mut self.host.kernel, &self.host.layout);
        let left = std::mem::take(&mut self.jobs.left).into_iter();
        self.jobs.left = left.filter_map(|cgroup| cgroup.end(kernel, layout)).collect();
    }

    fn adopt_jobs(&mut self, now: f64) {
        let Some((kept, queue, number)) = self.jobs.store.take_up() else { return };
        if let Some(mut queue) = queue {
            queue.resume(now);
            self.jobs.admission = queue;
            self.jobs.nodes = Arc::from([]);
            self.renew_job_terms(now);
        }
        self.jobs.admission.skip_numbers(number);
        self.measure_for_jobs(now);
        let nr_kept = kept.len();
        self.jobs.unkept.extend(kept.iter().map(|job| job.job()));
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
            self.jobs.keep_changed();
        }
    }
}

/// True if a cgroup has no process. A removed one has none: systemd removes a scope with its last process. One that could not
/// be read may have some.
pub(crate) fn is_empty(sample: &Result<TenantSample, KernError>) -> bool {
    match sample {
        Ok(sample) => sample.populated == Some(false),
        Err(error) => error.is_gone(),
    }
}

/// The reply that a job has started.
pub(crate) fn started_reply(
    job: JobId,
    tenant: &str,
    started: tenantd_varlink::jobs::Started,
) -> JobAnswer {
    let reply = SubmitReply {
        id: job.0,
        tenant: tenant.to_string(),
        waiting: None,
        started: Some(started),
    };
    JobAnswer::Submitted(Ok(reply))
}
