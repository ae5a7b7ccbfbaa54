//! The limits of groups while the level rises.
//!
//! # Problem
//! A resource may be used up for all leaves, because the machine has no more of it, or for the leaves of
//! one group, because the group has reached its limit. In both cases a leaf that demands the resource is
//! blocked.
//!
//! # Terms
//! A resource is *live* for a set of siblings while neither the machine nor any group above them has used
//! it up. The *room* of a group is the rest of its limit, as a part of the capacity.

use super::exact::{Exact, Unit};
use super::problem::Problem;
use super::weights::sibling_set;

/// A resource of which no more than this part is left is used up.
const USED_UP: f64 = 1e-13;

/// Resources that are used up, for the machine and below each group.
#[derive(Debug)]
pub(super) struct Limits {
    resources: usize,
    /// The groups with a limit below the capacity, in node order.
    limited: Vec<usize>,
    /// True for a live resource, a row for each set of siblings: the machine's first, then one for the
    /// members of each node.
    live: Vec<bool>,
    /// Room below each limit and usage below it, as parts of the capacity: a row for each node. Empty
    /// without limits.
    room: Vec<f64>,
    used: Vec<Exact>,
}

impl Limits {
    /// Returns a state in which everything is live.
    pub(super) fn new(problem: &Problem) -> Limits {
        let (n, m) = (problem.nodes(), problem.resources());
        let binds = |&group: &usize| {
            let limits = problem.limit(group).iter().zip(&problem.capacity);
            !problem.is_leaf[group] && limits.into_iter().any(|(limit, capacity)| limit < capacity)
        };
        let limited: Vec<usize> = (0..n).filter(binds).collect();
        let rows = if limited.is_empty() { 0 } else { n * m };
        let (room, used) = (vec![f64::INFINITY; rows], vec![Exact::ZERO; rows]);
        Limits { resources: m, limited, live: vec![true; (n + 1) * m], room, used }
    }

    pub(super) fn limited(&self) -> &[usize] {
        &self.limited
    }

    /// Live resources of a set of siblings ([`sibling_set`]).
    pub(super) fn live(&self, set: usize) -> &[bool] {
        &self.live[set * self.resources..(set + 1) * self.resources]
    }

    /// Room below the limit of a group; `None` for a group without a limit.
    pub(super) fn room(&self, group: usize) -> Option<&[f64]> {
        let row = group * self.resources..(group + 1) * self.resources;
        self.limited.binary_search(&group).ok().map(|_| &self.room[row])
    }

    /// Marks the resource as used up for the members of a group, or for the machine.
    pub(super) fn use_up(&mut self, group: Option<usize>, resource: usize) {
        self.live[group.map_or(0, |group| group + 1) * self.resources + resource] = false;
    }

    /// Counts the room below each limit in a subtree, marks used up resources, and propagates the marks to
    /// the groups below. `nodes` is a node under the machine and all below it, in node order; `usage`
    /// returns the amount of a resource that a leaf uses or holds.
    pub(super) fn count(
        &mut self,
        problem: &Problem,
        nodes: &[usize],
        usage: impl Fn(usize, usize) -> f64,
    ) {
        let m = self.resources;
        if !self.limited.is_empty() {
            self.count_room(problem, nodes, usage);
        }
        for &node in nodes.iter().filter(|&&node| !problem.is_leaf[node]) {
            let above = sibling_set(&problem.parent, node);
            for r in 0..m {
                let is_limited = problem.limit(node)[r] < problem.capacity[r];
                let least = USED_UP * problem.limit(node)[r] / problem.capacity[r];
                let is_full = is_limited && self.room[node * m + r] <= least;
                self.live[(node + 1) * m + r] &= self.live[above * m + r] && !is_full;
            }
        }
    }

    fn count_room(
        &mut self,
        problem: &Problem,
        nodes: &[usize],
        usage: impl Fn(usize, usize) -> f64,
    ) {
        let m = self.resources;
        let units: Vec<Unit> =
            problem.capacity.iter().map(|&capacity| Unit::for_terms_up_to(capacity)).collect();
        for &node in nodes {
            self.used[node * m..(node + 1) * m].fill(Exact::ZERO);
        }
        for &node in nodes.iter().rev() {
            for (r, unit) in units.iter().enumerate() {
                let index = node * m + r;
                if problem.is_leaf[node] {
                    self.used[index] = unit.of(usage(node, r));
                } else if problem.limit(node)[r] < problem.capacity[r] {
                    let left = self.used[index].rest_of(unit.of(problem.limit(node)[r]));
                    self.room[index] = (unit.to_f64(left) / problem.capacity[r]).max(0.0);
                }
                if let Some(parent) = problem.parent[node] {
                    let term = self.used[index];
                    self.used[parent * m + r].add(term);
                }
            }
        }
    }
}

/// Distance after which the first room is used up at these rates, at most `length`, and its index.
pub(super) fn first_used_up(room: &[f64], rates: &[f64], length: f64) -> (f64, Option<usize>) {
    let mut next = (length, None);
    for (r, (room, rate)) in room.iter().zip(rates).enumerate().filter(|(_, it)| *it.1 > 0.0) {
        let distance = (room / rate).max(0.0);
        if distance < next.0 {
            next = (distance, Some(r));
        }
    }
    next
}

/// Subtracts the usage of a stretch from the rooms.
pub(super) fn spend(room: &mut [f64], rates: &[f64], length: f64) {
    let used = room.iter_mut().zip(rates).filter(|(_, rate)| **rate > 0.0);
    used.for_each(|(room, rate)| *room -= rate * length);
}
