//! CPU time of tenants whose jobs take turns.
//!
//! **Problem.** Weights divide CPU time among those that run. Where jobs are as wide as the host, one tenant's job runs while
//! the jobs of others wait for its slots. The weight of those that wait counts for nothing, so tenants without jobs get what
//! they leave: of two tenants with jobs and one without, all of one weight, each should have a third, and the one without has
//! a half.
//!
//! **Terms.**
//!
//! | term | meaning |
//! |---|---|
//! | held | slots of the running jobs of a tenant, or of all below a group |
//! | awaited | a job of it waits for nothing but slots, or a worker |
//! | other use | CPUs that it used in the last interval, if no job of it held slots then |
//! | entitled | CPUs that it is weighed by among its siblings |
//!
//! **Rule.** A node that awaits slots *lends* what it is entitled to beyond those it holds and its other use. What siblings lend
//! is divided among those of them that hold slots, in proportion to the slots, and a group's among its members likewise. The
//! queue divides CPU time among tenants with jobs, so each of them gets back over time what it lent.
//!
//! A job may be over before its weight is written. So what is lent to a node is a mean over the ticks in which its jobs hold
//! slots ([`HALF_LIFE`]), and stands while they wait for their next turn. Otherwise it fades, and so it does while the other use
//! is more than [`OTHER_USE_MAX`] of what the node is entitled to: that would take what is meant for the jobs.
//!
//! An ancestor that is no group is weighed by the tenants below it ([`super::govern`]), and has the mean of what is lent to them
//! less what they lend: what one of them lends to another is theirs already, and no other one below it is to have it. That
//! may be negative while others below it work; an ancestor whose tenants all wait keeps its weight.
//!
//! **Properties** (`tests/control/turns.rs`). No tenant's entitlement falls; all that is lent is at most what those that wait are
//! entitled to; where no job waits for slots, weights are what they were. With jobs in turns, tenants without jobs have their
//! own shares (`tests/agent/selfish.rs`).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::tree::{Tree, TreeNode};

/// Half-life of the mean, in time that a tenant's jobs hold slots.
const HALF_LIFE: Duration = Duration::from_secs(2);
/// Other use, as a part of what a node is entitled to, up to which a loan stands.
const OTHER_USE_MAX: f64 = 0.25;
/// Less than this fades to nothing.
const LEAST_CORES: f64 = 1e-3;

/// Slots of a tenant's jobs in the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slots {
    /// Those that its running jobs hold.
    pub held: u32,
    /// True if a job of it waits for nothing but slots, or a worker.
    pub are_awaited: bool,
    /// True if a job of it has held slots since the last tick.
    pub were_held: bool,
}

/// A governed cgroup beside the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Turn {
    /// Slots of its jobs.
    pub slots: Slots,
    /// CPUs that it used in the last interval.
    pub used_cores: f64,
    /// CPUs that were lent to it at the last tick; negative for an ancestor below which more was lent.
    pub lent_cores: f64,
}

/// Turns of all governed cgroups.
#[derive(Clone, Debug, Default)]
pub struct Turns {
    /// By position in the tree; missing ones have no jobs. Those of groups and ancestors follow from the tenants below them.
    pub each: Vec<Turn>,
    /// Time since the last tick.
    pub elapsed: Duration,
}

/// CPUs that are lent to a node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Loan {
    /// Mean over its turns.
    pub(crate) lent_cores: f64,
    /// Those of this moment, less what it lends.
    pub(crate) net_cores: f64,
}

impl Turns {
    /// True if weights do not depend on turns.
    pub(crate) fn are_over(&self) -> bool {
        self.each.iter().all(|turn| !turn.slots.are_awaited && turn.lent_cores == 0.0)
    }

    /// Loan of each node. `sets` has the siblings at the top and those below each node, which are `entitled` to these CPUs.
    /// O(n).
    pub(crate) fn lend(
        &self,
        nodes: &[TreeNode],
        sets: &[Vec<usize>],
        entitled: &[f64],
    ) -> Vec<Loan> {
        // Nodes are in pre-order: a group comes before its members.
        let from_below = (0..nodes.len()).rev().filter_map(|at| Some((at, nodes[at].parent?)));
        let turns = self.summed(nodes.len(), &from_below.collect::<Vec<_>>());
        let mut loans = vec![Loan::default(); nodes.len()];
        for (set, members) in sets.iter().enumerate() {
            let from_above = set.checked_sub(1).map_or(0.0, |group| loans[group].net_cores);
            let lends = |at: usize| turns[at].lends(entitled[at]);
            let held = |at: usize| f64::from(turns[at].slots.held);
            let all_lent = from_above.max(0.0) + members.iter().map(|at| lends(*at)).sum::<f64>();
            let all_held: f64 = members.iter().map(|at| held(*at)).sum();
            for at in members.iter().copied() {
                let lent = if all_held > 0.0 { all_lent * held(at) / all_held } else { 0.0 };
                let lent_cores = turns[at].mean(lent, entitled[at], self.kept());
                loans[at] = Loan { lent_cores, net_cores: lent - lends(at) };
            }
        }
        loans
    }

    /// CPUs lent to each ancestor for the tenants below it, less those that they lend, by position in `tree`. `net` are the
    /// loans of tenants and members; all are `entitled` to these CPUs.
    pub(crate) fn lent_above(
        &self,
        tree: &Tree,
        net: impl Fn(usize) -> f64,
        entitled: impl Fn(usize) -> f64,
    ) -> Vec<f64> {
        let from_below: Vec<(usize, usize)> = tree
            .from_above()
            .rev()
            .filter_map(|node| Some((node.at(), node.governed_parent()?.at())))
            .collect();
        let turns = self.summed(tree.len(), &from_below);
        let mut sums = vec![0.0; tree.len()];
        tree.all().filter(|node| node.has_work()).for_each(|node| sums[node.at()] = net(node.at()));
        from_below.iter().for_each(|(at, parent)| sums[*parent] += sums[*at]);
        let each = turns.into_iter().zip(sums).enumerate();
        each.map(|(at, (turn, net))| turn.mean(net, entitled(at), self.kept())).collect()
    }

    /// The turns of `nr` cgroups: those of parents are the sums of those below. `from_below` has each child with its parent,
    /// after those below it.
    fn summed(&self, nr: usize, from_below: &[(usize, usize)]) -> Vec<Turn> {
        let own = |turn: &Turn| Turn { used_cores: turn.other_cores(), ..*turn };
        let mut turns: Vec<Turn> = self.each.iter().map(own).collect();
        turns.resize(nr, Turn::default());
        for (_, parent) in from_below {
            turns[*parent] = Turn { lent_cores: turns[*parent].lent_cores, ..Turn::default() };
        }
        for (at, parent) in from_below {
            let Turn { slots, used_cores, .. } = turns[*at];
            let above = &mut turns[*parent];
            above.slots.held = above.slots.held.saturating_add(slots.held);
            above.slots.are_awaited |= slots.are_awaited;
            above.used_cores += used_cores;
        }
        turns
    }

    /// Part of a mean that remains.
    fn kept(&self) -> f64 {
        (-self.elapsed.as_secs_f64() / HALF_LIFE.as_secs_f64()).exp2()
    }
}

impl Turn {
    /// CPUs that it used without its jobs.
    fn other_cores(&self) -> f64 {
        if self.slots.were_held { 0.0 } else { self.used_cores }
    }

    /// CPUs that a node entitled to so many lends.
    fn lends(&self, entitled_cores: f64) -> f64 {
        let left = entitled_cores - f64::from(self.slots.held) - self.used_cores;
        if self.slots.are_awaited { left.max(0.0) } else { 0.0 }
    }

    /// Mean of what it is lent, with `now_cores` at this moment, and this part of the last one `kept`.
    fn mean(&self, now_cores: f64, entitled_cores: f64, kept: f64) -> f64 {
        let waits = self.slots.held == 0 && self.slots.are_awaited;
        let stands = waits && self.used_cores <= OTHER_USE_MAX * entitled_cores;
        let mean = self.lent_cores * kept + now_cores * (1.0 - kept);
        let mean = if stands { self.lent_cores.max(0.0) } else { mean };
        if mean.abs() < LEAST_CORES { 0.0 } else { mean }
    }
}
