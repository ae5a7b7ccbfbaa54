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
