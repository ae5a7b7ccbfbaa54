//! Deaths of the tenants' work in a tick.

use std::collections::HashMap;
use std::time::Duration;

use super::ControlLoop;
use crate::measure::death::{Death, Kill};
use crate::state::NodeState;
use tenantd_core::resource::MEMORY;

/// Time of the last samples; zero before the first.
pub fn sampled_at(control: &ControlLoop) -> Duration {
    control.last.map_or(Duration::ZERO, |(now, _)| now)
}

/// Notes `kills` by the position of their tenants, and what the counters have beyond them.
pub(super) fn note(control: &mut ControlLoop, mut kills: HashMap<usize, Vec<Kill>>, now: Duration) {
    for node in control.tree.policy_nodes() {
        let at = node.at();
        let mut deaths = std::mem::take(&mut control.states[at].deaths);
        let (states, state) = (&control.states, &control.states[at]);
        let draft = || Death {
            at: now,
            used_bytes: states[node.places()].iter().filter_map(held).reduce(|a, b| a + b),
            share_bytes: state.target.burst[MEMORY],
            ..Death::default()
        };
        let nr_counted = state.oom_kills.total().unwrap_or(0);
        deaths.note(kills.remove(&at).unwrap_or_default(), nr_counted, draft);
        control.states[at].deaths = deaths;
    }
}

/// Memory in the larger of the last two samples: a kill may be between them.
fn held(state: &NodeState) -> Option<f64> {
    let samples = state.before.as_deref().into_iter().chain(&state.sample);
    samples.filter_map(|sample| sample.held(MEMORY)).reduce(f64::max)
}
