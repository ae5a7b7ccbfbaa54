//! How far what tenants get is from what they are entitled to, measured each tick.
//!
//! **Terms.** A tenant's *share error* is the part of the divided CPUs which it is entitled to, wants, and
//! did not get in the last interval: 0 for a tenant whose tasks never waited, whatever it used. What it got
//! over what it is entitled to is its *delivery*: 1 where the two agree, whatever its weight and its group,
//! so that Jain's index over deliveries is 1 for a division that is exactly as decided. A tenant is *starved*
//! while it gets less than half of its weight-fair share (or of its demand, where that is less) and its tasks
//! wait. An *unfairness episode* is a run of ticks in which some share error exceeds [`FAIR_ERROR_MAX`]; its
//! length is the time that the agent took to bring about what it decided.
//!
//! What a tenant is entitled to is decided from the same interval in which it is measured, so the first tick
//! after a load changes counts as wrong, as it should.

use std::time::Duration;
use tenantd_core::codec::coded;

/// The largest share error that counts as fair: a twentieth of what is divided.
pub const FAIR_ERROR_MAX: f64 = 0.05;

/// Less than this part of the fair share counts as starved.
const STARVED_RATIO: f64 = 0.5;

/// One tenant in one interval.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// CPUs used.
    pub used_cores: f64,
    /// Whether its tasks waited.
    pub pressed: bool,
    /// CPUs it could have used.
    pub demand_cores: f64,
    /// CPUs it was entitled to.
    pub allocation_cores: f64,
    /// CPUs that its weight alone gives it.
    pub fair_share_cores: f64,
}

impl Measured {
    /// The part of the `divided_cores` that it was entitled to, wanted and did not get, 0 ..= 1.
    pub fn share_error(&self, divided_cores: f64) -> f64 {
        let entitled = self.allocation_cores.min(self.demand_cores);
        match self.pressed {
            true => ((entitled - self.used_cores) / divided_cores.max(f64::MIN_POSITIVE)).max(0.0),
            false => 0.0,
        }
    }

    /// The CPUs it got over those it is entitled to and wants. `None` where it had all that it wants and no
    /// more than its own share: a tenant that leaves CPUs to others is no evidence of how the others divide
    /// them.
    pub fn delivery(&self) -> Option<f64> {
        let due = self.allocation_cores.min(self.demand_cores);
        let wants_more = self.pressed || self.demand_cores > self.allocation_cores;
        (wants_more && due > 0.0).then(|| self.used_cores / due)
    }

    /// Whether it got less than half of what its weight alone would have given it.
    pub fn is_starved(&self) -> bool {
        let due = self.fair_share_cores.min(self.demand_cores);
        self.pressed && self.used_cores < STARVED_RATIO * due
    }
}

/// The present or the last episode of unfairness.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Episode {
    length: Option<Duration>,
    lasts: bool,
}

impl Episode {
    /// Another interval, with the largest share error in it.
    pub fn step(&mut self, share_error_max: f64, elapsed: Duration) {
        let lasts = share_error_max > FAIR_ERROR_MAX;
        if lasts {
            let before = if self.lasts { self.length.unwrap_or_default() } else { Duration::ZERO };
            self.length = Some(before + elapsed);
        }
        self.lasts = lasts;
    }

    /// How long the episode took, or has taken; `None` where there never was one.
    pub fn length(&self) -> Option<Duration> {
        self.length
    }
}

// --- recorded ---

coded!(struct Episode { length, lasts });

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
        // More than its own share without pressure: evidence of unfairness where other tenants wait.
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
