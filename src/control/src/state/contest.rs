//! Yields to another program that keeps overwriting a value.
//!
//! **Problem.** `control.on_drift: repair` overwrites values of other programs. If the other program
//! repairs too, the value flips forever: neither value is in force, and both programs waste work.
//!
//! **Terms.** The agent loses a *round* when it finds its value overwritten and would write it again, or
//! when the file holds another value right after the write.
//!
//! **Rules.** After [`ROUNDS`] lost rounds within [`WINDOW_TICKS`] the agent *yields*: it leaves the file
//! alone for [`PAUSE_TICKS`], then writes it once more. Another lost round within the window doubles the
//! pause, up to about an hour. A value that stands for a window ends the contest. A policy reload and
//! `tenantctl mode enforce` end every pause at once.
//!
//! **Properties** (`tests/control/contest.rs`). Against a persistent writer the number of writes is
//! logarithmic in the pauses, then 1 per longest pause. The agent notices within one pause that the other
//! program stopped. Fewer than [`ROUNDS`] lost rounds in any window never make it yield.

use serde::{Deserialize, Serialize};

use crate::words::knob::Knob;

/// Lost rounds within [`WINDOW_TICKS`] that make the agent yield.
pub const ROUNDS: usize = 5;
/// Window for lost rounds, in ticks. Files are read every 10 ticks, so [`ROUNDS`] means one round in two
/// readings.
pub const WINDOW_TICKS: u64 = 100;
/// First pause, in ticks.
pub const PAUSE_TICKS: u64 = 60;
/// Longest pause, in ticks.
pub const PAUSE_TICKS_MAX: u64 = PAUSE_TICKS << 6;

/// Values of one cgroup that another program overwrites.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contests {
    each: Vec<Contest>,
}

/// A contested value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contest {
    /// The contested knob.
    pub knob: Knob,
    /// True while the agent leaves the file alone.
    pub has_yielded: bool,
    /// Length of the current or last pause; 0 if there was none.
    pub pause_ticks: u64,
    /// Ticks of the rounds lost within the window.
    lost: Vec<u64>,
    until: u64,
}

impl Contests {
    /// Returns true if the file of `knob` is left alone.
    pub fn has_yielded(&self, knob: Knob) -> bool {
        self.each.iter().any(|contest| contest.knob == knob && contest.has_yielded)
    }

    /// Contests in which the agent has yielded.
    pub fn yielded(&self) -> impl Iterator<Item = &Contest> {
        self.each.iter().filter(|contest| contest.has_yielded)
    }

    /// Begins a tick: ends expired pauses and forgets settled contests.
    pub fn begin_tick(&mut self, tick: u64) {
        for contest in &mut self.each {
            contest.has_yielded &= tick < contest.until;
            contest.lost.retain(|lost| tick - lost < WINDOW_TICKS);
        }
        let is_tried = |contest: &Contest| tick < contest.until + WINDOW_TICKS;
        self.each.retain(|contest| {
            contest.has_yielded
                || !contest.lost.is_empty()
                || contest.is_known() && is_tried(contest)
        });
    }

    /// Counts a lost round for `knob`. Returns true if the agent leaves the file alone from now on.
    pub fn lose_round(&mut self, knob: Knob, tick: u64) -> bool {
        let found = self.each.iter().position(|contest| contest.knob == knob);
        let index = found.unwrap_or_else(|| {
            self.each.push(Contest::new(knob));
            self.each.len() - 1
        });
        self.each[index].lose_round(tick)
    }

    /// Ends all pauses in this tick.
    pub fn try_again(&mut self, tick: u64) {
        for contest in self.each.iter_mut().filter(|contest| contest.has_yielded) {
            (contest.has_yielded, contest.until) = (false, tick);
        }
    }

    /// Forgets the contest for `knob`.
    pub fn forget(&mut self, knob: Knob) {
        self.each.retain(|contest| contest.knob != knob);
    }
}

impl Contest {
    fn new(knob: Knob) -> Contest {
        Contest { knob, has_yielded: false, pause_ticks: 0, lost: Vec::new(), until: 0 }
    }

    /// True if the agent yielded before: then one more lost round is enough.
    fn is_known(&self) -> bool {
        self.pause_ticks > 0
    }

    fn lose_round(&mut self, tick: u64) -> bool {
        if self.has_yielded {
            return false;
        }
        self.lost.push(tick);
        if !self.is_known() && self.lost.len() < ROUNDS {
            return false;
        }
        self.lost.clear();
        self.has_yielded = true;
        self.pause_ticks = (self.pause_ticks * 2).clamp(PAUSE_TICKS, PAUSE_TICKS_MAX);
        self.until = tick + self.pause_ticks;
        true
    }
}
