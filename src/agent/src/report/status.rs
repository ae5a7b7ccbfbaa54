//! One tick as a status: values of the control loop in the types of the wire.

use std::borrow::Cow;

use super::charged::Charged;
use tenantd_control::measure::disk::Device;
use tenantd_control::measure::disks::Disk;
use tenantd_control::measure::fault::{Fault, Faults};
use tenantd_control::measure::sample::HostSample;
use tenantd_control::measure::usage::Tally;
use tenantd_control::report::disk::{DiskLimitStatus, DiskShareStatus, DiskStatus, DiskUseStatus};
use tenantd_control::report::reason::Reason;
use tenantd_control::report::status::{
    ActionStatus, CreditPreview, FaultStatus, FaultsStatus, GroupStatus, HostStatus, ReasonStatus,
    Status, TenantStatus, Thresholds,
};
use tenantd_control::report::trace::Spelling;
use tenantd_control::share::demand::Demand;
use tenantd_control::share::would_get::would_get;
use tenantd_control::state::NodeState;
use tenantd_control::state::capacity::Capacity;
use tenantd_control::state::step::Decision;
use tenantd_control::tick::control_loop::{ControlLoop, disks_of, weighing_of};
use tenantd_control::tree::{Node, Tree, TreeNode};
use tenantd_control::why::death::deaths;
use tenantd_control::why::explain_credit::kept_cores;
use tenantd_control::words::knob::{Action, Knob, Value};
use tenantd_core::resource::{CPU, MEMORY, PerResource, Resource};
use tenantd_fair::measure;
use tenantd_policy::model::Mode;

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
        memory_bytes: host.memory_total_bytes + host.huge_pages_bytes,
        huge_pages_bytes: host.huge_pages_bytes,
        capacity: capacity.divided,
        outside_cores: capacity.outside_cores,
        disks: Vec::new(),
    }
}

/// Status of a decision, without the state of the agent.
pub(super) fn decided(
    control: &ControlLoop,
    decision: &Decision,
    host: HostStatus,
    charged: &Charged,
) -> Status {
    let settings = control.settings();
    let would_get = would_get_all(control, decision.capacity);
    let interval_seconds = settings.interval.as_secs_f64();
    let tenants = tenant_statuses(control, &would_get, charged);
    let disks = disk_statuses(control, &tenants);
    Status {
        tick: control.tick(),
        mode: if settings.is_enforcing { Mode::Enforce } else { Mode::Observe },
        interval_seconds,
        thresholds: Thresholds::for_interval(interval_seconds),
        host: HostStatus { disks, ..host },
        tenants,
        groups: group_statuses(control, &would_get),
        jain_index: jain_index(control),
        max_share_error: max_share_error(control),
        convergence_seconds: control.episode().length().map(|length| length.as_secs_f64()),
        nr_drift: control.nr_drift(),
        nr_yields: control.nr_yields(),
        nr_contested: control.nr_contested(),
        ..Status::default()
    }
}

/// Share of each node if it alone wanted everything.
fn would_get_all(control: &ControlLoop, capacity: Capacity) -> PerResource<Vec<f64>> {
    let nodes = control.tree().nodes();
    PerResource::from_fn(|resource| {
        let states = control.states().iter().take(nodes.len());
        let demand = |state: &NodeState| state.demand.map_or(0.0, |demand| demand.amount[resource]);
        let demands: Vec<f64> = states.map(demand).collect();
        would_get(nodes, &demands, capacity.divided[resource], resource)
    })
}

fn tenant_statuses(
    control: &ControlLoop,
    would_get: &PerResource<Vec<f64>>,
    charged: &Charged,
) -> Vec<TenantStatus> {
    let nodes = control.tree().nodes();
    let leaves =
        nodes.iter().zip(control.states()).enumerate().filter(|(_, (node, _))| node.is_leaf);
    let previews = Previews::new(control);
    // The largest allocation of every tick: one that grew would fragment the heap.
    let mut statuses = Vec::with_capacity(nodes.len());
    statuses.extend(leaves.map(|(at, (node, state))| TenantStatus {
        would_get: PerResource::from_fn(|r| would_get[r][at]),
        memory_elsewhere_bytes: charged.bytes_of(control.tree().at(at).id()),
        credit_seconds: credit(control, state).map(|(seconds, _)| seconds),
        credit_factor: credit(control, state).map(|(_, factor)| factor),
        credit_preview: previews.of(control, at),
        disks: disk_uses(control, state),
        disk_share: disk_share(control, node, state).map(Box::new),
        nr_deaths: state.deaths.nr_all(),
        deaths: deaths(node, state),
        ..tenant_status(node, state)
    }));
    statuses
}

/// Status of each disk; its work outside the `tenants` is unknown where theirs is not counted.
fn disk_statuses(control: &ControlLoop, tenants: &[TenantStatus]) -> Vec<DiskStatus> {
    let is_counted = |device| {
        let mut usages = control.states().iter().filter_map(|state| state.usage.as_ref());
        usages.any(|usage| usage.disks.get(device).is_some())
    };
    let status = |(device, disk): (Device, Disk)| {
        let name = disk.name.to_string();
        let uses = tenants.iter().flat_map(|tenant| &tenant.disks);
        let of_tenants: f64 = uses.filter(|it| it.disk == name).map(|it| it.work_ratio).sum();
        let outside_ratio =
            if disk.flow.operations() > 0.0 { (1.0 - of_tenants).max(0.0) } else { 0.0 };
        let speeds = disk.cost.speeds();
        DiskStatus {
            name,
            rates: disk.flow.into(),
            busy_ratio: disk.busy_ratio,
            time_ratio: disk.time_ratio(),
            outside_ratio: is_counted(device).then_some(outside_ratio),
            divided_by: weighing_of(control).divider(device).map(str::to_string),
            most_bytes_per_second: speeds.map(|it| it.0).filter(|it| it.is_finite()),
            most_operations_per_second: speeds.map(|it| it.1).filter(|it| it.is_finite()),
        }
    };
    disks_of(control).iter().map(status).collect()
}

/// Share of a tenant in the disks; `None` if the policy weighs none.
fn disk_share(
    control: &ControlLoop,
    node: &TreeNode,
    state: &NodeState,
) -> Option<DiskShareStatus> {
    let (terms, disks) = (node.disk?, disks_of(control));
    let weighing = weighing_of(control);
    let contended = weighing.contended(disks);
    let most_used = || disks.of(state.usage.as_ref()?).first().map(|of| of.name);
    let of = contended.or_else(most_used);
    let device = of.and_then(|name| disks.iter().find(|(_, disk)| disk.name == name));
    Some(DiskShareStatus {
        disk: contended.map(|name| name.to_string()),
        demand_ratio: state.disk.demand,
        share_now_ratio: state.disk.now_ratio,
        share_if_busy_ratio: state.disk.standing_ratio,
        guarantee_ratio: Some(terms.guarantee).filter(|part| *part > 0.0),
        divided_by: device.and_then(|(device, _)| Some(weighing.divider(device)?.to_string())),
        is_coupled: state.target.disk.is_some(),
        is_void: device.is_some_and(|(device, _)| !weighing.obeys(device)),
    })
}

fn disk_uses(control: &ControlLoop, state: &NodeState) -> Vec<DiskUseStatus> {
    let uses = state.usage.as_ref().map(|usage| disks_of(control).of(usage));
    uses.unwrap_or_default().into_iter().map(DiskUseStatus::from).collect()
}

fn group_statuses(control: &ControlLoop, would_get: &PerResource<Vec<f64>>) -> Vec<GroupStatus> {
    let nodes = control.tree().nodes();
    let groups = control.tree().policy_nodes().filter(|node| !nodes[node.at()].is_leaf);
    let previews = Previews::new(control);
    let status = |group: Node<'_>| GroupStatus {
        credit_preview: previews.of(control, group.at()),
        ..group_status(control, group, would_get)
    };
    groups.map(status).collect()
}

fn group_status(
    control: &ControlLoop,
    group: Node<'_>,
    would_get: &PerResource<Vec<f64>>,
) -> GroupStatus {
    let (nodes, states) = (control.tree().nodes(), control.states());
    let at = group.at();
    let (node, state) = (&nodes[at], &states[at]);
    let below = nodes.iter().zip(states).skip(at + 1);
    let below = below.take_while(|(below, _)| below.depth > node.depth);
    let leaves: Vec<&NodeState> =
        below.filter(|(below, _)| below.is_leaf).map(|(_, state)| state).collect();
    let sum = |read: &dyn Fn(&NodeState) -> Option<f64>| {
        leaves.iter().filter_map(|state| read(state)).reduce(|a, b| a + b)
    };
    let used = |r: Resource| sum(&|state| state.usage.as_ref()?.used(r));
    let wanted = |r: Resource| sum(&|state| Some(state.demand?.amount[r])).unwrap_or(0.0);
    GroupStatus {
        name: node.path.clone(),
        weight: node.weight[CPU],
        nr_tenants: leaves.len() as u64,
        nr_found: nodes.iter().filter(|it| it.is_found && it.parent == Some(at)).count() as u64,
        guarantee: node.guarantee,
        limit: node.limit,
        usage: PerResource::from_fn(used),
        demand: PerResource::from_fn(wanted),
        allocation: state.target.allocation,
        would_get: PerResource::from_fn(|r| would_get[r][at]),
        fair_share_cores: state.target.burst[CPU],
        fair_share_memory_bytes: state.target.burst[MEMORY],
        satisfied: state.target.satisfied,
        limit_pids: node.written.limit.pids.map(u64::from),
        limit_disk: DiskLimitStatus::of(&node.written.limit.disk),
        usage_pids: state.pids.last.map(|pids| pids.nr_current),
        nr_refused_forks: state.pids.refused.total(),
        cpu_weight: cpu_weight(state),
        credit_seconds: credit(control, state).map(|(seconds, _)| seconds),
        credit_factor: credit(control, state).map(|(_, factor)| factor),
        credit_preview: None,
    }
}

/// Jain's index over the delivered part of the entitlement, of the tenants that want more.
fn jain_index(control: &ControlLoop) -> Option<f64> {
    let tenants = control.states().iter().take(control.tree().nodes().len());
    let measured = tenants.filter_map(NodeState::measured);
    let deliveries: Vec<f64> = measured.filter_map(|measured| measured.delivery()).collect();
    (!deliveries.is_empty()).then(|| measure::jain_index(deliveries))
}

fn max_share_error(control: &ControlLoop) -> Option<f64> {
    control.states().iter().filter_map(|state| state.share_error).reduce(f64::max)
}

pub(super) fn action_statuses<'a>(
    tree: &Tree,
    spelling: &Spelling,
    actions: impl Iterator<Item = &'a Action>,
) -> Vec<ActionStatus> {
    let show = |action: &Action| {
        let name = tree.find(action.node)?.name();
        Some(ActionStatus {
            tenant: name.to_string(),
            path: (spelling.path)(action.knob, name),
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
    let disk = state.totals.disk;
    TenantStatus {
        name: node.path.clone(),
        found: node.is_found,
        weight: node.weight[CPU],
        guarantee: node.guarantee,
        limit: node.limit,
        usage: PerResource::from_fn(|r| usage?.used(r)),
        cpu_pressure_ratio: usage.and_then(|usage| usage.cpu_some_ratio),
        memory_pressure_ratio: usage.and_then(|usage| usage.memory_some_ratio),
        disk_pressure_ratio: usage.and_then(|usage| usage.io_some_ratio),
        demand: demand.amount,
        demand_basis: demand.cpu_basis,
        memory_demand_basis: demand.memory_basis,
        allocation: state.target.allocation,
        fair_share_cores: state.target.burst[CPU],
        fair_share_memory_bytes: state.target.burst[MEMORY],
        dominant_resource: state.target.dominant.map(|row| Cow::Borrowed(row.name())),
        dominant_share: state.target.dominant_share,
        level: state.target.level,
        satisfied: state.target.satisfied,
        share_error: state.share_error,
        missing: missing(state),
        reasons: reasons(state),
        faults: faults(state),
        starved_seconds: state.faults.starved.time().as_secs_f64(),
        nr_oom_kills: state.oom_kills.total(),
        limit_pids: node.written.limit.pids.map(u64::from),
        limit_disk: DiskLimitStatus::of(&node.written.limit.disk),
        usage_pids: state.pids.last.map(|pids| pids.nr_current),
        nr_refused_forks: state.pids.refused.total(),
        dop: state.width.dop(),
        cpus: state.cpus_in_force(),
        cpu_weight: cpu_weight(state),
        cpu_usage_seconds: seconds(state.totals.cpu_usec),
        cpu_pressure_seconds: seconds(state.totals.cpu_some_usec),
        memory_pressure_seconds: seconds(state.totals.memory_some_usec),
        disk_pressure_seconds: seconds(state.totals.io_some_usec),
        disk_read_bytes: disk.map(|counts| counts.read_bytes),
        disk_written_bytes: disk.map(|counts| counts.written_bytes),
        nr_disk_operations: disk.map(|counts| counts.reads + counts.writes),
        ..TenantStatus::default()
    }
}

fn missing(state: &NodeState) -> PerResource<Option<f64>> {
    let missing = state.shortfall.as_ref().map_or_else(PerResource::default, |it| it.missing);
    missing.map(|missing| state.share_error.map(|_| missing))
}

fn reasons(state: &NodeState) -> Vec<ReasonStatus> {
    let status = |reason: &Reason| ReasonStatus {
        kind: reason.kind(),
        resource: Cow::Borrowed(reason.resource().name()),
        text: reason.to_string(),
        outsiders: reason.outsiders().to_vec(),
    };
    let reasons = state.shortfall.iter().flat_map(|shortfall| &shortfall.reasons);
    reasons.map(status).collect()
}

fn faults(state: &NodeState) -> FaultsStatus {
    let status = |fault: Fault| {
        let seconds = fault.time().as_secs_f64();
        fault.nr_episodes().map(|count| FaultStatus { count, seconds })
    };
    let Faults { short, starved, throttled, reclaimed } = state.faults;
    FaultsStatus {
        cpu_short: status(short[CPU]),
        cpu_starved: status(starved),
        cpu_throttled: status(throttled),
        memory_short: status(short[MEMORY]),
        memory_reclaimed: status(reclaimed),
    }
}

fn seconds(total: Tally) -> Option<f64> {
    Some(total.total()? as f64 / 1e6)
}

fn cpu_weight(state: &NodeState) -> Option<f64> {
    match state.observed(Knob::CpuWeight) {
        Some(Value::Weight(weight)) => Some(*weight),
        _ => None,
    }
}

/// Its credit in seconds of its fair share, and the factor of its weight; absent if the policy has no credits.
fn credit(control: &ControlLoop, state: &NodeState) -> Option<(f64, f64)> {
    control.settings().credits?;
    Some((state.credit.entry.bank_seconds, state.credit.account.factor))
}

/// Least credit that a preview shows.
const PREVIEW_SECONDS: f64 = 1.0;
/// A node that keeps this part of its fair share pays nothing.
const PREVIEW_KEPT_RATIO: f64 = 0.99;

/// Effects of credits on nodes while the policy has none.
struct Previews {
    /// CPUs that each node would keep; empty if the policy has credits.
    kept_cores: Vec<f64>,
}

impl Previews {
    fn new(control: &ControlLoop) -> Previews {
        let nodes = control.tree().nodes();
        let credits = control.states().iter().take(nodes.len()).map(|state| &state.credit);
        let kept_cores = match control.settings().credits {
            Some(_) => Vec::new(),
            None => kept_cores(nodes, credits),
        };
        Previews { kept_cores }
    }

    fn of(&self, control: &ControlLoop, at: usize) -> Option<CreditPreview> {
        let kept_cores = *self.kept_cores.get(at)?;
        let entry = &control.states()[at].credit.entry;
        let (seconds, factor) = (entry.bank_seconds, entry.offered_factor.max(1.0));
        let fair_share_cores = entry.fair_cores;
        let matters = seconds >= PREVIEW_SECONDS
            || factor > 1.0
            || kept_cores < fair_share_cores * PREVIEW_KEPT_RATIO;
        matters.then_some(CreditPreview { seconds, factor, fair_share_cores, kept_cores })
    }
}
