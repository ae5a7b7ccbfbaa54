//! One tick as a status: values of the control loop in the terms of the wire.

use std::borrow::Cow;

use crate::control::capacity::Capacity;
use crate::control::control_loop::ControlLoop;
use crate::control::demand::Demand;
use crate::control::plan::{Action, Knob, Value};
use crate::control::sample::HostSample;
use crate::control::state::NodeState;
use crate::control::status::{ActionStatus, GroupStatus, HostStatus, TenantStatus};
use crate::control::trace::Spelling;
use crate::control::tree::{CPU, MEMORY, RESOURCES, Tree, TreeNode};
use crate::control::usage::Tally;
use crate::control::would_get::would_get;
use crate::fair::measure;

/// The machine in this tick.
pub(super) fn host_status(
    name: String,
    hierarchy: &'static str,
    host: HostSample,
    capacity: Capacity,
) -> HostStatus {
    HostStatus {
        name,
        hierarchy: Cow::Borrowed(hierarchy),
        cpus: host.nr_cpus,
        memory_bytes: host.memory_total_bytes,
        capacity_cores: capacity.divided[CPU],
        capacity_memory_bytes: capacity.divided[MEMORY],
        outside_cores: capacity.outside_cores,
    }
}

/// What each node would be allocated if it alone wanted everything.
pub(super) fn would_get_all(control: &ControlLoop, capacity: Capacity) -> Vec<[f64; 2]> {
    let nodes = control.tree().nodes();
    let demands = |read: fn(&Demand) -> f64| -> Vec<f64> {
        let states = control.states().iter().take(nodes.len());
        states.map(|state| state.demand.as_ref().map_or(0.0, read)).collect()
    };
    let cpu = would_get(nodes, &demands(|d| d.cpu_cores), capacity.divided[CPU], CPU);
    let memory = demands(|d| d.memory_bytes);
    let memory = would_get(nodes, &memory, capacity.divided[MEMORY], MEMORY);
    cpu.into_iter().zip(memory).map(|(cpu, memory)| [cpu, memory]).collect()
}

/// The tenants in this tick.
pub(super) fn tenant_statuses(control: &ControlLoop, would_get: &[[f64; 2]]) -> Vec<TenantStatus> {
    let nodes = control.tree().nodes();
    let all = nodes.iter().zip(control.states()).zip(would_get);
    let leaves = all.filter(|((node, _), _)| node.is_leaf);
    // The largest allocation of every tick: one that grew would fragment the heap.
    let mut statuses = Vec::with_capacity(nodes.len());
    statuses.extend(leaves.map(|((node, state), would_get)| TenantStatus {
        would_get_cores: would_get[CPU],
        would_get_memory_bytes: would_get[MEMORY],
        ..tenant_status(node, state)
    }));
    statuses
}

/// The groups in this tick.
pub(super) fn group_statuses(control: &ControlLoop, would_get: &[[f64; 2]]) -> Vec<GroupStatus> {
    let nodes = control.tree().nodes();
    let groups = (0..nodes.len()).filter(|number| !nodes[*number].is_leaf);
    groups.map(|number| group_status(control, number, would_get[number])).collect()
}

fn group_status(control: &ControlLoop, number: usize, would_get: [f64; 2]) -> GroupStatus {
    let (nodes, states) = (control.tree().nodes(), control.states());
    let (node, state) = (&nodes[number], &states[number]);
    let below = nodes.iter().zip(states).skip(number + 1);
    let below = below.take_while(|(below, _)| below.depth > node.depth);
    let leaves: Vec<&NodeState> =
        below.filter(|(below, _)| below.is_leaf).map(|(_, state)| state).collect();
    let sum = |read: fn(&NodeState) -> Option<f64>| {
        leaves.iter().filter_map(|state| read(state)).reduce(|a, b| a + b)
    };
    GroupStatus {
        name: node.path.clone(),
        weight: node.weight[CPU],
        nr_tenants: leaves.len() as u64,
        usage_cores: sum(|state| Some(state.usage.as_ref()?.cpu_cores)),
        usage_memory_bytes: sum(|state| state.usage.as_ref()?.working_set_bytes),
        demand_cores: sum(|state| Some(state.demand?.cpu_cores)).unwrap_or(0.0),
        demand_memory_bytes: sum(|state| Some(state.demand?.memory_bytes)).unwrap_or(0.0),
        allocation_cores: state.target.allocation[CPU],
        allocation_memory_bytes: state.target.allocation[MEMORY],
        would_get_cores: would_get[CPU],
        would_get_memory_bytes: would_get[MEMORY],
        fair_share_cores: state.target.burst_cores,
        satisfied: state.target.satisfied,
        cpu_weight: cpu_weight(state),
    }
}

/// Jain's index over what the tenants that want more got of what they are entitled to.
pub(super) fn jain_index(control: &ControlLoop) -> Option<f64> {
    let measured = control.states().iter().filter_map(NodeState::measured);
    let deliveries: Vec<f64> = measured.filter_map(|measured| measured.delivery()).collect();
    (!deliveries.is_empty()).then(|| measure::jain_index(deliveries))
}

/// The largest share error of any tenant.
pub(super) fn max_share_error(control: &ControlLoop) -> Option<f64> {
    control.states().iter().filter_map(|state| state.share_error).reduce(f64::max)
}

/// The actions on nodes of the policy, as text.
pub(super) fn action_statuses<'a>(
    tree: &Tree,
    spelling: &Spelling,
    actions: impl Iterator<Item = &'a Action>,
) -> Vec<ActionStatus> {
    let show = |action: &Action| {
        let node = tree.nodes().get(action.node)?;
        Some(ActionStatus {
            tenant: node.path.clone(),
            path: (spelling.path)(action.knob, &node.path),
            from: action.from.as_ref().map(|value| (spelling.text)(action.knob, value)),
            to: (spelling.text)(action.knob, &action.to),
            reason: action.reason.clone(),
        })
    };
    actions.filter_map(show).collect()
}

fn tenant_status(node: &TreeNode, state: &NodeState) -> TenantStatus {
    let demand = state.demand.unwrap_or(Demand::UNKNOWN);
    let usage = state.usage.as_ref();
    TenantStatus {
        name: node.path.clone(),
        weight: node.weight[CPU],
        guarantee_cores: node.guarantee[CPU],
        guarantee_memory_bytes: node.guarantee[MEMORY],
        limit_cores: node.limit[CPU],
        limit_memory_bytes: node.limit[MEMORY],
        usage_cores: usage.map(|usage| usage.cpu_cores),
        usage_memory_bytes: usage.and_then(|usage| usage.working_set_bytes),
        cpu_pressure_ratio: usage.and_then(|usage| usage.cpu_some_ratio),
        memory_pressure_ratio: usage.and_then(|usage| usage.memory_some_ratio),
        demand_cores: demand.cpu_cores,
        demand_memory_bytes: demand.memory_bytes,
        demand_basis: demand.cpu_basis,
        allocation_cores: state.target.allocation[CPU],
        allocation_memory_bytes: state.target.allocation[MEMORY],
        fair_share_cores: state.target.burst_cores,
        dominant_resource: state.target.dominant.map(|r| Cow::Borrowed(RESOURCES[r])),
        dominant_share: state.target.dominant_share,
        level: state.target.level,
        satisfied: state.target.satisfied,
        share_error: state.share_error,
        starved_seconds: state.starved.as_secs_f64(),
        nr_oom_kills: state.oom_kills.total(),
        dop: state.width.dop(),
        cpus: state.width.cpus().map(ToString::to_string),
        cpu_weight: cpu_weight(state),
        cpu_usage_seconds: seconds(state.totals.cpu_usec),
        cpu_pressure_seconds: seconds(state.totals.cpu_some_usec),
        memory_pressure_seconds: seconds(state.totals.memory_some_usec),
        ..TenantStatus::default()
    }
}

/// A total of microseconds, in seconds.
fn seconds(total: Tally) -> Option<f64> {
    Some(total.total()? as f64 / 1e6)
}

/// The CPU weight in the file.
fn cpu_weight(state: &NodeState) -> Option<f64> {
    match state.observed(Knob::CpuWeight) {
        Some(Value::Weight(weight)) => Some(*weight),
        _ => None,
    }
}
