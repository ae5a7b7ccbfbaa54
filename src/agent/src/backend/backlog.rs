//! Values that were decided and are not written yet.
//!
//! To write the values of a thousand tenants takes longer than a tick may take. So a tick carries out the first of
//! its actions, and the others follow between two ticks, in the order of the plan: what grows before what shrinks,
//! parents before children. The next tick plans anew from what the files hold; what is still to be written then is
//! part of its plan.

use std::collections::VecDeque;

use tenantd_control::plan::Action;

/// The actions of the last tick that are still to be carried out.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    actions: VecDeque<Action>,
    /// How many ticks in a row found some left.
    nr_behind: u32,
}

impl Backlog {
    /// Takes the actions of another tick, and returns how many of them it carries out itself: `nr_max`, and twice as
    /// many for each tick in a row that found some left. Where no time is left between two ticks, the last of a plan
    /// would otherwise never be written.
    pub(super) fn replace(&mut self, actions: VecDeque<Action>, nr_max: usize) -> usize {
        self.nr_behind = if self.is_empty() { 0 } else { self.nr_behind + 1 };
        self.actions = actions;
        nr_max.saturating_mul(2_usize.saturating_pow(self.nr_behind))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// In the order in which they are carried out.
    pub(super) fn actions(&self) -> impl Iterator<Item = &Action> {
        self.actions.iter()
    }

    /// The next actions, at most `nr_max` of them.
    pub(super) fn take(&mut self, nr_max: usize) -> Vec<Action> {
        let nr = nr_max.min(self.actions.len());
        self.actions.drain(..nr).collect()
    }
}
