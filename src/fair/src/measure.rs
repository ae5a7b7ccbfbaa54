//! Measures of the fairness of an allocation.
//!
//! The agent's status, the demo, the simulator and the tests all use these functions. The functions take
//! any allocation, not only that of this crate. Results are in levels (weighted dominant shares), so they
//! are comparable between tenants of any demand.
//!
//! An allocation `row` is a leaf's part of each resource; `allocation` holds one for each node of the
//! problem, `n × m`, row-major, as in [`super::Solution`].

use super::growth;
use super::problem::Problem;
use super::weights::{self, sibling_set};

/// Shares closer than this are equal.
const EQUAL: f64 = 1e-12;

/// Returns the resource of which a leaf has the largest *weighted* part, and its part of that resource, `0
/// ..= 1`. With nothing allocated, the resource is the one of its largest demand.
pub fn dominant_share(problem: &Problem, leaf: usize, row: &[f64]) -> (Option<usize>, f64) {
    let resource =
        dominant(problem, leaf, row).or_else(|| dominant(problem, leaf, problem.task(leaf)));
    let share = |r: usize| match problem.capacity[r] {
        0.0 => 0.0,
        capacity => row[r] / capacity,
    };
    (resource, resource.map_or(0.0, share))
}

/// The resource of which `row` is the largest weighted share; the first among equals.
pub(super) fn dominant(problem: &Problem, leaf: usize, row: &[f64]) -> Option<usize> {
    let weight = problem.weight(leaf);
    let mut best: Option<(usize, f64)> = None;
    for (r, &amount) in row.iter().enumerate().filter(|(_, amount)| **amount > 0.0) {
        // Any amount of a resource of capacity zero is an infinite share.
        let share = amount / (problem.capacity[r] * weight[r]);
        if best.is_none_or(|(_, largest)| share > largest * (1.0 + EQUAL)) {
            best = Some((r, share));
        }
    }
    best.map(|(r, _)| r)
}

/// A leaf's weighted dominant share: `max_r row_r / (capacity_r · weight_r)`.
pub fn weighted_dominant_share(problem: &Problem, leaf: usize, row: &[f64]) -> f64 {
    let weighted = |r: usize| row[r] / (problem.capacity[r] * problem.weight(leaf)[r]);
    (0..row.len()).filter(|&r| row[r] > 0.0).map(weighted).fold(0.0, f64::max)
}

/// Jain's index: `(Σ x)² / (n · Σ x²)`, 1 when all are equal, `1/n` when one has all.
///
/// 1 for no values, or where all are zero: all are equal then. Jain, Chiu and Hawe, DEC-TR-301 (1984).
pub fn jain_index(values: impl IntoIterator<Item = f64>) -> f64 {
    let (mut n, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for value in values {
        n += 1.0;
        sum += value;
        squares += value * value;
    }
    if squares == 0.0 { 1.0 } else { sum * sum / (n * squares) }
}

/// The tasks that a bundle would let a leaf run, at most its demand.
pub fn tasks_of(problem: &Problem, leaf: usize, row: &[f64]) -> f64 {
    let task = problem.task(leaf);
    let most = growth::of(problem, leaf).hi;
    (0..row.len()).filter(|&r| task[r] > 0.0).map(|r| row[r] / task[r]).fold(most, f64::min)
}

/// The largest envy among sibling leaves, in levels: the gain of some leaf with a sibling's bundle, scaled
/// by their weights. 0 without envy. O(n²·m).
pub fn largest_envy(problem: &Problem, allocation: &[f64]) -> f64 {
    let leaves: Vec<usize> = problem.leaves().collect();
    let mut largest: f64 = 0.0;
    for &leaf in &leaves {
        let own = tasks_of(problem, leaf, &allocation[problem.row(leaf)]);
        let rho = growth::of(problem, leaf).rho;
        for &other in leaves.iter().filter(|&&other| other != leaf) {
            if problem.parent(other) == problem.parent(leaf) {
                let envied = tasks_with_bundle_of(problem, leaf, other, allocation);
                largest = largest.max(rho * (envied - own));
            }
        }
    }
    largest
}

/// The tasks that a leaf could run with the bundle of a sibling, scaled by their weights.
pub fn tasks_with_bundle_of(
    problem: &Problem,
    leaf: usize,
    other: usize,
    allocation: &[f64],
) -> f64 {
    let scale = |r: usize| problem.weight(leaf)[r] / problem.weight(other)[r];
    let bundle = allocation[problem.row(other)].iter().enumerate();
    let bundle: Vec<f64> = bundle.map(|(r, amount)| amount * scale(r)).collect();
    tasks_of(problem, leaf, &bundle)
}

/// The number of levels by which some leaf could still grow without loss to any other: 0 means Pareto
/// efficient. O(n·m).
pub fn pareto_slack(problem: &Problem, allocation: &[f64]) -> f64 {
    let m = problem.resources();
    let used = |r: usize| problem.leaves().map(|leaf| allocation[leaf * m + r]).sum::<f64>();
    let left: Vec<f64> = (0..m).map(|r| (problem.capacity[r] - used(r)).max(0.0)).collect();
    let slack = |leaf: usize| {
        let row = &allocation[problem.row(leaf)];
        let more: Vec<f64> = row.iter().zip(&left).map(|(has, left)| has + left).collect();
        let gain = tasks_of(problem, leaf, &more) - tasks_of(problem, leaf, row);
        growth::of(problem, leaf).rho * gain
    };
    problem.leaves().map(slack).fold(0.0, f64::max)
}

/// Advantage of the worst-off leaf over its own part of the machine, in levels; negative if some leaf would
/// do better alone. O(n·m).
///
/// A leaf's own part comes from the weights alone: on each resource its weight's part of its group's part,
/// among the siblings that demand anything. A leaf that demands nothing is left out; if all are left out
/// the slack is infinite.
pub fn sharing_incentive_slack(problem: &Problem, allocation: &[f64]) -> f64 {
    let alone = alone(problem);
    let mut smallest = f64::INFINITY;
    for leaf in problem.leaves() {
        let growth = growth::of(problem, leaf);
        if growth.rho > 0.0 {
            let gain = tasks_of(problem, leaf, &allocation[problem.row(leaf)]) - alone[leaf];
            smallest = smallest.min(growth.rho * gain);
        }
    }
    smallest
}

/// The tasks that each leaf could run with its own part of the machine, 0 for groups and for leaves that
/// want nothing.
pub fn alone(problem: &Problem) -> Vec<f64> {
    let m = problem.resources();
    let parts = endowments(problem);
    let bundles = parts.chunks(m).map(|parts| {
        parts.iter().zip(&problem.capacity).map(|(part, capacity)| part * capacity).collect()
    });
    let bundles: Vec<Vec<f64>> = bundles.collect();
    let wants = |node: usize| problem.task(node).iter().any(|&task| task > 0.0);
    let tasks =
        |node: usize| if wants(node) { tasks_of(problem, node, &bundles[node]) } else { 0.0 };
    (0..problem.nodes()).map(tasks).collect()
}

/// The part of each resource that the weights alone entitle each node to: `n × m`, row-major.
///
/// With scalar weights the siblings that demand anything share every resource; with weights for each
/// resource, the siblings that demand it.
pub fn endowments(problem: &Problem) -> Vec<f64> {
    let m = problem.resources();
    let wanted = weights::wanted(&problem.parent, &problem.task);
    let shares = |node: usize, r: usize| {
        if problem.scalar[sibling_set(&problem.parent, node)] {
            wanted[node * m..(node + 1) * m].contains(&true)
        } else {
            wanted[node * m + r]
        }
    };
    let entries = || (0..problem.nodes()).flat_map(|node| (0..m).map(move |r| (node, r)));
    let mut sums = vec![0.0; (problem.nodes() + 1) * m];
    for (node, r) in entries().filter(|&(node, r)| shares(node, r)) {
        sums[sibling_set(&problem.parent, node) * m + r] += problem.weight(node)[r];
    }
    let mut parts = vec![0.0; problem.nodes() * m];
    for (node, r) in entries().filter(|&(node, r)| shares(node, r)) {
        let above = problem.parent(node).map_or(1.0, |parent| parts[parent * m + r]);
        let sum = sums[sibling_set(&problem.parent, node) * m + r];
        parts[node * m + r] = above * problem.weight(node)[r] / sum;
    }
    parts
}
