//! Weights that have been wanted for a while, and are written more closely.
//!
//! **Problem.** Demands move from tick to tick, and weights that followed them exactly would be written all the time. So a
//! weight that is within a twentieth of the one that is wanted stays ([`super::plan`]). Where nothing moves, that
//! twentieth stays for good: three tenants of weights 1, 2 and 4 are to have 53, 106 and 211 in their files, the
//! second has held 100 since its cgroup was made, and has a twentieth less than its part for as long as it runs.
//!
//! **Algorithm.** A weight is *steady* when it has been within a hundredth of what it was for ten seconds. Then its file
//! has to be within a fiftieth of it. Two weights that are wanted while it is steady differ by no more than that, so
//! there is one write for each time of steadiness at most.

use std::time::Duration;

use tenantd_core::codec::coded;

/// A weight that moves by no more than this part of what it was is the same.
const SAME_RATIO: f64 = 0.01;
/// How long it has to be the same.
const STEADY_AFTER: Duration = Duration::from_secs(10);

/// How long a weight has been wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Steady {
    /// What it was when it moved last.
    weight: f64,
    lasted: Duration,
}

impl Steady {
    /// Takes in what is wanted in a tick, `elapsed` after the one before.
    pub fn note(&mut self, weight: f64, elapsed: Duration) {
        match (weight - self.weight).abs() <= SAME_RATIO * self.weight {
            true => self.lasted = self.lasted.saturating_add(elapsed),
            false => *self = Steady { weight, lasted: Duration::ZERO },
        }
    }

    /// Whether it has been the same for long enough.
    pub fn is_steady(&self) -> bool {
        self.lasted >= STEADY_AFTER
    }
}

// --- recorded ---

coded!(struct Steady { weight, lasted });

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
        // It has moved, if slowly: by a hundredth from where it began.
        assert!(!after(107.1, 1) && !after(107.1, 9));
        assert!(after(107.1, 1));
    }
}
