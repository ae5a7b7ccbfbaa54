//! What came of a decision, and what is lost or void since: it counts in the next tick.

use super::{ControlLoop, yielding};
use crate::drift::{self, Observation};
use crate::finding::{Code, Finding};
use crate::pids;
use crate::plan::{Action, Knob};
use crate::state::{NodeState, Outcome};

impl ControlLoop {
    /// Whether `action` is to be tried now: one that failed waits.
    pub fn is_due(&self, action: &Action) -> bool {
        !self.states[action.node].waits(action.knob, self.tick)
    }

    /// Takes in the result of an action.
    pub fn settle(&mut self, (action, outcome): Outcome) {
        let (tick, state) = (self.tick, &mut self.states[action.node]);
        if let (Ok(_), Some((now, _))) = (&outcome, self.last) {
            state.observed_at[action.knob as usize] = now;
        }
        let yields = state.settle(&action, tick, outcome);
        self.nr_yields += u64::from(yields);
    }

    /// Takes in what the files of a node hold that was opened since the last tick: the next one need not read them.
    pub fn observe_first(&mut self, number: usize, observed: Vec<Observation>) {
        let (state, now) = (&mut self.states[number], self.last.map(|(now, _)| now));
        for seen in &observed {
            state.observed_at[seen.knob as usize] = now.unwrap_or_default();
        }
        drift::observe(number, state, observed);
    }

    /// Drops the acceptance of a foreign value that could not be recorded in the journal.
    pub fn reclaim(&mut self, number: usize, knob: Knob) {
        self.states[number].left_to_others.retain(|known| *known != knob);
    }

    /// The cgroup of the node with this number went away; accepted foreign values are forgotten with it,
    /// unless they outlive the cgroup (`keeps_left`).
    pub fn lose(&mut self, number: usize, keeps_left: bool) {
        self.states[number].lose_cgroup(keeps_left);
    }

    /// The value of `knob` was restored: what is known of it is void.
    pub fn forget(&mut self, number: usize, knob: Knob) {
        self.states[number].forget(knob);
    }

    /// All cgroups are opened anew: what their files held is read again, and nothing waits.
    pub fn forget_observed(&mut self) {
        for state in &mut self.states {
            state.observed.clear();
            state.retries.clear();
        }
    }

    /// All values were restored.
    pub fn reset(&mut self) {
        self.states.iter_mut().for_each(NodeState::reset);
    }

    /// Pending writes, accepted foreign values and reached limits of processes, as text; `file` names a knob's file.
    pub fn findings(&self, file: impl Fn(Knob) -> &'static str) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (number, state) in self.states.iter().enumerate() {
            let name = self.tree.name(number);
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
