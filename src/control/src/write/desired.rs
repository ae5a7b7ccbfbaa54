//! Desired values of every file after a tick, from targets and CPUs, without values that are not the agent's.
//!
//! **Rules.**
//! - A node without a governed cgroup has no desired values. A knob has none if its foreign value was accepted
//!   or is left in place for a time.
//! - The protection of an ancestor is the sum below it plus its value before the agent, which serves other
//!   work.
//! - An ancestor has a weight if it has a governed sibling ([`crate::share::govern`]).
//! - Protection shrinks only if the demand of everything below is known.

use super::value_reason;
use crate::share::govern;
use crate::share::target;
use crate::state::NodeState;
use crate::tree::Tree;
use crate::width;
use crate::words::knob::{Action, Knob, Value, Wanted, WeightBand};
use tenantd_core::resource::{CPU, MEMORY};
use tenantd_core::units::Limit;

/// A knob, its desired value and the reason; the reason is empty if [`reason`] derives it.
type Desired = (Knob, Value, String);

pub(crate) fn wanted(tree: &Tree, states: &[NodeState]) -> Vec<Wanted> {
    let protections = target::protections(tree, |number| &states[number].target);
    let promised = tree.any_below(|number| target::is_promised(tree, number));
    let mut weighed = vec![false; tree.len()];
    govern::weighed_ancestors(tree).into_iter().for_each(|number| weighed[number] = true);
    let mut all = Vec::with_capacity(VALUES_EACH * tree.len());
    for (number, state) in states.iter().enumerate().filter(|(_, state)| state.is_governed) {
        let weight_band = weight_band(state);
        let mut want = |desired: Desired| {
            if !state.leaves(desired.0) {
                all.push(Wanted::new(number, desired, &state.observed, weight_band));
            }
        };
        if let Some(node) = tree.node_number(number).filter(|_| !tree.has_members(number)) {
            let below = (protections[number], promised[number]);
            tenants(tree, node, state, below).for_each(&mut want);
            // The CPUs are those of the tenant.
            cpus(&states[node]).into_iter().for_each(&mut want);
        }
        if tree.is_ancestor(number) {
            above(tree, number, state, protections[number]).for_each(&mut want);
            weight(state).filter(|_| weighed[number]).into_iter().for_each(&mut want);
        }
    }
    all
}

const VALUES_EACH: usize = 2;

fn weight_band(state: &NodeState) -> WeightBand {
    match &state.trim {
        Some(trim) if trim.is_exact => WeightBand::Exact,
        _ if state.steady.is_steady() => WeightBand::Steady,
        _ => WeightBand::Moving,
    }
}

/// Values of a node's cgroup except its CPUs, from its protection and whether any of it is guaranteed.
fn tenants(
    tree: &Tree,
    node: usize,
    state: &NodeState,
    (protection, is_promised): (target::Protection, bool),
) -> impl Iterator<Item = Desired> {
    let min = (is_promised && state.observed(Knob::MemoryMin).is_some())
        .then(|| (Knob::MemoryMin, Value::amount(MEMORY, protection.min_bytes.floor())));
    let least = limit_above(tree, node);
    let bounded = move |(knob, value): (Knob, Value)| match &least {
        Some(least) if knob == Knob::CpuMax && value.magnitude() > least.magnitude() => {
            let why = "the limit of a group above it, which is less than its own";
            (knob, least.clone(), why.to_string())
        }
        _ => (knob, value, String::new()),
    };
    target::knobs_of(&state.target, protection.low_bytes)
        .chain(min)
        .chain(bound(state))
        .map(bounded)
}

/// Least CPU limit of the groups above a node. The legacy hierarchy refuses a quota above the parent's; the
/// unified one ignores the excess.
fn limit_above(tree: &Tree, node: usize) -> Option<Value> {
    let nodes = tree.nodes();
    let groups = std::iter::successors(nodes[node].parent, |above| nodes[*above].parent);
    let least = groups.filter_map(|above| nodes[above].limit[CPU]).reduce(f64::min);
    least.map(|cores| Value::amount(CPU, cores))
}

fn above(
    tree: &Tree,
    number: usize,
    state: &NodeState,
    below: target::Protection,
) -> impl Iterator<Item = Desired> {
    let is_protected = state.is_present && tree.protects(number);
    let low = is_protected.then(|| protection(state, Knob::MemoryLow, below.low_bytes));
    let min = (is_protected && state.observed(Knob::MemoryMin).is_some())
        .then(|| protection(state, Knob::MemoryMin, below.min_bytes));
    low.into_iter().chain(min)
}

/// Memory bound set by the agent. A bound set by others is not changed.
fn bound(state: &NodeState) -> Option<(Knob, Value)> {
    let limit = state.squeeze.as_ref()?.wanted()?;
    Some((Knob::MemoryHigh, Value::Amount(MEMORY, limit)))
}

fn cpus(state: &NodeState) -> Option<Desired> {
    let cpus = state.width.cpus()?.clone();
    Some((Knob::Cpus, Value::CpuList(cpus), String::new()))
}

pub(crate) fn reason(action: &Action, tree: &Tree, states: &[NodeState]) -> Option<String> {
    let (node, state) = (tree.node(action.node)?, &states[action.node]);
    Some(match action.knob {
        Knob::Cpus => {
            let width = &states[tree.node_number(action.node)?].width;
            width::cpus_reason(width.dop(), width.cpus()?.len())
        }
        knob => value_reason::reason(knob, &action.to, node, &state.target),
    })
}

/// Protection of an ancestor: the sum below it plus its earlier value.
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

fn weight(state: &NodeState) -> Option<Desired> {
    let reason = || value_reason::reason_above(Knob::CpuWeight, &state.target);
    let weight = Value::Weight(state.target.cpu_weight);
    state.is_present.then(|| (Knob::CpuWeight, weight, reason()))
}

/// True if `action` lowers protection before all demands below the node are known.
pub(crate) fn is_premature(action: &Action, unknown: &[bool]) -> bool {
    action.knob.is_protection() && unknown[action.node] && action.shrinks()
}

/// For each node, true if the demand of a tenant in or below it was never estimated.
pub(crate) fn unknown(tree: &Tree, states: &[NodeState]) -> Vec<bool> {
    tree.any_below(|number| tree.has_work(number) && states[number].demand.is_none())
}
