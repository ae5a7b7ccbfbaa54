//! What every file shall hold after a tick: targets and CPUs as values, less what is not the agent's to write.
//!
//! **Rules.** A node without a steered cgroup has no desired values, and neither has a knob whose foreign
//! value was accepted, or is left in place for a time. An ancestor is protected by what is protected below it,
//! in addition to what it was before the agent, which is for the work of others; it is weighed where it has a
//! governed sibling
//! ([`super::govern`]). Protection shrinks only where the demand of everything below is known: no tenant loses
//! protection before its demand is known.

use super::govern;
use super::plan::{Action, Knob, NodeKnobs, Value, WeightBand};
use super::state::NodeState;
use super::target::{self, Target};
use super::tree::Tree;
use super::value_reason;
use super::width;
use crate::resource::{CPU, MEMORY};
use crate::units::Limit;

/// A knob, its desired value, and why; empty where [`reason`] tells it.
type Desired = (Knob, Value, String);

/// What each node's files shall hold and do hold.
pub(super) fn knobs(tree: &Tree, states: &[NodeState]) -> Vec<NodeKnobs> {
    let targets: Vec<Target> = states.iter().map(|state| state.target.clone()).collect();
    let protections = target::protections(tree, &targets);
    let promised = tree.any_below(|number| target::is_promised(tree, number));
    let of = |number| match tree.node_number(number) {
        Some(node) if !tree.has_members(number) => {
            let mut wanted = target::knobs_of(&targets[number], protections[number].low_bytes);
            if promised[number] && states[number].observed(Knob::MemoryMin).is_some() {
                let bytes = protections[number].min_bytes.floor();
                wanted.push((Knob::MemoryMin, Value::amount(MEMORY, bytes), String::new()));
            }
            wanted.extend(bound(&states[number]));
            bound_by_groups(tree, node, &mut wanted);
            // The CPUs are those of the tenant.
            wanted.extend(cpus(&states[node]));
            wanted
        }
        _ => Vec::new(),
    };
    let mut desired: Vec<Vec<Desired>> = (0..tree.len()).map(of).collect();
    let protected = tree.ancestors().filter(|(_, ancestor)| ancestor.has_protection);
    for (number, _) in protected.filter(|(number, _)| states[*number].is_present) {
        let state = &states[number];
        let below = protections[number];
        desired[number].push(protection(state, Knob::MemoryLow, below.low_bytes));
        if state.observed(Knob::MemoryMin).is_some() {
            desired[number].push(protection(state, Knob::MemoryMin, below.min_bytes));
        }
    }
    for number in govern::weighed_ancestors(tree) {
        desired[number].extend(weight(&states[number]));
    }
    for (wanted, state) in desired.iter_mut().zip(states) {
        wanted.retain(|(knob, ..)| state.is_governed && !state.leaves(*knob));
    }
    let knobs = desired.into_iter().zip(states).zip(tree.depths().iter().copied());
    knobs
        .map(|((desired, state), depth)| NodeKnobs {
            depth,
            desired,
            observed: state.observed.clone(),
            weight_band: match &state.trim {
                Some(trim) if trim.is_exact => WeightBand::Exact,
                _ if state.steady.is_steady() => WeightBand::Steady,
                _ => WeightBand::Moving,
            },
        })
        .collect()
}

/// Lowers a CPU limit to the least of the groups above: the legacy hierarchy refuses a quota beyond its parent's, and
/// nothing more would take effect in the unified one.
fn bound_by_groups(tree: &Tree, number: usize, desired: &mut [Desired]) {
    let nodes = tree.nodes();
    let groups = std::iter::successors(nodes[number].parent, |above| nodes[*above].parent);
    let least = groups.filter_map(|above| nodes[above].limit[CPU]).reduce(f64::min);
    let Some(least) = least.map(|cores| Value::amount(CPU, cores)) else { return };
    for (knob, value, reason) in desired {
        if *knob == Knob::CpuMax && value.magnitude() > least.magnitude() {
            *value = least.clone();
            *reason = "the limit of a group above it, which is less than its own".to_string();
        }
    }
}

/// The bound of a node's memory, while the agent has one: a bound of others is not changed.
fn bound(state: &NodeState) -> Option<Desired> {
    let limit = state.squeeze.as_ref()?.wanted()?;
    Some((Knob::MemoryHigh, Value::Amount(MEMORY, limit), String::new()))
}

/// The CPUs of a node that is placed.
fn cpus(state: &NodeState) -> Option<Desired> {
    let cpus = state.width.cpus()?.clone();
    Some((Knob::Cpus, Value::CpuList(cpus), String::new()))
}

/// Why `action` is taken, where that follows from the target of its node.
pub(super) fn reason(action: &Action, tree: &Tree, states: &[NodeState]) -> Option<String> {
    let (node, state) = (tree.node(action.node)?, &states[action.node]);
    Some(match action.knob {
        Knob::Cpus => {
            let width = &states[tree.node_number(action.node)?].width;
            width::cpus_reason(width.dop(), width.cpus()?.len())
        }
        knob => value_reason::reason(knob, &action.to, node, &state.target),
    })
}

/// The protection of an ancestor: what is protected below it, in addition to what it had.
fn protection(state: &NodeState, knob: Knob, below_bytes: f64) -> Desired {
    let sum = Value::amount(MEMORY, below_bytes.floor());
    let kind = if knob == Knob::MemoryMin { "guaranteed" } else { "protected" };
    let reason = format!("what is {kind} below it, {sum}");
    match state.held_before(knob) {
        Some(Value::Amount(_, Limit::Finite(0))) | None => (knob, sum, reason),
        Some(Value::Amount(_, Limit::Finite(before))) => {
            let all = Value::amount(MEMORY, below_bytes.floor() + *before as f64);
            let before = MEMORY.figure(*before as f64);
            (knob, all, format!("{reason}, in addition to its own {before}"))
        }
        Some(max) => (knob, max.clone(), "its own, which is all of it".to_string()),
    }
}

/// The weight of an ancestor; none where it is not there.
fn weight(state: &NodeState) -> Option<Desired> {
    let reason = || value_reason::reason_above(Knob::CpuWeight, &state.target);
    let weight = Value::Weight(state.target.cpu_weight);
    state.is_present.then(|| (Knob::CpuWeight, weight, reason()))
}

/// Whether `action` takes protection away from a node before the demands of all below it are known.
pub(super) fn is_premature(action: &Action, unknown: &[bool]) -> bool {
    let is_protection = matches!(action.knob, Knob::MemoryMin | Knob::MemoryLow);
    is_protection && unknown[action.node] && action.shrinks()
}

/// For each node, whether the demand of any tenant in or below it was never estimated.
pub(super) fn unknown(tree: &Tree, states: &[NodeState]) -> Vec<bool> {
    tree.any_below(|number| tree.has_work(number) && states[number].demand.is_none())
}
