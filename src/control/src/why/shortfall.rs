//! Shortfalls: amounts that tenants are due, want, and do not get.
//!
//! **Problem.** A share error compares received and allocated amounts. The allocation is less than the policy
//! promises if others use the machine or a limit above the tenants binds. A user asks for the promise: why do I
//! not get my share?
//!
//! **Terms.** A tenant is *due* its demand, up to its share. The share is computed as if no other work ran and
//! nothing above the tenants were limited. Its *shortfall* is the missing part of it, if the tenant waits; a
//! tenth of the due amount is noise. A throttled tenant, or one that loses protected memory, has a shortfall of
//! unknown amount. A starved tenant, or one with an unfair share error, has a shortfall as well.
//!
//! **Properties** (`tests/control/shortfall.rs`): every unmet demand has a reason ([`super::diagnosis`]), every
//! met demand has none.

use std::time::Duration;

use super::diagnosis::{self, Lack, Scene};
use crate::measure::usage::Usage;
use crate::report::reason::Shortfall;
use crate::share::demand::{self, PRESSED_RATIO};
use crate::share::fairness::{FAIR_ERROR_MAX, Measured};
use crate::state::NodeState;
use crate::state::capacity::Capacity;
use crate::tree::{Node, Tree, TreeNode};
use tenantd_core::resource::{CPU, MEMORY, PerResource, Resource};

/// Part of the due amount below which nothing is missing.
const SHORT_RATIO: f64 = 0.1;
/// Missing CPUs below which nothing is missing.
const NOISE_CORES: f64 = 0.001;
/// Usage of a group's limit from which the limit binds.
const AT_LIMIT_RATIO: f64 = 0.95;

/// Measures each tenant's distance from its due amounts, counts faults, and finds the reasons. Returns the
/// largest share error.
pub(crate) fn judge(
    tree: &Tree,
    states: &mut [NodeState],
    scene: &Scene<'_>,
    elapsed: Duration,
) -> f64 {
    let due = due_cores(tree.nodes(), states, scene);
    let used = used_below(tree.nodes(), states);
    let divided = scene.capacity.divided[CPU];
    let mut lacks = Vec::new();
    let mut worst: f64 = 0.0;
    for node in tree.policy_nodes() {
        let at = node.at();
        let counts = Counts::of(&states[node.places()]);
        let state = &mut states[at];
        (state.shortfall, state.share_error) = (None, None);
        let Some((measured, usage)) = state.measured().zip(state.usage) else { continue };
        // CPUs that its credit adds are no entitlement: their lack is no unfairness.
        let allocation_cores = measured.allocation_cores.min(state.target.allocation[CPU]);
        let error = Measured { allocation_cores, ..measured }.share_error(divided);
        state.share_error = Some(error);
        worst = worst.max(error);
        let memory_due = due_bytes(&tree.nodes()[at], state, scene);
        let mut lack = Lack {
            missing: PerResource([
                missing_cores(&measured, wanted_cores(state, &usage), due[at], divided),
                missing_bytes(&usage, memory_due),
            ]),
            is_throttled: usage.throttled,
            limiting: PerResource::default(),
            is_reclaimed: usage.reclaimed == Some(true),
            met_limit: waits_for_memory(&usage) && usage.met_limit,
        };
        let wants_more = PerResource([
            measured.pressed
                && is_short(wanted_cores(state, &usage), measured.used_cores, NOISE_CORES),
            waits_for_memory(&usage) && usage.refaulted_bytes.is_some_and(|bytes| bytes > 0.0),
        ]);
        let is_held_back = PerResource([lack.is_throttled, lack.met_limit]);
        lack.limiting = PerResource::from_fn(|r| {
            if is_held_back[r] {
                least_limit(node, r)
            } else if wants_more[r] {
                full_group(node, r, &used)
            } else {
                None
            }
        });
        count(state, &counts, &measured, &lack, elapsed);
        if lack.of().0.contains(&true) {
            lacks.push((node, lack));
        }
    }
    if !lacks.is_empty() {
        let reasons = diagnosis::reasons(tree, states, scene, &due, &lacks);
        for ((node, lack), reasons) in lacks.into_iter().zip(reasons) {
            let shortfall = Shortfall { missing: lack.missing, reasons };
            states[node.at()].shortfall = Some(Box::new(shortfall));
        }
    }
    worst
}

struct Counts {
    throttling: bool,
    memory: bool,
}

impl Counts {
    fn of(cgroups: &[NodeState]) -> Counts {
        let samples = || cgroups.iter().filter_map(|state| state.sample.as_ref());
        Counts {
            throttling: samples().any(|sample| sample.nr_throttled.is_some()),
            memory: samples().any(|sample| sample.memory.is_some()),
        }
    }
}

fn count(
    state: &mut NodeState,
    counts: &Counts,
    measured: &Measured,
    lack: &Lack,
    elapsed: Duration,
) {
    let is_short_of_memory = lack.missing[MEMORY] > 0.0 || lack.met_limit;
    let is_throttled = lack.is_throttled || lack.limiting[CPU].is_some();
    let reclaimed = state.usage.and_then(|usage| usage.reclaimed);
    let faults = &mut state.faults;
    faults.short[CPU].note(Some(lack.missing[CPU] > 0.0), elapsed);
    faults.short[MEMORY].note(counts.memory.then_some(is_short_of_memory), elapsed);
    faults.starved.note(Some(measured.is_starved()), elapsed);
    faults.throttled.note(counts.throttling.then_some(is_throttled), elapsed);
    faults.reclaimed.note(reclaimed, elapsed);
}

fn is_short(due: f64, had: f64, noise: f64) -> bool {
    due - had > (SHORT_RATIO * due).max(noise)
}

/// CPUs that each node is due if it wants them: its allocation, scaled to the promised capacity within the
/// limits above it.
fn due_cores(nodes: &[TreeNode], states: &[NodeState], scene: &Scene<'_>) -> Vec<f64> {
    let Capacity { divided, promised, .. } = scene.capacity;
    let allocated = |state: &NodeState| state.target.due_cores();
    let whole = promised[CPU] / divided[CPU].max(f64::MIN_POSITIVE);
    let mut due: Vec<f64> = Vec::with_capacity(nodes.len());
    for (node, state) in nodes.iter().zip(states) {
        let above = |at: usize| due[at] / allocated(&states[at]).max(f64::MIN_POSITIVE);
        let scaled = allocated(state) * node.parent.map_or(whole, above);
        due.push(scaled.min(node.limit[CPU].unwrap_or(f64::INFINITY)).max(allocated(state)));
    }
    due
}

fn due_bytes(node: &TreeNode, state: &NodeState, scene: &Scene<'_>) -> f64 {
    let Capacity { divided, promised, .. } = scene.capacity;
    let ratio = promised[MEMORY] / divided[MEMORY].max(f64::MIN_POSITIVE);
    let due = (state.target.allocation[MEMORY] * ratio).min(node.at_most(scene.machine)[MEMORY]);
    state.demand.map_or(0.0, |demand| demand.amount[MEMORY]).min(due)
}

fn used_below(nodes: &[TreeNode], states: &[NodeState]) -> Vec<PerResource<f64>> {
    let own = |state: &NodeState| {
        PerResource::from_fn(|r| state.usage.and_then(|usage| usage.used(r)).unwrap_or(0.0))
    };
    let mut used: Vec<PerResource<f64>> = states[..nodes.len()].iter().map(own).collect();
    for (at, node) in nodes.iter().enumerate().rev() {
        if let Some(parent) = node.parent {
            let below = used[at];
            used[parent] = PerResource::from_fn(|r| used[parent][r] + below[r]);
        }
    }
    used
}

/// Present CPU demand of a tenant. A decaying demand overstates it.
fn wanted_cores(state: &NodeState, usage: &Usage) -> f64 {
    let demand = state.demand.map_or(0.0, |demand| demand.amount[CPU]);
    let fresh = state.context.as_ref().map(|context| demand::fresh_cores(usage, context));
    fresh.map_or(demand, |fresh| fresh.min(demand))
}

fn missing_cores(measured: &Measured, wanted: f64, due: f64, divided: f64) -> f64 {
    if !measured.pressed {
        return 0.0;
    }
    let used = measured.used_cores;
    let due = wanted.min(due);
    let error = measured.share_error(divided);
    let starved_of = measured.fair_share_cores.min(measured.demand_cores);
    [
        (is_short(due, used, NOISE_CORES), due - used),
        (error > FAIR_ERROR_MAX, error * divided),
        (measured.is_starved(), starved_of - used),
    ]
    .into_iter()
    .filter_map(|(counts, missing)| counts.then_some(missing))
    .fold(0.0, f64::max)
}

fn waits_for_memory(usage: &Usage) -> bool {
    usage.memory_some_ratio.is_some_and(|ratio| ratio > PRESSED_RATIO)
}

/// Memory that refaults while the tenant's tasks stall.
fn missing_bytes(usage: &Usage, due: f64) -> f64 {
    let is_refaulting = usage.refaulted_bytes.is_some_and(|bytes| bytes > 0.0);
    match usage.used(MEMORY) {
        Some(held) if is_refaulting && waits_for_memory(usage) && is_short(due, held, 0.0) => {
            due - held
        }
        _ => 0.0,
    }
}

fn least_limit(node: Node<'_>, resource: Resource) -> Option<usize> {
    let limit = |node: Node<'_>| node.policy().and_then(|policy| policy.limit[resource]);
    let limited = node.upwards().filter_map(|node| Some((limit(node)?, node.at())));
    limited.min_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, at)| at)
}

/// The nearest group above `node` that uses all of its limit.
fn full_group(node: Node<'_>, resource: Resource, used: &[PerResource<f64>]) -> Option<usize> {
    let is_full = |group: &Node<'_>| {
        let limit = group.policy().and_then(|policy| policy.limit[resource]);
        limit.is_some_and(|limit| used[group.at()][resource] >= AT_LIMIT_RATIO * limit)
    };
    node.upwards().skip(1).find(is_full).map(Node::at)
}
