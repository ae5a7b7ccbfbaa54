//! The level at which claims, each `clamp(level·weight, floor, ceiling)`, add up to an amount.
//!
//! The sum is a rising polyline in the level. It can be flat, where all claims are at their floors or ceilings: then a
//! range of levels has the same sum, and one of its ends is meant. Rounding must not decide which: sums are compared
//! with a tolerance at the bends, and the level inside a segment is found with the slope of that segment alone.

use tenantd_fair::max_min::Claim;

/// The lowest level with at least this sum; of claims that never reach it, the level at which the last is full.
pub(crate) fn lowest(amount: f64, claims: &[Claim], tolerance: f64) -> f64 {
    let bends = bends(claims);
    let next = bends.partition_point(|bend| sum(claims, *bend) < amount - tolerance);
    let Some(&end) = bends.get(next) else { return bends.last().copied().unwrap_or(0.0) };
    if sum(claims, end) <= amount + tolerance {
        return end;
    }
    let start = next.checked_sub(1).map_or(0.0, |before| bends[before]);
    within(amount, claims, (start, end))
}

/// The highest level with at most this sum; infinite where all claims are full with less.
pub(crate) fn highest(amount: f64, claims: &[Claim], tolerance: f64) -> f64 {
    let bends = bends(claims);
    let next = bends.partition_point(|bend| sum(claims, *bend) <= amount + tolerance);
    let Some(&end) = bends.get(next) else { return f64::INFINITY };
    let start = next.checked_sub(1).map_or(0.0, |before| bends[before]);
    within(amount, claims, (start, end))
}

/// The level between two bends at which the sum is `amount`.
fn within(amount: f64, claims: &[Claim], (start, end): (f64, f64)) -> f64 {
    let middle = start + (end - start) / 2.0;
    let grows = |claim: &&Claim| {
        let there = middle * claim.weight;
        claim.floor < there && there < claim.ceiling
    };
    let slope: f64 = claims.iter().filter(grows).map(|claim| claim.weight).sum();
    if slope <= 0.0 {
        return end;
    }
    (start + (amount - sum(claims, start)) / slope).clamp(start, end)
}

fn sum(claims: &[Claim], level: f64) -> f64 {
    let share = |claim: &Claim| (level * claim.weight).min(claim.ceiling).max(claim.floor);
    claims.iter().map(share).sum()
}

fn bends(claims: &[Claim]) -> Vec<f64> {
    let of = |claim: &Claim| [claim.floor / claim.weight, claim.ceiling / claim.weight];
    let mut bends: Vec<f64> = claims.iter().filter(|it| it.weight > 0.0).flat_map(of).collect();
    bends.retain(|bend| bend.is_finite());
    bends.sort_unstable_by(f64::total_cmp);
    bends
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(weight: f64, floor: f64, ceiling: f64) -> Claim {
        Claim { weight, floor, ceiling }
    }

    #[test]
    fn a_level_inside_a_segment_is_exact() {
        let claims = [claim(1.0, 0.0, 0.25), claim(0.5, 0.0, 2.0)];
        assert_eq!((lowest(0.5, &claims, 1e-12), highest(0.5, &claims, 1e-12)), (0.5, 0.5));
    }

    #[test]
    fn rounding_does_not_choose_the_end_of_a_flat_part() {
        // Flat from 0.2, where the first is full, to 0.8, where the second leaves its floor.
        let claims = [claim(1.0, 0.0, 0.2), claim(0.5, 0.4, 2.0)];
        for error in [-1e-13, 0.0, 1e-13] {
            assert!((lowest(0.6 + error, &claims, 1e-12) - 0.2).abs() < 1e-9, "{error}");
            assert!((highest(0.6 + error, &claims, 1e-12) - 0.8).abs() < 1e-9, "{error}");
        }
    }

    #[test]
    fn full_claims_have_a_lowest_level_and_no_highest() {
        let claims = [claim(1.0, 0.0, 0.5), claim(0.5, 0.0, 0.1)];
        assert_eq!(lowest(0.6, &claims, 1e-12), 0.5);
        assert_eq!(highest(0.6, &claims, 1e-12), f64::INFINITY);
        assert_eq!((lowest(1.0, &[], 1e-12), highest(1.0, &[], 1e-12)), (0.0, f64::INFINITY));
    }
}
