//! What a tick leaves for whoever asks: the [`Status`], from the slots.

use std::borrow::Cow;
use std::sync::Arc;

use super::agent::{Agent, Slot};
use crate::control::explain::Outcome;
use crate::control::plan::{Action, Knob, Value};
use crate::control::sample::HostSample;
use crate::control::status::{ActionStatus, AgentStatus, HostStatus, Status, TenantStatus};
use crate::control::trace::Trace;
use crate::control::tree::{CPU, MEMORY, RESOURCES, TreeNode};
use crate::fair::measure;
use crate::host::kernfs::KernFs;
use crate::policy::model::Mode;

impl<K: KernFs> Agent<K> {
    /// Whether values are written.
    pub fn mode(&self) -> Mode {
        if self.enforcing { Mode::Enforce } else { Mode::Observe }
    }

    /// The status of the last tick, to be shared.
    pub fn shared_status(&self) -> Arc<Status> {
        Arc::clone(&self.status)
    }

    /// The last tick, as far as it is needed to explain any value of it.
    pub fn trace(&self) -> &Arc<Trace> {
        &self.trace
    }

    /// What the agent itself cost, told with the status of the last tick.
    pub fn note_cost(&mut self, cost: AgentStatus) {
        Arc::make_mut(&mut self.status).agent = cost;
    }

    /// The mode is another since the last tick, and whoever asks shall see it before the next one.
    pub(super) fn note_mode(&mut self) {
        let mode = self.mode();
        Arc::make_mut(&mut self.status).mode = mode;
    }

    /// Something that a person should know, told with the findings of each tick until it is taken back.
    pub(super) fn set_notice(&mut self, notice: Option<String>) {
        self.notice = notice;
    }

    pub(super) fn host_status(
        &self,
        host: HostSample,
        capacity: [f64; 2],
        outside: Option<f64>,
    ) -> HostStatus {
        HostStatus {
            hierarchy: Cow::Borrowed(self.layout.describe()),
            cpus: host.nr_cpus,
            memory_bytes: host.memory_total_bytes,
            capacity_cores: capacity[CPU],
            capacity_memory_bytes: capacity[MEMORY],
            outside_cores: outside,
        }
    }

    pub(super) fn tenant_statuses(&self) -> Vec<TenantStatus> {
        let leaves = self.nodes.iter().zip(&self.slots).filter(|(node, _)| node.is_leaf);
        // The largest thing that every tick makes: one that grew would leave holes of all sizes behind.
        let mut statuses = Vec::with_capacity(self.nodes.len());
        statuses.extend(leaves.map(|(node, slot)| tenant_status(node, slot)));
        statuses
    }

    /// Jain's index over what the tenants that want more got of what they are entitled to.
    pub(super) fn jain_index(&self) -> Option<f64> {
        let measured = self.slots.iter().filter_map(Slot::measured);
        let deliveries: Vec<f64> = measured.filter_map(|measured| measured.delivery()).collect();
        (!deliveries.is_empty()).then(|| measure::jain_index(deliveries))
    }

    pub(super) fn max_share_error(&self) -> Option<f64> {
        self.slots.iter().filter_map(|slot| slot.share_error).reduce(f64::max)
    }

    /// Values that were written, or would be, and cannot take effect: those that an explanation calls so.
    pub(super) fn nr_ineffective(&self) -> u64 {
        let values = self.trace.records.iter().flat_map(|record| &record.values);
        values.filter(|value| value.outcome == Outcome::Ineffective).count() as u64
    }

    pub(super) fn show(&self, actions: &[Action]) -> Vec<ActionStatus> {
        let show = |action: &Action| ActionStatus {
            tenant: self.nodes[action.node].path.clone(),
            path: (self.spelling.path)(action.knob, &self.nodes[action.node].path),
            from: action.from.as_ref().map(|value| (self.spelling.text)(action.knob, value)),
            to: (self.spelling.text)(action.knob, &action.to),
            reason: action.reason.clone(),
        };
        actions.iter().map(show).collect()
    }
}

fn tenant_status(node: &TreeNode, slot: &Slot) -> TenantStatus {
    let demand = slot.demand.unwrap_or_default();
    let usage = slot.usage.as_ref();
    let weight = slot.observed.iter().find(|(knob, _)| *knob == Knob::CpuWeight);
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
        allocation_cores: slot.target.allocation[CPU],
        allocation_memory_bytes: slot.target.allocation[MEMORY],
        fair_share_cores: slot.target.burst_cores,
        dominant_resource: slot.target.dominant.map(|r| Cow::Borrowed(RESOURCES[r])),
        dominant_share: slot.target.dominant_share,
        level: slot.target.level,
        satisfied: slot.target.satisfied,
        share_error: slot.share_error,
        starved_seconds: slot.starved.as_secs_f64(),
        nr_oom_kills: slot.oom_kills.total(),
        dop: slot.breadth.dop(),
        cpus: slot.breadth.cpus().map(ToString::to_string),
        cpu_weight: weight.and_then(|(_, value)| match value {
            Value::Weight(weight) => Some(*weight),
            _ => None,
        }),
    }
}
