//! The sum of the weights of active tenants, exact after any changes.
//!
//! A floating-point sum to which a weight of 10⁹ was added and taken off again has lost the weight of 10⁻⁹
//! that it contained. Weights are therefore summed up as integers, in units of 2⁻⁶⁴.

use serde::{Deserialize, Serialize};

use super::types::Terms;

/// One over the unit of the sum.
const SCALE: f64 = 18_446_744_073_709_551_616.0;

/// A sum of weights, stored as the upper and the lower half: not every format has numbers of 128 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(i64, u64)", into = "(i64, u64)")]
pub(super) struct WeightSum(i128);

impl From<(i64, u64)> for WeightSum {
    fn from((high, low): (i64, u64)) -> WeightSum {
        WeightSum(i128::from(high) << 64 | i128::from(low))
    }
}

impl From<WeightSum> for (i64, u64) {
    fn from(sum: WeightSum) -> (i64, u64) {
        ((sum.0 >> 64) as i64, sum.0 as u64)
    }
}

impl WeightSum {
    pub(super) fn add(&mut self, weight: f64) {
        self.0 += WeightSum::scaled(weight);
    }

    pub(super) fn subtract(&mut self, weight: f64) {
        self.0 -= WeightSum::scaled(weight);
        debug_assert!(self.0 >= 0, "a weight was taken off that was not added");
    }

    /// The sum; `None` if it is empty.
    pub(super) fn value(self) -> Option<f64> {
        (self.0 > 0).then(|| self.0 as f64 / SCALE)
    }

    /// 2⁹⁴ for the largest weight: four thousand million tenants fit.
    fn scaled(weight: f64) -> i128 {
        (weight.clamp(Terms::WEIGHT_MIN, Terms::WEIGHT_MAX) * SCALE) as i128
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heavy_tenant_leaves_no_trace() {
        let mut sum = WeightSum::default();
        sum.add(1e-9);
        sum.add(1e9);
        sum.subtract(1e9);
        assert!((sum.value().unwrap() / 1e-9 - 1.0).abs() < 1e-9);
        sum.subtract(1e-9);
        assert_eq!(sum.value(), None);
    }
}
