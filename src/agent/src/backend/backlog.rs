//! Decided values that are not written yet.
//!
//! Writing the values of a thousand tenants takes longer than a tick may take. A tick executes the first of its
//! actions, and the others follow between two ticks in the order of the plan: growing before shrinking, parents
//! before children. The next tick plans again from the values in the files, which includes everything still
//! unwritten.

use std::collections::VecDeque;

use tenantd_control::words::knob::Action;

#[derive(Debug, Default)]
pub(super) struct Backlog {
    actions: VecDeque<Action>,
    nr_behind: u32,
}

impl Backlog {
    /// Takes the actions of a new tick, and returns how many of them the tick itself executes: `nr_max`,
    /// doubled for each consecutive tick that found some left. Otherwise the end of a plan would never be
    /// written without time between ticks.
    pub(super) fn replace(&mut self, actions: VecDeque<Action>, nr_max: usize) -> usize {
        self.nr_behind = if self.is_empty() { 0 } else { self.nr_behind + 1 };
        self.actions = actions;
        nr_max.saturating_mul(2_usize.saturating_pow(self.nr_behind))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// In order of execution.
    pub(super) fn actions(&self) -> impl Iterator<Item = &Action> {
        self.actions.iter()
    }

    pub(super) fn take(&mut self, nr_max: usize) -> Vec<Action> {
        let nr = nr_max.min(self.actions.len());
        self.actions.drain(..nr).collect()
    }
}
