//! Orders of cluster schedulers: the client that is offered resources next, by usage.
//!
//! # Problem
//! Mesos and YARN do not divide a cluster; each time something is free, they sort their clients, and offer
//! it to the first. The order is all there is of fairness in them.
//!
//! # Algorithm
//! Siblings are sorted, and a walk visits each group in its place. The leaves of a [`Problem`] use one task
//! each; the usage of a group is the sum below it, inactive leaves included.
//! - *Mesos* (`DRFSorter`): the smallest dominant share per weight, then the fewest allocations, then the
//!   order of the nodes. A client that has children of its own is a leaf among them. Inactive leaves are
//!   left out of the answer.
//! - *YARN* (`DominantResourceFairnessPolicy`): [`super::yarn::compare`], then the order of the nodes.
//!
//! # Properties
//! The published tests of both (vectors `seeds_mesos`, `seeds_yarn_order`).

use super::decimal::{Precise, Scale};
use super::problem::Problem;
use super::tree;
use super::yarn::{self, Schedulable};

/// The rule that sorts siblings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sorter {
    /// The rule of Mesos.
    Mesos,
    /// The rule of YARN's fair scheduler under its policy of dominant resources.
    Yarn,
}

/// The active leaves in the order of a walk. `allocations` (number of allocations so far) and `active` are
/// by node. O(n log n · m).
pub fn walk(problem: &Problem, sorter: Sorter, allocations: &[u64], active: &[bool]) -> Vec<usize> {
    let (n, m) = (problem.nodes(), problem.resources());
    let scales = Scale::of_resources(problem);
    let rows = problem.task.iter().zip(scales.iter().cycle());
    let mut used: Vec<i128> = rows.map(|(&amount, scale)| scale.units(amount)).collect();
    let mut allocations = allocations.to_vec();
    for node in (0..n).rev() {
        if let Some(parent) = problem.parent[node] {
            allocations[parent] = allocations[parent].saturating_add(allocations[node]);
            for r in 0..m {
                used[parent * m + r] = used[parent * m + r].saturating_add(used[node * m + r]);
            }
        }
    }
    let capacity: Vec<i128> =
        problem.capacity.iter().zip(&scales).map(|(&it, scale)| scale.units(it)).collect();
    let share = |node: usize| {
        let has = (0..m).filter(|&r| capacity[r] > 0);
        let part = |r: usize| Precise::of(used[node * m + r]).over(Precise::of(capacity[r]));
        let largest = has.map(part).max().unwrap_or_default();
        largest.over(Precise::decimal(problem.weight(node)[0]))
    };
    let amounts: Vec<f64> =
        used.iter().zip(scales.iter().cycle()).map(|(&used, scale)| scale.amount(used)).collect();
    let schedulable = |node: usize| Schedulable {
        usage: &amounts[problem.row(node)],
        min_share: problem.guarantee(node),
        weight: problem.weight(node)[0],
        start_time: node as u64,
        name: "",
    };
    let members = tree::members(problem);
    let sorted = |group: Option<usize>| -> Vec<usize> {
        let mut siblings = members.of(group).to_vec();
        match sorter {
            Sorter::Mesos => siblings.sort_by_cached_key(|&it| (share(it), allocations[it])),
            Sorter::Yarn => siblings.sort_by(|&a, &b| {
                yarn::compare(&problem.capacity, &schedulable(a), &schedulable(b))
            }),
        }
        siblings.reverse();
        siblings
    };
    let mut stack = sorted(None);
    let mut order = Vec::new();
    while let Some(node) = stack.pop() {
        if !problem.is_leaf[node] {
            stack.extend(sorted(Some(node)));
        } else if active[node] {
            order.push(node);
        }
    }
    order
}
