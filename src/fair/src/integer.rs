//! Whole slots: integer max-min, the apportionment with the same notion of fairness.
//!
//! # Problem
//! Slots, seats, CPUs for a cpuset: units that cannot be cut. Divide `slots` of them among claims with
//! weights, floors and ceilings, so that no `allocation / weight` could be raised without lowering one that
//! is smaller already: lexicographic max-min over integers.
//!
//! # Algorithm
//! Every claim starts at its floor; each further slot goes to the smallest `allocation / weight` below its
//! ceiling, the earlier claim first among equals. Giving one slot at a time would cost O(slots · log n); but
//! where the real-valued division of [`super::max_min`] gives `x`, this gives more than `x - 1` and less than
//! `x + 1`, so all but the last few slots are given at once, from a division of `slots - 2n`. O(n log n).
//!
//! # Properties, and the test that holds each
//! - All slots are given unless all claims are at their ceilings; floors and ceilings hold
//!   (`apportionment_gives_all_slots_within_bounds`).
//! - The same as one slot at a time (`apportionment_is_one_slot_at_a_time`).
//! - House-monotone: one slot more takes none away. Largest remainders fail here, the Alabama paradox
//!   (`one_more_slot_reduces_no_width`).
//! - Floors that exceed the slots are apportioned by the same rule (`floors_beyond_the_slots_are_shared`).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::max_min;

/// The claim of one tenant on the slots.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    /// Its weight, positive.
    pub weight: f64,
    /// The slots it starts with.
    pub floor: u64,
    /// The slots it could use; a ceiling below the floor is taken as the floor's.
    pub ceiling: u64,
}

/// Apportions `slots` among `claims`; among equals the earlier claim comes first. O(n log n).
pub fn apportion(slots: u64, claims: &[Claim]) -> Vec<u64> {
    let promised: u128 =
        claims.iter().map(|claim| u128::from(claim.floor.min(claim.ceiling))).sum();
    if promised > u128::from(slots) {
        // The floors exceed the slots: they become the ceilings.
        let as_ceiling = |claim: &Claim| Claim {
            weight: claim.weight,
            floor: 0,
            ceiling: claim.floor.min(claim.ceiling),
        };
        let claims: Vec<Claim> = claims.iter().map(as_ceiling).collect();
        return apportion(slots, &claims);
    }
    let mut allocation = most_at_once(slots, claims);
    let given: u128 = allocation.iter().map(|&slots| u128::from(slots)).sum();
    let mut left = u128::from(slots).saturating_sub(given);
    let waiting = |(index, (&has, claim)): (usize, (&u64, &Claim))| {
        (has < claim.ceiling).then(|| Reverse((rank(has, claim.weight), index)))
    };
    let mut heap: BinaryHeap<_> =
        allocation.iter().zip(claims).enumerate().filter_map(waiting).collect();
    while left > 0
        && let Some(Reverse((_, index))) = heap.pop()
    {
        allocation[index] += 1;
        left -= 1;
        if allocation[index] < claims[index].ceiling {
            heap.push(Reverse((rank(allocation[index], claims[index].weight), index)));
        }
    }
    allocation
}

/// Slots that the rule certainly gives: all but O(n).
fn most_at_once(slots: u64, claims: &[Claim]) -> Vec<u64> {
    let floor = |claim: &Claim| claim.floor.min(claim.ceiling);
    let floors = || claims.iter().map(floor).collect::<Vec<u64>>();
    let Some(sure) = slots.checked_sub(2 * claims.len() as u64) else { return floors() };
    let real = |claim: &Claim| max_min::Claim {
        weight: claim.weight,
        floor: floor(claim) as f64,
        ceiling: claim.ceiling as f64,
    };
    let division = max_min::divide(sure as f64, &claims.iter().map(real).collect::<Vec<_>>());
    // One less than the real share, and a last bit less, to be safe from rounding.
    let whole = |share: f64| (share * (1.0 - 4.0 * f64::EPSILON)).floor() as u64;
    let at_once: Vec<u64> = division
        .allocation
        .iter()
        .zip(claims)
        .map(|(&share, claim)| whole(share).saturating_sub(1).clamp(floor(claim), claim.ceiling))
        .collect();
    let given: u128 = at_once.iter().map(|&slots| u128::from(slots)).sum();
    if given <= u128::from(slots) { at_once } else { floors() }
}

/// The order of claims: `has / weight`, the smaller first, as bits that sort like the number.
///
/// The last eight bits are rounded away: 3 / 0.3 and 10 / 1 are equal in spite of rounding.
pub(super) fn rank(has: u64, weight: f64) -> u64 {
    rank_of(has as f64 / weight)
}

/// The rank of a number that is not negative; see [`rank`].
pub(super) fn rank_of(value: f64) -> u64 {
    const ROUNDED: u64 = 8;
    (value.to_bits() + (1 << (ROUNDED - 1))) >> ROUNDED
}
