//! Sums that do not depend on the order of their terms.
//!
//! Adding floating-point numbers in a different order gives a different last bit, and adding a large one and
//! subtracting it again leaves a rounding error the size of the small ones. The sweeps of this module do both
//! a hundred thousand times over, so they add integers instead: a term is scaled by a power of two (exact),
//! cut to a whole number of units (at most one unit lost), and added in 128 bits (exact, associative,
//! invertible). A unit is 2⁻¹⁰⁰ of the largest term, fourteen powers of ten finer than the last bit of an
//! `f64`, which leaves room for 2²⁶ terms.

/// The unit of a family of sums: their precision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unit {
    /// There are 2 to this many units in one.
    bits: i32,
    /// One unit as a number.
    size: f64,
}

/// Bits below the binary point of the largest term.
const FRACTION_BITS: i32 = 100;

impl Unit {
    /// The unit for terms of magnitude at most `largest`; larger ones still add up while they fit.
    pub(super) fn for_terms_up_to(largest: f64) -> Unit {
        let exponent =
            if largest.is_finite() && largest > 0.0 { largest.log2().ceil() as i32 } else { 0 };
        let bits = FRACTION_BITS - exponent;
        Unit { bits, size: 2_f64.powi(-bits) }
    }

    /// `value`, which is not negative, as a whole number of units, cut towards zero.
    ///
    /// The same as `(value * 2^bits) as i128`, but for a library call in the innermost loop.
    pub(super) fn of(self, value: f64) -> Exact {
        debug_assert!(value >= 0.0, "{value} is negative");
        const MANTISSA_BITS: u32 = f64::MANTISSA_DIGITS - 1;
        const EXPONENT_OF_LAST_BIT: i32 = 1 - f64::MAX_EXP - MANTISSA_BITS as i32;
        let exponent = (value.to_bits() >> MANTISSA_BITS) as i32;
        if exponent == 0 {
            // Zero, or so near to it that no unit is left.
            return Exact::ZERO;
        }
        let mantissa = value.to_bits() & ((1 << MANTISSA_BITS) - 1) | (1 << MANTISSA_BITS);
        match exponent + EXPONENT_OF_LAST_BIT + self.bits {
            shift @ 0..=73 => Exact(i128::from(mantissa) << shift),
            shift @ -63..0 => Exact(i128::from(mantissa >> -shift)),
            ..-63 => Exact::ZERO,
            _ => Exact(i128::MAX),
        }
    }

    /// A sum in units, and the size of one.
    pub(super) fn parts(self, sum: Exact) -> (i128, f64) {
        (sum.0, self.size)
    }

    pub(super) fn to_f64(self, sum: Exact) -> f64 {
        sum.0 as f64 * self.size
    }
}

/// A sum in units. Saturates instead of wrapping, so that hostile terms cannot change its sign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Exact(i128);

impl Exact {
    pub(super) const ZERO: Exact = Exact(0);

    pub(super) fn add(&mut self, term: Exact) {
        self.0 = self.0.saturating_add(term.0);
    }

    /// Takes a term away again: the exact inverse of [`Exact::add`].
    pub(super) fn take(&mut self, term: Exact) {
        self.0 = self.0.saturating_sub(term.0);
    }

    /// The rest of `whole` beside this sum.
    pub(super) fn rest_of(self, whole: Exact) -> Exact {
        Exact(whole.0.saturating_sub(self.0))
    }

    pub(super) fn is_positive(self) -> bool {
        self.0 > 0
    }
}

/// The sum of `terms`, the same in any order. O(n), two passes.
pub(super) fn sum(terms: impl Iterator<Item = f64> + Clone) -> f64 {
    let largest = terms.clone().fold(0.0, f64::max);
    if largest.is_infinite() {
        return f64::INFINITY;
    }
    let unit = Unit::for_terms_up_to(largest);
    unit.to_f64(total(unit, terms))
}

/// The excess of the sum of `terms` over `whole`; negative if some is left.
pub(super) fn excess(unit: Unit, terms: impl Iterator<Item = f64>, whole: f64) -> f64 {
    unit.to_f64(unit.of(whole).rest_of(total(unit, terms)))
}

fn total(unit: Unit, terms: impl Iterator<Item = f64>) -> Exact {
    let mut sum = Exact::ZERO;
    terms.for_each(|term| sum.add(unit.of(term)));
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removing_a_large_term_restores_the_sum() {
        let unit = Unit::for_terms_up_to(1e15);
        let mut sum = Exact::ZERO;
        for term in [0.1, 1e15, 0.2] {
            sum.add(unit.of(term));
        }
        sum.take(unit.of(1e15));
        assert!((unit.to_f64(sum) - 0.3).abs() < 1e-12);
    }

    #[test]
    fn units_are_cut_as_a_cast_cuts_them() {
        for largest in [1e-24, 0.3, 1.0, 7.0, 1e33] {
            let unit = Unit::for_terms_up_to(largest);
            for part in [0.0, 1e-300, 1e-40, 1e-31, 1e-9, 0.1, 1.0 / 3.0, 0.999, 1.0, 5.0, 1e12] {
                let value: f64 = largest * part;
                let cast = (value * 2_f64.powi(unit.bits)) as i128;
                assert_eq!(unit.of(value), Exact(cast), "{value} of {largest}");
            }
        }
        assert_eq!(Unit::for_terms_up_to(1.0).of(f64::INFINITY), Exact(i128::MAX));
    }

    #[test]
    fn the_order_of_the_terms_does_not_matter() {
        let unit = Unit::for_terms_up_to(10.0);
        let terms: Vec<f64> = (1..1000).map(|i| 7.0 / f64::from(i)).collect();
        let forward = terms.iter().fold(Exact::ZERO, |mut sum, term| {
            sum.add(unit.of(*term));
            sum
        });
        let backward = terms.iter().rev().fold(Exact::ZERO, |mut sum, term| {
            sum.add(unit.of(*term));
            sum
        });
        assert_eq!(forward, backward);
    }
}
