//! Jobs on the socket: what clients ask goes to the agent, and what they are told comes back.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use super::run::Service;
use crate::daemon::agent::Agent;
use crate::daemon::agent::jobs::JobAnswer;
use crate::host::kernfs::KernFs;
use crate::varlink::bridge::{AgentEnd, JobCall, json};

impl<K: KernFs> Service<K> {
    pub(super) fn serve_jobs(&mut self) {
        while let Some(call) = self.next_job_call() {
            let now = since_boot();
            match call {
                JobCall::Submit(ticket, job) => self.agent.submit_job(ticket, &job, now),
                JobCall::Cancel(ticket, id, caller) => {
                    self.agent.cancel_job(ticket, id, caller, now);
                }
                JobCall::Left(ticket) => self.agent.job_client_left(ticket, now),
            }
            // A client that was admitted does not wait for the others.
            self.tell_of_jobs();
        }
        // A list that was put off is due without another call.
        self.tell_of_jobs();
    }

    fn next_job_call(&self) -> Option<JobCall> {
        self.socket.as_ref().and_then(|(bridge, _)| bridge.next_job_call())
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
