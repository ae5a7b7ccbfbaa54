//! Jobs on the socket: calls of clients go to the agent, and its answers return.
//!
//! **Problem.** Calls may arrive faster than they can be carried out; ticks, stops and beats of the watchdog must not wait
//! for them. **Rule.** In one turn of the event loop at most [`CALLS_MAX`] calls are taken, and none after [`TURN`]; then
//! the loop looks for more urgent events. The calls of one turn are one batch: what may start is decided once for all of
//! them, and the list of jobs is published once. **Bounds.** A turn takes [`TURN`], one call beyond that, and the start of
//! the jobs that became possible.

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

use super::run::Service;
use crate::agent::Agent;
use crate::agent::jobs::JobAnswer;
use tenantd_host::kernfs::KernFs;
use tenantd_varlink::bridge::{AgentEnd, JobCall, json};

/// Calls that are taken in one turn.
const CALLS_MAX: usize = 16;
/// Time after which no further call is taken in this turn.
const TURN: Duration = Duration::from_millis(5);

impl<K: KernFs> Service<K> {
    /// Carries out the first of the calls that concern jobs, one batch of them.
    pub(super) fn serve_jobs(&mut self) {
        let (begin, now) = (Instant::now(), since_boot());
        let mut nr_taken = 0;
        while nr_taken < CALLS_MAX && begin.elapsed() < TURN && self.serve_job_call(now) {
            nr_taken += 1;
        }
        if nr_taken > 0 {
            self.agent.settle_job_calls(now);
        }
        // A list that was put off is due without another call.
        self.tell_of_jobs();
    }

    /// Takes the next call, or notes the next client that has left; `false` where there is neither.
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
            None => return false,
        }
        true
    }

    /// Looks after the jobs, with a tick or between two.
    pub(super) fn tend_jobs(&mut self, is_tick: bool) {
        self.agent.tend_jobs(is_tick, since_boot());
        self.tell_of_jobs();
    }

    /// Tells of the jobs in the status.
    pub(super) fn note_jobs(&mut self) {
        self.agent.note_jobs(since_boot());
    }

    /// Publishes the list of jobs, then answers: whoever asks for the list after an answer finds in it what was answered,
    /// unless there are many jobs.
    fn tell_of_jobs(&mut self) {
        let Some((bridge, _)) = &self.socket else { return };
        if let Some(list) = self.agent.take_job_list(since_boot()) {
            bridge.publish_jobs(list);
        }
        send_answers(bridge, &mut self.agent);
    }
}

/// Seconds since the machine started, on a clock that goes on between two agents.
fn since_boot() -> f64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from);
    // The system has this clock.
    now.unwrap_or_default().as_secs_f64()
}

/// Sends what clients of jobs are to be told.
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
        }
    }
}
