//! Operations: sets of equal requests that are sent together, after other sets have ended.
//!
//! # Algorithm
//! An operation is ready when its time has come and every operation that it waits for has ended. It has
//! ended when each of its requests has: it was completed, killed or dropped, or timed out. Each end of a
//! request costs O(1), each end of an operation O(log n) for each one that waits for it.

use std::collections::BTreeSet;

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
    /// Operations that have to end first.
    awaited: usize,
}

/// A graph of operations.
#[derive(Clone, Debug, Default)]
pub struct Operations {
    plans: Vec<Plan>,
    courses: Vec<Course>,
    /// For each operation, the operations that wait for it.
    dependents: Vec<Vec<usize>>,
    /// Operations that only wait for their time, by that time.
    ready: BTreeSet<(Tag, usize)>,
}

impl Operations {
    /// Creates a graph in which no operation was sent.
    pub fn new(plans: Vec<Plan>) -> Operations {
        let mut operations = Operations {
            courses: Vec::with_capacity(plans.len()),
            dependents: vec![Vec::new(); plans.len()],
            ready: BTreeSet::new(),
            plans,
        };
        for (place, plan) in operations.plans.iter().enumerate() {
            let awaited = plan.after.len();
            operations.courses.push(Course { rest: plan.count, awaited, ..Course::default() });
            plan.after.iter().for_each(|first| operations.dependents[*first].push(place));
            if awaited == 0 {
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
        Some((place, self.plans[place].count))
    }

    /// Records the start of a request.
    pub fn started(&mut self, place: usize, now: f64) {
        self.courses[place].started.get_or_insert(now);
    }

    /// Records the end of a request, of any kind.
    pub fn ended(&mut self, place: usize, now: f64) {
        let course = &mut self.courses[place];
        course.rest = course.rest.saturating_sub(1);
        if course.rest > 0 {
            return;
        }
        course.finished = Some(now);
        for dependent in std::mem::take(&mut self.dependents[place]) {
            let course = &mut self.courses[dependent];
            course.awaited -= 1;
            if course.awaited == 0 {
                let time = self.plans[dependent].at.max(now);
                self.ready.insert((Tag::rounded(time), dependent));
            }
        }
    }
}
