//! Sets of equal tasks: one entry in the queue, and one turn for each start.
//!
//! # Problem
//! A user has 200 tasks of one kind. As 200 requests they fill every bound on waiting requests, and later
//! requests of the same tenant wait for all of them.
//!
//! # Rule
//! A set has at most one entry in the queue of its tenant. When the entry has its turn, one task starts; if
//! another one may start, the set enters again, behind the other requests of the tenant. So each start pays for
//! its own turn, a bound counts a set once, and a later request of the tenant waits for one task and not for
//! the set. While as many tasks run as may run at once, and once all have started, a set has no entry.
//!
//! # Counts
//! The starter of the tasks is another program and may be asked twice, or restart. It gets and reports sums since
//! the beginning of the set ([`Set::report`]): a repeated sum changes nothing, and a lost one is made good by the
//! next. [`crate::simulation`] and the admission of jobs use this code.

use serde::{Deserialize, Serialize};

/// The tasks of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tasks {
    /// Number of tasks, at least one.
    pub count: u32,
    /// Most tasks that run at once; `None` for no bound.
    pub at_once: Option<u32>,
}

/// Progress of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Set {
    tasks: Tasks,
    granted: u32,
    ended: u32,
    is_closed: bool,
}

/// Sums of a set, as the starter of its tasks has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sums {
    /// Tasks that have started.
    pub started: u32,
    /// Tasks that have ended.
    pub ended: u32,
    /// True if no further task is to start.
    pub is_closed: bool,
}

impl Set {
    /// Creates a set of which no task has started.
    pub fn new(tasks: Tasks) -> Set {
        Set { tasks, granted: 0, ended: 0, is_closed: false }
    }

    /// The tasks of the set.
    pub fn tasks(&self) -> Tasks {
        self.tasks
    }

    /// Turns that the set has had.
    pub fn granted(&self) -> u32 {
        self.granted
    }

    /// Tasks that have ended.
    pub fn ended(&self) -> u32 {
        self.ended
    }

    /// Tasks that hold a worker.
    pub fn running(&self) -> u32 {
        self.granted - self.ended
    }

    /// True if no further task starts, whatever the count.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// True if the set belongs into the queue.
    pub fn wants_turn(&self) -> bool {
        let is_full = self.tasks.at_once.is_some_and(|most| self.running() >= most.max(1));
        !self.is_closed && !is_full && self.granted < self.tasks.count
    }

    /// Records a turn.
    pub fn start(&mut self) {
        self.granted += 1;
    }

    /// No further task starts.
    pub fn close(&mut self) {
        self.is_closed = true;
    }

    /// Takes the sums of the starter. Returns the number of workers that become free: those of ended tasks and, in a
    /// closed set, those of turns that were not used. Sums that are impossible or older than the last change nothing.
    pub fn report(&mut self, sums: Sums) -> u32 {
        let Sums { started, ended, is_closed } = sums;
        if started > self.granted || ended > started || ended < self.ended {
            return 0;
        }
        let before = self.running();
        self.ended = ended;
        if is_closed {
            self.granted = started;
            self.is_closed = true;
        }
        before - self.running()
    }

    /// Replaces the sums after a restart of this side, which knows older ones. Returns false if they are impossible.
    pub fn resume(&mut self, sums: Sums) -> bool {
        let Sums { started, ended, is_closed } = sums;
        if started > self.tasks.count || ended > started {
            return false;
        }
        *self = Set { tasks: self.tasks, granted: started, ended, is_closed };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(count: u32, at_once: Option<u32>) -> Set {
        Set::new(Tasks { count, at_once })
    }

    fn sums(started: u32, ended: u32) -> Sums {
        Sums { started, ended, is_closed: false }
    }

    #[test]
    fn a_set_wants_turns_up_to_its_bounds() {
        let mut set = set(3, Some(2));
        (0..2).for_each(|_| set.start());
        assert!(!set.wants_turn() && set.running() == 2);
        assert_eq!((set.report(sums(2, 1)), set.wants_turn()), (1, true));
        set.start();
        assert_eq!((set.report(sums(3, 2)), set.wants_turn()), (1, false), "all have started");
        assert_eq!((set.report(sums(3, 3)), set.running()), (1, 0));
    }

    #[test]
    fn a_report_counts_once_and_an_impossible_one_never() {
        let mut set = set(10, None);
        (0..4).for_each(|_| set.start());
        assert_eq!(set.report(sums(4, 2)), 2);
        for other in [sums(4, 2), sums(3, 1), sums(5, 4), sums(2, 3), sums(u32::MAX, u32::MAX)] {
            assert_eq!((set.report(other), set.ended(), set.granted()), (0, 2, 4), "{other:?}");
        }
        // Two turns were on their way when the starter closed the set.
        assert_eq!(set.report(Sums { started: 3, ended: 3, is_closed: true }), 2);
        assert_eq!((set.running(), set.wants_turn()), (0, false));
    }

    #[test]
    fn a_resumed_set_has_the_sums_of_its_starter() {
        let mut set = set(10, None);
        set.start();
        assert!(!set.resume(sums(11, 0)) && !set.resume(sums(2, 3)));
        assert_eq!(set.granted(), 1);
        assert!(set.resume(sums(7, 5)));
        assert_eq!((set.running(), set.wants_turn()), (2, true));
    }
}
