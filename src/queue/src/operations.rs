//! Operations: sets of equal requests that are sent together, after other sets have ended.
//!
//! # Algorithm
//! With `at_once` an operation is a set ([`super::sets`]): its requests are sent one by one, each after the start of the one
//! before, or after the end of another one.
//!
//! An operation is ready when its time has come and every operation that it waits for has ended. It has
//! ended when each of its requests has: it was completed, killed or dropped, or timed out. Each end of a
//! request costs O(1), each end of an operation O(log n) for each one that waits for it.

use std::collections::{BTreeMap, BTreeSet};

use super::donation::Graph;
use super::sets::{Set, Sums, Tasks};
use super::tag::Tag;

/// An operation as it is planned.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Its requests, at least one.
    pub count: u64,
    /// Earliest time at which it is sent.
    pub at: f64,
    /// The operations that have to end first, by place; each before this one.
    pub after: Vec<usize>,
    /// Most requests of a set that run at once; `None` for requests that are sent together.
    pub at_once: Option<u32>,
}

/// The course of an operation; times in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Course {
    /// Time at which its requests were sent.
    pub ready: Option<f64>,
    /// Start of the first of them.
    pub started: Option<f64>,
    /// End of the last of them.
    pub finished: Option<f64>,
    /// Requests that have not ended.
    rest: u64,
}

/// A graph of operations.
#[derive(Clone, Debug, Default)]
pub struct Operations {
    plans: Vec<Plan>,
    courses: Vec<Course>,
    /// Operations that wait for others, by place.
    graph: Graph,
    /// Operations that only wait for their time, by that time.
    ready: BTreeSet<(Tag, usize)>,
    sets: BTreeMap<usize, Set>,
    /// Sets of which a request waits.
    entered: BTreeSet<usize>,
    /// Sets of which the next request is to be sent.
    open: BTreeSet<usize>,
}

impl Operations {
    /// Creates a graph in which no operation was sent.
    pub fn new(plans: Vec<Plan>) -> Operations {
        let mut operations = Operations {
            courses: Vec::with_capacity(plans.len()),
            graph: Graph::default(),
            ready: BTreeSet::new(),
            sets: BTreeMap::new(),
            entered: BTreeSet::new(),
            open: BTreeSet::new(),
            plans,
        };
        for (place, plan) in operations.plans.iter().enumerate() {
            operations.courses.push(Course { rest: plan.count, ..Course::default() });
            if let Some(most) = plan.at_once {
                let count = u32::try_from(plan.count).unwrap_or(u32::MAX);
                operations.sets.insert(place, Set::new(Tasks { count, at_once: Some(most) }));
            }
            operations
                .graph
                .add(place as u64, plan.after.iter().map(|first| (*first as u64, false)));
            if !operations.graph.is_blocked(place as u64) {
                operations.ready.insert((Tag::rounded(plan.at), place));
            }
        }
        operations
    }

    /// Course of each operation, in their order.
    pub fn courses(&self) -> &[Course] {
        &self.courses
    }

    /// Time at which the next operation is sent; infinite if all wait for another one to end.
    pub fn next(&self) -> f64 {
        self.ready.first().map_or(f64::INFINITY, |(time, _)| time.value())
    }

    /// Takes the next operation that is due, and the number of its requests.
    pub fn send(&mut self, now: f64) -> Option<(usize, u64)> {
        let (_, place) = self.ready.pop_first()?;
        self.courses[place].ready = Some(now);
        if self.sets.contains_key(&place) {
            self.entered.insert(place);
            return Some((place, 1));
        }
        Some((place, self.plans[place].count))
    }

    /// Operations that wait for this one, directly or through others, and whose time has come.
    pub fn waiting_for(&self, place: usize, now: f64) -> impl Iterator<Item = usize> {
        let waiting = self.graph.waiting_for(place as u64).into_iter().map(|it| it as usize);
        waiting.filter(move |it| self.plans[*it].at <= now)
    }

    /// Takes a set of which the next request is to be sent now.
    pub fn next_of_set(&mut self) -> Option<usize> {
        let place = self.open.pop_first()?;
        self.entered.insert(place);
        Some(place)
    }

    /// Opens a set that wants a turn and has no request in the queue.
    fn reopen(&mut self, place: usize) {
        if self.sets.get(&place).is_some_and(Set::wants_turn) && !self.entered.contains(&place) {
            self.open.insert(place);
        }
    }

    /// Records the start of a request.
    pub fn started(&mut self, place: usize, now: f64) {
        self.courses[place].started.get_or_insert(now);
        if let Some(set) = self.sets.get_mut(&place) {
            set.start();
            self.entered.remove(&place);
            self.reopen(place);
        }
    }

    /// Records the end of a request, of any kind; true if it had started.
    pub fn ended(&mut self, place: usize, had_started: bool, now: f64) {
        if let Some(set) = self.sets.get_mut(&place) {
            if !had_started {
                set.start();
                self.entered.remove(&place);
            }
            let (started, ended) = (set.granted(), set.ended() + 1);
            set.report(Sums { started, ended, is_closed: false });
            self.reopen(place);
        }
        let course = &mut self.courses[place];
        course.rest = course.rest.saturating_sub(1);
        if course.rest > 0 {
            return;
        }
        course.finished = Some(now);
        for dependent in self.graph.ended(place as u64, true).ready {
            let dependent = dependent as usize;
            let time = self.plans[dependent].at.max(now);
            self.ready.insert((Tag::rounded(time), dependent));
        }
    }
}
