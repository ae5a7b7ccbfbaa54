//! Allocation of each tenant if it wanted everything and the others kept their demands.
//!
//! **Problem.** An idle tenant has almost no allocation because it has no demand. Its owner needs its
//! amount when it wakes. One allocation per tenant would take quadratic time.
//!
//! **Terms.** In a set of siblings with the amount `T`, sibling `j` gets `x_j(λ) = clamp(λ·w_j, lo_j,
//! hi_j)` at the water level `λ` with `Σ x_j(λ) = T` (weighted max-min fairness). `hi` is its demand within
//! its limit, `lo` its guarantee within `hi`; a group has the sums of its children.
//!
//! **Algorithm.** For each set of siblings, sort the levels at which an `x_j` begins or ends to grow, and
//! compute `F(λ) = Σ x_j(λ)` at each. A tenant that wakes replaces `x_c` by `x'_c` with the bounds `lo'`,
//! `hi'`. `G(λ) = F(λ) − x_c(λ) + x'_c(λ)` grows with `λ`, so a binary search finds the segment of the
//! solution, and one division the solution. The group's amount is computed first, with the bounds that the
//! tenant adds to it. In all `O(n log n)` for `n` nodes and bounded depth.
//!
//! **Each resource alone.** The result is that of the rule `max-min`. Under `drf` it is the same if the
//! scarce resource is the dominant one of the tenants that want more of it.
//!
//! **Properties** (`tests/control/would_get.rs`): the result equals the allocation with the tenant's demand
//! raised; it is at least the guarantee, at most the limit, and at least the present allocation.

use crate::tree::{Row, TreeNode};

#[derive(Clone, Copy, Debug, Default)]
struct Bounds {
    low: f64,
    high: f64,
}

impl Bounds {
    fn at(self, amount: f64) -> f64 {
        amount.max(self.low).min(self.high)
    }
}

/// Amount of `capacity` for each of `nodes` (pre-order) if it alone had an unlimited demand.
///
/// `demands` are those of the leaves, in cores or bytes; entries of groups are ignored. For a group the
/// result is its amount if all its tenants wanted everything.
pub fn would_get(
    nodes: &[TreeNode],
    demands: &[f64],
    capacity: f64,
    row: impl Into<Row>,
) -> Vec<f64> {
    let row = row.into();
    let (mut now, mut awake) = (vec![Bounds::default(); nodes.len()], Vec::new());
    awake.clone_from(&now);
    for (index, node) in nodes.iter().enumerate().rev() {
        if node.is_leaf {
            let terms = node.terms(row);
            let limit = terms.limit.min(capacity);
            let guarantee = terms.guarantee.min(limit);
            let high = demands.get(index).copied().unwrap_or(0.0).clamp(0.0, limit);
            now[index] = Bounds { low: guarantee.min(high), high };
            awake[index] = Bounds { low: guarantee, high: limit };
        }
        if let Some(parent) = node.parent {
            for bounds in [&mut now, &mut awake] {
                let own = bounds[index];
                bounds[parent].low += own.low;
                bounds[parent].high += own.high;
            }
        }
    }
    let set_of = |node: &TreeNode| node.parent.map_or(0, |parent| parent + 1);
    let mut sets = vec![Vec::new(); nodes.len() + 1];
    for (node, bounds) in nodes.iter().zip(&now) {
        sets[set_of(node)].push((node.terms(row).weight, *bounds));
    }
    let curves: Vec<Curve> = sets.iter().map(|siblings| Curve::of(siblings)).collect();
    let mut path = Vec::new();
    let mut result = Vec::with_capacity(nodes.len());
    for (index, node) in nodes.iter().enumerate() {
        // Bounds of the node and of every group above it, once it is awake.
        path.clear();
        let mut bounds = awake[index];
        path.push((index, bounds));
        let (mut child, mut above) = (index, node.parent);
        while let Some(parent) = above {
            bounds = Bounds {
                low: now[parent].low - now[child].low + bounds.low,
                high: now[parent].high - now[child].high + bounds.high,
            };
            path.push((parent, bounds));
            (child, above) = (parent, nodes[parent].parent);
        }
        let from_top = path.iter().rev();
        result.push(from_top.fold(capacity, |amount, (index, awake)| {
            let node = &nodes[*index];
            let curve = &curves[set_of(node)];
            curve.share_of(node.terms(row).weight, now[*index], *awake, amount)
        }));
    }
    result
}

#[derive(Clone, Debug)]
struct Curve {
    /// Levels at which the slope changes, ascending from 0; the sum there; and the slope from there on.
    points: Vec<(f64, f64, f64)>,
}

impl Curve {
    fn of(siblings: &[(f64, Bounds)]) -> Curve {
        // Tenants have no children.
        if siblings.is_empty() {
            return Curve { points: Vec::new() };
        }
        let mut changes = Vec::with_capacity(2 * siblings.len());
        let mut sum = 0.0;
        for (weight, bounds) in siblings {
            sum += bounds.low;
            if bounds.high > bounds.low {
                changes.push((bounds.low / weight, *weight));
                changes.push((bounds.high / weight, -weight));
            }
        }
        changes.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let (mut level, mut slope) = (0.0, 0.0);
        let mut points = Vec::with_capacity(1 + changes.len());
        points.push((0.0, sum, 0.0));
        for (at, change) in changes {
            sum += slope * (at - level);
            slope += change;
            level = at;
            points.push((level, sum, slope));
        }
        Curve { points }
    }

    /// Amount for the sibling of this `weight` once its bounds are `awake` instead of `now`.
    fn share_of(&self, weight: f64, now: Bounds, awake: Bounds, amount: f64) -> f64 {
        let others = |(level, sum, _): &(f64, f64, f64)| sum - now.at(level * weight);
        let is_below =
            |point: &(f64, f64, f64)| others(point) + awake.at(point.0 * weight) <= amount;
        let segment = self.points.partition_point(is_below).saturating_sub(1);
        let Some(point) = self.points.get(segment) else { return 0.0 };
        // The same expression as for the levels, so that rounding cannot separate the two.
        let grows = (now.low / weight..now.high / weight).contains(&point.0);
        let slope = (point.2 - if grows { weight } else { 0.0 }).max(0.0);
        // The rest grows with `slope`, the sibling with its weight, within its bounds.
        let unbounded = (amount - others(point) + slope * point.0) / (slope + weight) * weight;
        awake.at(unbounded).min(amount)
    }
}
