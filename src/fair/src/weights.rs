//! Weights that differ from resource to resource, made comparable.
//!
//! See "Entitlements" in [`super::problem`]. Siblings whose weights are scalar keep them; otherwise each
//! resource's weights are divided by their sum over the siblings that demand it, so that a level of 1 means
//! exactly what the endowment would have given.

use super::exact::{Exact, Unit};

/// The smallest and the largest weight.
pub const WEIGHT_RANGE: std::ops::RangeInclusive<f64> = 1e-9..=1e9;

/// Normalises the weights of every set of siblings in place. O(n·m).
///
/// Returns, for each set (see [`sibling_set`]), true if its weights are scalar and were left alone.
pub(super) fn normalise(parent: &[Option<usize>], task: &[f64], weight: &mut [f64]) -> Vec<bool> {
    let m = task.len() / parent.len().max(1);
    let scalar = scalar_siblings(parent, weight);
    if scalar.iter().all(|&scalar| scalar) {
        return scalar;
    }
    let wanted = wanted(parent, task);
    let unit = Unit::for_terms_up_to(*WEIGHT_RANGE.end());
    let mut sums = vec![Exact::ZERO; scalar.len() * m];
    for node in 0..parent.len() {
        let set = sibling_set(parent, node);
        for r in (0..m).filter(|r| wanted[node * m + r]) {
            sums[set * m + r].add(unit.of(weight[node * m + r]));
        }
    }
    for node in 0..parent.len() {
        let set = sibling_set(parent, node);
        for r in (0..m).filter(|r| !scalar[set] && wanted[node * m + r]) {
            weight[node * m + r] /= unit.to_f64(sums[set * m + r]);
        }
    }
    scalar
}

/// True if anything in the subtree of a node demands a resource: `n × m`, row-major.
pub(super) fn wanted(parent: &[Option<usize>], task: &[f64]) -> Vec<bool> {
    let m = task.len() / parent.len().max(1);
    let mut wanted: Vec<bool> = task.iter().map(|&task| task > 0.0).collect();
    for node in (0..parent.len()).rev() {
        if let Some(above) = parent[node] {
            for r in 0..m {
                wanted[above * m + r] |= wanted[node * m + r];
            }
        }
    }
    wanted
}

/// For each set of siblings, true if each of them has one weight for all resources.
fn scalar_siblings(parent: &[Option<usize>], weight: &[f64]) -> Vec<bool> {
    let m = weight.len() / parent.len().max(1);
    let mut scalar = vec![true; parent.len() + 1];
    for node in 0..parent.len() {
        let own = &weight[node * m..][..m];
        scalar[sibling_set(parent, node)] &= own.iter().all(|&w| w == own[0]);
    }
    scalar
}

/// The set of siblings a node belongs to: 0 under the machine, else one more than its group.
pub(super) fn sibling_set(parent: &[Option<usize>], node: usize) -> usize {
    parent[node].map_or(0, |parent| parent + 1)
}
