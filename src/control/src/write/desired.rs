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
use crate::measure::disk::Device;
use crate::share::govern;
use crate::share::target;
use crate::state::NodeState;
use crate::tree::{Node, Tree};
use crate::width;
use crate::words::knob::{Action, Knob, Value, Wanted, WeightBand};
use tenantd_core::resource::{CPU, MEMORY};
use tenantd_core::units::Limit;

/// A knob, its desired value and the reason; the reason is empty if [`reason`] derives it.
type Desired = (Knob, Value, String);

/// Values for all cgroups; `disks` are those on which requests can be limited.
pub(crate) fn wanted(tree: &Tree, states: &[NodeState], disks: &[Device]) -> Vec<Wanted> {
    let protections = target::protections(tree, |node| &states[node.at()].target);
    let promised = tree.any_below(target::is_promised);
    let mut weighed = vec![false; tree.len()];
    govern::weighed_ancestors(tree).into_iter().for_each(|at| weighed[at] = true);
    let mut all = Vec::with_capacity(VALUES_EACH * tree.len());
    for (node, state) in tree.all().zip(states).filter(|(_, state)| state.is_governed) {
        let (id, at) = (node.id(), node.at());
        let weight_band = weight_band(state);
        let mut want = |desired: Desired| {
            if !state.leaves(desired.0) {
                all.push(Wanted::new(id, desired, &state.observed, weight_band));
            }
        };
        if let Some(tenant) = node.tenant().filter(|_| !node.has_members()) {
            let below = (protections[at], promised[at]);
            tenants(tenant, state, below).for_each(&mut want);
            // The CPUs are those of the tenant.
            cpus(&states[tenant.at()]).into_iter().for_each(&mut want);
            disk_weights(state).for_each(&mut want);
            disk_limits(state, disks).for_each(&mut want);
        }
        if node.is_ancestor() {
            above(node, state, protections[at]).for_each(&mut want);
            let weights = weight(state).into_iter().chain(disk_weights(state));
            weights.filter(|_| weighed[at]).for_each(&mut want);
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
    tenant: Node<'_>,
    state: &NodeState,
    (protection, is_promised): (target::Protection, bool),
) -> impl Iterator<Item = Desired> {
    let min = (is_promised && state.observed(Knob::MemoryMin).is_some())
        .then(|| (Knob::MemoryMin, Value::amount(MEMORY, protection.min_bytes.floor())));
    let least = limit_above(tenant);
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
fn limit_above(tenant: Node<'_>) -> Option<Value> {
    let groups = tenant.upwards().skip(1).filter_map(Node::policy);
    let least = groups.filter_map(|group| group.limit[CPU]).reduce(f64::min);
    least.map(|cores| Value::amount(CPU, cores))
}

fn above(
    node: Node<'_>,
    state: &NodeState,
    below: target::Protection,
) -> impl Iterator<Item = Desired> {
    let is_protected = state.is_present && node.protects();
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
    let node = tree.find(action.node)?;
    let (tenant, policy) = (node.tenant()?, node.policy()?);
    Some(match action.knob {
        Knob::Cpus => {
            let width = &states[tenant.at()].width;
            width::cpus_reason(width.dop(), width.cpus()?.len())
        }
        knob => value_reason::reason(knob, &action.to, policy, &states[node.at()].target),
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

/// Weight on disks, in each file that the kernel has for the cgroup. A unit gets it first through its property, which
/// enables the controller.
fn disk_weights(state: &NodeState) -> impl Iterator<Item = Desired> {
    let weight = state.disk.weight.filter(|_| state.is_present);
    let has_file = |knob| state.observed(knob).is_some();
    let by_cost = (state.is_unit || has_file(Knob::DiskWeight)).then_some(Knob::DiskWeight);
    let by_bfq = has_file(Knob::BfqWeight).then_some(Knob::BfqWeight);
    let knobs = weight
        .into_iter()
        .flat_map(move |weight| by_cost.into_iter().chain(by_bfq).map(move |knob| (knob, weight)));
    knobs.map(|(knob, weight)| (knob, Value::Weight(weight), value_reason::DISK.to_string()))
}

/// Limits of requests to each of `disks`. A disk that appears later is limited then, and the kernel forgets one that goes.
fn disk_limits(state: &NodeState, disks: &[Device]) -> impl Iterator<Item = Desired> {
    let limited = Knob::ALL.into_iter().filter(|_| !disks.is_empty());
    limited.filter_map(|knob| {
        let limit = state.target.disk_limit[knob.disk_rate()?]?;
        let each = disks.iter().map(|device| (*device, limit));
        Some((knob, Value::Disks(each.collect()), String::new()))
    })
}

/// True if `action` lowers protection before all demands below the node are known.
pub(crate) fn is_premature(action: &Action, tree: &Tree, unknown: &[bool]) -> bool {
    let is_unknown = || tree.position(action.node).is_some_and(|at| unknown[at]);
    action.knob.is_protection() && action.shrinks() && is_unknown()
}

/// For each node, true if the demand of a tenant in or below it was never estimated.
pub(crate) fn unknown(tree: &Tree, states: &[NodeState]) -> Vec<bool> {
    tree.any_below(|node| node.has_work() && states[node.at()].demand.is_none())
}
