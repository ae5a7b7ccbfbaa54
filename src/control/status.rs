//! The tick as one immutable value: what every reader of the agent sees.
//!
//! The socket, the metrics, the demo and the log all show this and nothing else, so that two of them can
//! never disagree. Field names are those of the JSON: snake_case, CPU in cores, memory in bytes, fractions
//! as numbers from 0 to 1.

use serde::Serialize;

use super::demand::CpuBasis;

/// What the agent decided and did in one tick.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Status {
    /// Ticks since the agent started, from 1.
    pub tick: u64,
    /// `observe` or `enforce`.
    pub mode: &'static str,
    /// The machine and what is divided of it.
    pub host: HostStatus,
    /// The tenants, in the order of the policy.
    pub tenants: Vec<TenantStatus>,
    /// What was written, or would be.
    pub actions: Vec<ActionStatus>,
    /// What could not be read, written or take effect, each with its remedy where there is one.
    pub findings: Vec<String>,
    /// How often someone else's write was found in a file of ours, since the agent started.
    pub nr_drift: u64,
    /// Jain's index over the tenants' weighted dominant shares; 1 is perfectly even. Absent where nobody
    /// demands anything.
    pub jain_index: Option<f64>,
}

/// The machine in one tick.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HostStatus {
    /// Which hierarchy enforces.
    pub hierarchy: &'static str,
    /// CPUs online.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// CPUs that were divided among the tenants.
    pub capacity_cores: f64,
    /// Memory that was divided among the tenants.
    pub capacity_memory_bytes: f64,
    /// CPUs that processes outside every tenant used.
    pub outside_cores: Option<f64>,
}

/// One tenant in one tick.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TenantStatus {
    /// Its path of names.
    pub name: String,
    /// Its CPU weight in the policy.
    pub weight: f64,
    /// CPUs used since the last tick; absent where it could not be read.
    pub usage_cores: Option<f64>,
    /// Memory in use; absent where it could not be read.
    pub usage_memory_bytes: Option<f64>,
    /// CPUs it could use.
    pub demand_cores: f64,
    /// Memory it could use.
    pub demand_memory_bytes: f64,
    /// How its CPU demand came about.
    pub demand_basis: CpuBasis,
    /// CPUs it is entitled to.
    pub allocation_cores: f64,
    /// Memory it is entitled to.
    pub allocation_memory_bytes: f64,
    /// `cpu` or `memory`, whichever it has the larger weighted share of.
    pub dominant_resource: Option<&'static str>,
    /// That share, of the machine's allocatable part.
    pub dominant_share: f64,
    /// Whether it is allocated all that it could use.
    pub satisfied: bool,
    /// How many CPUs wide it should run; absent before the first decision.
    pub dop: Option<u32>,
    /// The CPUs that it is placed on, in the kernel's list format; absent where it is not pinned.
    pub cpus: Option<String>,
    /// The CPU weight that its cgroup holds, in the unit of `cpu.weight`.
    pub cpu_weight: Option<f64>,
}

/// One action, as text.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ActionStatus {
    /// The tenant or group.
    pub tenant: String,
    /// The file.
    pub path: String,
    /// What it held; absent where it could not be read or is not made yet.
    pub from: Option<String>,
    /// What it holds now, or would.
    pub to: String,
    /// Why.
    pub reason: String,
}
