//! The form of an explanation, as it goes over the wire: one step for each link of the chain.
//!
//! Every step has its numbers and a reason in words. `super::explain` computes them.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::demand::{CpuBasis, MemoryBasis};
use super::status::{FaultsStatus, ReasonStatus};
pub use super::trace::Outcome;
use tenantd_core::resource::{PerResource, wire};
use tenantd_policy::key::Setting;
use tenantd_policy::model::Mode;

/// The last tick for one tenant or group. A group is not sampled and has no width.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Explanation {
    /// Its names from the top, joined by slashes.
    pub tenant: String,
    /// Ticks since the agent started.
    pub tick: u64,
    /// Whether values are written or only computed.
    pub mode: Mode,
    /// Time between the two samples.
    pub elapsed_seconds: Option<f64>,
    /// What the kernel counted.
    pub sample: Vec<Counter>,
    /// What that comes to.
    pub usage: Option<UsageStep>,
    /// What the tenant could use.
    pub demand: Option<DemandStep>,
    /// What it is entitled to.
    pub allocation: AllocationStep,
    /// Its weight among its siblings.
    pub weight: WeightStep,
    /// How wide it should run.
    pub width: Option<WidthStep>,
    /// Where it runs.
    pub placement: Option<PlacementStep>,
    /// Every value in its file.
    pub values: Vec<ValueStep>,
    /// The cgroups of a tenant that has several.
    pub members: Vec<MemberStep>,
    /// The slices and services above its cgroup that are set as well, the nearest first.
    pub above: Vec<AboveStep>,
    /// Of a tenant: what it is due, wants and does not get.
    #[serde(flatten, with = "wire::missing")]
    pub missing: PerResource<Option<f64>>,
    /// Why.
    pub reasons: Vec<ReasonStatus>,
    /// How often it lacked something since the agent started.
    pub faults: FaultsStatus,
    /// Processes of it that were killed for want of memory since the agent started.
    pub nr_oom_kills: Option<u64>,
    /// What was found about it in this tick.
    pub findings: Vec<String>,
}

/// A counter of the kernel in the last two samples.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// The kernel's name, with the unit last.
    pub name: Cow<'static, str>,
    /// At the tick before.
    pub before: Option<u64>,
    /// At this tick.
    pub now: Option<u64>,
}

/// What two samples come to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UsageStep {
    /// CPUs used on average.
    pub cpu_cores: f64,
    /// Share of the time in which some task waited for a CPU.
    pub cpu_pressure_ratio: Option<f64>,
    /// Whether `cpu.max` held it back.
    pub throttled: bool,
    /// CPUs its threads would use if none had to wait; absent where they were not looked at.
    pub wanted_cores: Option<f64>,
    /// Memory in use.
    pub working_set_bytes: Option<f64>,
    /// Share of the time in which some task waited for memory.
    pub memory_pressure_ratio: Option<f64>,
    /// Pages read back after they were reclaimed, a second.
    pub refaults_per_sec: Option<f64>,
    /// Whether any process is in it.
    pub populated: bool,
    /// What these figures mean.
    pub reason: String,
}

/// What the tenant could use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DemandStep {
    /// Of each resource.
    #[serde(flatten, with = "wire::qualified")]
    pub amount: PerResource<f64>,
    /// How the CPU figure came about.
    pub cpu_basis: CpuBasis,
    /// How the memory figure came about.
    pub memory_basis: MemoryBasis,
    /// At the tick before.
    #[serde(flatten, with = "wire::last")]
    pub last: PerResource<Option<f64>>,
    /// The smaller of its limit and the machine.
    #[serde(flatten, with = "wire::max")]
    pub max: PerResource<f64>,
    /// Why this much.
    #[serde(flatten, with = "wire::reason")]
    pub reason: PerResource<String>,
}

/// What ended the filling for a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AllocationBound {
    /// It has all it could use.
    Demand,
    /// Its own limit.
    Limit,
    /// A resource was used up at its level.
    Level,
    /// Its weight alone decides.
    Weight,
    /// It asks for nothing.
    #[default]
    Nothing,
}

/// What the tenant is entitled to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AllocationStep {
    /// Of each resource.
    #[serde(flatten, with = "wire::amount")]
    pub amount: PerResource<f64>,
    /// What was divided.
    #[serde(flatten, with = "wire::capacity")]
    pub capacity: PerResource<f64>,
    /// CPUs that its weight alone gives it.
    pub fair_share_cores: f64,
    /// What it gets whenever it wants it.
    #[serde(flatten, with = "wire::guarantee")]
    pub guarantee: PerResource<Option<f64>>,
    /// What it never exceeds.
    #[serde(flatten, with = "wire::limit")]
    pub limit: PerResource<Option<f64>>,
    /// Both in the notation of the policy: `limit.cpu` is `50%`.
    pub written: Vec<Setting>,
    /// `cpu` or `memory`.
    pub dominant_resource: Option<Cow<'static, str>>,
    /// The part of what is divided of that resource that it is allocated, not weighted.
    pub dominant_share: f64,
    /// That part over its weight when filling stopped.
    pub level: f64,
    /// What ended the filling.
    pub bound: AllocationBound,
    /// The same in words.
    pub reason: String,
}

/// Its weight among its siblings, from the policy to the file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WeightStep {
    /// In the policy.
    pub policy_weight: f64,
    /// That weight's part of the sum of the siblings.
    pub policy_share: f64,
    /// In the unit of `cpu.weight`.
    pub cpu_weight: f64,
    /// The part of their CPU time that this is while all of them are busy.
    pub sibling_share: f64,
    /// What the file holds, in its own unit; absent where it was not read.
    pub file_value: Option<String>,
    /// Why.
    pub reason: String,
}

/// How wide it should run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WidthStep {
    /// CPUs wide.
    pub dop: Option<u32>,
    /// CPUs that all tenants can be wide together.
    pub slots: u32,
    /// What it is given of them before the band.
    pub claim: Option<u32>,
    /// The least that the policy allows.
    pub floor: Option<u32>,
    /// The most that the policy and the limit allow.
    pub ceiling: Option<u32>,
    /// CPUs used over its width.
    pub utilisation_ratio: Option<f64>,
    /// Whether it has used next to nothing for a while.
    pub asleep: bool,
    /// Time since its width last changed; absent where it never did.
    pub changed_seconds: Option<f64>,
    /// Why.
    pub reason: String,
}

/// Where it runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlacementStep {
    /// The CPUs, in the kernel's list format; absent where it is not pinned.
    pub cpus: Option<String>,
    /// Time since it was last placed elsewhere.
    pub moved_seconds: Option<f64>,
    /// Why.
    pub reason: String,
}

/// One of the cgroups of a tenant that has several, and its part of what the tenant has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemberStep {
    /// Its unit, or its cgroup: from the mount, or with `./` from the root where the agent made it.
    pub cgroup: String,
    /// Whether it was handed to the tenant while the agent ran.
    pub is_attached: bool,
    /// CPUs used since the last tick, and what is held of the others; absent where it could not be read.
    #[serde(flatten, with = "wire::usage")]
    pub usage: PerResource<Option<f64>>,
    /// What it could use.
    #[serde(flatten, with = "wire::demand")]
    pub demand: PerResource<f64>,
    /// Its part of what the tenant is entitled to.
    #[serde(flatten, with = "wire::allocation")]
    pub allocation: PerResource<f64>,
    /// As [`AboveStep::sibling_share`].
    pub sibling_share: f64,
    /// Its values.
    pub values: Vec<ValueStep>,
    /// As [`Explanation::above`].
    pub above: Vec<AboveStep>,
}

/// A unit above the cgroup of a tenant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AboveStep {
    /// Its name.
    pub unit: String,
    /// The part of the CPU time of its governed siblings that its weight is, while all of them are busy.
    pub sibling_share: f64,
    /// Its values.
    pub values: Vec<ValueStep>,
}

/// One value in one file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ValueStep {
    /// The file.
    pub path: String,
    /// What it held before this tick.
    pub held: Option<String>,
    /// How long before this tick that was read, or written; absent where it was not.
    pub held_seconds: Option<f64>,
    /// What it shall hold.
    pub wanted: String,
    /// What came of it.
    pub outcome: Outcome,
    /// Why this value.
    pub reason: String,
    /// Why this outcome, with the remedy where something prevents the effect.
    pub detail: String,
}
