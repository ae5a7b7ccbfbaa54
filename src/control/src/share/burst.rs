//! Each node's *burst*: its amount of a resource if every node wants everything.
//!
//! **Problem.** A sleeping tenant has no demand and so no allocation. When it wakes between two ticks, it needs
//! at once the amount it would get if it were always awake. This amount depends only on weights, guarantees and
//! limits at every level of the tree. A guarantee has no effect if the tenant's group cannot pass it on.
//!
//! **Terms.** A node's *promise* is the larger of its own guarantee and the sum of the promises below it,
//! within its limit. Its amount *by weight alone* ignores all guarantees.
//!
//! **Algorithm.** From the top, weighted max-min ([`tenantd_fair::max_min`]) divides each node's amount among
//! its children. A child gets at least its promise. It gets at most its own limit and the sum of the limits
//! below it.
//!
//! **Promises that do not fit.** The policy's guarantees fit into the machine, but processes outside every
//! tenant may leave too little. Then one ratio scales all promises down. It is the largest ratio at which every
//! top-level node keeps [`FLOOR_RATIO`] of its weight-only share, so that one tenant's guarantee does not
//! starve another.
//!
//! **Properties** (tests below, and `tests/control/weights.rs`): `a_burst_holds_what_is_promised_below`,
//! `bursts_fit_into_their_parent`, `promises_are_scaled_down_together`.

use crate::tree::{Row, TreeNode};
use tenantd_fair::max_min::{self, Claim};

/// Part of the weight-only share that other tenants' guarantees cannot take.
pub const FLOOR_RATIO: f64 = 0.1;

/// Rounding tolerance (`0.1 + 0.2 > 0.3`), smaller than that of the allocation core.
const ROUNDING: f64 = 1e-13;

/// Promise of each node on a row, within its limit.
pub fn promised(nodes: &[TreeNode], row: impl Into<Row>) -> Vec<f64> {
    let row = row.into();
    let mut promised = vec![0.0; nodes.len()];
    for (index, node) in nodes.iter().enumerate().rev() {
        let terms = node.terms(row);
        promised[index] = terms.guarantee.max(promised[index]).min(terms.limit);
        if let Some(parent) = node.parent {
            promised[parent] += promised[index];
        }
    }
    promised
}

/// Amount of each node by weight alone, within its limit.
pub fn by_weight(nodes: &[TreeNode], amount: f64, row: impl Into<Row>) -> Vec<f64> {
    let row = row.into();
    let mut totals = vec![0.0; nodes.len() + 1];
    for node in nodes {
        totals[siblings_of(node)] += node.terms(row).weight;
    }
    let mut shares: Vec<f64> = Vec::with_capacity(nodes.len());
    for node in nodes {
        let above = node.parent.map_or(amount, |parent| shares[parent]);
        let terms = node.terms(row);
        let share = above * terms.weight / totals[siblings_of(node)];
        shares.push(share.min(terms.limit));
    }
    shares
}

/// Part of every promise that `amount` can keep, 0 ..= 1.
pub fn kept_ratio(nodes: &[TreeNode], amount: f64, row: impl Into<Row>) -> f64 {
    let row = row.into();
    let promised = promised(nodes, row);
    let top = || nodes.iter().zip(&promised).filter(|(node, _)| node.parent.is_none());
    let sum: f64 = top().map(|(_, promised)| promised).sum();
    if sum <= amount * (1.0 + ROUNDING) {
        return 1.0;
    }
    let floors = by_weight(nodes, amount * FLOOR_RATIO, row);
    let floors = nodes.iter().zip(&floors).filter(|(node, _)| node.parent.is_none());
    // `Σ max(t·promise, floor) = amount`: a promise counts from the ratio at which it exceeds its floor.
    let mut bends: Vec<(f64, f64, f64)> = top()
        .zip(floors)
        .filter(|((_, promised), _)| **promised > 0.0)
        .map(|((_, promised), (_, floor))| (floor / promised, *promised, *floor))
        .collect();
    bends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let all: f64 = by_weight(nodes, amount * FLOOR_RATIO, row)
        .iter()
        .zip(nodes)
        .filter(|(_, node)| node.parent.is_none())
        .map(|(floor, _)| floor)
        .sum();
    let (mut floors, mut promises) = (all, 0.0);
    let mut ratio = 0.0;
    for (index, (bend, promise, floor)) in bends.iter().enumerate() {
        (floors, promises) = (floors - floor, promises + promise);
        ratio = ((amount - floors) / promises).max(*bend);
        if bends.get(index + 1).is_none_or(|next| ratio <= next.0) {
            break;
        }
    }
    ratio.clamp(0.0, 1.0)
}

/// Burst of each node when `amount` (cores, slots, bytes, or a part of a disk) is divided.
pub fn bursts(nodes: &[TreeNode], amount: f64, row: impl Into<Row>) -> Vec<f64> {
    divided(nodes, amount, row, &|_| true)
}

/// The same among the nodes that count; those below one that does not count get nothing.
pub fn divided(
    nodes: &[TreeNode],
    amount: f64,
    row: impl Into<Row>,
    counts: &dyn Fn(usize) -> bool,
) -> Vec<f64> {
    let row = row.into();
    let ratio = kept_ratio(nodes, amount, row);
    let promised = promised(nodes, row);
    let mut members: Vec<Vec<usize>> = vec![Vec::new(); nodes.len() + 1];
    let mut ceilings = vec![0.0; nodes.len()];
    for (index, node) in nodes.iter().enumerate().rev().filter(|(index, _)| counts(*index)) {
        let below = if node.is_leaf { f64::INFINITY } else { ceilings[index] };
        ceilings[index] = below.min(node.terms(row).limit);
        members[siblings_of(node)].push(index);
        if let Some(parent) = node.parent {
            ceilings[parent] += ceilings[index];
        }
    }
    let mut bursts = vec![0.0; nodes.len()];
    // Skips tenants, which have no children.
    for (set, members) in members.iter().enumerate().filter(|(_, members)| !members.is_empty()) {
        let whole = set.checked_sub(1).map_or(amount, |parent| bursts[parent]);
        let claim = |&node: &usize| Claim {
            weight: nodes[node].terms(row).weight,
            floor: (promised[node] * ratio).min(ceilings[node]),
            ceiling: ceilings[node],
        };
        let claims: Vec<Claim> = members.iter().map(claim).collect();
        let shares = max_min::divide(whole, &claims).allocation;
        for (&node, share) in members.iter().zip(shares) {
            bursts[node] = share;
        }
    }
    bursts
}

/// Index of the node's set of siblings: 0 at the top level, else the parent's number plus 1.
pub fn siblings_of(node: &TreeNode) -> usize {
    node.parent.map_or(0, |parent| parent + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenantd_core::resource::{CPU, PerResource};

    fn node(parent: Option<usize>, is_leaf: bool, weight: f64, guarantee: Option<f64>) -> TreeNode {
        TreeNode {
            path: Default::default(),
            parent,
            depth: 0,
            is_leaf,
            is_found: false,
            weight: PerResource::all(weight),
            disk: None,
            guarantee: PerResource::all(guarantee),
            limit: PerResource::all(None),
            written: Default::default(),
            dop: Default::default(),
            cpus: Default::default(),
            has_credit: true,
        }
    }

    /// A group of weight 1 with a guarantee of 0.68 CPUs in it, beside a tenant of weight 99.
    fn nested() -> Vec<TreeNode> {
        vec![
            node(None, false, 1.0, None),
            node(Some(0), true, 1.0, Some(0.68)),
            node(None, true, 99.0, None),
        ]
    }

    fn near(got: &[f64], expected: &[f64]) {
        assert!(
            got.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9),
            "{got:?} not {expected:?}"
        );
    }

    #[test]
    fn a_burst_holds_what_is_promised_below() {
        near(&bursts(&nested(), 2.0, CPU), &[0.68, 0.68, 1.32]);
        near(&promised(&nested(), CPU), &[0.68, 0.68, 0.0]);
    }

    #[test]
    fn promises_are_scaled_down_together() {
        // Of 0.4 CPUs the tenant of weight 99 keeps a tenth of its 0.396.
        near(&bursts(&nested(), 0.4, CPU), &[0.3604, 0.3604, 0.0396]);
        assert!((kept_ratio(&nested(), 0.4, CPU) - 0.3604 / 0.68).abs() < 1e-9);
        let two = [node(None, true, 1.0, Some(3.0)), node(None, true, 1.0, Some(1.0))];
        near(&bursts(&two, 2.0, CPU), &[1.5, 0.5]);
        // A promise below the floor costs nothing.
        let uneven = [node(None, true, 1.0, Some(3.0)), node(None, true, 99.0, Some(0.001))];
        near(&bursts(&uneven, 2.0, CPU), &[1.802, 0.198]);
    }

    #[test]
    fn limits_leave_what_others_can_have() {
        let mut nodes = nested();
        nodes[2].limit = PerResource::all(Some(0.5));
        near(&bursts(&nodes, 2.0, CPU), &[1.5, 1.5, 0.5]);
        nodes[1].limit = PerResource::all(Some(0.7));
        near(&bursts(&nodes, 2.0, CPU), &[0.7, 0.7, 0.5]);
    }
}
