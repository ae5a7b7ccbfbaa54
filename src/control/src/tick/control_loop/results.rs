//! Results of a decision and external changes, which count in the next tick.

use super::{ControlLoop, yielding};
use crate::share::pids;
use crate::state::drift::{self, Observation};
use crate::state::{NodeState, Outcome};
use crate::words::finding::{Code, Finding};
use crate::words::knob::{Action, Knob};
use tenantd_core::node::NodeId;

impl ControlLoop {
    /// True if `action` may be tried now. A failed action waits.
    pub fn is_due(&self, action: &Action) -> bool {
        self.state(action.node).is_some_and(|state| !state.waits(action.knob, self.tick))
    }

    /// Records the result of an action.
    pub(crate) fn settle(&mut self, (action, outcome): Outcome) {
        let (tick, last) = (self.tick, self.last);
        let Some(state) = self.state_mut(action.node) else { return };
        if let (Ok(_), Some((now, _))) = (&outcome, last) {
            state.observed_at[action.knob as usize] = now;
        }
        let yields = state.settle(&action, tick, outcome);
        self.nr_yields += u64::from(yields);
    }

    /// Records the file contents of a newly opened node, so that the next tick need not read them.
    pub(crate) fn observe_first(&mut self, node: NodeId, observed: Vec<Observation>) {
        let now = self.last.map(|(now, _)| now);
        let Some(state) = self.state_mut(node) else { return };
        for seen in &observed {
            state.observed_at[seen.knob as usize] = now.unwrap_or_default();
        }
        drift::observe(node, state, observed);
    }

    /// Drops the acceptance of a foreign value that could not be recorded in the journal.
    pub(crate) fn reclaim(&mut self, node: NodeId, knob: Knob) {
        if let Some(state) = self.state_mut(node) {
            state.left_to_others.retain(|known| *known != knob);
        }
    }

    /// Handles the loss of a node's cgroup. Accepted foreign values are forgotten, unless they outlive the
    /// cgroup (`keeps_left`).
    pub(crate) fn lose(&mut self, node: NodeId, keeps_left: bool) {
        if let Some(state) = self.state_mut(node) {
            state.lose_cgroup(keeps_left);
        }
    }

    /// Forgets the state of `knob` after its value was restored.
    pub(crate) fn forget(&mut self, node: NodeId, knob: Knob) {
        if let Some(state) = self.state_mut(node) {
            state.forget(knob);
        }
    }

    /// Forgets all observed values and retries because all cgroups are opened anew.
    pub(crate) fn forget_observed(&mut self) {
        for state in &mut self.states {
            state.observed.clear();
            state.retries.clear();
        }
    }

    /// Resets all nodes after all values were restored.
    pub(crate) fn reset(&mut self) {
        self.states.iter_mut().for_each(NodeState::reset);
    }

    /// Findings for pending writes, accepted foreign values and reached process limits; `file` names a
    /// knob's file.
    pub fn findings(&self, file: impl Fn(Knob) -> &'static str) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (node, state) in self.tree.all().zip(&self.states) {
            let name = node.name();
            findings.extend(state.left_to_others.iter().map(|knob| {
                let file = file(*knob);
                let what =
                    format!("its {file} was set by someone else and is left so (control.on_drift)");
                Finding::of(name, Code::LeftToOthers, what)
            }));
            let contests = state.contests.yielded();
            findings.extend(contests.map(|c| yielding::finding(name, c, file(c.knob))));
            let most = state.observed(Knob::PidsMax);
            findings.extend(pids::finding(name, &state.pids, most));
            let mut messages: Vec<&String> =
                state.retries.iter().filter_map(|retry| retry.refusal.message.as_ref()).collect();
            // Systemd gives the same reason for every value of a unit.
            messages.dedup();
            findings.extend(
                messages
                    .iter()
                    .map(|message| Finding::of(name, Code::NotWritten, message.as_str())),
            );
        }
        findings
    }
}
