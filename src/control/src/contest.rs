//! When the agent gives way to another program that keeps overwriting a value.
//!
//! **Problem.** `control.on_drift: repair` overwrites what another program wrote. Where that program writes again and
//! again, the value changes back and forth for ever: neither of the two is in force, and both work for nothing.
//!
//! **Terms.** A *round* is lost when a value of the agent is found overwritten and would be written again, or when
//! the file holds something else right after the write.
//!
//! **Rules.** After [`ROUNDS`] lost rounds within [`WINDOW_TICKS`] the agent *yields*: it leaves the file alone for
//! a minute of ticks, then writes it once more. A round that is lost within another window makes it yield again, for
//! twice as long, up to about an hour. A value that stands for a window is the agent's again, and the contest is
//! forgotten. A reload of the policy and `tenantctl mode enforce` end every pause at once.
//!
//! **Properties** (`tests/control/contest.rs`). Against a writer that never gives up the agent writes a number of times
//! that is logarithmic in the pauses, then once in the longest pause. A writer that gives up is noticed within one
//! pause. Fewer rounds than that within any window never make it yield.

use tenantd_core::codec::coded;

use super::plan::Knob;

/// So many lost rounds make the agent yield ...
pub const ROUNDS: usize = 5;
/// ... when they lie within so many ticks. Files are read in one of ten ticks, so this is one round in two readings.
pub const WINDOW_TICKS: u64 = 100;
/// How long the agent leaves a file alone at first.
pub const PAUSE_TICKS: u64 = 60;
/// How long at most.
pub const PAUSE_TICKS_MAX: u64 = PAUSE_TICKS << 6;

/// The values of one cgroup that another program overwrites.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contests {
    each: Vec<Contest>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contest {
    /// Which.
    pub knob: Knob,
    /// Whether the file is left alone now.
    pub has_yielded: bool,
    /// The length of the present or the last pause; 0 where there was none yet.
    pub pause_ticks: u64,
    /// The ticks of the rounds that were lost within the window.
    lost: Vec<u64>,
    /// When the pause ends or ended.
    until: u64,
}

impl Contests {
    /// Whether the file of `knob` is left alone.
    pub fn has_yielded(&self, knob: Knob) -> bool {
        self.each.iter().any(|contest| contest.knob == knob && contest.has_yielded)
    }

    /// Those that are left alone now.
    pub fn yielded(&self) -> impl Iterator<Item = &Contest> {
        self.each.iter().filter(|contest| contest.has_yielded)
    }

    /// Begins the tick with this number: ends pauses that are over, and forgets contests that are.
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

    /// The value of `knob` was overwritten; returns whether its file is left alone from now on.
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

    /// Forgets that of `knob`.
    pub fn forget(&mut self, knob: Knob) {
        self.each.retain(|contest| contest.knob != knob);
    }
}

impl Contest {
    fn new(knob: Knob) -> Contest {
        Contest { knob, has_yielded: false, pause_ticks: 0, lost: Vec::new(), until: 0 }
    }

    /// Whether the agent yielded before: then one more round is enough.
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

// --- recorded ---

coded!(struct Contests { each });
coded!(struct Contest { knob, has_yielded, pause_ticks, lost, until });
