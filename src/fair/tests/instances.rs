//! Problems to test with.

use std::ops::RangeInclusive;

use proptest::prelude::*;
use tenantd_fair::{Bounds, Demand, Kind, Node};

/// Panics unless `got` is `expected` within a relative 1e-9.
pub(crate) fn assert_close(got: f64, expected: f64, what: &str) {
    assert!(
        (got - expected).abs() <= 1e-9 * expected.abs().max(1e-3),
        "{what}: {got} instead of {expected}"
    );
}

/// Panics unless `amounts` add up to no more than `whole`, exactly: without a last bit of tolerance.
pub(crate) fn assert_within(whole: f64, amounts: impl Iterator<Item = f64>) {
    // Exact for what tests divide, amounts below a million: an `f64` has 53 bits.
    let units = |amount: f64| (amount * 2_f64.powi(80)) as i128;
    let sum: i128 = amounts.map(units).sum();
    assert!(sum <= units(whole), "{} units too many of {whole}", sum - units(whole));
}

/// What random problems look like.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) nodes: RangeInclusive<usize>,
    pub(crate) resources: RangeInclusive<usize>,
    /// How many of ten nodes are groups.
    pub(crate) groups: u32,
    /// How many of ten demands are zero.
    pub(crate) zeros: u32,
    /// Whether weights differ, also from resource to resource.
    pub(crate) weights: bool,
    pub(crate) guarantees: bool,
    pub(crate) limits: bool,
    /// Whether groups have limits.
    pub(crate) group_limits: bool,
    /// Whether groups have guarantees.
    pub(crate) group_guarantees: bool,
}

impl Shape {
    pub(crate) const FLAT: Shape = Shape {
        nodes: 1..=8,
        resources: 1..=4,
        groups: 0,
        zeros: 2,
        weights: true,
        guarantees: true,
        limits: true,
        group_limits: false,
        group_guarantees: false,
    };
    pub(crate) const TREE: Shape =
        Shape { nodes: 2..=12, resources: 1..=3, groups: 4, ..Shape::FLAT };
    /// Leaves that want one resource or two: groups are stuck on one while they could use another.
    pub(crate) const SPARSE: Shape =
        Shape { nodes: 6..=14, zeros: 5, guarantees: false, limits: false, ..Shape::TREE };
    /// Limits on groups as well as on leaves.
    pub(crate) const BOUNDED: Shape =
        Shape { nodes: 3..=14, group_limits: true, guarantees: false, ..Shape::TREE };
    pub(crate) const BOUNDED_SPARSE: Shape = Shape { group_limits: true, ..Shape::SPARSE };
    /// All bounds that there are.
    pub(crate) const PROMISED: Shape =
        Shape { nodes: 3..=20, group_limits: true, group_guarantees: true, ..Shape::TREE };
    /// Equal weights and no bounds: the world of the DRF paper.
    pub(crate) const PURE: Shape =
        Shape { zeros: 0, weights: false, guarantees: false, limits: false, ..Shape::FLAT };
}

/// Dice for one node.
type Dice = (Vec<u32>, Vec<u32>, [u32; 6]);

/// A random valid problem: capacities and nodes.
pub(crate) fn instance(shape: Shape) -> impl Strategy<Value = (Vec<f64>, Vec<Node>)> {
    let sizes = (shape.nodes.clone(), shape.resources.clone());
    sizes
        .prop_flat_map(|(n, m)| {
            let dice = (
                prop::collection::vec(1_u32..=60, m),
                prop::collection::vec(1_u32..=6, m),
                prop::array::uniform6(0_u32..1000),
            );
            (prop::collection::vec(10_u32..=100, m), prop::collection::vec(dice, n))
        })
        .prop_map(move |(capacity, dice)| {
            let capacity: Vec<f64> = capacity.into_iter().map(f64::from).collect();
            let leaves = dice.len() as f64;
            let mut nodes: Vec<Node> = Vec::new();
            for (index, dice) in dice.iter().enumerate() {
                let node = node(&shape, &capacity, leaves, index, dice, &nodes);
                nodes.push(node);
            }
            let mut nodes = pre_order(nodes);
            bound_groups(&shape, &capacity, &mut nodes, &dice);
            (capacity, nodes)
        })
}

fn node(
    shape: &Shape,
    capacity: &[f64],
    leaves: f64,
    index: usize,
    (amounts, weights, chance): &Dice,
    before: &[Node],
) -> Node {
    let groups: Vec<usize> =
        (0..before.len()).filter(|&g| matches!(before[g].kind, Kind::Group(_))).collect();
    // As likely right under the machine as in any group.
    let parent = match chance[0] as usize % (groups.len() + 1) {
        0 => None,
        group => Some(groups[group - 1]),
    };
    let scalar = chance[1] % 3 > 0;
    let weight = |r: usize| match (shape.weights, scalar) {
        (false, _) => 1.0,
        (true, true) => f64::from(weights[0]),
        (true, false) => f64::from(weights[r]),
    };
    let weight = (0..capacity.len()).map(weight).collect();
    if chance[2] % 10 < shape.groups {
        return Node { parent, weight, kind: Kind::Group(Bounds::none(capacity.len())) };
    }
    let zero = |r: usize| (chance[3] / (r as u32 + 1) + r as u32 + index as u32) % 10 < shape.zeros;
    let task: Vec<f64> =
        (0..capacity.len()).map(|r| if zero(r) { 0.0 } else { f64::from(amounts[r]) }).collect();
    let mut demand = Demand::tasks(task, if chance[4] % 2 == 0 { 1.0 } else { f64::INFINITY });
    let part = |r: usize| f64::from(chance[5] % 10) / 10.0 * capacity[r] / leaves;
    for r in 0..capacity.len() {
        if shape.guarantees && chance[5] % 3 == 0 {
            demand.guarantee[r] = part(r);
        }
        if shape.limits && chance[4] % 3 == 0 {
            demand.limit[r] = part(r) + capacity[r] * 0.1;
        }
    }
    Node { parent, weight, kind: Kind::Leaf(demand) }
}

/// Gives groups limits above what is promised in them, and guarantees that fit into the machine.
fn bound_groups(shape: &Shape, capacity: &[f64], nodes: &mut [Node], dice: &[Dice]) {
    for (r, capacity) in capacity.iter().enumerate() {
        let mut below = vec![0.0; nodes.len()];
        // What is not promised to leaves is left for groups.
        let promise = |node: &Node| match &node.kind {
            Kind::Leaf(demand) => demand.guarantee[r],
            Kind::Group(_) => 0.0,
        };
        let mut left: f64 = capacity - nodes.iter().map(promise).sum::<f64>();
        for index in (0..nodes.len()).rev() {
            let (_, _, chance) = &dice[index];
            let part = f64::from(chance[5] % 7) / 10.0;
            let mut promised = below[index];
            match &mut nodes[index].kind {
                Kind::Leaf(demand) => promised = demand.guarantee[r],
                Kind::Group(bounds) => {
                    if shape.group_guarantees && chance[4] % 2 == 0 {
                        let more = part * left * 0.9;
                        left -= more;
                        promised += more;
                        bounds.guarantee[r] = promised;
                    }
                    if shape.group_limits && chance[3] % 2 == 0 {
                        bounds.limit[r] = promised + part * (capacity - promised) + 0.01;
                    }
                }
            }
            if let Some(parent) = nodes[index].parent {
                below[parent] += promised;
            }
        }
    }
}

/// The same tree with every group right before its members.
fn pre_order(nodes: Vec<Node>) -> Vec<Node> {
    let mut ordered: Vec<Node> = Vec::with_capacity(nodes.len());
    let roots = (0..nodes.len()).rev().filter(|&node| nodes[node].parent.is_none());
    let mut stack: Vec<(usize, Option<usize>)> = roots.map(|node| (node, None)).collect();
    while let Some((node, parent)) = stack.pop() {
        let members = (0..nodes.len()).rev().filter(|&member| nodes[member].parent == Some(node));
        stack.extend(members.map(|member| (member, Some(ordered.len()))));
        ordered.push(Node { parent, ..nodes[node].clone() });
    }
    ordered
}
