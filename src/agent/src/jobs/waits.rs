//! Clients that wait for the end of a job.

use std::collections::BTreeMap;

use tenantd_admission::JobId;
use tenantd_varlink::bridge::Ticket;

/// Most waits of all users.
pub(crate) const WAITS_MAX: usize = 1024;

/// Clients that wait for the end of a job.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    of_jobs: BTreeMap<JobId, Vec<Ticket>>,
    jobs: BTreeMap<Ticket, JobId>,
    /// Ended jobs whose supervisors have not reported, with the time until which waits are held.
    pub(crate) unreported: BTreeMap<JobId, f64>,
}

impl Waits {
    pub(crate) fn add(&mut self, job: JobId, ticket: Ticket) -> bool {
        let has_room = self.jobs.len() < WAITS_MAX;
        if has_room {
            self.of_jobs.entry(job).or_default().push(ticket);
            self.jobs.insert(ticket, job);
        }
        has_room
    }

    /// Removes a wait. Returns true if it existed.
    pub(crate) fn remove(&mut self, ticket: Ticket) -> bool {
        let Some(job) = self.jobs.remove(&ticket) else { return false };
        if let Some(tickets) = self.of_jobs.get_mut(&job) {
            tickets.retain(|it| *it != ticket);
            if tickets.is_empty() {
                self.of_jobs.remove(&job);
            }
        }
        true
    }

    pub(crate) fn take(&mut self, job: JobId) -> Vec<Ticket> {
        let tickets = self.of_jobs.remove(&job).unwrap_or_default();
        for ticket in &tickets {
            self.jobs.remove(ticket);
        }
        tickets
    }
}

/// Time in seconds in which clients of waiting jobs return after a restart.
const RETURN_SECONDS: f64 = 15.0;

/// End of a job, for those that wait for it.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) job: JobId,
    pub(crate) has_succeeded: bool,
    pub(crate) text: String,
}

/// Numbers of jobs that waited when the last agent ended.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    /// Known ones, with their users.
    users: BTreeMap<JobId, u32>,
    /// Numbers that the last agent may have used after it stored the queue.
    unknown: (u64, u64),
    pub(super) until: Option<f64>,
}

impl Expected {
    pub(crate) fn new(users: BTreeMap<JobId, u32>, unknown: (u64, u64), now: f64) -> Expected {
        Expected { users, unknown, until: Some(now + RETURN_SECONDS) }
    }

    pub(super) fn has(&self, job: JobId, user: Option<u32>) -> bool {
        if self.until.is_none() {
            return false;
        }
        match self.users.get(&job) {
            Some(uid) => user.is_none_or(|user| user == *uid),
            None => (self.unknown.0..self.unknown.1).contains(&job.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_bounded_and_leave_nothing() {
        let mut waits = Waits::default();
        let all = WAITS_MAX as u64;
        assert!((0..all).all(|number| waits.add(JobId(number % 7), Ticket(number))));
        assert!(!waits.add(JobId(8), Ticket(all)));
        assert!(waits.remove(Ticket(3)) && !waits.remove(Ticket(3)));
        assert!(waits.add(JobId(8), Ticket(all)));
        assert_eq!(waits.take(JobId(8)), [Ticket(all)]);
        (0..7).for_each(|job| drop(waits.take(JobId(job))));
        assert!(waits.of_jobs.is_empty() && waits.jobs.is_empty());
    }
}
