//! Values left to another program for a time because that program keeps overwriting them.

use super::ControlLoop;
use crate::state::contest::{Contest, ROUNDS};
use crate::state::drift::Drift;
use crate::words::finding::{Code, Finding};
use crate::words::knob::{Action, Wanted};

impl ControlLoop {
    /// Number of times the agent yielded since the start.
    pub fn nr_yields(&self) -> u64 {
        self.nr_yields
    }

    /// Number of values left to another program now.
    pub fn nr_contested(&self) -> u64 {
        self.states.iter().map(|state| state.contests.yielded().count() as u64).sum()
    }

    /// Writes yielded values again at the next tick. One more lost round makes the agent yield again, for
    /// longer.
    pub(crate) fn try_yielded(&mut self) {
        for state in &mut self.states {
            state.contests.try_again(self.tick);
        }
    }

    pub(crate) fn resume(&mut self) {
        for state in &mut self.states {
            state.contests.begin_tick(self.tick);
        }
    }

    /// Counts drift that would be overwritten in this tick, and removes yielded values from the plan.
    pub(crate) fn contest(
        &mut self,
        drifts: &[Drift],
        wanted: &mut Vec<Wanted>,
        actions: &mut Vec<Action>,
    ) {
        if !self.settings.is_enforcing {
            return;
        }
        for Drift { node, knob, .. } in drifts {
            let is_this = |action: &Action| (action.node, action.knob) == (*node, *knob);
            let tick = self.tick;
            let Some(state) = self.state_mut(*node) else { continue };
            if actions.iter().any(is_this) && state.contests.lose_round(*knob, tick) {
                state.retries.retain(|retry| retry.knob != *knob);
                self.nr_yields += 1;
                actions.retain(|action| !is_this(action));
                wanted.retain(|it| (it.node, it.knob) != (*node, *knob));
            }
        }
    }
}

pub(crate) fn finding(name: &str, contest: &Contest, file: &str) -> Finding {
    let pause = contest.pause_ticks;
    let message = format!(
        "another program keeps overwriting its {file}: after {ROUNDS} rounds, or one more after a pause, tenantd \
         leaves it alone for {pause} ticks"
    );
    let remedy = "find what writes it (a container runtime, a script, another agent) and end that, then run \
                  `tenantctl mode enforce`; or let it have such values for good (control.on_drift: accept)";
    Finding::of(name, Code::Contested, message).as_error().with_remedy(remedy)
}
