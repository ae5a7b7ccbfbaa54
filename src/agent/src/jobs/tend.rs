//! Jobs from submission to end. [`crate::jobs`] describes the algorithm.

use std::io;

use super::after;
use super::credit;
use super::evict;
use super::listing::list;
use super::outcome;
use super::reply::JobAnswer;
use super::room::JobRoom;
use super::sets;
use super::slots;
use super::watch::{REFRESH, Watch};
use crate::backend::access::HostAccess;
use crate::tenants::state::Tenants;
use tenantd_admission::{JobId, Phase};
use tenantd_host::kernfs::KernFs;
use tenantd_policy::model::Mode;
use tenantd_varlink::bridge::{Caller, Ticket};
use tenantd_varlink::error::CallError;
use tenantd_varlink::jobs::{CancelReply, EndReason, ListReply};

/// Up to this many jobs, a list is made at each change. Each further job adds this time between two lists: half
/// a second for a thousand jobs.
const LISTED_AT_ONCE: usize = 64;
const LIST_SECONDS: f64 = 0.0005;

impl JobRoom {
    /// Charges running jobs, records ended ones and starts others. With a tick it measures the machine as well.
    pub(crate) fn tend<K: KernFs>(&mut self, tenants: &mut Tenants<K>, is_tick: bool, now: f64) {
        if is_tick && tenants.mode() == Mode::Enforce {
            self.renew_terms(tenants, now);
            self.adopt_all(tenants, now);
            if !self.records.is_empty() {
                self.measure(tenants, now);
            }
            credit::lend_waiting(&mut self.admission, tenants);
        }
        let has_ended = self.watch.as_ref().is_none_or(Watch::clear);
        self.settle_scopes(tenants, now);
        if !is_tick && !has_ended && now - self.charged < REFRESH.as_secs_f64() / 2.0 {
            // The wake-up was for jobs on their way to their scopes.
            return self.start(tenants, now);
        }
        self.charged = now;
        self.round.begin(tenants, is_tick);
        self.charge(&mut tenants.host, now);
        if is_tick {
            slots::price(&mut self.admission, &tenants.control, now);
        }
        self.preempt(tenants, is_tick, now);
        self.start(tenants, now);
        self.weigh(tenants);
        if is_tick {
            if tenants.mode() == Mode::Enforce {
                evict::step(self, &mut tenants.host, now);
            }
            self.audit_valves(&mut tenants.host);
            outcome::answer_unreported(self, now);
            self.store.keep_finished(&self.finished, false);
            sets::keep_progress(self);
            after::give_up_expected(self, now);
            self.tell_waiting(now);
            let has_homes = self.homes().next().is_some();
            self.has_changed |= has_homes;
            if !self.admission.is_unused() {
                self.store.keep_queue(&self.admission);
            }
        }
    }

    pub(super) fn tell_waiting(&mut self, now: f64) {
        let outlooks = self.admission.outlooks(now);
        outlooks.iter().for_each(|outlook| self.tell(outlook, outlooks.len()));
    }

    /// Handles a closed connection. Clients of started jobs close theirs too: they execute the command.
    pub(crate) fn client_left(&mut self, ticket: Ticket, now: f64) {
        if outcome::leave_wait(self, ticket) {
            return;
        }
        if let Some(job) = self.records.of_ticket(ticket) {
            // No client reads this answer, but the call counts as in flight until it is answered.
            let reason = "its client has left".to_string();
            self.answer(job, JobAnswer::Submitted(Err(CallError::Cancelled { reason })));
            if self.records.get(&job).is_some_and(|record| record.home.is_some()) {
                // A set has begun: the end of its process counts.
                return;
            }
            let text = "left the queue: its client has ended";
            outcome::record_unstarted(self, job, EndReason::Withdrawn, text, now);
            self.withdraw(job, now);
        }
    }

    /// Answers a request to end a job.
    pub(crate) fn cancel<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        ticket: Ticket,
        id: u64,
        caller: Caller,
        now: f64,
    ) {
        let answer = self.try_cancel(host, JobId(id), caller, now);
        self.outbox.push((ticket, JobAnswer::Cancelled(answer)));
    }

    fn try_cancel<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        job: JobId,
        caller: Caller,
        now: f64,
    ) -> Result<CancelReply, CallError> {
        let Some(view) = self.admission.job(job) else {
            return Err(CallError::NoSuchJob { id: job.0 });
        };
        if caller.user.is_some_and(|user| user != view.request.user) {
            return Err(CallError::PermissionDenied {});
        }
        if matches!(view.phase, Phase::Waiting { .. }) {
            let reason = format!("job {job} was cancelled");
            self.answer(job, JobAnswer::Submitted(Err(CallError::Cancelled { reason })));
            outcome::record_unstarted(
                self,
                job,
                EndReason::Cancelled,
                "cancelled while it waited",
                now,
            );
            self.withdraw(job, now);
            return Ok(CancelReply { is_running: false, pids: Vec::new() });
        }
        // No further task of a set starts.
        self.admission.close(job, now);
        let Some(record) = self.records.get_mut(&job) else {
            return Err(CallError::NoSuchJob { id: job.0 });
        };
        record.seen.is_cancelled = true;
        let (kernel, layout) = (&mut host.kernel, &host.layout);
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
    pub(crate) fn begin_watch(
        &mut self,
        add: impl FnOnce(&Watch) -> io::Result<()>,
    ) -> io::Result<()> {
        let watch = Watch::new()?;
        add(&watch)?;
        self.watch = Some(watch);
        Ok(())
    }

    /// Returns all jobs if a job changed since the last list and that list is old enough.
    pub(crate) fn take_list(&mut self, now: f64) -> Option<ListReply> {
        // Bounds the time spent on lists if there are many jobs.
        let nr_many = self.records.len().saturating_sub(LISTED_AT_ONCE);
        let pause = nr_many as f64 * LIST_SECONDS;
        if !self.has_changed || now < self.listed + pause {
            return None;
        }
        (self.has_changed, self.listed) = (false, now);
        Some(list(self, now))
    }
}
