//! Deaths of the tenants' work in a tick.

use std::collections::HashMap;
use std::time::Duration;

use crate::measure::death::{Death, Kill};
use crate::state::NodeState;
use crate::tree::Tree;
use tenantd_core::resource::MEMORY;

/// Notes `kills` by the position of their tenants, and what the counters have beyond them.
pub(super) fn note(
    tree: &Tree,
    states: &mut [NodeState],
    mut kills: HashMap<usize, Vec<Kill>>,
    now: Duration,
) {
    for node in tree.policy_nodes() {
        let at = node.at();
        let mut deaths = std::mem::take(&mut states[at].deaths);
        let state = &states[at];
        let draft = || Death {
            used_bytes: states[node.places()].iter().filter_map(held).reduce(|a, b| a + b),
            share_bytes: state.target.burst[MEMORY],
            ..Death::default()
        };
        let nr_counted = state.oom_kills.total().unwrap_or(0);
        deaths.note(kills.remove(&at).unwrap_or_default(), nr_counted, now, draft);
        states[at].deaths = deaths;
    }
}

/// Memory in the larger of the last two samples: a kill may be between them.
fn held(state: &NodeState) -> Option<f64> {
    let samples = state.before.as_deref().into_iter().chain(&state.sample);
    samples.filter_map(|sample| sample.held(MEMORY)).reduce(f64::max)
}
