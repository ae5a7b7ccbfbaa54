//! Room for the holdings of running requests, for each resource.

use serde::{Deserialize, Serialize};

/// Part of a capacity below which an amount counts as zero: sums round.
const ROUNDING: f64 = 1e-12;

/// A capacity of several resources, and the holdings of running requests.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Room {
    capacity: Vec<f64>,
    held: Vec<f64>,
}

/// Amount of a resource that a request holds: as stated, or one unit of the first resource if it states
/// nothing.
pub(super) fn amount(holds: &[f64], resource: usize) -> f64 {
    let unsaid = if holds.is_empty() && resource == 0 { 1.0 } else { 0.0 };
    holds.get(resource).copied().unwrap_or(unsaid)
}

/// Adds the holdings of a request (or, with a sign of −1, removes them).
pub(super) fn shift(held: &mut [f64], holds: &[f64], sign: f64, capacity: &[f64]) {
    for (resource, (held, whole)) in held.iter_mut().zip(capacity).enumerate() {
        *held += sign * amount(holds, resource);
        if *held < whole * ROUNDING {
            *held = 0.0;
        }
    }
}

impl Room {
    pub(super) fn new(capacity: Vec<f64>) -> Room {
        let held = vec![0.0; capacity.len()];
        Room { capacity, held }
    }

    /// True if a request would fit beside those that run.
    pub(super) fn fits(&self, holds: &[f64]) -> bool {
        let mut resources = self.held.iter().zip(&self.capacity).enumerate();
        resources.all(|(resource, (held, whole))| {
            let wanted = amount(holds, resource);
            wanted == 0.0 || held + wanted <= whole * (1.0 + ROUNDING)
        })
    }

    /// A request starts (sign 1), or ends (sign −1).
    pub(super) fn shift(&mut self, holds: &[f64], sign: f64) {
        shift(&mut self.held, holds, sign, &self.capacity);
    }
}
