//! Slots on several machines: DRF of slots as the only resource, for comparison.

use super::decimal::Scale;
use super::nodes::{Machines, Nodes, Placed};
use super::problem::Problem;
use super::tasks;

/// Grants slots: the same number on each machine, one for a task of any size.
pub(super) fn fill(problem: &Problem, nodes: &Nodes, slots: u64) -> (tasks::Grants, Placed) {
    let (n, m) = (problem.nodes(), problem.resources());
    let each = vec![slots as f64; nodes.capacity.len() / m];
    let of_slots = Nodes { capacity: each, placement: nodes.placement, evict: false };
    let by_slot = Problem {
        capacity: of_slots.total(1),
        weight: (0..n).map(|node| problem.weight(node)[0]).collect(),
        scalar: vec![true; n + 1],
        task: problem.is_leaf.iter().map(|&leaf| if leaf { 1.0 } else { 0.0 }).collect(),
        guarantee: vec![0.0; n],
        limit: vec![f64::INFINITY; n],
        ..problem.clone()
    };
    let mut machines = Machines::new(&by_slot, &of_slots);
    let mut grants = tasks::fill(&by_slot, Some(&mut machines));
    let placed = machines.placed();
    let scales = Scale::of_resources(problem);
    let units = |leaf: usize, r: usize, count: u64| {
        scales[r].units(problem.task(leaf)[r]).saturating_mul(i128::from(count))
    };
    let held = (0..n).flat_map(|node| (0..m).map(move |r| (node, r)));
    let held = held.map(|(node, r)| scales[r].amount(units(node, r, grants.tasks[node])));
    grants.held = held.collect();
    let used = placed.tasks.iter().flat_map(|tasks| (0..m).map(move |r| (tasks, r)));
    let used = used.map(|(tasks, r)| {
        let takes = tasks.iter().map(|(&leaf, &count)| units(leaf, r, count));
        scales[r].amount(takes.fold(0, i128::saturating_add))
    });
    let used = used.collect();
    (grants, Placed { used, ..placed })
}
