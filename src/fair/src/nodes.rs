//! Several machines: placement of whole tasks, eviction, and slots for comparison.
//!
//! # Problem
//! A cluster's capacity is a sum, but a task runs on one machine. 22 CPUs free on each of a hundred
//! machines are room for two tasks of ten CPUs on each of them, not for 220 in all.
//!
//! # Algorithm
//! - *Placement.* Of the machines where the task fits, `spread` takes the one with the smallest load,
//!   `pack` the one with the largest; a load is the largest part of any resource that is used. The first
//!   machine comes first among equals.
//! - *Eviction.* Where a task fits nowhere, tasks of other leaves may move. On each machine that is large
//!   enough, the task started last goes first, to the machine that the placement chooses among the others;
//!   one that fits on none stays. The machine with the fewest moves wins. No task is stopped that does not
//!   run elsewhere.
//! - *Slots.* Each machine has the same number of slots, and a task of any size takes one. That is DRF of
//!   slots as the only resource; the capacity is ignored (module `slots`). It is here for comparison.
//!
//! O(machines) for a grant; O(machines · tasks there · machines) for one that evicts.
//!
//! # Properties, and the test that holds each
//! - The figures of the lecture and of NSDI'11 §6.2 (vectors `seeds_fifo_nodes`, `seeds_slots`).
//! - No machine is used beyond its capacity, no task is lost, and one machine is the same as none
//!   (`machines_hold_what_they_can`).

use std::collections::BTreeMap;

use super::decimal::{Precise, Scale};
use super::problem::Problem;

/// Rule that chooses the machine for a task, of those where it fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// The machine with the smallest load.
    #[default]
    Spread,
    /// The machine with the largest load.
    Pack,
}

/// The machines of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Nodes {
    /// Capacity of each machine for each resource: `k × m`, row-major.
    pub capacity: Vec<f64>,
    /// Placement of tasks.
    pub placement: Placement,
    /// True if tasks move to make room for others.
    pub evict: bool,
}

impl Nodes {
    /// Exact sum of the capacities for each resource.
    pub fn total(&self, resources: usize) -> Vec<f64> {
        let total = |r: usize| {
            let amounts = || self.capacity.iter().skip(r).step_by(resources).copied();
            let scale = Scale::of(amounts().sum(), amounts());
            scale.amount(amounts().map(|amount| scale.units(amount)).fold(0, i128::saturating_add))
        };
        (0..resources).map(total).collect()
    }
}

/// The machines after a division.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// The number of tasks of each leaf on each machine.
    pub tasks: Vec<BTreeMap<usize, u64>>,
    /// Usage of each machine, `k × m`: with slots it may exceed the capacity.
    pub used: Vec<f64>,
    /// Tasks that have moved.
    pub evicted: u64,
}

impl Placed {
    /// The part of its speed at which a machine runs its tasks: 1 unless it is overcommitted.
    pub fn speed(&self, nodes: &Nodes, machine: usize) -> f64 {
        let m = self.used.len() / self.tasks.len().max(1);
        let rows = machine * m..(machine + 1) * m;
        let used = self.used[rows.clone()].iter().zip(&nodes.capacity[rows]);
        used.filter(|(used, _)| **used > 0.0).map(|(used, has)| has / used).fold(1.0, f64::min)
    }

    /// The tasks of a leaf, each counted with the speed of its machine.
    pub fn useful(&self, nodes: &Nodes, leaf: usize) -> f64 {
        let tasks = |machine: &usize| self.tasks[*machine].get(&leaf).copied().unwrap_or(0) as f64;
        (0..self.tasks.len()).map(|it| tasks(&it) * self.speed(nodes, it)).sum()
    }

    /// True if a task would fit on some machine.
    pub fn fits(&self, nodes: &Nodes, task: &[f64]) -> bool {
        let rows = self.used.chunks(task.len()).zip(nodes.capacity.chunks(task.len()));
        let mut rows = rows.map(|(used, has)| used.iter().zip(has).zip(task));
        rows.any(|mut row| {
            row.all(|((used, has), task)| *task == 0.0 || used + task <= has * (1.0 + FITS))
        })
    }
}

/// Room for rounding in amounts that were converted back to `f64`.
const FITS: f64 = 1e-12;

#[derive(Debug)]
pub(super) struct Machines {
    placement: Placement,
    evict: bool,
    scales: Vec<Scale>,
    /// Demand of one task of each leaf.
    task: Vec<i128>,
    capacity: Vec<i128>,
    used: Vec<i128>,
    load: Vec<Precise>,
    /// The tasks on each machine in the order of their grants: number of the grant, and leaf.
    running: Vec<Vec<(u64, usize)>>,
    next: Option<Place>,
    started: u64,
    evicted: u64,
}

#[derive(Debug)]
struct Place {
    machine: usize,
    /// Tasks that leave the machine before: the number of the grant, the leaf, and the machine it moves to.
    moves: Vec<(u64, usize, usize)>,
}

impl Machines {
    pub(super) fn new(problem: &Problem, nodes: &Nodes) -> Machines {
        let scales = Scale::of_resources(problem);
        let units = |matrix: &[f64]| -> Vec<i128> {
            matrix.iter().zip(scales.iter().cycle()).map(|(&it, scale)| scale.units(it)).collect()
        };
        let count = nodes.capacity.len() / scales.len();
        Machines {
            placement: nodes.placement,
            evict: nodes.evict,
            task: units(&problem.task),
            capacity: units(&nodes.capacity),
            used: vec![0; nodes.capacity.len()],
            load: vec![Precise::ZERO; count],
            running: vec![Vec::new(); count],
            next: None,
            started: 0,
            evicted: 0,
            scales,
        }
    }

    fn row(&self, index: usize) -> std::ops::Range<usize> {
        index * self.scales.len()..(index + 1) * self.scales.len()
    }

    /// True if a task of a leaf fits on a machine beside `used`.
    fn fits(&self, machine: usize, leaf: usize) -> bool {
        let (machine, leaf) = (self.row(machine), self.row(leaf));
        let mut rows = self.capacity[machine.clone()].iter().zip(&self.used[machine]);
        let mut task = self.task[leaf].iter();
        rows.all(|(has, used)| task.next().is_none_or(|&task| task == 0 || used + task <= *has))
    }

    fn choose(&self, leaf: usize, except: Option<usize>) -> Option<usize> {
        let fit = (0..self.load.len()).filter(|&it| Some(it) != except && self.fits(it, leaf));
        match self.placement {
            Placement::Spread => fit.min_by_key(|&it| self.load[it]),
            Placement::Pack => fit.rev().max_by_key(|&it| self.load[it]),
        }
    }

    /// Adds a task of a leaf to a machine's usage, or subtracts it.
    fn count(&mut self, machine: usize, leaf: usize, sign: i128) {
        for (index, task) in self.row(machine).zip(self.row(leaf)) {
            self.used[index] += sign * self.task[task];
        }
        let parts = self.row(machine).filter(|&index| self.capacity[index] > 0);
        let part =
            |index: usize| Precise::of(self.used[index]).over(Precise::of(self.capacity[index]));
        self.load[machine] = parts.map(part).max().unwrap_or_default();
    }

    /// Finds a place for a task of a leaf, for [`Self::start`]; false if there is none.
    pub(super) fn find(&mut self, leaf: usize) -> bool {
        let chosen = self.choose(leaf, None).map(|machine| Place { machine, moves: Vec::new() });
        self.next = chosen.or_else(|| self.eviction(leaf));
        self.next.is_some()
    }

    /// Starts a task of a leaf in the place found, after the moves that it needs.
    pub(super) fn start(&mut self, leaf: usize) {
        let Some(Place { machine, moves }) = self.next.take() else { return };
        for (grant, other, to) in moves {
            self.running[machine].retain(|task| task.0 != grant);
            let place = self.running[to].partition_point(|task| task.0 < grant);
            self.running[to].insert(place, (grant, other));
            self.count(machine, other, -1);
            self.count(to, other, 1);
            self.evicted += 1;
        }
        self.running[machine].push((self.started, leaf));
        self.count(machine, leaf, 1);
        self.started += 1;
    }

    /// The fewest moves that make room for a task of a leaf.
    fn eviction(&mut self, leaf: usize) -> Option<Place> {
        let mut best: Option<Place> = None;
        for machine in 0..if self.evict { self.load.len() } else { 0 } {
            let task = &self.task[self.row(leaf)];
            if !task.iter().zip(&self.capacity[self.row(machine)]).all(|(task, has)| task <= has) {
                continue;
            }
            let most = best.as_ref().map_or(usize::MAX, |best| best.moves.len());
            let mut moves = Vec::new();
            for index in (0..self.running[machine].len()).rev() {
                if self.fits(machine, leaf) || moves.len() + 1 >= most {
                    break;
                }
                let (grant, other) = self.running[machine][index];
                if other == leaf {
                    continue;
                }
                if let Some(to) = self.choose(other, Some(machine)) {
                    self.count(machine, other, -1);
                    self.count(to, other, 1);
                    moves.push((grant, other, to));
                }
            }
            let has_room = self.fits(machine, leaf);
            for &(_, other, to) in &moves {
                self.count(machine, other, 1);
                self.count(to, other, -1);
            }
            if has_room {
                best = Some(Place { machine, moves });
            }
        }
        best
    }

    pub(super) fn placed(self) -> Placed {
        let tasks = |running: Vec<(u64, usize)>| {
            let mut tasks = BTreeMap::new();
            running.into_iter().for_each(|(_, leaf)| *tasks.entry(leaf).or_insert(0) += 1);
            tasks
        };
        let used = self.used.iter().zip(self.scales.iter().cycle());
        Placed {
            used: used.map(|(&used, scale)| scale.amount(used)).collect(),
            tasks: self.running.into_iter().map(tasks).collect(),
            evicted: self.evicted,
        }
    }
}
