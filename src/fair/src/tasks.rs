//! Indivisible tasks: DRF as NSDI'11 prints it, one task at a time, and the orders of cluster schedulers.
//!
//! # Problem
//! A task runs whole or not at all. The rule chooses the leaf that gets the next task.
//!
//! # Algorithm
//! Ghodsi et al., NSDI'11 §4.1, Algorithm 1: the leaf with the smallest weighted dominant share gets its
//! next task, if that fits; a leaf whose next task does not fit is out. Among equals the earlier leaf comes
//! first. In a tree the choice is made at every group on the way down, by the three rules of H-DRF (module
//! `hierarchy`): members are rescaled to the smallest share among those that can grow, members that cannot
//! are counted as they are, and a resource that turned a task away does not count for a group's share any
//! more; a task that would exceed the limit of a group does not fit. Tasks that guarantees pay for are
//! granted first, in the order of the leaves.
//!
//! A group may have a different order ([`Order`]): the first member that can grow, as FIFO queues have it,
//! or the smallest share of one resource, as YARN's Fair policy has it. Among its own siblings such a group
//! counts with the sum of its members: their levels are meant to differ, so none of them is rescaled. FIFO
//! for all is the `fifo` of `tenantctl solve`.
//!
//! A task may have to run whole on one of several machines ([`super::nodes`]): it fits if it fits on one of
//! them.
//!
//! A heap for each group makes a grant O(depth · (m + log n)). A rescaled sum is kept as `smallest share ·
//! Σ vector/share`, so that it need not be added up again when the smallest share moves. Amounts are whole
//! numbers and shares have thirty digits ([`super::decimal`]), so ties on paper are ties here.
//!
//! # Properties, and the test that holds each
//! - The published order of grants (vectors `drf_tasks`, `seeds_steps`), and that of pools (`seeds_pools`).
//! - Nothing is granted beyond the capacity, and no leaf that wants more has a task that fits
//!   (`tasks_fill_the_machine`).
//! - Many small tasks approach the divisible allocation, in any order
//!   (`the_tree_is_the_limit_of_small_tasks`, `ordered_trees_are_the_limit_of_small_tasks`).
//! - Guaranteed tasks come first, and tasks that take nothing never (`guaranteed_tasks_are_granted_first`,
//!   `tasks_without_demand_are_not_granted`).
//! - Decimals are exact (vectors `seeds_exact`, `three_tenths_hold_three_tasks_of_a_tenth`).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::decimal::{Precise, Scale};
use super::exact::{Exact, Unit};
use super::growth;
use super::nodes::Machines;
use super::problem::{Order, Problem};

/// Largest number of grants that is listed one by one; [`most_tasks`] returns the number beforehand.
pub const MOST_TASKS: f64 = 1e7;

/// Room for rounding in guarantees of groups, which are computed, not written.
const ROUNDING: f64 = 1e-12;

/// Upper bound of the tasks that can be granted in any order. O(n·m).
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

#[derive(Debug)]
pub(super) struct Grants {
    /// The tasks of each node, and its upper bound; 0 for groups.
    pub(super) tasks: Vec<u64>,
    pub(super) most: Vec<u64>,
    /// The leaves in the order of their grants.
    pub(super) order: Vec<usize>,
    /// Amounts that each node holds: `n × m`.
    pub(super) held: Vec<f64>,
}

/// Grants tasks until none fits, on one machine or on several.
pub(super) fn fill(problem: &Problem, machines: Option<&mut Machines>) -> Grants {
    let mut room = Room::new(problem, machines);
    let mut order = Vec::new();
    for leaf in problem.leaves() {
        let promised = growth::of(problem, leaf).lo * (1.0 + ROUNDING);
        while room.tasks[leaf] as f64 + 1.0 <= promised && room.obstacle(leaf).is_none() {
            room.grant(leaf);
            order.push(leaf);
        }
    }
    room.count_afresh();
    while let Some(leaf) = room.next() {
        match room.obstacle(leaf) {
            None => {
                room.grant(leaf);
                order.push(leaf);
                room.recount(leaf);
            }
            Some(obstacle) => {
                room.out[leaf] = true;
                match obstacle {
                    Obstacle::Full(r) if !std::mem::replace(&mut room.saturated[r], true) => {
                        room.count_afresh();
                    }
                    _ => room.recount(leaf),
                }
            }
        }
    }
    let held =
        (0..problem.nodes()).flat_map(|node| problem.row(node)).zip(room.scales.iter().cycle());
    let held = held.map(|(index, scale)| scale.amount(room.held[index])).collect();
    Grants { tasks: room.tasks, most: room.most, order, held }
}

/// Reason why a leaf gets no further task.
enum Obstacle {
    /// Its demand or a limit is reached, its own or that of a group above it, or no machine has room.
    Enough,
    /// The resource has no room for it.
    Full(usize),
}

/// The grants so far. The machine itself is the last group, under index `n`.
struct Room<'a> {
    problem: &'a Problem,
    machines: Option<&'a mut Machines>,
    scales: Vec<Scale>,
    capacity: Vec<i128>,
    /// Demand of one task, limits of groups, and holdings of each node: `n × m`, and the machine's row.
    task: Vec<i128>,
    limit: Vec<i128>,
    held: Vec<i128>,
    has_limits: bool,
    weight: Vec<Precise>,
    rho: Vec<Precise>,
    tasks: Vec<u64>,
    most: Vec<u64>,
    saturated: Vec<bool>,
    /// True if a node can have no further task.
    out: Vec<bool>,
    level: Vec<Precise>,
    /// The vector that counts for each node, as parts of the capacity: `n × m`.
    vector: Vec<Precise>,
    groups: Vec<Group>,
    /// The terms that each node has added to its group's sums (`n × m`), and true if to the rays (`n`).
    terms: Vec<Exact>,
    waits: Vec<bool>,
    ray_unit: Unit,
}

/// The members of a group, in the order in which they come.
#[derive(Clone, Debug, Default)]
struct Group {
    order: Order,
    waiting: BinaryHeap<Reverse<(Precise, usize)>>,
    /// `Σ vector/level` of the members that wait.
    rays: Vec<Exact>,
    /// The sum of the vectors of those that are out.
    fixed: Vec<Exact>,
}

impl<'a> Room<'a> {
    fn new(problem: &'a Problem, machines: Option<&'a mut Machines>) -> Self {
        let (n, m) = (problem.nodes(), problem.resources());
        let scales = Scale::of_resources(problem);
        let units = |matrix: &[f64]| -> Vec<i128> {
            matrix.iter().zip(scales.iter().cycle()).map(|(&it, scale)| scale.units(it)).collect()
        };
        let (task, limit) = (units(&problem.task), units(&problem.limit));
        let is_limited = |&node: &usize| {
            !problem.is_leaf[node] && problem.limit(node).iter().any(|limit| limit.is_finite())
        };
        let heaviest = problem.weight.iter().copied().fold(1.0, f64::max);
        let group = |set: Option<usize>| Group { order: problem.order(set), ..Group::default() };
        let mut room = Room {
            problem,
            machines,
            capacity: units(&problem.capacity),
            held: vec![0; (n + 1) * m],
            has_limits: (0..n).any(|node| is_limited(&node)),
            weight: problem.weight.iter().map(|&weight| Precise::decimal(weight)).collect(),
            rho: vec![Precise::ZERO; n],
            tasks: vec![0; n],
            most: vec![0; n],
            saturated: vec![false; m],
            out: vec![false; n],
            level: vec![Precise::ZERO; n],
            vector: vec![Precise::ZERO; n * m],
            groups: (0..n).map(Some).chain([None]).map(group).collect(),
            terms: vec![Exact::ZERO; n * m],
            waits: vec![false; n],
            ray_unit: Unit::for_terms_up_to(heaviest),
            scales,
            task,
            limit,
        };
        for leaf in problem.leaves() {
            room.rho[leaf] = room.largest(leaf, |index, r| room.part(room.task[index], r), false);
            room.most[leaf] = room.most(leaf);
        }
        room
    }

    /// The tasks that a leaf wants within its limit. 0 for a task that takes nothing, which could be
    /// granted forever.
    fn most(&self, leaf: usize) -> u64 {
        let takes = self.problem.row(leaf).filter(|&index| self.task[index] > 0);
        let fits = takes.map(|index| self.limit[index] / self.task[index]).min().unwrap_or(0);
        (self.problem.tasks(leaf) as u64).min(u64::try_from(fits).unwrap_or(u64::MAX))
    }

    /// An amount as a part of the capacity.
    fn part(&self, units: i128, r: usize) -> Precise {
        match self.capacity[r] {
            0 => Precise::ZERO,
            capacity => Precise::of(units).over(Precise::of(capacity)),
        }
    }

    /// The largest weighted part of a node, of all resources or of those that are not saturated.
    fn largest(&self, node: usize, part: impl Fn(usize, usize) -> Precise, live: bool) -> Precise {
        let entries = self.problem.row(node).zip(0..).filter(|&(_, r)| !live || !self.saturated[r]);
        let weighted = entries.map(|(index, r)| part(index, r).over(self.weight[index]));
        weighted.max().unwrap_or_default()
    }

    fn obstacle(&mut self, leaf: usize) -> Option<Obstacle> {
        if self.tasks[leaf] >= self.most[leaf] {
            return Some(Obstacle::Enough);
        }
        let task = &self.task[self.problem.row(leaf)];
        let exceeds = |node: usize, r: usize, whole: i128| {
            task[r] > 0 && self.held[node * task.len() + r].saturating_add(task[r]) > whole
        };
        let machine = self.problem.nodes();
        if let Some(resource) = (0..task.len()).find(|&r| exceeds(machine, r, self.capacity[r])) {
            return Some(Obstacle::Full(resource));
        }
        let is_over = |group: usize| {
            let limit = &self.limit[self.problem.row(group)];
            (0..task.len()).any(|r| exceeds(group, r, limit[r]))
        };
        if self.has_limits && self.problem.groups_above(leaf).any(is_over) {
            return Some(Obstacle::Enough);
        }
        let has_place = self.machines.as_mut().is_none_or(|machines| machines.find(leaf));
        if has_place { None } else { Some(Obstacle::Enough) }
    }

    fn grant(&mut self, leaf: usize) {
        self.tasks[leaf] += 1;
        if let Some(machines) = &mut self.machines {
            machines.start(leaf);
        }
        let row = self.problem.row(leaf);
        let above = self.problem.groups_above(leaf);
        for node in above.chain([leaf, self.problem.nodes()]) {
            for (r, index) in row.clone().enumerate() {
                let held = &mut self.held[node * row.len() + r];
                *held = held.saturating_add(self.task[index]);
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
            group.waiting.clear();
            (group.rays, group.fixed) = (vec![Exact::ZERO; m], vec![Exact::ZERO; m]);
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
        let is_leaf = self.problem.is_leaf[node];
        if is_leaf {
            self.level[node] = self.rho[node].times(Precise::of(i128::from(self.tasks[node])));
            if self.problem.parent[node].is_none() {
                return;
            }
        }
        let group = &self.groups[node];
        let first = group.waiting.peek().map(|Reverse((_, member))| self.level[*member]);
        let is_rescaled = !is_leaf && group.order == Order::Drf;
        for (index, r) in row.zip(0..) {
            self.vector[index] = if is_rescaled {
                let group = &self.groups[node];
                let rays = Precise::sum(self.ray_unit, group.rays[r]);
                let fixed = Precise::sum(self.ray_unit, group.fixed[r]);
                first.unwrap_or_default().times(rays).plus(fixed)
            } else {
                self.part(self.held[index], r)
            };
        }
        if !is_leaf {
            self.out[node] = first.is_none();
            self.level[node] = self.largest(node, |index, _| self.vector[index], true);
        }
    }

    /// A node's place among its siblings: the smallest comes first, the earlier among equals.
    fn key(&self, group: usize, node: usize) -> Precise {
        match self.groups[group].order {
            Order::Drf => self.level[node],
            Order::Fifo => Precise::ZERO,
            Order::Resource(r) => {
                let index = self.problem.row(node).start + r;
                self.part(self.held[index], r).over(self.weight[index])
            }
        }
    }

    /// Marks a node as waiting in its group, or as out, and adds it to the sums.
    fn enter(&mut self, node: usize) {
        let parent = self.problem.parent[node];
        let group = parent.unwrap_or(self.problem.nodes());
        self.waits[node] = !self.out[node];
        if self.waits[node] {
            let key = self.key(group, node);
            self.groups[group].waiting.push(Reverse((key, node)));
        }
        if parent.is_none() || self.groups[group].order != Order::Drf {
            return;
        }
        for (index, r) in self.problem.row(node).zip(0..) {
            self.terms[index] = self.term(node, index, r).term(self.ray_unit);
            self.groups[group].sums(self.waits[node])[r].add(self.terms[index]);
        }
    }

    /// Removes the first of the waiting members of a group.
    fn leave(&mut self, node: usize) {
        let parent = self.problem.parent[node];
        let group = &mut self.groups[parent.unwrap_or(self.problem.nodes())];
        if self.waits[node] {
            group.waiting.pop();
        }
        if parent.is_none() || group.order != Order::Drf {
            return;
        }
        for (index, r) in self.problem.row(node).zip(0..) {
            group.sums(self.waits[node])[r].take(self.terms[index]);
        }
    }

    /// Term of a node in its group's sums: its vector if it is out, else its vector for one unit of level.
    fn term(&self, node: usize, index: usize, r: usize) -> Precise {
        if self.out[node] {
            self.vector[index]
        } else if !self.level[node].is_zero() {
            self.vector[index].over(self.level[node])
        } else if !self.rho[node].is_zero() {
            self.part(self.task[index], r).over(self.rho[node])
        } else {
            Precise::ZERO
        }
    }
}

impl Group {
    /// The sums that a member belongs to.
    fn sums(&mut self, waits: bool) -> &mut [Exact] {
        if waits { &mut self.rays } else { &mut self.fixed }
    }
}
