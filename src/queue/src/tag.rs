//! Virtual times that can be compared: start tags and finish tags.
//!
//! **Problem.** The disciplines break ties by rule (smaller finish tag, then earlier tenant) and call a
//! request eligible when its start tag *equals* the virtual time. Tags are sums of quotients: the tenth tag
//! of a tenant of weight 10 is `10 · (1/10)`, that of its neighbour is `1`, and in floating point the two
//! differ in the last bit. A schedule that depended on that bit would differ from the published one, and
//! from itself after a reordering of the same sums.
//!
//! **Answer.** Work is summed up before it is divided by the weight (`tags`), which leaves one rounding for
//! each tag; and a tag is rounded to 40 bits of mantissa (a relative step of 2⁻³⁹, 2·10⁻¹²) before it is
//! compared. The unrounded sums are kept, so that nothing is lost over time.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

/// Bits of the mantissa that do not count.
const DROPPED_BITS: u32 = 52 - 40;

/// The relative width of one step of a rounded tag.
pub(super) const STEP: f64 = 1.0 / ((1_u64 << 39) as f64);

/// A number with a total order: a tag, a priority, a ratio.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Tag(f64);

impl Tag {
    /// A virtual time, rounded so that equal times compare as equal. Negative zero and zero are one.
    pub fn rounded(time: f64) -> Tag {
        if !time.is_finite() || time == 0.0 {
            return Tag(time + 0.0);
        }
        // Adding half a step and truncating rounds the magnitude; a carry into the exponent is correct.
        let half = 1_u64 << (DROPPED_BITS - 1);
        let bits = time.to_bits().wrapping_add(half) & !((1_u64 << DROPPED_BITS) - 1);
        Tag(f64::from_bits(bits))
    }

    /// A number that is compared to the last bit.
    pub fn exact(number: f64) -> Tag {
        Tag(number + 0.0)
    }

    /// The number.
    pub fn value(self) -> f64 {
        self.0
    }
}

impl PartialEq for Tag {
    fn eq(&self, other: &Tag) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Tag {}

impl PartialOrd for Tag {
    fn partial_cmp(&self, other: &Tag) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Tag {
    fn cmp(&self, other: &Tag) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_that_differ_in_the_last_bit_are_equal() {
        assert_ne!(0.1 + 0.2, 0.3);
        assert_eq!(Tag::rounded(0.1 + 0.2), Tag::rounded(0.3));
        assert_eq!(Tag::rounded(-(0.1 + 0.2)), Tag::rounded(-0.3));
        assert_eq!(Tag::rounded(-0.0), Tag::rounded(0.0));
    }

    #[test]
    fn order_is_kept() {
        let numbers = [-1e9, -2.0, -1.0, 0.0, 1e-300, 0.1, 0.100_000_1, 1.0, 1.000_001, 2.0, 1e300];
        assert!(numbers.windows(2).all(|pair| Tag::rounded(pair[0]) < Tag::rounded(pair[1])));
        assert!(Tag::rounded(f64::MAX) <= Tag::rounded(f64::INFINITY));
    }
}
