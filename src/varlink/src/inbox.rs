//! Inbox of the agent: calls that only the control thread can execute.
//!
//! **Problem.** Clients may send calls faster than the agent executes them, and may open new connections.
//! The waiting calls must be bounded, and no user's calls may hold up those of others. **Terms.** A call is
//! *in flight* from its reading until the agent has answered it, or has taken it if it is `oneway`.
//! **Rules.** Calls are taken in turns of their users, root's first ([`super::turns`]). A call in flight
//! holds its connection, and counts as a connection of its user even after that was closed
//! ([`super::tickets`]). A submission whose client has left is removed before the agent has taken it; after
//! that its ticket is marked, and the agent asks for marked tickets.
//!
//! **Bounds.** Calls: the connections of a server. Marked tickets: the submissions known to the agent,
//! which the queue of jobs bounds. The lock is held to add or to remove one call.

use std::collections::BTreeSet;

use super::calls::{Command, JobCall, Ticket};
use super::turns::Turns;

/// Most changes of one user in the queue to the agent.
const COMMANDS_MAX: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Inbox {
    commands: Turns<Entry<Command>>,
    job_calls: Turns<Entry<JobCall>>,
    left: BTreeSet<Ticket>,
}

#[derive(Debug)]
pub(super) struct Entry<C> {
    pub(super) ticket: Ticket,
    pub(super) call: C,
    /// True if the client reads no answer: its connection waits until the call is taken.
    pub(super) oneway: bool,
}

impl Inbox {
    pub(super) fn is_empty(&self) -> bool {
        self.commands.is_empty() && self.job_calls.is_empty() && self.left.is_empty()
    }

    /// Adds a change of user `uid`; returns false if too many are queued.
    pub(super) fn ask(&mut self, uid: u32, entry: Entry<Command>) -> bool {
        let has_room = self.commands.nr_of(uid) < COMMANDS_MAX;
        if has_room {
            self.commands.push(uid, entry);
        }
        has_room
    }

    pub(super) fn call(&mut self, uid: u32, entry: Entry<JobCall>) {
        self.job_calls.push(uid, entry);
    }

    /// Handles a submission whose client has left. Returns true if the agent had not taken it yet.
    pub(super) fn leave(&mut self, uid: u32, ticket: Ticket) -> bool {
        let is_untaken = self.job_calls.remove(uid, |entry| entry.ticket == ticket).is_some();
        if !is_untaken {
            self.left.insert(ticket);
        }
        is_untaken
    }

    pub(super) fn next_command(&mut self) -> Option<Entry<Command>> {
        self.commands.pop().map(|(_, entry)| entry)
    }

    pub(super) fn next_call(&mut self) -> Option<Entry<JobCall>> {
        self.job_calls.pop().map(|(_, entry)| entry)
    }

    pub(super) fn next_left(&mut self) -> Option<Ticket> {
        self.left.pop_first()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::Caller;

    fn cancel(ticket: u64) -> Entry<JobCall> {
        let caller = Caller { user: Some(7), pid: 1 };
        Entry { ticket: Ticket(ticket), call: JobCall::Cancel(1, caller), oneway: true }
    }

    #[test]
    fn a_submission_that_was_not_taken_leaves_nothing() {
        let mut inbox = Inbox::default();
        for ticket in 0..1000 {
            inbox.call(7, cancel(ticket));
            assert!(inbox.leave(7, Ticket(ticket)));
        }
        assert!(inbox.is_empty());
        inbox.call(7, cancel(1000));
        assert!(inbox.next_call().is_some() && !inbox.leave(7, Ticket(1000)));
        assert_eq!((inbox.next_left(), inbox.next_left()), (Some(Ticket(1000)), None));
    }

    #[test]
    fn changes_of_one_user_leave_room_for_those_of_others() {
        let mut inbox = Inbox::default();
        let reload = |ticket| Entry { ticket: Ticket(ticket), call: Command::Reload, oneway: true };
        let taken = (0..100).filter(|ticket| inbox.ask(7, reload(*ticket))).count();
        assert_eq!(taken, COMMANDS_MAX);
        assert!(inbox.ask(8, reload(100)) && inbox.ask(0, reload(101)));
        let order: Vec<u64> = (0..3).filter_map(|_| Some(inbox.next_command()?.ticket.0)).collect();
        assert_eq!(order, [101, 0, 100], "root is first, then users in turn");
    }
}
