//! Wire format of an explanation: one step per link of the chain, with its numbers and a reason.
//! [`crate::why::explain`] computes them.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::disk::DiskStep;
use super::status::{AttachedStatus, DeathStatus, FaultsStatus, ReasonStatus};
pub use super::trace::Outcome;
use crate::share::demand::{CpuBasis, MemoryBasis};
use tenantd_core::resource::{PerResource, wire};
use tenantd_policy::key::Setting;
use tenantd_policy::model::Mode;

/// Last tick of one tenant or group. A group has no sample and no width.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Explanation {
    /// Path of names from the top, joined by slashes.
    pub tenant: String,
    /// Ticks since the agent started.
    pub tick: u64,
    /// Mode: values are written, or only computed.
    pub mode: Mode,
    /// Time between the two samples.
    pub elapsed_seconds: Option<f64>,
    /// Counters of the kernel.
    pub sample: Vec<Counter>,
    /// Rates between the two samples.
    pub usage: Option<UsageStep>,
    /// Its work on disks; absent if the kernel does not count it, and for a group.
    pub disk: Option<DiskStep>,
    /// Demand of the tenant.
    pub demand: Option<DemandStep>,
    /// Allocation of the tenant.
    pub allocation: AllocationStep,
    /// Weight among its siblings.
    pub weight: WeightStep,
    /// Credit against its siblings; absent before the second sample.
    pub credit: Option<CreditStep>,
    /// Degree of parallelism.
    pub width: Option<WidthStep>,
    /// CPUs it runs on.
    pub placement: Option<PlacementStep>,
    /// Values in its files.
    pub values: Vec<ValueStep>,
    /// Cgroups of a tenant that has several.
    pub members: Vec<MemberStep>,
    /// Governed slices and services above its cgroup, nearest first.
    pub above: Vec<AboveStep>,
    /// Shortfall of a tenant.
    #[serde(flatten, with = "wire::missing")]
    pub missing: PerResource<Option<f64>>,
    /// Reasons for the shortfall.
    pub reasons: Vec<ReasonStatus>,
    /// Fault counters since the agent started.
    pub faults: FaultsStatus,
    /// OOM kills since the agent started.
    pub nr_oom_kills: Option<u64>,
    /// The last deaths for lack of memory, oldest first.
    pub deaths: Vec<DeathStatus>,
    /// Work that was attached to the tenant while the agent ran; absent without any.
    pub attached: Option<AttachedStatus>,
    /// Findings of this tick about the node.
    pub findings: Vec<String>,
}

/// Counter of the kernel in the last two samples.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// Kernel's name of the counter, with the unit last.
    pub name: Cow<'static, str>,
    /// Count at the previous tick.
    pub before: Option<u64>,
    /// Count at this tick.
    pub now: Option<u64>,
}

/// Rates between two samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UsageStep {
    /// CPUs used on average.
    pub cpu_cores: f64,
    /// PSI `some` for CPU.
    pub cpu_pressure_ratio: Option<f64>,
    /// True if `cpu.max` throttled the tenant.
    pub throttled: bool,
    /// CPUs its threads would use without waits; absent if they were not read.
    pub wanted_cores: Option<f64>,
    /// Memory in use.
    #[serde(serialize_with = "wire::bytes")]
    pub working_set_bytes: Option<f64>,
    /// PSI `some` for memory.
    pub memory_pressure_ratio: Option<f64>,
    /// Refaulted pages per second.
    pub refaults_per_sec: Option<f64>,
    /// True if it has a process.
    pub populated: bool,
    /// Explanation of these figures.
    pub reason: String,
}

/// Demand of a tenant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DemandStep {
    /// Amount of each resource.
    #[serde(flatten, with = "wire::qualified")]
    pub amount: PerResource<f64>,
    /// Basis of the CPU demand.
    pub cpu_basis: CpuBasis,
    /// Basis of the memory demand.
    pub memory_basis: MemoryBasis,
    /// Demand at the previous tick.
    #[serde(flatten, with = "wire::last")]
    pub last: PerResource<Option<f64>>,
    /// Smaller of its limit and the machine.
    #[serde(flatten, with = "wire::max")]
    pub max: PerResource<f64>,
    /// Reason for each amount.
    #[serde(flatten, with = "wire::reason")]
    pub reason: PerResource<String>,
}

/// Constraint that ended the filling for a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AllocationBound {
    /// Its demand is met.
    Demand,
    /// Its own limit is reached.
    Limit,
    /// A resource was used up at its level.
    Level,
    /// Its weight alone decides.
    Weight,
    /// It has no demand.
    #[default]
    Nothing,
}

/// Allocation of a tenant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AllocationStep {
    /// Amount of each resource.
    #[serde(flatten, with = "wire::amount")]
    pub amount: PerResource<f64>,
    /// Divided capacity.
    #[serde(flatten, with = "wire::capacity")]
    pub capacity: PerResource<f64>,
    /// Huge pages of the host, which no tenant gets, in bytes.
    pub huge_pages_bytes: u64,
    /// CPUs by its weight alone.
    pub fair_share_cores: f64,
    /// Guaranteed amount.
    #[serde(flatten, with = "wire::guarantee")]
    pub guarantee: PerResource<Option<f64>>,
    /// Upper limit.
    #[serde(flatten, with = "wire::limit")]
    pub limit: PerResource<Option<f64>>,
    /// Guarantee and limit in the notation of the policy: `limit.cpu` is `50%`.
    pub written: Vec<Setting>,
    /// `cpu` or `memory`.
    pub dominant_resource: Option<Cow<'static, str>>,
    /// Allocated part of the capacity of the dominant resource, not weighted.
    pub dominant_share: f64,
    /// Ratio of that part to its weight when filling stopped.
    pub level: f64,
    /// Constraint that ended the filling.
    pub bound: AllocationBound,
    /// Reason in words.
    pub reason: String,
}

/// Weight among siblings, from the policy to the file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WeightStep {
    /// Weight in the policy.
    pub policy_weight: f64,
    /// Part of the siblings' sum in the policy.
    pub policy_share: f64,
    /// Weight in the unit of `cpu.weight`.
    pub cpu_weight: f64,
    /// Part of the siblings' CPU time while all of them are busy.
    pub sibling_share: f64,
    /// Weight in the file, in its own unit; absent if it was not read.
    pub file_value: Option<String>,
    /// Reason for the weight.
    pub reason: String,
}

/// Credit of a node against its siblings. Without `control.credits` it is only counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CreditStep {
    /// True if the policy has credits.
    pub is_on: bool,
    /// Credit, in seconds of its own fair share; negative after an overdraft.
    pub bank_seconds: f64,
    /// Largest credit.
    pub cap_seconds: f64,
    /// Factor of its weight in force.
    pub factor: f64,
    /// Factor that its credit gives, also if the policy has no credits.
    pub offered_factor: f64,
    /// CPUs of its fair share, by its recent demand.
    pub fair_share_cores: f64,
    /// CPUs beyond its fair share that the offered factor gives it.
    pub extra_cores: f64,
    /// Credit earned in the last interval.
    pub earned_seconds: f64,
    /// Credit paid in the last interval.
    pub charged_seconds: f64,
    /// Time of full use that its credit covers; absent if its weight is not raised.
    pub burst_seconds: Option<f64>,
    /// Siblings that spend credit at its cost.
    pub spenders: Vec<String>,
    /// CPUs due to it while they spend; absent without spenders.
    pub due_cores: Option<f64>,
    /// Longest time that they can go on; absent without spenders.
    pub pays_seconds: Option<f64>,
    /// Reason in words.
    pub reason: String,
}

/// Degree of parallelism of a tenant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WidthStep {
    /// Current width in CPUs.
    pub dop: Option<u32>,
    /// CPUs for the widths of all tenants.
    pub slots: u32,
    /// Slots claimed before the band applies.
    pub claim: Option<u32>,
    /// Least width that the policy allows.
    pub floor: Option<u32>,
    /// Largest width that the policy and the limit allow.
    pub ceiling: Option<u32>,
    /// CPUs used over its width.
    pub utilisation_ratio: Option<f64>,
    /// True if it has been nearly idle for a while.
    pub asleep: bool,
    /// Time since its width last changed; absent if it never did.
    pub changed_seconds: Option<f64>,
    /// Reason for the width.
    pub reason: String,
}

/// CPUs of a tenant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlacementStep {
    /// CPUs in the kernel's list format; absent if it is not pinned.
    pub cpus: Option<String>,
    /// Time since its CPUs last changed.
    pub moved_seconds: Option<f64>,
    /// Reason for the placement.
    pub reason: String,
}

/// One of several cgroups of a tenant, and its part of the tenant's amounts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemberStep {
    /// Its unit, or its cgroup: from the mount, or with `./` from the root that the agent made.
    pub cgroup: String,
    /// True if it was attached to the tenant while the agent ran.
    pub is_attached: bool,
    /// CPUs used since the last tick, and memory held; absent if unreadable.
    #[serde(flatten, with = "wire::usage")]
    pub usage: PerResource<Option<f64>>,
    /// Demand of the member.
    #[serde(flatten, with = "wire::demand")]
    pub demand: PerResource<f64>,
    /// Its part of the tenant's allocation.
    #[serde(flatten, with = "wire::allocation")]
    pub allocation: PerResource<f64>,
    /// See [`AboveStep::sibling_share`].
    pub sibling_share: f64,
    /// Values in its files.
    pub values: Vec<ValueStep>,
    /// See [`Explanation::above`].
    pub above: Vec<AboveStep>,
}

/// A unit above the cgroup of a tenant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AboveStep {
    /// Name of the unit.
    pub unit: String,
    /// Part of the governed siblings' CPU time while all of them are busy.
    pub sibling_share: f64,
    /// Values in its files.
    pub values: Vec<ValueStep>,
}

/// One value in one file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ValueStep {
    /// Path of the file.
    pub path: String,
    /// Value before this tick.
    pub held: Option<String>,
    /// Age of that value, from its reading or writing; absent without one.
    pub held_seconds: Option<f64>,
    /// Desired value.
    pub wanted: String,
    /// Result of the write.
    pub outcome: Outcome,
    /// Reason for the value.
    pub reason: String,
    /// Reason for the outcome, with a remedy if something prevents the effect.
    pub detail: String,
}
