//! One resource: weighted max-min fairness between floors and ceilings.
//!
//! # Problem
//! Divide a capacity `C` among claims. Claim `i` has a weight `w`, a guaranteed floor `lo` and a ceiling
//! `hi` beyond which it has no use for more. An allocation is max-min fair when no `allocation / weight`
//! can be raised without lowering one that is smaller already.
//!
//! # Algorithm
//! There is exactly one such allocation, and one number finds it: `allocation = clamp(level·w, lo, hi)`,
//! with the level at which the allocations add up to `min(C, Σ hi)`. That sum is a rising polyline in the
//! level which bends only where a claim leaves its floor (`lo/w`) or meets its ceiling (`hi/w`). So the 2n
//! breakpoints are sorted, and one sweep over them keeps the sum as `constant + level · slope`; the level
//! is found on the first segment that reaches the capacity. O(n log n).
//!
//! A tree of claims is divided from the top: a group claims the sums of its members' floors and ceilings,
//! within its own guarantee and limit, and divides its allocation among them the same way.
//!
//! # Properties, and the test that holds each
//! - The sum never exceeds the capacity, and reaches it unless all are at their ceilings
//!   (`max_min_divides_all_there_is`).
//! - Floors and ceilings hold (same test); if floors add up to more than the capacity, each claim gets
//!   exactly its floor: YARN defines its minimum shares this way (`floors_beyond_the_capacity_are_given`).
//! - Guarantees and limits of groups bind (vectors `group_bounds`), as if every group were divided alone by
//!   a search for its level (`bounds_of_groups_hold_as_a_search_finds_them`).
//! - `clamp(level·w, lo, hi)` for every claim, which is the optimality condition
//!   (`one_level_explains_all`).
//! - The order of the claims does not matter, bit for bit (`max_min_ignores_the_order`).

use super::exact::{self, Exact, Unit};
use super::problem::Problem;

/// The claim of one tenant on one resource.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    /// Its weight; at 0 it gets its guarantee and nothing of the rest.
    pub weight: f64,
    /// Its guarantee, `0 ..= ceiling`.
    pub floor: f64,
    /// The largest amount it could use, up to `f64::INFINITY`.
    pub ceiling: f64,
}

/// A max-min fair division.
#[derive(Clone, Debug, PartialEq)]
pub struct Division {
    /// Amount of each claim, in the order of the claims.
    pub allocation: Vec<f64>,
    /// `allocation / weight` of those between floor and ceiling; `None` when no claim is between.
    pub level: Option<f64>,
}

/// Divides `capacity` among `claims`. O(n log n).
pub fn divide(capacity: f64, claims: &[Claim]) -> Division {
    let level = level(capacity, claims);
    // If the level is infinite, a weight of 0 times it is NaN, and `max` returns the floor.
    let share = |claim: &Claim| (level * claim.weight).max(claim.floor).min(claim.ceiling);
    let mut allocation: Vec<f64> = claims.iter().map(share).collect();
    trim(capacity, claims, &mut allocation);
    let between = |claim: &Claim| {
        let amount = level * claim.weight;
        claim.floor < amount && amount < claim.ceiling
    };
    Division { allocation, level: claims.iter().any(between).then_some(level) }
}

/// Divides `capacity` among the leaves of the tree of `problem`, where node `i` has the claim `claims[i]`.
/// A group claims at least what its members are promised and at most what they could use, within its own
/// floor and ceiling.
///
/// Returns the amount of each node.
pub(super) fn divide_tree(problem: &Problem, capacity: f64, claims: &mut [Claim]) -> Vec<f64> {
    if problem.is_flat() {
        return divide(capacity, claims).allocation;
    }
    let members = super::tree::members(problem);
    for group in (0..problem.nodes()).rev().filter(|&node| !problem.is_leaf[node]) {
        let sum = |bound: fn(&Claim) -> f64| -> f64 {
            exact::sum(members.of(Some(group)).iter().map(|&node| bound(&claims[node])))
        };
        let (floor, ceiling) = (sum(|claim| claim.floor), sum(|claim| claim.ceiling));
        let claim = &mut claims[group];
        claim.ceiling = claim.ceiling.min(ceiling);
        claim.floor = claim.floor.max(floor).min(claim.ceiling);
    }
    let mut allocation = vec![0.0; problem.nodes()];
    let groups = (0..problem.nodes()).filter(|&node| !problem.is_leaf[node]).map(Some);
    for group in std::iter::once(None).chain(groups) {
        let whole = group.map_or(capacity, |group| allocation[group]);
        let siblings = members.of(group);
        let claims: Vec<Claim> = siblings.iter().map(|&node| claims[node]).collect();
        for (&node, share) in siblings.iter().zip(divide(whole, &claims).allocation) {
            allocation[node] = share;
        }
    }
    allocation
}

/// The level at which `clamp(level·w, lo, hi)` adds up to the capacity; infinite when it never does.
fn level(capacity: f64, claims: &[Claim]) -> f64 {
    let heaviest = claims.iter().fold(0.0, |max: f64, claim| max.max(claim.weight));
    let (usage_unit, slope_unit) =
        (Unit::for_terms_up_to(capacity), Unit::for_terms_up_to(heaviest));
    let whole = usage_unit.of(capacity);
    let (mut constant, mut slope) = (Exact::ZERO, Exact::ZERO);
    let mut bends: Vec<(f64, u32)> = Vec::with_capacity(2 * claims.len());
    for (index, claim) in (0..).zip(claims) {
        constant.add(usage_unit.of(claim.floor));
        if claim.weight == 0.0 {
            continue;
        }
        bends.push((claim.floor / claim.weight, index));
        if claim.ceiling.is_finite() {
            bends.push((claim.ceiling / claim.weight, index | MEETS_CEILING));
        }
    }
    if !constant.rest_of(whole).is_positive() {
        return 0.0;
    }
    bends.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let mut rest = bends.as_slice();
    loop {
        // Bends at one level are passed together: otherwise the result would depend on the input order.
        let bend = rest.first().map_or(f64::INFINITY, |bend| bend.0);
        if slope.is_positive() {
            let left = usage_unit.to_f64(constant.rest_of(whole));
            let full = left / slope_unit.to_f64(slope);
            if full <= bend {
                return full;
            }
        }
        if rest.is_empty() {
            return f64::INFINITY;
        }
        while let Some((&(at, key), tail)) = rest.split_first() {
            if at != bend {
                break;
            }
            rest = tail;
            let claim = &claims[(key & !MEETS_CEILING) as usize];
            if key & MEETS_CEILING == 0 {
                constant.take(usage_unit.of(claim.floor));
                slope.add(slope_unit.of(claim.weight));
            } else {
                constant.add(usage_unit.of(claim.ceiling));
                slope.take(slope_unit.of(claim.weight));
            }
        }
    }
}

/// Marks the bend of a claim that meets its ceiling; without it, the claim leaves its floor.
const MEETS_CEILING: u32 = 1 << 31;

/// Removes the excess of rounding above the capacity: from the claims at the common level, or else from all
/// that are above their floors.
///
/// The factor is the same for all of them: equal claims stay equal in any order.
fn trim(capacity: f64, claims: &[Claim], allocation: &mut [f64]) {
    let unit = Unit::for_terms_up_to(capacity);
    for round in 0..TRIM_ROUNDS {
        let excess = exact::excess(unit, allocation.iter().copied(), capacity);
        if excess <= 0.0 {
            return;
        }
        let between = |share: f64, claim: &Claim| claim.floor < share && share < claim.ceiling;
        let above = |share: f64, claim: &Claim| claim.floor < share;
        let held = |is_loose: fn(f64, &Claim) -> bool| {
            let shares = allocation.iter().zip(claims);
            let loose = shares.filter(move |(share, claim)| is_loose(**share, claim));
            exact::sum(loose.map(|(share, _)| *share))
        };
        let (is_loose, held): (fn(f64, &Claim) -> bool, f64) = match (held(between), held(above)) {
            (held, _) if held > 0.0 => (between, held),
            (_, held) if held > 0.0 => (above, held),
            // Guarantees such as 0.1 and 0.2 of 0.3: rounding has made them more than there is.
            _ if excess <= capacity * ROUNDING => (|_, _| true, capacity),
            _ => return,
        };
        let factor = shrinking(excess / held, round);
        for (share, claim) in allocation.iter_mut().zip(claims) {
            if is_loose(*share, claim) {
                let least = if above(*share, claim) { claim.floor } else { 0.0 };
                *share = (*share * factor).max(least);
            }
        }
    }
}

/// After this many rounds the excess is gone: each round removes at least twice as much as the one before.
pub(super) const TRIM_ROUNDS: i32 = 12;

/// An excess below this part of the capacity comes from rounding.
pub(super) const ROUNDING: f64 = 1e-11;

/// The factor that shrinks a sum by `excess` (a part of the sum) and, round by round, a few last bits.
pub(super) fn shrinking(excess: f64, round: i32) -> f64 {
    (1.0 - excess - f64::EPSILON * f64::from(1 << round)).max(0.0)
}
