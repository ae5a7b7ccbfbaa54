//! What every file shall hold after a tick: targets and CPUs as values, less what is not the agent's to write.
//!
//! **Rules.** A node without a steered cgroup has no desired values, and neither has a knob whose foreign
//! value was accepted. An ancestor is protected by what is protected below it, and never less than it was
//! before the agent. Protection shrinks only where the demand of everything below is known: no tenant loses
//! protection before its demand is known.

use super::plan::{Action, Knob, NodeKnobs, Value};
use super::state::NodeState;
use super::target::{self, Target};
use super::tree::{Ancestor, Tree};
use super::width;
use crate::resource::{CPU, MEMORY};
use crate::units::Limit;

/// A knob, its desired value, and why.
type Desired = (Knob, Value, String);

/// What each node's files shall hold and do hold; `before` is the protection that each ancestor had before
/// the agent started, by the node's number.
pub(super) fn knobs(tree: &Tree, states: &[NodeState], before: &[Option<Value>]) -> Vec<NodeKnobs> {
    let targets: Vec<Target> =
        states[..tree.nodes().len()].iter().map(|state| state.target.clone()).collect();
    let mut desired = target::knobs(tree.nodes(), &targets);
    for (number, (wanted, state)) in desired.iter_mut().zip(states).enumerate() {
        bound_by_groups(tree, number, wanted);
        wanted.extend(cpus(state));
        wanted.retain(|(knob, ..)| state.is_governed && !state.left_to_others.contains(knob));
    }
    for (number, ancestor) in tree.ancestors() {
        let state = &states[number];
        let is_ours = state.is_present && !state.left_to_others.contains(&Knob::MemoryLow);
        let wanted = protection(ancestor, &desired, before[number].as_ref());
        desired.push(if is_ours { vec![wanted] } else { Vec::new() });
    }
    // Depth 0 is for the ancestors.
    let depths = tree.nodes().iter().map(|node| node.depth + 1).chain(std::iter::repeat(0));
    let knobs = desired.into_iter().zip(states).zip(depths);
    knobs
        .map(|((desired, state), depth)| NodeKnobs {
            depth,
            desired,
            observed: state.observed.clone(),
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

/// The CPUs of a node that is placed.
fn cpus(state: &NodeState) -> Option<Desired> {
    let cpus = state.width.cpus()?.clone();
    let reason = width::cpus_reason(state.width.dop(), cpus.len());
    Some((Knob::Cpus, Value::CpuList(cpus), reason))
}

/// The protection of an ancestor: the sum of what is protected below it, or what it had where that is more.
fn protection(ancestor: &Ancestor, desired: &[Vec<Desired>], before: Option<&Value>) -> Desired {
    let low = |(knob, value, _): &Desired| match (knob, value) {
        (Knob::MemoryLow, Value::Amount(_, Limit::Finite(bytes))) => Some(*bytes),
        _ => None,
    };
    let below = ancestor.below.iter().flat_map(|number| &desired[*number]);
    let sum = Limit::Finite(below.filter_map(low).sum());
    let sum = Value::Amount(MEMORY, sum);
    let reason = format!("what is protected below it, {sum}");
    match before.filter(|before| before.magnitude() > sum.magnitude()) {
        Some(before) => {
            let reason = format!("its own, which is more than {reason}");
            (Knob::MemoryLow, before.clone(), reason)
        }
        None => (Knob::MemoryLow, sum, reason),
    }
}

/// Whether `action` takes protection away from a node before the demands of all below it are known.
pub(super) fn is_premature(action: &Action, unknown: &[bool]) -> bool {
    action.knob == Knob::MemoryLow && unknown[action.node] && action.shrinks()
}

/// For each node, whether the demand of any tenant in or below it was never estimated.
pub(super) fn unknown(tree: &Tree, states: &[NodeState]) -> Vec<bool> {
    let is_leaf = |number: usize| tree.nodes().get(number).is_some_and(|node| node.is_leaf);
    let unknown = tree.any_below(|number| is_leaf(number) && states[number].demand.is_none());
    let all_known = !unknown.iter().any(|unknown| *unknown);
    // What an ancestor protects is shared by all tenants.
    let nr_nodes = tree.nodes().len();
    unknown
        .iter()
        .enumerate()
        .map(|(n, one)| if n < nr_nodes { *one } else { !all_known })
        .collect()
}
