//! A node on disks, between ticks.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Time without a request after which a tenant rests.
pub const REST: Duration = Duration::from_secs(10);

/// A node on disks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskState {
    /// Desired weight; `None` if no disk obeys one, or before the first computation.
    pub weight: Option<f64>,
    /// Demand for the contended disk, as a part of its time; `None` without such a disk.
    pub demand: Option<f64>,
    /// Smoothed use of that disk, as a part of its time, and of CPUs; `None` without such a disk.
    pub used: Option<(f64, f64)>,
    /// Part that it gets now if it wants it: of the contended disk, else of any with the present users.
    pub now_ratio: f64,
    /// Part of each disk while all tenants want all of it.
    pub standing_ratio: f64,
    /// Time since its last request; `None` before the first.
    rested: Option<Duration>,
    /// Smoothed part of the busiest disk used by foreign work below it; only for an ancestor.
    pub foreign_ratio: f64,
}

impl DiskState {
    /// True if it had a request in the last [`REST`].
    pub fn is_active(&self) -> bool {
        self.rested.is_some_and(|rested| rested < REST)
    }

    /// Ends the demand for a device that is no longer the contended one.
    pub fn forget_demand(&mut self) {
        (self.demand, self.used) = (None, None);
    }

    /// Takes an interval with or without a request.
    pub fn note(&mut self, has_work: bool, elapsed: Duration) {
        self.rested = match (has_work, self.rested) {
            (true, _) => Some(Duration::ZERO),
            (false, rested) => rested.map(|rested| rested.saturating_add(elapsed)),
        };
    }
}
