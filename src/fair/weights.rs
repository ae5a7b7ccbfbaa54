//! Weights that differ from resource to resource, made comparable.
//!
//! See "Entitlements" in [`super::problem`]. Siblings whose weights are scalar keep them; otherwise each
//! resource's weights are divided by their sum over the siblings that demand it, so that a level of 1
//! means "exactly what its endowment would have given it".

use super::exact::{Exact, Unit};
use super::problem::{Problem, WEIGHT_RANGE};

/// Normalises the weights of every set of siblings in place. O(n·m).
///
/// Returns, for each set (see [`sibling_set`]), whether its weights are scalar and were left alone.
pub(super) fn normalise(problem: &mut Problem) -> Vec<bool> {
    let m = problem.resources();
    let scalar = scalar_siblings(problem);
    if scalar.iter().all(|&scalar| scalar) {
        return scalar;
    }
    let wanted = wanted(problem);
    let unit = Unit::for_terms_up_to(*WEIGHT_RANGE.end());
    let mut sums = vec![Exact::ZERO; scalar.len() * m];
    for node in 0..problem.nodes() {
        let set = sibling_set(problem, node);
        for r in (0..m).filter(|r| wanted[node * m + r]) {
            sums[set * m + r].add(unit.of(problem.weight[node * m + r]));
        }
    }
    for node in 0..problem.nodes() {
        let set = sibling_set(problem, node);
        for r in (0..m).filter(|r| !scalar[set] && wanted[node * m + r]) {
            problem.weight[node * m + r] /= unit.to_f64(sums[set * m + r]);
        }
    }
    scalar
}

/// Whether anything in the subtree of a node demands a resource: `n × m`, row-major.
pub(super) fn wanted(problem: &Problem) -> Vec<bool> {
    let m = problem.resources();
    let mut wanted: Vec<bool> = problem.task.iter().map(|&task| task > 0.0).collect();
    for node in (0..problem.nodes()).rev() {
        if let Some(parent) = problem.parent[node] {
            for r in 0..m {
                wanted[parent * m + r] |= wanted[node * m + r];
            }
        }
    }
    wanted
}

/// For each set of siblings, whether each of them has one weight for all resources.
fn scalar_siblings(problem: &Problem) -> Vec<bool> {
    let mut scalar = vec![true; problem.nodes() + 1];
    for node in 0..problem.nodes() {
        let weight = problem.weight(node);
        scalar[sibling_set(problem, node)] &= weight.iter().all(|&w| w == weight[0]);
    }
    scalar
}

/// The set of siblings a node belongs to: 0 under the machine, else one more than its group.
pub(super) fn sibling_set(problem: &Problem, node: usize) -> usize {
    problem.parent[node].map_or(0, |parent| parent + 1)
}
