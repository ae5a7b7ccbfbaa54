//! Second stage: distributes the resources that proportions left idle.
//!
//! # Problem
//! DRF gives every leaf a multiple of its demand vector, and stops a leaf when one resource of the vector
//! is gone; the others may be left over. But CPU and memory are separate knobs of the kernel: a leaf that
//! is out of memory can still use more CPU than its proportion says. Idle CPU would be wasted.
//!
//! # Algorithm
//! Each resource alone: weighted max-min (see [`super::max_min`]) among the leaves that demand it. A leaf's
//! floor is its first-stage allocation or its guarantee; its ceiling is its demand.
//!
//! # Why there is a cap
//! If all of the rest were given to any demand, exaggeration would pay: a tenant could inflate its demand
//! for an uncontended resource to move its dominant share. HUG (Chowdhury et al., NSDI'16 §4) shows that
//! lying stops paying when no tenant's share of any resource may exceed its dominant share of the first
//! stage. So that is the ceiling; the rest above all ceilings stays idle
//! (`the_second_stage_stays_under_the_cap`). A guarantee has precedence over the cap, and a guarantee on
//! some resources only is kept here (`a_partial_guarantee_is_kept`).

use super::drf::{self, Filling, Reservations};
use super::max_min::{self, Claim};
use super::problem::Problem;

/// Divides the rest of `filling`. Returns the allocation: `n × m`, row-major.
pub(super) fn divide(problem: &Problem, filling: &Filling) -> Vec<f64> {
    let m = problem.resources();
    let mut allocation = vec![0.0; problem.nodes() * m];
    for r in 0..m {
        let claim = |node: usize| claim(problem, filling, node, r);
        let mut claims: Vec<Claim> = (0..problem.nodes()).map(claim).collect();
        let shares = max_min::divide_tree(problem, problem.capacity[r], &mut claims);
        for (node, share) in shares.into_iter().enumerate() {
            allocation[node * m + r] = share;
        }
    }
    allocation
}

/// Claim of a node on a resource in the second stage. Only the weight and the limit of a group count,
/// because its guarantee has become its leaves' ([`super::promises`]).
fn claim(problem: &Problem, filling: &Filling, node: usize, resource: usize) -> Claim {
    let weight = problem.weight(node)[resource];
    if !problem.is_leaf[node] {
        return Claim { weight, floor: 0.0, ceiling: problem.limit(node)[resource] };
    }
    if problem.task(node)[resource] == 0.0 {
        return Claim { weight, floor: 0.0, ceiling: 0.0 };
    }
    let tasks = filling.tasks[node];
    let floor = drf::usage(problem, Reservations::Held, node, resource, tasks);
    let level = filling.growth[node].rho * tasks;
    let cap = level * problem.capacity[resource] * weight;
    let ceiling = problem.ceiling(node, resource).min(cap).max(floor);
    Claim { weight, floor, ceiling }
}
