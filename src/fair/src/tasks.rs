//! Indivisible tasks: DRF as NSDI'11 prints it, one task at a time.
//!
//! # Problem
//! A task runs whole or not at all. Which leaf gets the next one?
//!
//! # Algorithm
//! Ghodsi et al., NSDI'11 §4.1, Algorithm 1: the leaf with the smallest weighted dominant share
//! gets its next task, if that fits; a leaf whose next task does not fit is out. Among equals the
//! earlier leaf comes first. In a tree the choice is made at every group on the way down, by the
//! three rules of H-DRF (module `hierarchy`): members are rescaled to the smallest share among
//! those that can grow, members that cannot are counted as they are, and a resource that turned a
//! task away does not count for a group's share any more; a task that would exceed the limit of a
//! group does not fit. Tasks that guarantees pay for are granted first, in the order of the leaves.
//!
//! A heap for each group makes a grant O(depth · (m + log n)). A rescaled sum is kept as
//! `smallest share · Σ vector/share`, so that it need not be added up again when the smallest share moves.
//!
//! # Properties, and the test that holds each
//! - The published order of grants (vectors `drf_tasks`).
//! - Nothing is granted beyond the capacity, and no leaf that wants more has a task that fits
//!   (`tasks_fill_the_machine`).
//! - Many small tasks come to the divisible allocation (`the_tree_is_the_limit_of_small_tasks`).
//! - Guaranteed tasks come first, and tasks that take nothing never
//!   (`guaranteed_tasks_are_granted_first`, `tasks_without_demand_are_not_granted`).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::course::Fold;
use super::drf::Filling;
use super::exact::{Exact, Unit};
use super::growth::{self, Growth};
use super::integer::rank_of;
use super::problem::Problem;

/// More grants than this are not listed one by one: [`most_tasks`] tells beforehand.
pub const MOST_TASKS: f64 = 1e7;

/// How far a task may stick out: room for three tasks of 0.1 in 0.3.
const STICKS_OUT: f64 = 1e-12;

/// No more tasks than this can be granted, whatever the order. O(n·m).
pub fn most_tasks(problem: &Problem) -> f64 {
    let fits = |leaf: usize| {
        let task =
            problem.task(leaf).iter().zip(&problem.capacity).filter(|(task, _)| **task > 0.0);
        let fits = task.map(|(task, capacity)| capacity / task).fold(f64::INFINITY, f64::min);
        // A task that takes nothing is never granted.
        if fits.is_finite() { fits.min(growth::of(problem, leaf).hi) } else { 0.0 }
    };
    let each_alone: f64 = problem.leaves().map(fits).sum();
    let smallest = |r: usize| {
        let tasks = problem.leaves().map(|leaf| problem.task(leaf)[r]).filter(|&task| task > 0.0);
        tasks.fold(f64::INFINITY, f64::min)
    };
    let by_capacity: f64 =
        (0..problem.resources()).map(|r| problem.capacity[r] / smallest(r)).sum();
    each_alone.min(by_capacity)
}

/// Grants tasks until none fits. Returns how many each leaf has, and in which order they were granted.
pub(super) fn fill(problem: &Problem) -> (Filling, Vec<usize>) {
    let mut grants = Grants::new(problem);
    let mut order = Vec::new();
    for leaf in problem.leaves() {
        let promised = (grants.growth[leaf].lo * (1.0 + STICKS_OUT)).floor();
        while grants.tasks[leaf] < promised && grants.obstacle(leaf).is_none() {
            grants.grant(leaf);
            order.push(leaf);
        }
    }
    grants.count_afresh();
    while let Some(leaf) = grants.next() {
        match grants.obstacle(leaf) {
            None => {
                grants.grant(leaf);
                order.push(leaf);
                grants.recount(leaf);
            }
            Some(obstacle) => {
                grants.out[leaf] = true;
                match obstacle {
                    Obstacle::Full(r) if !std::mem::replace(&mut grants.saturated[r], true) => {
                        grants.count_afresh();
                    }
                    _ => grants.recount(leaf),
                }
            }
        }
    }
    (Filling { tasks: grants.tasks, growth: grants.growth }, order)
}

/// Why a leaf gets no further task.
enum Obstacle {
    /// It wants none, or a limit leaves none: its own, or that of a group above it.
    Enough,
    /// There is no room for it on a resource.
    Full(usize),
}

/// The grants so far. The machine itself is the last group, under index `n`.
struct Grants<'a> {
    problem: &'a Problem,
    growth: Vec<Growth>,
    tasks: Vec<f64>,
    used: Vec<Exact>,
    /// What each group uses; empty where no group has a limit.
    used_in: Vec<Exact>,
    use_unit: Vec<Unit>,
    saturated: Vec<bool>,
    /// Whether a node can have no further task.
    out: Vec<bool>,
    level: Vec<f64>,
    /// What each node is counted with, as parts of the capacity: `n × m`.
    vector: Vec<f64>,
    groups: Vec<Group>,
    /// What each node has put into its group's sums, and whether into the rays: `n × m`, and `n`.
    terms: Vec<Exact>,
    waits: Vec<bool>,
    ray_unit: Unit,
}

/// The members of a group, in the order in which they come.
#[derive(Clone, Debug, Default)]
struct Group {
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    /// `Σ vector/level` of the members that wait.
    rays: Vec<Exact>,
    /// The sum of the vectors of those that are out.
    fixed: Vec<Exact>,
}

impl<'a> Grants<'a> {
    fn new(problem: &'a Problem) -> Self {
        let (n, m) = (problem.nodes(), problem.resources());
        let mut growth: Vec<Growth> = (0..n).map(|leaf| growth::of(problem, leaf)).collect();
        for (leaf, growth) in growth.iter_mut().enumerate() {
            // Tasks that take nothing could be granted forever.
            let takes_something = problem.task(leaf).iter().any(|&task| task > 0.0);
            let most = if takes_something { growth.hi } else { 0.0 };
            growth.hi = (most * (1.0 + STICKS_OUT)).floor();
        }
        let is_limited = |&node: &usize| {
            !problem.is_leaf[node] && problem.limit(node).iter().any(|limit| limit.is_finite())
        };
        let has_limits = (0..n).any(|node| is_limited(&node));
        let heaviest = problem.weight.iter().copied().fold(1.0, f64::max);
        Grants {
            problem,
            growth,
            tasks: vec![0.0; n],
            used: vec![Exact::ZERO; m],
            used_in: if has_limits { vec![Exact::ZERO; n * m] } else { Vec::new() },
            use_unit: problem.capacity.iter().map(|&c| Unit::for_terms_up_to(c)).collect(),
            saturated: vec![false; m],
            out: vec![false; n],
            level: vec![0.0; n],
            vector: vec![0.0; n * m],
            groups: vec![Group::default(); n + 1],
            terms: vec![Exact::ZERO; n * m],
            waits: vec![false; n],
            ray_unit: Unit::for_terms_up_to(heaviest),
        }
    }

    /// The obstacle to a leaf's next task.
    fn obstacle(&self, leaf: usize) -> Option<Obstacle> {
        if self.tasks[leaf] >= self.growth[leaf].hi {
            return Some(Obstacle::Enough);
        }
        let task = self.problem.task(leaf);
        let sticks_out = |&r: &usize| {
            let capacity = self.problem.capacity[r];
            let used = self.use_unit[r].to_f64(self.used[r]);
            task[r] > 0.0 && used + task[r] > capacity * (1.0 + STICKS_OUT)
        };
        if let Some(resource) = (0..task.len()).find(sticks_out) {
            return Some(Obstacle::Full(resource));
        }
        if self.used_in.is_empty() {
            return None;
        }
        let exceeds = |group: usize| {
            let limit = self.problem.limit(group);
            (0..task.len()).any(|r| {
                let used = self.use_unit[r].to_f64(self.used_in[group * task.len() + r]);
                task[r] > 0.0 && used + task[r] > limit[r] * (1.0 + STICKS_OUT)
            })
        };
        self.problem.groups_above(leaf).any(exceeds).then_some(Obstacle::Enough)
    }

    fn grant(&mut self, leaf: usize) {
        self.tasks[leaf] += 1.0;
        for (r, &task) in self.problem.task(leaf).iter().enumerate() {
            self.used[r].add(self.use_unit[r].of(task));
        }
        if self.used_in.is_empty() {
            return;
        }
        for group in self.problem.groups_above(leaf) {
            let row = self.problem.row(group);
            for (index, (unit, &task)) in row.zip(self.use_unit.iter().zip(self.problem.task(leaf)))
            {
                self.used_in[index].add(unit.of(task));
            }
        }
    }

    /// The leaf whose turn it is.
    fn next(&self) -> Option<usize> {
        let mut group = self.problem.nodes();
        loop {
            let Reverse((_, node)) = self.groups[group].waiting.peek()?;
            if self.problem.is_leaf[*node] {
                return Some(*node);
            }
            group = *node;
        }
    }

    /// Recomputes every node, children before parents.
    fn count_afresh(&mut self) {
        let (n, m) = (self.problem.nodes(), self.problem.resources());
        for group in &mut self.groups {
            *group = Group {
                waiting: BinaryHeap::new(),
                rays: vec![Exact::ZERO; m],
                fixed: vec![Exact::ZERO; m],
            };
        }
        for node in (0..n).rev() {
            self.count(node);
            self.enter(node);
        }
    }

    /// Recomputes a leaf, and the groups above it.
    fn recount(&mut self, leaf: usize) {
        let mut node = Some(leaf);
        while let Some(changed) = node {
            // It was next, so at every group on the way it is the first of the waiting members.
            let parent = self.problem.parent[changed];
            self.leave(changed);
            self.count(changed);
            self.enter(changed);
            node = parent;
        }
    }

    /// Computes the vector and the level of a node from its tasks or its members.
    fn count(&mut self, node: usize) {
        let row = self.problem.row(node);
        if self.problem.is_leaf[node] {
            for (index, r) in row.zip(0..) {
                let capacity = self.problem.capacity[r];
                let used = self.tasks[node] * self.problem.task(node)[r];
                self.vector[index] = if capacity > 0.0 { used / capacity } else { 0.0 };
            }
            self.level[node] = self.growth[node].rho * self.tasks[node];
            return;
        }
        let group = &self.groups[node];
        let first = group.waiting.peek().map(|Reverse((_, member))| self.level[*member]);
        self.out[node] = first.is_none();
        for (index, r) in row.clone().zip(0..) {
            let rays = self.ray_unit.to_f64(group.rays[r]);
            self.vector[index] = first.unwrap_or(0.0) * rays + self.ray_unit.to_f64(group.fixed[r]);
        }
        let live: Vec<bool> = self.saturated.iter().map(|&saturated| !saturated).collect();
        self.level[node] = Fold::level(self.problem.weight(node), &live, &self.vector[row]);
    }

    /// Marks a node as waiting in its group, or as out, and adds it to the sums.
    fn enter(&mut self, node: usize) {
        let group = self.problem.parent[node].unwrap_or(self.problem.nodes());
        self.waits[node] = !self.out[node];
        if self.waits[node] {
            self.groups[group].waiting.push(Reverse((rank_of(self.level[node]), node)));
        }
        for (index, r) in self.problem.row(node).zip(0..) {
            self.terms[index] = self.ray_unit.of(self.term(node, index, r));
            self.groups[group].sums(self.waits[node])[r].add(self.terms[index]);
        }
    }

    /// Removes the first of the waiting members of a group.
    fn leave(&mut self, node: usize) {
        let group = &mut self.groups[self.problem.parent[node].unwrap_or(self.problem.nodes())];
        if self.waits[node] {
            group.waiting.pop();
        }
        for (index, r) in self.problem.row(node).zip(0..) {
            group.sums(self.waits[node])[r].take(self.terms[index]);
        }
    }

    /// What a node adds to its group's sums: its vector if it is out, else that for one unit of level.
    fn term(&self, node: usize, index: usize, r: usize) -> f64 {
        let growth = self.growth[node];
        if self.out[node] {
            self.vector[index]
        } else if self.level[node] > 0.0 {
            self.vector[index] / self.level[node]
        } else if growth.rho > 0.0 && self.problem.capacity[r] > 0.0 {
            self.problem.task(node)[r] / (self.problem.capacity[r] * growth.rho)
        } else {
            0.0
        }
    }
}

impl Group {
    /// The sums that a member belongs to.
    fn sums(&mut self, waits: bool) -> &mut [Exact] {
        if waits { &mut self.rays } else { &mut self.fixed }
    }
}
