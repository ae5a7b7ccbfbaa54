//! Emergency: the whole host stalls on memory, and the agent withdraws its protection.
//!
//! **Problem.** Protection rests on estimates. If these are wrong, reclaim finds nothing and every task
//! stalls; the agent's own values may be the cause.
//!
//! **Rule.** While the host's PSI `memory` `full` is above a half: after 5 s only guarantees are protected;
//! after 15 s nothing is, as without the agent. Protection returns after 30 s below a tenth. A tick without
//! a reading changes nothing.

use serde::{Deserialize, Serialize};
use std::time::Duration;

const FULL_RATIO: f64 = 0.5;
const CALM_RATIO: f64 = 0.1;
const FIRST_AFTER: Duration = Duration::from_secs(5);
const SECOND_AFTER: Duration = Duration::from_secs(15);
const CALM_AFTER: Duration = Duration::from_secs(30);

/// Withdrawn protection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Stage {
    /// Nothing is withdrawn.
    #[default]
    Calm,
    /// Protection beyond guarantees is withdrawn.
    Guarantees,
    /// All protection is withdrawn.
    Nothing,
}

impl Stage {
    /// Text of the finding; `None` if nothing is withdrawn.
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

/// Stall time of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alarm {
    stage: Stage,
    stalled: Duration,
    calm: Duration,
}

impl Alarm {
    /// Current stage.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Adds a tick with `full_ratio` (PSI `full`).
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
