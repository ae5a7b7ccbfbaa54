//! Work that a tick leaves for the time until the next one, in one queue.
//!
//! Each kind can stop after any number of steps and continue later. Values come first: they are decided already.
//! Cgroups follow, then processes and width files of tenants that have one, then the search for claimed processes.
//!
//! **Values.** Writing the values of a thousand tenants takes longer than a tick may take. A tick executes the first of its
//! actions, and the others follow between two ticks in the order of the plan: growing before shrinking, parents
//! before children. The next tick plans again from the values in the files, which includes everything still
//! unwritten.

use std::collections::VecDeque;

use tenantd_control::words::knob::Action;

/// Kinds of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Write decided values.
    Write,
    /// Make and open cgroups.
    Attach,
    /// Move processes into cpusets.
    Join,
    /// Write the width files of tenants.
    Tell,
    /// Search for claimed processes.
    Search,
}

#[derive(Debug, Default)]
pub(super) struct Backlog {
    actions: VecDeque<Action>,
    nr_behind: u32,
    /// Number at which the pass over the agent's own cgroups continues; `None` when it is complete.
    pub(super) pass: Option<usize>,
    pub(super) has_unjoined: bool,
    pub(super) has_untold: bool,
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

    /// Drops the values: the numbers of their nodes have changed.
    pub(super) fn forget_actions(&mut self) {
        (self.actions, self.nr_behind) = (VecDeque::new(), 0);
    }

    /// The most urgent kind of work, with `nr_searches` parts of the process list still to be searched.
    pub(super) fn next(&self, nr_searches: usize) -> Option<Work> {
        let all = [
            (Work::Write, !self.is_empty()),
            (Work::Attach, self.pass.is_some()),
            (Work::Join, self.has_unjoined),
            (Work::Tell, self.has_untold),
            (Work::Search, nr_searches > 0),
        ];
        all.into_iter().find_map(|(work, is_owed)| is_owed.then_some(work))
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
