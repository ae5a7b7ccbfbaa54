//! From entitlements to weights among siblings, in the unit of `cpu.weight`.
//!
//! **Problem.** Only ratios among siblings matter to the kernel, but a weight is an integer of a bounded
//! range: 1 to 10,000 (`cpu.shares`: 2 to 262,144, used from 10 to 102,400). The scale must keep the ratios
//! and change rarely.
//!
//! **Scale.**
//! - The mean is 100, the default of siblings outside the policy, if that keeps the ratios.
//! - It is more if the smallest weight would fall below [`SMALLEST`], because rounding would then cost more
//!   than a fortieth; two such errors make a twentieth of a ratio.
//! - The largest share stops the scale at 10,000. Clipping large weights would make different entitlements
//!   equal.
//! - If that leaves the smallest below [`SMALLEST`], the scale moves down a little to the least rounding
//!   errors (equal small weights are then exact).
//! - The scale follows the policy alone; following demand would rewrite every file at each change. It
//!   moves, by powers of four, only if the allocation lies outside the policy's range.
//!
//! **Errors.** A weight with an error above a fortieth is reported with its exact value. This requires
//! siblings more than 1 to 500 apart.
//!
//! **Properties** (`tests/control/weights.rs`): the ratio of two written weights is within 5 % of that of
//! their entitlements, for files of both kinds, unless one of the two is reported
//! (`written_weights_keep_their_ratio`).

use crate::words::knob::{WEIGHTS, held};

/// Mean weight of siblings: the kernel's default, for fairness to foreign siblings.
const MEAN: f64 = 100.0;
/// Smallest weight whose rounding error is within a fortieth.
const SMALLEST: f64 = 20.0;
/// Weights below this are written as whole numbers on every hierarchy, so that a file shows the desired value.
const WHOLE_BELOW: f64 = 10.0;
/// Relative error from which a weight is reported: two smaller ones make less than a twentieth of a ratio.
const REPORTED_RATIO: f64 = 0.025;

/// Entitlement of one sibling, as a part of the siblings' sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entitlement {
    /// Entitlement by the policy alone.
    pub standing: f64,
    /// Present weight input.
    pub now: f64,
}

/// Weights of siblings, in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Weights {
    /// Weights to write.
    pub written: Vec<f64>,
    /// Unrounded weights.
    pub exact: Vec<f64>,
}

/// Computes the weights of siblings. O(n).
pub fn weigh(siblings: &[Entitlement]) -> Weights {
    let scale = scale(siblings);
    let exact: Vec<f64> = siblings.iter().map(|sibling| scale * sibling.now).collect();
    let written = exact.iter().map(|&exact| {
        let whole = if exact < WHOLE_BELOW { exact.round() } else { exact };
        whole.clamp(*WEIGHTS.start(), *WEIGHTS.end())
    });
    Weights { written: written.collect(), exact }
}

/// True if a hierarchy's file would hold a weight with a reported error.
pub fn is_reported(written: f64, exact: f64) -> bool {
    held(written).iter().any(|file| (file - exact).abs() > REPORTED_RATIO * exact)
}

fn scale(siblings: &[Entitlement]) -> f64 {
    let positive = |part: f64| if part > 0.0 { part } else { f64::INFINITY };
    let bounds = |of: fn(&Entitlement) -> f64| {
        let largest = siblings.iter().map(of).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
        (siblings.iter().map(|it| positive(of(it))).fold(f64::INFINITY, f64::min), largest)
    };
    let (smallest, largest) = bounds(|sibling| sibling.standing);
    let most = WEIGHTS.end() / largest;
    let wanted = (MEAN * siblings.len() as f64).max(SMALLEST / smallest);
    let mut scale = if wanted <= most { wanted } else { least_error(siblings, smallest, most) };
    let (smallest, largest) = bounds(|sibling| sibling.now);
    while scale * largest > *WEIGHTS.end() * (1.0 + 1e-6) {
        scale /= 4.0;
    }
    // Tolerance, so that rounding does not move a weight at the bound back and forth.
    while scale * smallest < SMALLEST * (1.0 - 1e-6) && 4.0 * scale * largest <= *WEIGHTS.end() {
        scale *= 4.0;
    }
    scale
}

/// Scale with the least rounding error between half of `most` and `most`.
///
/// It tries scales at which the smallest weight is a whole number. A large or vanishing smallest weight
/// gains nothing.
fn least_error(siblings: &[Entitlement], smallest: f64, most: f64) -> f64 {
    let at_most = (most * smallest).floor();
    if !(1.0..SMALLEST).contains(&at_most) {
        return most;
    }
    let error = |scale: f64| {
        let of = |sibling: &Entitlement| {
            let exact = scale * sibling.standing;
            if exact > 0.0 { (exact.round().max(1.0) - exact).abs() / exact } else { 0.0 }
        };
        siblings.iter().map(of).fold(0.0, f64::max)
    };
    let least = (at_most / 2.0).ceil() as u32;
    let tried = (least..=at_most as u32).rev().map(|whole| f64::from(whole) / smallest);
    let best = tried.map(|scale| (error(scale), scale)).min_by(|a, b| a.0.total_cmp(&b.0));
    best.map_or(most, |(_, scale)| scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(parts: &[f64]) -> Vec<f64> {
        let sum: f64 = parts.iter().sum();
        let entitled: Vec<Entitlement> = parts
            .iter()
            .map(|part| Entitlement { standing: part / sum, now: part / sum })
            .collect();
        weigh(&entitled).written.iter().map(|weight| weight.round()).collect()
    }

    /// The smallest of these is at the bound, where the last digit once moved all weights by four.
    #[test]
    fn rounding_moves_no_scale() {
        let parts = [8.0, 8.0, 1.0].map(|part| part / 17.0);
        for error in [-1e-12, 0.0, 1e-12] {
            let entitled =
                parts.map(|part| Entitlement { standing: part, now: part * (1.0 + error) });
            let written = weigh(&entitled).written;
            assert!((written[2] - 20.0).abs() < 1e-6, "{error}: {written:?}");
        }
    }

    #[test]
    fn the_mean_is_the_kernel_s_default() {
        assert_eq!(weights(&[1.0, 1.0]), [100.0, 100.0]);
        assert_eq!(weights(&[1.0, 3.0]), [50.0, 150.0]);
        assert_eq!(weights(&[1.0; 1000]), [100.0; 1000]);
    }

    #[test]
    fn the_largest_share_bounds_the_scale() {
        let mut parts = vec![3000.0, 1000.0];
        parts.extend([1.0; 1000]);
        let weights = weights(&parts);
        assert_eq!(weights[..3], [9000.0, 3000.0, 3.0]);
    }

    #[test]
    fn small_figures_are_not_rounded_to_zero() {
        assert_eq!(weights(&[14.0, 10.0, 9976.0]), [14.0, 10.0, 9976.0]);
        assert_eq!(weights(&[1.0, 1.4, 240.0]), [20.0, 28.0, 4800.0]);
    }
}
