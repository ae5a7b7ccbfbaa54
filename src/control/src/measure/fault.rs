//! Fault counters: number and length of a tenant's unmet demands.
//!
//! An *episode* is a run of intervals with the fault. An unreadable interval neither begins nor ends an
//! episode. A fault that the kernel does not report is absent, never zero.

use serde::{Deserialize, Serialize};
use std::time::Duration;

use tenantd_core::resource::PerResource;

/// One kind of fault of one tenant, since the agent started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    nr_episodes: u64,
    time: Duration,
    lasts: bool,
    is_known: bool,
}

impl Fault {
    /// Adds an interval; `None` if the fault is unknown in it.
    pub fn note(&mut self, holds: Option<bool>, elapsed: Duration) {
        let Some(holds) = holds else { return };
        self.is_known = true;
        if holds {
            self.nr_episodes += u64::from(!self.lasts);
            self.time += elapsed;
        }
        self.lasts = holds;
    }

    /// Number of episodes; `None` if it was never known.
    pub fn nr_episodes(&self) -> Option<u64> {
        self.is_known.then_some(self.nr_episodes)
    }

    /// Total length of all episodes.
    pub fn time(&self) -> Duration {
        self.time
    }
}

/// All faults of one tenant. OOM kills have no length and are counted in [`super::usage::Kills`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Faults {
    /// Shortfall of a resource ([`crate::why::shortfall`]).
    pub short: PerResource<Fault>,
    /// Less than half of its fair share of the CPUs.
    pub starved: Fault,
    /// Throttled by a CPU limit: its own, or that of a group above it.
    pub throttled: Fault,
    /// Reclaim of protected memory.
    pub reclaimed: Fault,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_intervals_is_one_episode_and_an_unread_interval_changes_nothing() {
        let (mut fault, second) = (Fault::default(), Duration::from_secs(1));
        fault.note(None, second);
        assert_eq!(fault.nr_episodes(), None);
        for (holds, nr_episodes, seconds) in [
            (Some(false), 0, 0),
            (Some(true), 1, 1),
            (None, 1, 1),
            (Some(true), 1, 2),
            (Some(false), 1, 2),
            (Some(true), 2, 3),
        ] {
            fault.note(holds, second);
            assert_eq!((fault.nr_episodes(), fault.time()), (Some(nr_episodes), seconds * second));
        }
    }
}
