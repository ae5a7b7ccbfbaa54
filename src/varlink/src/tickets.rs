//! Calls in flight of all connections, by ticket.
//!
//! **Rule.** A call counts as a connection of its user until the agent has answered it, even after its
//! connection was closed: a client that connects, calls and closes again and again gets no more than one that
//! stays. A submission counts until its first answer; while its job waits, the queue of jobs bounds it.

use std::collections::HashMap;

use super::bridge::Ticket;

#[derive(Debug, Default)]
pub(super) struct Tickets {
    last: u64,
    all: HashMap<Ticket, InFlight>,
}

#[derive(Clone, Copy, Debug)]
struct InFlight {
    /// Connection; `None` once it is closed.
    number: Option<u64>,
    account: u32,
    is_answered: bool,
}

impl Tickets {
    pub(super) fn issue(&mut self, number: u64, account: u32) -> Ticket {
        self.last += 1;
        let ticket = Ticket(self.last);
        self.all.insert(ticket, InFlight { number: Some(number), account, is_answered: false });
        ticket
    }

    /// Connection of an answered ticket; others follow if it `continues`.
    pub(super) fn answered(&mut self, ticket: Ticket, continues: bool) -> Option<u64> {
        let call = self.all.get_mut(&ticket)?;
        call.is_answered = true;
        let number = call.number;
        if !continues || number.is_none() {
            self.all.remove(&ticket);
        }
        number
    }

    pub(super) fn close(&mut self, ticket: Ticket) {
        let Some(call) = self.all.get_mut(&ticket) else { return };
        call.number = None;
        if call.is_answered {
            self.all.remove(&ticket);
        }
    }

    /// Removes a call that the agent never sees.
    pub(super) fn withdraw(&mut self, ticket: Ticket) {
        self.all.remove(&ticket);
    }

    /// Accounts of calls in flight whose connection is closed, or is not counted because its client is a job.
    pub(super) fn unanswered<'a>(
        &'a self,
        is_counted: impl Fn(u64) -> bool + 'a,
    ) -> impl Iterator<Item = u32> + 'a {
        let calls = self.all.values().filter(|call| !call.is_answered);
        calls.filter(move |call| call.number.is_none_or(&is_counted)).map(|call| call.account)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nr(tickets: &Tickets) -> usize {
        tickets.unanswered(|_| true).count()
    }

    #[test]
    fn a_closed_call_counts_until_it_is_answered() {
        let mut tickets = Tickets::default();
        let closed: Vec<Ticket> = (2..10).map(|number| tickets.issue(number, 7)).collect();
        closed.iter().for_each(|ticket| tickets.close(*ticket));
        assert_eq!((nr(&tickets), tickets.all.len()), (8, 8));
        closed.iter().for_each(|ticket| assert_eq!(tickets.answered(*ticket, false), None));
        assert_eq!((nr(&tickets), tickets.all.len()), (0, 0));
    }

    #[test]
    fn a_submission_counts_until_its_first_answer() {
        let mut tickets = Tickets::default();
        let ticket = tickets.issue(2, 7);
        assert_eq!((tickets.answered(ticket, true), nr(&tickets)), (Some(2), 0));
        tickets.close(ticket);
        assert!(tickets.all.is_empty());
        let ticket = tickets.issue(3, 7);
        tickets.close(ticket);
        assert_eq!((tickets.answered(ticket, true), tickets.all.len()), (None, 0));
    }
}
