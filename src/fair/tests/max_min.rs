//! Properties of one resource, and of whole slots.

use proptest::prelude::*;
use tenantd_fair::integer::{self, apportion};
use tenantd_fair::max_min::{Claim, Division, divide};
use tenantd_fair::yarn::{self, Queue};

use super::instances::assert_within;

/// Claims with floors that add up to no more than 40.
fn claims() -> impl Strategy<Value = Vec<Claim>> {
    let claim = (1_u32..=20, 0_u32..=5, prop::option::of(0_u32..=40));
    prop::collection::vec(claim, 0..=8).prop_map(|dice| {
        let claim = |(weight, floor, more): (u32, u32, Option<u32>)| Claim {
            weight: f64::from(weight) / 4.0,
            floor: f64::from(floor),
            ceiling: more.map_or(f64::INFINITY, |more| f64::from(floor + more)),
        };
        dice.into_iter().map(claim).collect()
    })
}

fn sum(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().sum()
}

proptest! {
    #[test]
    fn max_min_divides_all_there_is(claims in claims(), capacity in 40_u32..=200) {
        let capacity = f64::from(capacity);
        let division = divide(capacity, &claims);
        let wanted = sum(claims.iter().map(|claim| claim.ceiling));
        let given = sum(division.allocation.iter().copied());
        assert_within(capacity, division.allocation.iter().copied());
        prop_assert!((given - capacity.min(wanted)).abs() <= 1e-9 * capacity);
        for (share, claim) in division.allocation.iter().zip(&claims) {
            prop_assert!(claim.floor <= *share && *share <= claim.ceiling);
        }
    }

    #[test]
    fn one_level_explains_all(claims in claims(), capacity in 40_u32..=200) {
        let Division { allocation, level } = divide(f64::from(capacity), &claims);
        for (share, claim) in allocation.iter().zip(&claims) {
            match level {
                Some(level) => {
                    let due = (level * claim.weight).max(claim.floor).min(claim.ceiling);
                    prop_assert!((share - due).abs() <= 1e-9 * due.max(1.0));
                }
                None => prop_assert!(*share == claim.floor || *share == claim.ceiling),
            }
        }
    }

    #[test]
    fn max_min_ignores_the_order(claims in claims(), capacity in 40_u32..=200, turn in 0_usize..8) {
        let straight = divide(f64::from(capacity) / 7.0 + 35.0, &claims).allocation;
        let mut turned = claims.clone();
        turned.rotate_left(turn.min(claims.len()));
        let mut back = divide(f64::from(capacity) / 7.0 + 35.0, &turned).allocation;
        back.rotate_right(turn.min(claims.len()));
        prop_assert_eq!(straight, back);
    }

    #[test]
    fn more_capacity_or_weight_is_never_less(claims in claims(), capacity in 40_u32..=200) {
        let less = divide(f64::from(capacity), &claims).allocation;
        let more = divide(f64::from(capacity) + 5.0, &claims).allocation;
        for (less, more) in less.iter().zip(&more) {
            prop_assert!(*more >= less * (1.0 - 1e-12));
        }
        if let Some(first) = claims.first() {
            let mut heavier = claims.clone();
            heavier[0].weight = first.weight * 1.5;
            let heavier = divide(f64::from(capacity), &heavier).allocation;
            prop_assert!(heavier[0] >= less[0] * (1.0 - 1e-12));
        }
    }
}

#[test]
fn floors_beyond_the_capacity_are_given() {
    let claim = |floor| Claim { weight: 1.0, floor, ceiling: 100.0 };
    let division = divide(10.0, &[claim(8.0), claim(6.0), claim(0.0)]);
    assert_eq!(division, Division { allocation: vec![8.0, 6.0, 0.0], level: None });
    assert_eq!(divide(0.0, &[claim(0.0)]).allocation, [0.0]);
}

/// Guarantees that are the capacity but for rounding are no reason to give more than there is.
#[test]
fn floors_that_rounding_has_raised_are_trimmed() {
    let claim = |floor| Claim { weight: 1.0, floor, ceiling: floor };
    let allocation = divide(0.3, &[claim(0.1), claim(0.2)]).allocation;
    assert!(allocation[0] + allocation[1] <= 0.3);
    assert!((allocation[1] - 0.2).abs() < 1e-15);
}

#[test]
fn weights_far_apart_starve_no_tenant() {
    let claim = |weight, ceiling| Claim { weight, floor: 0.0, ceiling };
    let claims = [claim(1e9, 3.0), claim(1e-9, f64::INFINITY), claim(3e-9, f64::INFINITY)];
    let allocation = divide(7.0, &claims).allocation;
    assert_eq!(allocation[0], 3.0);
    assert!((allocation[1] - 1.0).abs() < 1e-9 && (allocation[2] - 3.0).abs() < 1e-9);
}

/// Claims on slots.
fn slot_claims() -> impl Strategy<Value = Vec<integer::Claim>> {
    let claim = (1_u32..=12, 0_u64..=4, prop::option::of(0_u64..=20));
    prop::collection::vec(claim, 0..=8).prop_map(|dice| {
        let claim = |(weight, floor, more): (u32, u64, Option<u64>)| integer::Claim {
            weight: f64::from(weight) / 3.0,
            floor,
            ceiling: more.map_or(u64::MAX, |more| floor + more),
        };
        dice.into_iter().map(claim).collect()
    })
}

/// The definition, one slot at a time, by exact cross-multiplication of thirds.
fn one_at_a_time(slots: u64, claims: &[integer::Claim]) -> Vec<u64> {
    let thirds = |index: usize| (claims[index].weight * 3.0).round() as u64;
    let mut allocation: Vec<u64> = claims.iter().map(|claim| claim.floor).collect();
    while allocation.iter().sum::<u64>() < slots {
        let below = (0..claims.len()).filter(|&i| allocation[i] < claims[i].ceiling);
        let order = |&a: &usize, &b: &usize| {
            (allocation[a] * thirds(b)).cmp(&(allocation[b] * thirds(a))).then(a.cmp(&b))
        };
        let Some(next) = below.min_by(order) else { break };
        allocation[next] += 1;
    }
    allocation
}

proptest! {
    #[test]
    fn apportionment_gives_all_slots_within_bounds(claims in slot_claims(), slots in 0_u64..200) {
        let allocation = apportion(slots, &claims);
        let promised: u64 = claims.iter().map(|claim| claim.floor).sum();
        let wanted = claims.iter().fold(0_u64, |sum, claim| sum.saturating_add(claim.ceiling));
        prop_assert_eq!(allocation.iter().sum::<u64>(), slots.min(wanted));
        for (has, claim) in allocation.iter().zip(&claims) {
            prop_assert!(*has <= claim.ceiling);
            prop_assert!(*has >= claim.floor || promised > slots);
        }
    }

    #[test]
    fn apportionment_is_one_slot_at_a_time(claims in slot_claims(), more in 0_u64..300) {
        let slots = claims.iter().map(|claim| claim.floor).sum::<u64>() + more;
        prop_assert_eq!(apportion(slots, &claims), one_at_a_time(slots, &claims));
    }

    #[test]
    fn one_more_slot_reduces_no_width(claims in slot_claims(), slots in 0_u64..200) {
        let less = apportion(slots, &claims);
        let more = apportion(slots + 1, &claims);
        prop_assert!(less.iter().zip(&more).all(|(less, more)| less <= more));
    }

    #[test]
    fn published_shares_are_near_the_exact_ones(
        total in 0_u64..100_000,
        dice in prop::collection::vec((1_u32..=8, 0_u64..1000, prop::option::of(0_u64..50_000)), 0..8),
    ) {
        let queue = |(weight, min, max): (u32, u64, Option<u64>)| Queue {
            weight: f64::from(weight) / 2.0,
            min,
            max: max.unwrap_or(i32::MAX as u64),
        };
        let queues: Vec<Queue> = dice.into_iter().map(queue).collect();
        let claim = |queue: &Queue| Claim {
            weight: queue.weight,
            floor: queue.min.min(queue.max) as f64,
            ceiling: queue.max as f64,
        };
        let exact = divide(total as f64, &queues.iter().map(claim).collect::<Vec<_>>()).allocation;
        for (published, exact) in yarn::fair_shares(total, &queues).into_iter().zip(exact) {
            // Each share is cut, which the ratio makes up for; and that is right to 25 bits.
            let cut = 1.0 + queues.len() as f64;
            prop_assert!((published as f64 - exact).abs() <= cut + exact * 1e-6);
        }
    }
}

#[test]
fn published_shares_overshoot() {
    let queue = Queue { weight: 1.0, min: 0, max: 100 };
    assert_eq!(yarn::fair_shares(10, &[queue; 3]), [4, 4, 4]);
    let idle = Queue { weight: 0.0, min: 3, max: 100 };
    assert_eq!(yarn::fair_shares(10, &[queue, idle]), [7, 3]);
    assert_eq!(yarn::fair_shares(u64::MAX, &[Queue { min: u64::MAX, ..queue }; 2]), [100, 100]);
}

#[test]
fn floors_beyond_the_slots_are_shared() {
    let claim = |floor, ceiling| integer::Claim { weight: 1.0, floor, ceiling };
    assert_eq!(apportion(6, &[claim(4, 9), claim(4, 9), claim(0, 9)]), [3, 3, 0]);
    assert_eq!(apportion(2, &[claim(1, 9), claim(1, 9), claim(1, 9)]), [1, 1, 0]);
    assert_eq!(apportion(9, &[claim(5, 2)]), [2]);
    assert_eq!(apportion(3, &[]), [0; 0]);
}

/// The largest numbers are no reason to count to them.
#[test]
fn slots_without_end_are_apportioned() {
    let claim = |weight| integer::Claim { weight, floor: 0, ceiling: u64::MAX };
    let allocation = apportion(u64::MAX, &[claim(1.0), claim(1.0)]);
    assert_eq!(allocation.iter().map(|&slots| u128::from(slots)).sum::<u128>(), u64::MAX.into());
    assert!(allocation[0].abs_diff(allocation[1]) < 1 << 20);
}
