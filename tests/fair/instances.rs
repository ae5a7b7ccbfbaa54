//! Problems to test with.

use tenantd::fair::{Demand, Kind, Leaf, Node, Problem, Solution};

/// A leaf right under the machine.
pub fn leaf(weight: f64, demand: Demand) -> Node {
    Node { parent: None, weight: vec![weight; demand.task.len()], kind: Kind::Leaf(demand) }
}

/// As many tasks as there is room for.
pub fn unlimited(task: &[f64]) -> Demand {
    Demand::tasks(task.to_vec(), f64::INFINITY)
}

/// A problem that must be valid.
pub fn problem(capacity: &[f64], nodes: Vec<Node>) -> Problem {
    Problem::try_new(capacity.to_vec(), nodes).unwrap()
}

/// The fractions of the leaves.
pub fn fractions(solution: &Solution) -> Vec<f64> {
    solution.leaves.iter().map(|leaf: &Leaf| leaf.fraction).collect()
}

/// Panics unless `got` is `expected` within a relative 1e-9.
pub fn assert_close(got: f64, expected: f64, what: &str) {
    assert!(
        (got - expected).abs() <= 1e-9 * expected.abs().max(1e-3),
        "{what}: {got} instead of {expected}"
    );
}
