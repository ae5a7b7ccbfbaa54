//! Jobs on the socket: passes calls of clients to the agent, and its answers back.
//!
//! **Problem.** Calls may arrive faster than they can be handled. Ticks, stops and watchdog beats must not wait
//! for them.
//!
//! **Rule.** One turn of the event loop takes at most [`CALLS_MAX`] calls, and none after [`TURN`]; then the
//! loop looks for more urgent events. The calls of one turn are one batch: the starts are decided once for all
//! of them, and the list of jobs is published once.
//!
//! **Bound.** A turn takes [`TURN`], one call beyond that, and the start of the jobs that became possible.

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

use super::run::Service;
use crate::agent::Agent;
use crate::agent::JobAnswer;
use tenantd_host::kernfs::KernFs;
use tenantd_varlink::bridge::{AgentEnd, JobCall, json};

const CALLS_MAX: usize = 16;
const TURN: Duration = Duration::from_millis(5);

impl<K: KernFs> Service<K> {
    pub(super) fn serve_jobs(&mut self) {
        let (begin, now) = (Instant::now(), since_boot());
        let mut nr_taken = 0;
        while nr_taken < CALLS_MAX && begin.elapsed() < TURN && self.serve_job_call(now) {
            nr_taken += 1;
        }
        if nr_taken > 0 {
            self.agent.settle_job_calls(now);
        }
        self.tell_of_jobs();
    }

    fn serve_job_call(&mut self, now: f64) -> bool {
        let Some((bridge, _)) = &self.socket else { return false };
        if let Some(ticket) = bridge.next_left() {
            self.agent.job_client_left(ticket, now);
            return true;
        }
        match bridge.next_job_call() {
            Some((ticket, JobCall::Submit(job))) => self.agent.submit_job(ticket, &job, now),
            Some((ticket, JobCall::Cancel(id, caller))) => {
                self.agent.cancel_job(ticket, id, caller, now);
            }
            Some((ticket, JobCall::Wait(id, caller))) => {
                self.agent.wait_for_job(ticket, id, caller);
            }
            Some((ticket, JobCall::Report(report, caller))) => {
                self.agent.report_job(ticket, report, caller);
            }
            None => return false,
        }
        true
    }

    /// Passes notices to the agent, before ends of jobs are looked at.
    pub(super) fn take_notices(&mut self) {
        self.hook.take().into_iter().for_each(|notice| self.agent.note_kill(notice));
    }

    pub(super) fn tend_jobs(&mut self, is_tick: bool) {
        self.take_notices();
        self.agent.tend_jobs(is_tick, since_boot());
        self.tell_of_jobs();
    }

    pub(super) fn note_jobs(&mut self) {
        self.agent.note_jobs(since_boot());
    }

    /// Publishes the list of jobs, then sends the answers: a client that asks for the list after its answer
    /// finds the answer reflected, unless there are many jobs.
    fn tell_of_jobs(&mut self) {
        let Some((bridge, _)) = &self.socket else { return };
        if let Some(list) = self.agent.take_job_list(since_boot()) {
            bridge.publish_jobs(list);
        }
        if let Some(finished) = self.agent.take_finished_jobs() {
            bridge.publish_finished(finished);
        }
        send_answers(bridge, &mut self.agent);
    }
}

/// Seconds since boot, on a clock that keeps running between two agents.
fn since_boot() -> f64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from);
    // Linux always has this clock.
    now.unwrap_or_default().as_secs_f64()
}

fn send_answers<K: KernFs>(bridge: &AgentEnd, agent: &mut Agent<K>) {
    for (ticket, answer) in agent.take_job_answers() {
        match answer {
            JobAnswer::Waits(reply) => bridge.tell(ticket, json(&reply)),
            JobAnswer::Submitted(outcome) => {
                bridge.answer(ticket, outcome.map(|reply| json(&reply)));
            }
            JobAnswer::Cancelled(outcome) => {
                bridge.answer(ticket, outcome.map(|reply| json(&reply)));
            }
            JobAnswer::Ended(outcome) => bridge.answer(ticket, outcome.map(|reply| json(&reply))),
            JobAnswer::Reported(outcome) => {
                bridge.answer(ticket, outcome.map(|reply| json(&reply)));
            }
        }
    }
}
