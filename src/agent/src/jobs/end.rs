//! End of jobs: withdrawal, charging until the last process has ended, and removal of their cgroups.

use tracing::debug;

use super::outcome;
use super::reply::JobAnswer;
use super::room::JobRoom;
use super::valves;
use crate::backend::access::HostAccess;
use tenantd_admission::{JobId, JobView, Phase};
use tenantd_control::measure::sample::TenantSample;
use tenantd_host::kernfs::{KernError, KernFs};
use tenantd_varlink::error::CallError;
use tenantd_varlink::jobs::EndReason;

/// Time between two looks at jobs whose first process has ended while others still run.
const LINGERING_SECONDS: f64 = 1.0;

impl JobRoom {
    /// Withdraws a waiting job.
    pub(super) fn withdraw(&mut self, job: JobId, now: f64) {
        if self.admission.cancel(job, now) {
            self.records.remove(&job);
            self.has_changed = true;
            outcome::refuse_waits(self, job);
        }
    }

    pub(super) fn give_up<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        job: JobId,
        why: &str,
        now: f64,
    ) {
        debug!("job {job} does not start: {why}");
        let reason = format!("it cannot start: {why}");
        outcome::record_unstarted(self, job, EndReason::StartFailed, &reason, now);
        self.answer(job, JobAnswer::Submitted(Err(CallError::Failed { reason })));
        self.end(host, job, now);
        self.keep_changed();
    }

    pub(super) fn charge<K: KernFs>(&mut self, host: &mut HostAccess<K>, now: f64) {
        self.remove_left(host);
        let proc = host.proc();
        let mut ended = Vec::new();
        let takes_all = now - self.lingering_charged >= LINGERING_SECONDS;
        if takes_all {
            self.lingering_charged = now;
        }
        let lingers = |job: &JobView<'_>| matches!(job.phase, Phase::Lingering { .. });
        let active = self.admission.active().filter(|job| takes_all || !lingers(job));
        let has_home: Vec<JobId> = active.map(|view| view.job).collect();
        for job in has_home {
            let is_starting = self.scopes.starting.contains_key(&job);
            let Some(record) = self.records.get_mut(&job) else { continue };
            let Some(home) = record.home.as_mut().filter(|_| !is_starting) else { continue };
            let (kernel, layout) = (&mut host.kernel, &host.layout);
            let sample = home.cgroup.sample(kernel, layout);
            let is_empty = is_empty(&sample);
            let runs = record.process.runs(kernel, proc);
            // `su -` and similar programs move a process into a session of its own.
            let is_left = runs && is_empty;
            self.has_changed |= std::mem::replace(&mut home.is_left, is_left) != is_left;
            if let Ok(sample) = &sample {
                record.seen.note(sample.memory);
            }
            // The counters of a cgroup say nothing about a process outside.
            if let (Ok(sample), Some(view), false) = (&sample, self.admission.job(job), is_left) {
                let states = (sample, self.preemption.is_frozen(job));
                let seen = &mut record.seen.finish_time;
                seen.note(&mut self.round, host, (&view, &home.cgroup), states, now);
            }
            if let Ok(sample) = sample
                && let Some(usec) = sample.usage_usec
            {
                let used = sample.memory.map(|memory| memory.unreclaimable_bytes());
                self.admission.charge(job, usec as f64 / 1e6, used, now);
            }
            let view = self.admission.job(job);
            if view.as_ref().is_some_and(&lingers) && !self.preemption.is_frozen(job) {
                home.cgroup.rest(&mut host.kernel);
            }
            let is_running = view.is_some_and(|view| matches!(view.phase, Phase::Running { .. }));
            if !runs && is_running {
                outcome::record_ended(self, host, job, now);
            }
            if is_empty && !runs {
                if !is_running {
                    outcome::record_cleared(self, host, job);
                }
                ended.push(job);
            } else if !runs && is_running {
                debug!("job {job} has left processes behind");
                self.admission.left_daemons(job, now);
                self.forget_process(job);
                // Only leftover processes could still take tokens.
                let record = self.records.get_mut(&job);
                valves::remove(record.and_then(|it| it.home.as_mut()?.valve.take()));
                self.has_changed = true;
            }
        }
        if !ended.is_empty() {
            ended.into_iter().for_each(|job| self.end(host, job, now));
            self.keep_changed();
        }
    }

    pub(super) fn end<K: KernFs>(&mut self, host: &mut HostAccess<K>, job: JobId, now: f64) {
        self.admission.ended(job, now);
        self.clear_away(host, job);
    }

    /// Removes the cgroups of ended jobs without starting others, because the agent stops. There may be no next
    /// agent with this state directory to remove them.
    pub(crate) fn clear_ended<K: KernFs>(&mut self, host: &mut HostAccess<K>) {
        self.remove_left(host);
        let proc = host.proc();
        let (kernel, layout) = (&mut host.kernel, &host.layout);
        let homes = self.homes().filter(|(_, home)| home.cgroup.is_there());
        let mut ended = Vec::new();
        for (job, home) in homes {
            let process = self.records.get(&job).map(|record| &record.process);
            if is_empty(&home.cgroup.sample(kernel, layout))
                && !process.is_some_and(|process| process.runs(kernel, proc))
            {
                ended.push(job);
            }
        }
        for job in ended {
            if self.finished.get(job.0).is_none() {
                // The last charge was a moment ago.
                outcome::record_ended(self, host, job, self.charged);
            }
            self.clear_away(host, job);
        }
        self.keep_changed();
        self.store.keep_finished(&self.finished, true);
    }

    fn clear_away<K: KernFs>(&mut self, host: &mut HostAccess<K>, job: JobId) {
        self.forget_process(job);
        self.unkept.insert(job);
        self.scopes.starting.remove(&job);
        self.has_changed = true;
        let Some(record) = self.records.remove(&job) else { return };
        if let Some(ticket) = record.ticket {
            // The call of a set counts as in flight until it is answered.
            let reason = "its client has ended".to_string();
            let answer = JobAnswer::Submitted(Err(CallError::Cancelled { reason }));
            self.outbox.push((ticket, answer));
        }
        let Some(home) = record.home else { return };
        valves::remove(home.valve);
        self.forget_frozen(host, job, &home.cgroup);
        let (kernel, layout) = (&mut host.kernel, &host.layout);
        self.left.extend(home.cgroup.end(kernel, layout));
    }

    fn remove_left<K: KernFs>(&mut self, host: &mut HostAccess<K>) {
        let (kernel, layout) = (&mut host.kernel, &host.layout);
        let left = std::mem::take(&mut self.left).into_iter();
        self.left = left.filter_map(|cgroup| cgroup.end(kernel, layout)).collect();
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
