//! Guarantees of groups, converted to guarantees of leaves.
//!
//! # Problem
//! A group's guarantee belongs to its leaves together, up to their demand. The sweeps handle guarantees of
//! leaves only.
//!
//! # Algorithm
//! A guaranteed group is divided alone, as a machine of the size of its guarantee: first in the proportions
//! of its leaves' demands, by the rule that divides the machine, with the guarantee as the group's limit;
//! then each resource by itself, where proportions have left some of it. The result is each leaf's
//! guarantee from then on. Inner groups come first, so that their guarantees are floors here. Of a resource
//! of which the group is guaranteed nothing, its leaves keep their own guarantees.
//!
//! With one resource the answer is that of max-min with floors at every node: the allocation of a leaf
//! never falls when its group gets more, so its part of the guarantee is a floor of its part of any larger
//! amount (vectors `group_bounds`). With several, a group of leaves that want different resources gets its
//! guarantee of each of them, up to its demand (`a_group_has_its_guarantee_of_each_resource`).
//!
//! Cost: one solution of a subtree for each guaranteed group.

use super::drf::{self, Reservations};
use super::exact;
use super::hierarchy;
use super::max_min::{self, Claim};
use super::problem::{Order, Problem};

/// Returns the same problem with the guarantees of groups at their leaves; `None` if no group is guaranteed
/// more than its leaves already are.
pub(super) fn to_leaves(problem: &Problem) -> Option<Problem> {
    let has_guarantee = |&node: &usize| {
        !problem.is_leaf[node] && problem.guarantee(node).iter().any(|&guarantee| guarantee > 0.0)
    };
    let groups: Vec<usize> = (0..problem.nodes()).rev().filter(has_guarantee).collect();
    let mut kept: Option<Problem> = None;
    for group in groups {
        let Some(subtree) = Subtree::of(kept.as_ref().unwrap_or(problem), group) else { continue };
        let kept = kept.get_or_insert_with(|| problem.clone());
        subtree.promise(kept);
    }
    kept
}

/// A group alone, with its guarantee as its limit. It is node 0.
struct Subtree {
    problem: Problem,
    /// Index of each node in the whole problem.
    nodes: Vec<usize>,
}

impl Subtree {
    /// Returns `None` if the leaves are guaranteed as much already.
    fn of(whole: &Problem, group: usize) -> Option<Subtree> {
        let m = whole.resources();
        let mut place: Vec<Option<usize>> = vec![None; whole.nodes()];
        let mut nodes = Vec::new();
        for node in group..whole.nodes() {
            let is_below = whole.parent[node].is_some_and(|parent| place[parent].is_some());
            if node == group || is_below {
                place[node] = Some(nodes.len());
                nodes.push(node);
            }
        }
        let leaves = || nodes.iter().copied().filter(|&node| whole.is_leaf[node]);
        let promised = (0..m).map(|r| exact::sum(leaves().map(|leaf| whole.floor(leaf, r))));
        let promised: Vec<f64> = promised.collect();
        let guarantee = whole.guarantee(group);
        if guarantee.iter().zip(&promised).all(|(guarantee, promised)| guarantee <= promised) {
            return None;
        }
        let rows = |matrix: &[f64]| -> Vec<f64> {
            nodes.iter().flat_map(|&node| &matrix[node * m..(node + 1) * m]).copied().collect()
        };
        let mut limit = rows(&whole.limit);
        for (r, limit) in limit[..m].iter_mut().enumerate() {
            *limit = limit.min(guarantee[r].max(promised[r]));
        }
        let parent = |&node: &usize| {
            if node == group { None } else { whole.parent[node].and_then(|parent| place[parent]) }
        };
        let problem = Problem {
            capacity: whole.capacity.clone(),
            parent: nodes.iter().map(parent).collect(),
            is_leaf: nodes.iter().map(|&node| whole.is_leaf[node]).collect(),
            weight: rows(&whole.weight),
            scalar: vec![false; nodes.len() + 1],
            task: rows(&whole.task),
            tasks: nodes.iter().map(|&node| whole.tasks[node]).collect(),
            guarantee: rows(&whole.guarantee),
            limit,
            order: Vec::new(),
        };
        let problem = problem.ordered(Order::Drf, |node| whole.order(Some(nodes[node])));
        Some(Subtree { problem, nodes })
    }

    /// Divides the group's guarantee, and assigns it to the leaves of the whole.
    fn promise(&self, whole: &mut Problem) {
        let (problem, m) = (&self.problem, self.problem.resources());
        let filling = hierarchy::fill(problem, Reservations::Held);
        for r in 0..m {
            let claim = |node: usize| {
                let weight = problem.weight(node)[r];
                if !problem.is_leaf[node] {
                    return Claim { weight, floor: 0.0, ceiling: problem.limit(node)[r] };
                }
                let used = drf::usage(problem, Reservations::Held, node, r, filling.tasks[node]);
                let ceiling = problem.ceiling(node, r);
                Claim { weight, floor: used.min(ceiling), ceiling }
            };
            let mut claims: Vec<Claim> = (0..problem.nodes()).map(claim).collect();
            let shares = max_min::divide_tree(problem, problem.capacity[r], &mut claims);
            for (node, share) in shares.into_iter().enumerate().filter(|it| problem.is_leaf[it.0]) {
                let guarantee = &mut whole.guarantee[self.nodes[node] * m + r];
                *guarantee = guarantee.max(share);
            }
        }
    }
}
