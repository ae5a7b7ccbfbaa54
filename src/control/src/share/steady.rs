//! Steady weights, which are written more closely.
//!
//! **Problem.** Demands move from tick to tick, and weights that followed them exactly would be written all the
//! time. So a weight within a twentieth of the desired one stays ([`crate::write::plan`]). If nothing moves, that
//! error is permanent: of three tenants with desired weights 53, 106 and 211, the second keeps its initial 100
//! and gets a twentieth less than its part.
//!
//! **Algorithm.** A weight is *steady* after 10 s within a hundredth of its value. Then its file must be within
//! a fiftieth. Desired weights of one steady time differ by less than that, so it causes at most one write.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Relative change within which a weight counts as unchanged.
const SAME_RATIO: f64 = 0.01;
const STEADY_AFTER: Duration = Duration::from_secs(10);

/// Age of a desired weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Steady {
    weight: f64,
    lasted: Duration,
}

impl Steady {
    /// Adds the desired weight of a tick, `elapsed` after the last one.
    pub fn note(&mut self, weight: f64, elapsed: Duration) {
        if (weight - self.weight).abs() <= SAME_RATIO * self.weight {
            self.lasted = self.lasted.saturating_add(elapsed)
        } else {
            *self = Steady { weight, lasted: Duration::ZERO }
        }
    }

    /// True if it has been unchanged for long enough.
    pub fn is_steady(&self) -> bool {
        self.lasted >= STEADY_AFTER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_is_steady_when_it_has_not_moved_for_a_while() {
        let mut steady = Steady::default();
        let mut after = |weight, seconds| {
            steady.note(weight, Duration::from_secs(seconds));
            steady.is_steady()
        };
        assert!(!after(106.0, 60) && !after(106.0, 5));
        assert!(after(105.5, 5) && after(106.9, 1));
        // A slow move counts too: a hundredth from where it began.
        assert!(!after(107.1, 1) && !after(107.1, 9));
        assert!(after(107.1, 1));
    }
}
