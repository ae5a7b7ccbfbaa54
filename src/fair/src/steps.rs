//! The grants of whole tasks as a table: the holdings of the leaf, and of all leaves, after each grant.
//!
//! NSDI'11, table 1. Amounts are exact ([`super::decimal`]).

use super::decimal::{Precise, Scale};
use super::measure;
use super::problem::Problem;

/// A grant. The vectors have an entry for each resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The leaf that was granted a task.
    pub leaf: usize,
    /// Its holdings after that, in amounts.
    pub allocation: Vec<f64>,
    /// Its holdings after that, as parts of the capacity.
    pub shares: Vec<f64>,
    /// Its largest part of any resource; by weighted parts if its weights differ.
    pub dominant_share: f64,
    /// Holdings of all leaves together, in amounts.
    pub used: Vec<f64>,
    /// Holdings of all leaves together, as parts of the capacity.
    pub used_shares: Vec<f64>,
}

/// The grants in an order, one after the other.
pub fn steps(problem: &Problem, order: &[usize]) -> impl Iterator<Item = Step> {
    let (n, m) = (problem.nodes(), problem.resources());
    let scales = Scale::of_resources(problem);
    let capacity: Vec<i128> =
        problem.capacity.iter().zip(&scales).map(|(&it, scale)| scale.units(it)).collect();
    let mut held = vec![0_i128; (n + 1) * m];
    order.iter().map(move |&leaf| {
        for r in 0..m {
            let task = scales[r].units(problem.task(leaf)[r]);
            for node in [leaf, n] {
                held[node * m + r] = held[node * m + r].saturating_add(task);
            }
        }
        let row = |node: usize| &held[node * m..(node + 1) * m];
        let (allocation, shares) = amounts(row(leaf), &scales, &capacity);
        let (used, used_shares) = amounts(row(n), &scales, &capacity);
        let dominant = measure::dominant(problem, leaf, &allocation);
        let dominant_share = dominant.map_or(0.0, |r| shares[r]);
        Step { leaf, allocation, shares, dominant_share, used, used_shares }
    })
}

/// Units as amounts, and as parts of the capacity.
fn amounts(units: &[i128], scales: &[Scale], capacity: &[i128]) -> (Vec<f64>, Vec<f64>) {
    let amounts = units.iter().zip(scales).map(|(&units, scale)| scale.amount(units));
    let part = |(&units, &whole): (&i128, &i128)| match whole {
        0 => 0.0,
        _ => Precise::of(units).over(Precise::of(whole)).to_f64(),
    };
    (amounts.collect(), units.iter().zip(capacity).map(part).collect())
}
