//! Distance between received and allocated CPU time, measured each tick.
//!
//! **Terms.**
//! - *Share error*: the part of the divided CPUs that a tenant is entitled to, wants, and did not get in
//!   the last interval. It is 0 for a tenant whose tasks never waited.
//! - *Delivery*: received over allocated CPU time. It is 1 if both agree, whatever the weight, so Jain's
//!   index over deliveries is 1 for an exact division.
//! - *Starved*: less than half of the weight-fair share (or of a smaller demand), while tasks wait.
//! - *Unfairness episode*: a run of ticks with a share error above [`FAIR_ERROR_MAX`]. Its length is the
//!   time that the agent needed to enforce its decision.
//!
//! Allocations are decided from the interval in which they are measured, so the first tick after a load
//! change counts as unfair.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Largest share error that counts as fair.
pub const FAIR_ERROR_MAX: f64 = 0.05;

const STARVED_RATIO: f64 = 0.5;

/// Measurements of one tenant in one interval.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// CPUs used.
    pub used_cores: f64,
    /// True if its tasks waited.
    pub pressed: bool,
    /// CPUs it could have used.
    pub demand_cores: f64,
    /// CPUs it was entitled to.
    pub allocation_cores: f64,
    /// CPUs by its weight alone.
    pub fair_share_cores: f64,
}

impl Measured {
    /// Part of `divided_cores` that it was entitled to, wanted and did not get, 0 ..= 1.
    pub fn share_error(&self, divided_cores: f64) -> f64 {
        let entitled = self.allocation_cores.min(self.demand_cores);
        if self.pressed {
            ((entitled - self.used_cores) / divided_cores.max(f64::MIN_POSITIVE)).max(0.0)
        } else {
            0.0
        }
    }

    /// Received CPUs over the CPUs it is entitled to and wants. `None` for a satisfied tenant within its
    /// own share, which is no evidence of the division among others.
    pub fn delivery(&self) -> Option<f64> {
        let due = self.allocation_cores.min(self.demand_cores);
        let wants_more = self.pressed || self.demand_cores > self.allocation_cores;
        (wants_more && due > 0.0).then(|| self.used_cores / due)
    }

    /// True if it got less than half of its weight-only share.
    pub fn is_starved(&self) -> bool {
        let due = self.fair_share_cores.min(self.demand_cores);
        self.pressed && self.used_cores < STARVED_RATIO * due
    }
}

/// Current or last episode of unfairness.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Episode {
    length: Option<Duration>,
    lasts: bool,
}

impl Episode {
    /// Adds an interval with its largest share error.
    pub fn step(&mut self, share_error_max: f64, elapsed: Duration) {
        let lasts = share_error_max > FAIR_ERROR_MAX;
        if lasts {
            let before = if self.lasts { self.length.unwrap_or_default() } else { Duration::ZERO };
            self.length = Some(before + elapsed);
        }
        self.lasts = lasts;
    }

    /// Length of the episode so far; `None` if there never was one.
    pub fn length(&self) -> Option<Duration> {
        self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn measured(used_cores: f64, pressed: bool) -> Measured {
        Measured {
            used_cores,
            pressed,
            demand_cores: 4.0,
            allocation_cores: 3.0,
            fair_share_cores: 2.0,
        }
    }

    #[test]
    fn only_a_waiting_tenant_is_short_of_its_share() {
        assert_eq!(measured(1.0, true).share_error(8.0), 0.25);
        assert_eq!(measured(1.0, false).share_error(8.0), 0.0);
        assert_eq!(measured(3.5, true).share_error(8.0), 0.0);
        assert!(measured(0.9, true).is_starved());
        assert!(!measured(0.9, false).is_starved());
        assert!(!measured(1.1, true).is_starved());
    }

    #[test]
    fn a_delivery_is_what_was_got_over_what_is_due() {
        assert_eq!(measured(3.0, true).delivery(), Some(1.0));
        assert_eq!(measured(1.5, true).delivery(), Some(0.5));
        // More than its own share without pressure: evidence of unfairness while other tenants wait.
        assert_eq!(measured(4.0, false).delivery(), Some(4.0 / 3.0));
        let content = Measured { demand_cores: 2.2, ..measured(2.0, false) };
        assert_eq!(content.delivery(), None);
        assert_eq!(Measured { demand_cores: 2.5, ..measured(2.0, true) }.delivery(), Some(0.8));
        assert_eq!(Measured { demand_cores: 0.0, ..measured(0.0, true) }.delivery(), None);
    }

    #[test]
    fn an_episode_is_remembered_until_the_next_one() {
        let mut episode = Episode::default();
        episode.step(0.01, SECOND);
        assert_eq!(episode.length(), None);
        episode.step(0.2, SECOND);
        episode.step(0.1, SECOND);
        episode.step(0.0, SECOND);
        assert_eq!(episode.length(), Some(2 * SECOND));
        episode.step(0.2, SECOND);
        assert_eq!(episode.length(), Some(SECOND));
    }
}
