//! Nodes under the machine that rise together, from one turn of their courses to the next.
//!
//! A node that has to stop, because a limit below it was reached, is given a new course, which begins at a
//! lower level. It rises in a front of its own until it has caught up, and joins the others again. The
//! others are not affected, so nothing of theirs is computed again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::course::{Courses, Point, Rates, Span, Step, Turn};

/// Factor by which a claim may exceed the largest claim at the beginning of a front's sums: they have room
/// for 2²⁷ terms of that size.
const LARGER: f64 = 1024.0;

#[derive(Debug)]
pub(super) struct Front {
    /// The nodes that have been in it. Some may be in a front behind this one.
    pub(super) members: Vec<usize>,
    /// The point that they have reached.
    pub(super) here: Point,
    turns: BinaryHeap<Reverse<(Turn, usize)>>,
    stops: BinaryHeap<Reverse<(Point, usize)>>,
    rates: Rates,
    largest: Vec<f64>,
}

#[derive(Clone, Debug)]
pub(super) struct Member<'a> {
    pub(super) node: usize,
    pub(super) courses: &'a Courses,
    pub(super) course: Span,
    /// True if the node stops at the end of its course.
    pub(super) stops: bool,
    /// The point at which it joined the front. At that level, its own jumps begin there.
    pub(super) joined: Point,
}

impl Member<'_> {
    /// Point of the front when the node is at `point` of its course.
    fn front(&self, point: Point) -> Point {
        let before = if point.level == self.joined.level { self.joined.jump } else { 0.0 };
        Point { jump: point.jump + before, ..point }
    }

    /// Point of the node on its course when the front is at `point`.
    pub(super) fn own(&self, point: Point) -> Point {
        let before = if point.level == self.joined.level { self.joined.jump } else { 0.0 };
        Point { jump: point.jump - before, ..point }
    }
}

impl Front {
    /// Some nodes from a point on; `present` are those that are in no front behind.
    pub(super) fn new<'a>(
        resources: usize,
        here: Point,
        members: Vec<usize>,
        present: impl Iterator<Item = Member<'a>> + Clone,
    ) -> Front {
        let mut largest = vec![0.0; resources];
        present.clone().for_each(|it| it.courses.largest(std::iter::once(it.course), &mut largest));
        let mut front = Front {
            members,
            here,
            turns: BinaryHeap::new(),
            stops: BinaryHeap::new(),
            rates: Rates::new(&largest),
            largest,
        };
        present.for_each(|member| front.add(&member));
        front
    }

    /// True if the claims of a node are not too large for the sums.
    pub(super) fn fits(&self, member: &Member<'_>) -> bool {
        let mut largest = vec![0.0; self.largest.len()];
        member.courses.largest(std::iter::once(member.course.clone()), &mut largest);
        largest.iter().zip(&self.largest).all(|(new, old)| *new <= old * LARGER)
    }

    /// Adds a node that rises with the others from here on.
    pub(super) fn add(&mut self, member: &Member<'_>) {
        let spans = std::iter::once(member.course.clone());
        for turn in member.courses.turns(spans, member.own(self.here)) {
            let at = member.front(turn.at);
            self.turns.push(Reverse((Turn { at, ..turn }, member.node)));
        }
        if let (true, Some(end)) = (member.stops, member.courses.end(member.course.clone())) {
            self.stops.push(Reverse((member.front(end), member.node)));
        }
    }

    /// Passes the turns that have been reached; returns the nodes that stop here.
    pub(super) fn pass<'a>(&mut self, courses: impl Fn(usize) -> &'a Courses) -> Vec<usize> {
        while let Some(Reverse((turn, node))) = self.turns.peek()
            && turn.at <= self.here
        {
            self.rates.turn(courses(*node), turn);
            self.turns.pop();
        }
        let mut stopped = Vec::new();
        while let Some(Reverse((at, node))) = self.stops.peek()
            && *at <= self.here
        {
            stopped.push(*node);
            self.stops.pop();
        }
        stopped
    }

    /// The step to the next turn, but no further than to a level; `None` if no node can rise any more.
    pub(super) fn step(&mut self, goal: f64) -> Option<Step<'_>> {
        let to = match self.turns.peek() {
            Some(Reverse((turn, _))) if turn.at.level > self.here.level => Point::at(turn.at.level),
            Some(Reverse((turn, _))) => turn.at,
            None if self.rates.rises() => Point::at(f64::INFINITY),
            None => return None,
        };
        Some(self.rates.step(self.here, to.min(Point::at(goal))))
    }
}
