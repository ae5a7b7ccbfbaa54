//! Observed values, and the winner after a foreign write.
//!
//! *Drift* is a value that is neither the last observed one nor the one that the agent requested. It is
//! counted, logged once and then, by `control.on_drift`, overwritten (`repair`) or accepted permanently
//! (`accept`). Accepted values are not restored at the end. [`super::contest`] handles a value that is
//! overwritten again and again.

use crate::memory::squeeze;
use crate::state::NodeState;
use crate::words::knob::{Knob, Value};
use serde::{Deserialize, Serialize};
use tenantd_core::node::NodeId;

/// One value read from a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// The knob.
    pub knob: Knob,
    /// Value in the file.
    pub value: Value,
    /// True if the agent requested this value and it arrived late, or if systemd restored the earlier value.
    pub is_ours: bool,
}

/// A foreign value.
#[derive(Clone, Debug, PartialEq)]
pub struct Drift {
    /// The node.
    pub node: NodeId,
    /// The knob.
    pub knob: Knob,
    /// Last observed value.
    pub before: Value,
    /// Value in the file now.
    pub now: Value,
}

/// Records the file contents of a node; returns the foreign writes.
pub(crate) fn observe(
    node: NodeId,
    state: &mut NodeState,
    mut observations: Vec<Observation>,
) -> Vec<Drift> {
    own_bounds(state, &mut observations);
    let drifted = |observation: &Observation| {
        let before = state.observed(observation.knob)?;
        let is_drift =
            *before != observation.value && !observation.is_ours && !state.leaves(observation.knob);
        is_drift.then(|| Drift {
            node,
            knob: observation.knob,
            before: before.clone(),
            now: observation.value.clone(),
        })
    };
    let drifts = observations.iter().filter_map(drifted).collect();
    state.observed.clear();
    state.observed.extend(observations.into_iter().map(|seen| (seen.knob, seen.value)));
    drifts
}

/// Separates the agent's own bounds from those of others. The agent's bounds can arrive late; a foreign
/// bound is restored in the end.
fn own_bounds(state: &mut NodeState, observed: &mut [Observation]) {
    let known = match state.observed(Knob::MemoryHigh) {
        Some(Value::Amount(_, limit)) => Some(*limit),
        _ => None,
    };
    let Some(squeeze) = &mut state.squeeze else { return };
    for seen in observed.iter_mut().filter(|seen| seen.knob == Knob::MemoryHigh) {
        let Value::Amount(_, limit) = seen.value else { continue };
        // A bound that was written and not read since is known in bytes, but the file holds whole pages. The
        // wanted bound may since have moved by less than the write threshold.
        let is_as_known =
            known.is_some_and(|known| squeeze::is_as_told(known, limit)) && squeeze.held.is_some();
        if is_as_known || squeeze.has_wanted(limit) {
            seen.is_ours = true
        } else {
            squeeze.held = Some(limit)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::squeeze::Squeeze;
    use tenantd_core::resource::MEMORY;
    use tenantd_core::units::Limit;

    fn weight(value: f64, is_ours: bool) -> Vec<Observation> {
        vec![Observation { knob: Knob::CpuWeight, value: Value::Weight(value), is_ours }]
    }

    #[test]
    fn drift_is_what_was_neither_seen_nor_asked_for() {
        let mut state = NodeState::default();
        assert_eq!(
            observe(NodeId::default(), &mut state, weight(100.0, false)),
            [],
            "the first reading"
        );
        assert_eq!(observe(NodeId::default(), &mut state, weight(100.0, false)), []);
        assert_eq!(observe(NodeId::default(), &mut state, weight(200.0, true)), [], "asked for");
        let drifts = observe(NodeId::default(), &mut state, weight(300.0, false));
        assert_eq!(drifts.len(), 1);
        assert_eq!(
            (&drifts[0].before, &drifts[0].now),
            (&Value::Weight(200.0), &Value::Weight(300.0))
        );
        state.left_to_others.push(Knob::CpuWeight);
        assert_eq!(
            observe(NodeId::default(), &mut state, weight(400.0, false)),
            [],
            "left to the other writer"
        );
    }

    /// The agent wrote a number of bytes, the file holds whole pages, and the wanted bound has moved since.
    #[test]
    fn a_bound_that_stands_for_long_is_not_taken_for_another_program_s() {
        let bound = |limit| Value::Amount(MEMORY, limit);
        let mut squeeze = Squeeze::default();
        squeeze.held = Some(Limit::Max);
        let told = (372 << 20) + 123;
        squeeze.probe(Some(told as f64));
        (1..8_u64).for_each(|step| squeeze.probe(Some((told - step * (100 << 10)) as f64)));
        let mut state = NodeState { squeeze: Some(Box::new(squeeze)), ..NodeState::default() };
        state.observed.push((Knob::MemoryHigh, bound(Limit::Finite(told))));
        let found = bound(Limit::Finite(372 << 20));
        let seen = vec![Observation { knob: Knob::MemoryHigh, value: found, is_ours: false }];
        assert_eq!(observe(NodeId::default(), &mut state, seen), []);
        assert_eq!(state.squeeze.as_ref().unwrap().held, Some(Limit::Max));
        // Any other value is foreign and is restored in the end.
        let found = bound(Limit::Finite(200 << 20));
        let seen = vec![Observation { knob: Knob::MemoryHigh, value: found, is_ours: false }];
        assert_eq!(observe(NodeId::default(), &mut state, seen).len(), 1);
        assert_eq!(state.squeeze.as_ref().unwrap().held, Some(Limit::Finite(200 << 20)));
    }
}
