//! The emergency: the whole host waits for memory, and the agent withdraws what it has set.
//!
//! **Problem.** What the agent protects rests on estimates. Where these are wrong, reclaim finds nothing and every task
//! of the host waits: then the agent's own values may be the cause, and there is no time to ask.
//!
//! **Rule.** While the host's PSI `memory` `full` stays above a half of the time: after five seconds only guarantees are
//! protected; after fifteen nothing is. The host is then as it would be without the agent. Both come back after thirty
//! seconds below a tenth. A tick without a reading changes nothing.

use std::time::Duration;
use tenantd_core::codec::coded;

const FULL_RATIO: f64 = 0.5;
const CALM_RATIO: f64 = 0.1;
const FIRST_AFTER: Duration = Duration::from_secs(5);
const SECOND_AFTER: Duration = Duration::from_secs(15);
const CALM_AFTER: Duration = Duration::from_secs(30);

/// What is withdrawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Nothing.
    #[default]
    Calm,
    /// Protection beyond guarantees.
    Guarantees,
    /// All protection.
    Nothing,
}

impl Stage {
    /// As a finding; `None` where nothing is withdrawn.
    pub fn text(self) -> Option<&'static str> {
        match self {
            Stage::Calm => None,
            Stage::Guarantees => Some(
                "the whole host waits for memory: only guarantees are protected until it does not",
            ),
            Stage::Nothing => {
                Some("the whole host waits for memory: nothing is protected until it does not")
            }
        }
    }
}

/// How long the host has waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Alarm {
    stage: Stage,
    stalled: Duration,
    calm: Duration,
}

impl Alarm {
    /// What is withdrawn.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// One tick, in which all tasks waited for `full_ratio` of the time.
    pub fn step(&mut self, full_ratio: Option<f64>, elapsed: Duration) {
        let Some(full_ratio) = full_ratio else { return };
        self.stalled =
            if full_ratio > FULL_RATIO { self.stalled + elapsed } else { Duration::ZERO };
        self.calm = if full_ratio < CALM_RATIO { self.calm + elapsed } else { Duration::ZERO };
        let reached = match self.stalled {
            stalled if stalled >= SECOND_AFTER => Stage::Nothing,
            stalled if stalled >= FIRST_AFTER => Stage::Guarantees,
            _ => Stage::Calm,
        };
        self.stage = self.stage.max(reached);
        if self.calm >= CALM_AFTER {
            self.stage = Stage::Calm;
        }
    }
}

// --- recorded ---

coded!(
    enum Stage {
        Calm {},
        Guarantees {},
        Nothing {},
    }
);
coded!(struct Alarm { stage, stalled, calm });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_stays_stalled_is_released_in_two_stages_and_recovers() {
        let mut alarm = Alarm::default();
        let mut after = |seconds: u32, full: Option<f64>| {
            (0..seconds).for_each(|_| alarm.step(full, Duration::from_secs(1)));
            alarm.stage()
        };
        assert_eq!(after(4, Some(0.9)), Stage::Calm);
        assert_eq!(after(1, Some(0.4)), Stage::Calm, "it has to stay so");
        assert_eq!(after(4, Some(0.6)), Stage::Calm);
        assert_eq!(after(9, None), Stage::Calm, "not read");
        assert_eq!(after(1, Some(0.6)), Stage::Guarantees);
        assert_eq!(after(10, Some(0.6)), Stage::Nothing);
        assert_eq!(after(100, Some(0.2)), Stage::Nothing, "not over yet");
        assert_eq!(after(29, Some(0.0)), Stage::Nothing);
        assert_eq!(after(1, Some(0.0)), Stage::Calm);
    }
}
