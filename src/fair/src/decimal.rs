//! Decimals as they are written, and ratios of them to thirty digits.
//!
//! # Problem
//! Whole tasks are counted, not approximated: three tasks of 0.1 fit into 0.3, and two tenants whose shares
//! are equal on paper take turns. In `f64` neither holds: 0.1 + 0.2 is more than 0.3, and 3 · (1/3) may
//! differ from 1 by a last bit.
//!
//! # Numbers
//! - *Amounts.* The shortest decimal that reads back as an `f64` is the number that a person wrote. A
//!   [`Scale`] turns the amounts of one resource into whole numbers of its last digit, so that sums and
//!   comparisons are exact. It has room for 28 digits; finer ones are cut.
//! - *Shares.* A quotient of amounts has no last digit. [`Precise`] keeps it as the sum of two `f64`, some
//!   31 digits, and two of them are equal if they agree in the first 27. Different quotients of numbers
//!   below 10¹³ never agree so far.
//!
//! *Why no fractions of big integers?* The shares of nested groups are sums of products of quotients; their
//! denominators grow with every grant and every member.

use std::cmp::Ordering;

use super::exact::{Exact, Unit};
use super::problem::Problem;

/// Digits of the largest amount of a resource.
const DIGITS: i32 = 28;

/// The digits of a number that is not negative, and the power of ten of the last of them: `f64` to decimal.
fn digits(value: f64) -> (i128, i32) {
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (whole, places) = digits.split_once('.').unwrap_or((digits, ""));
    let digits = format!("{whole}{places}").parse().unwrap_or(i128::MAX);
    (digits, exponent - places.len() as i32)
}

/// The amounts of one resource as whole numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    /// A unit is 10 to this power.
    exponent: i32,
}

impl Scale {
    /// The scale for a capacity and amounts of it.
    pub(super) fn of(capacity: f64, amounts: impl Iterator<Item = f64>) -> Scale {
        let finite = amounts.chain([capacity]).filter(|amount| amount.is_finite() && *amount > 0.0);
        let (mut finest, mut largest) = (0, capacity);
        for amount in finite {
            finest = finest.min(digits(amount).1);
            largest = if capacity > 0.0 { capacity } else { largest.max(amount) };
        }
        let top = if largest > 0.0 { largest.log10().ceil() as i32 } else { 0 };
        Scale { exponent: finest.max(top - DIGITS) }
    }

    /// Returns an amount in units; an infinite one, or one far beyond the capacity, becomes the largest
    /// number.
    pub(super) fn units(self, amount: f64) -> i128 {
        if !amount.is_finite() {
            return i128::MAX;
        }
        let (digits, exponent) = digits(amount);
        let power = |by: i32| 10_i128.checked_pow(by.unsigned_abs());
        match exponent - self.exponent {
            by @ 0.. => power(by).and_then(|ten| digits.checked_mul(ten)).unwrap_or(i128::MAX),
            by => power(by).map_or(0, |ten| digits / ten),
        }
    }

    /// The units of the resources of a problem.
    pub(super) fn of_resources(problem: &Problem) -> Vec<Scale> {
        let m = problem.resources();
        let matrices = [&problem.task, &problem.limit, &problem.guarantee];
        let scale = |r: usize| {
            let columns = matrices.iter().flat_map(|matrix| matrix.iter().skip(r).step_by(m));
            Scale::of(problem.capacity[r], columns.copied())
        };
        (0..m).map(scale).collect()
    }

    /// The `f64` nearest to a number of units.
    pub(super) fn amount(self, units: i128) -> f64 {
        Precise::of(units).times_ten(self.exponent).to_f64()
    }
}

/// A number that is not negative, to some 31 digits: the sum of two `f64`, of which the second is at most
/// half a last bit of the first.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Precise {
    high: f64,
    low: f64,
}

/// Numbers that differ by less than this part are equal.
const EQUAL: f64 = 1e-27;

impl Precise {
    pub(super) const ZERO: Precise = Precise { high: 0.0, low: 0.0 };

    pub(super) fn of(whole: i128) -> Precise {
        let high = whole as f64;
        // 2¹²⁷ is the only cast that saturates; it is one more than the largest number.
        Precise { high, low: whole.wrapping_sub(high as i128) as f64 }
    }

    /// The decimal that reads back as `value`.
    pub(super) fn decimal(value: f64) -> Precise {
        let (digits, exponent) = digits(value);
        Precise::of(digits).times_ten(exponent)
    }

    /// The number times a power of ten.
    fn times_ten(self, exponent: i32) -> Precise {
        let mut number = self;
        let mut left = exponent.unsigned_abs();
        while left > 0 {
            // 10²² is the largest power of ten that is an `f64`.
            let step = left.min(22);
            let ten = Precise { high: 10_f64.powi(step as i32), low: 0.0 };
            number = if exponent < 0 { number.over(ten) } else { number.times(ten) };
            left -= step;
        }
        number
    }

    pub(super) fn is_zero(self) -> bool {
        self.high == 0.0
    }

    pub(super) fn to_f64(self) -> f64 {
        self.high + self.low
    }

    pub(super) fn plus(self, other: Precise) -> Precise {
        let sum = self.high + other.high;
        let part = sum - self.high;
        let lost = (self.high - (sum - part)) + (other.high - part);
        Precise::carried(sum, lost + self.low + other.low)
    }

    pub(super) fn times(self, other: Precise) -> Precise {
        let product = self.high * other.high;
        let lost = self.high.mul_add(other.high, -product);
        Precise::carried(product, lost + (self.high * other.low + self.low * other.high))
    }

    /// The quotient by a number that is not zero.
    pub(super) fn over(self, other: Precise) -> Precise {
        let mut quotient = Precise::ZERO;
        let mut rest = self;
        for _ in 0..3 {
            let next = Precise { high: rest.high / other.high, low: 0.0 };
            let taken = other.times(next);
            rest = rest.plus(Precise { high: -taken.high, low: -taken.low });
            quotient = quotient.plus(next);
        }
        quotient
    }

    fn carried(high: f64, low: f64) -> Precise {
        let sum = high + low;
        Precise { high: sum, low: low - (sum - high) }
    }

    pub(super) fn term(self, unit: Unit) -> Exact {
        let mut term = unit.of(self.high);
        let low = unit.of(self.low.abs());
        if self.low < 0.0 {
            term.take(low)
        } else {
            term.add(low)
        }
        term
    }

    pub(super) fn sum(unit: Unit, sum: Exact) -> Precise {
        let (units, size) = unit.parts(sum);
        let Precise { high, low } = Precise::of(units);
        // The size of a unit is a power of two.
        Precise { high: high * size, low: low * size }
    }
}

impl Ord for Precise {
    fn cmp(&self, other: &Precise) -> Ordering {
        let difference = (self.high - other.high) + (self.low - other.low);
        if difference.abs() <= EQUAL * self.high.abs().max(other.high.abs()) {
            Ordering::Equal
        } else {
            difference.total_cmp(&0.0)
        }
    }
}

impl PartialOrd for Precise {
    fn partial_cmp(&self, other: &Precise) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Eq for Precise {}

impl PartialEq for Precise {
    fn eq(&self, other: &Precise) -> bool {
        self.cmp(other).is_eq()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(p: i128, q: i128) -> Precise {
        Precise::of(p).over(Precise::of(q))
    }

    #[test]
    fn amounts_add_up_as_on_paper() {
        let scale = Scale::of(0.3, [0.1, 0.2].into_iter());
        assert_eq!(scale.units(0.1) + scale.units(0.2), scale.units(0.3));
        assert_eq!(scale.amount(3 * scale.units(0.1)), 0.3);
        let scale = Scale::of(1e24, [1e-24, 0.1].into_iter());
        assert_eq!((scale.units(1e24), scale.units(1e-24)), (10_i128.pow(28), 0));
        assert_eq!(scale.units(f64::INFINITY), i128::MAX);
        assert_eq!(Scale::of(0.0, [7.5, f64::INFINITY].into_iter()).units(7.5), 75);
        let scale = Scale::of(9.0, [1000.0].into_iter());
        assert_eq!(scale.amount(999 * scale.units(1000.0)), 999_000.0);
    }

    #[test]
    fn equal_quotients_are_equal_and_close_ones_are_not() {
        assert_eq!(ratio(1, 3).times(Precise::of(3)), ratio(2, 7).over(ratio(2, 7)));
        assert_eq!(ratio(1, 10).plus(ratio(2, 10)), ratio(3, 10));
        assert_eq!(Precise::decimal(0.3).over(Precise::decimal(0.1)), Precise::of(3));
        assert!(Precise::decimal(0.3333333333333333) < ratio(1, 3));
        assert!(
            ratio(999_999_999_999, 1_000_000_000_000) < ratio(1_000_000_000_000, 1_000_000_000_001)
        );
        assert_eq!(Precise::decimal(1e-24).to_f64(), 1e-24);
    }

    #[test]
    fn sums_are_the_same_in_any_order() {
        let unit = Unit::for_terms_up_to(1.0);
        let mut sum = ratio(1, 3).term(unit);
        sum.add(ratio(1, 6).term(unit));
        assert_eq!(Precise::sum(unit, sum), ratio(1, 2));
    }
}
