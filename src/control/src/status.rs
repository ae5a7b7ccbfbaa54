//! The tick as one immutable value, which every reader of the agent gets.
//!
//! The socket, the metrics, the demo and the log show this value only, so that they cannot disagree; the
//! thresholds by which figures are judged are part of it for the same reason. Field names are those of the
//! JSON: snake_case, CPU in cores, memory in bytes, fractions as numbers from 0 to 1. They are those of
//! `io.tenantd.Manager.varlink` as well, and a test compares the two.
//!
//! A reader may be older or newer than the agent: it ignores unknown fields, and absent fields have their
//! defaults.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::demand::{CpuBasis, MemoryBasis};
use super::fairness::FAIR_ERROR_MAX;
use super::finding::Finding;
use super::jobs::{JobsStatus, TenantJobs};
use super::reason::{Outsider, ReasonKind};
use tenantd_core::resource::{PerResource, wire};
use tenantd_policy::model::Mode;

/// What the agent decided and did in one tick.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// Ticks since the agent started, from 1.
    pub tick: u64,
    /// When the tick was published, by the wall clock: RFC 3339, in UTC. Absent where no clock was asked.
    pub time: Option<String>,
    /// The version of the agent.
    pub version: Cow<'static, str>,
    /// Whether values are written or only computed.
    pub mode: Mode,
    /// Time from tick to tick, in seconds.
    pub interval_seconds: f64,
    /// The machine and what is divided of it.
    pub host: HostStatus,
    /// The tenants, in the order of the policy.
    pub tenants: Vec<TenantStatus>,
    /// The groups, in the order of the policy.
    pub groups: Vec<GroupStatus>,
    /// What was written, or would be.
    pub actions: Vec<ActionStatus>,
    /// Processes that the last search found outside of the tenants that claim them: they were moved, or would be.
    pub moves: Vec<MoveStatus>,
    /// What could not be read, written or take effect, each with its remedy where there is one.
    pub findings: Vec<String>,
    /// The same findings as records, in the same order.
    pub finding_records: Vec<Finding>,
    /// Number of foreign writes found in files that the agent writes, since the agent started.
    pub nr_drift: u64,
    /// How often the agent gave way to a program that kept overwriting a value, since the agent started.
    pub nr_yields: u64,
    /// Values that are left to such programs now.
    pub nr_contested: u64,
    /// Values that were written, or would be, and cannot take effect.
    pub nr_ineffective: u64,
    /// Processes that were moved into tenants that claim them, since the agent started.
    pub nr_moves: u64,
    /// The jobs of all tenants; absent before the first was submitted.
    pub jobs: Option<JobsStatus>,
    /// Policies that were taken up since the agent started, the first not counted.
    pub nr_reloads: u64,
    /// Jain's index over the CPUs that each tenant that wants more got, over those it is entitled to; 1 where
    /// the division is as decided. Absent where no tenant wants more.
    pub jain_index: Option<f64>,
    /// The largest [`TenantStatus::share_error`]; absent before there are rates.
    pub max_share_error: Option<f64>,
    /// Length of the present or the last unfairness episode; absent where there never was one.
    pub convergence_seconds: Option<f64>,
    /// The thresholds by which readers judge these figures.
    pub thresholds: Thresholds,
    /// What the agent itself costs.
    pub agent: AgentStatus,
}

/// A tenant or a group, as one line of a list.
#[derive(Clone, Copy, Debug)]
pub enum Line<'a> {
    /// A tenant, with its place among the tenants of the policy.
    Tenant(usize, &'a TenantStatus),
    /// A group.
    Group(&'a GroupStatus),
}

impl Status {
    /// Tenants and groups in the order of the policy: each group before the first tenant in it.
    pub fn lines(&self) -> Vec<Line<'_>> {
        let mut groups = self.groups.iter().peekable();
        let mut lines = Vec::with_capacity(self.tenants.len() + self.groups.len());
        for (place, tenant) in self.tenants.iter().enumerate() {
            while let Some(group) = groups.next_if(|group| is_below(&tenant.name, &group.name)) {
                lines.push(Line::Group(group));
            }
            lines.push(Line::Tenant(place, tenant));
        }
        lines
    }

    /// The tenants that `name` stands for: itself, or those in the group of this name.
    pub fn tenants_of<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a TenantStatus> {
        self.tenants
            .iter()
            .filter(move |tenant| tenant.name == name || is_below(&tenant.name, name))
    }
}

fn is_below(tenant: &str, group: &str) -> bool {
    tenant.strip_prefix(group).is_some_and(|rest| rest.starts_with('/'))
}

impl<'a> Line<'a> {
    /// Its path of names.
    pub fn name(self) -> &'a str {
        match self {
            Line::Tenant(_, tenant) => &tenant.name,
            Line::Group(group) => &group.name,
        }
    }

    /// What it uses.
    pub fn usage(self) -> PerResource<Option<f64>> {
        match self {
            Line::Tenant(_, tenant) => tenant.usage,
            Line::Group(group) => group.usage,
        }
    }

    /// What it could use.
    pub fn demand(self) -> PerResource<f64> {
        match self {
            Line::Tenant(_, tenant) => tenant.demand,
            Line::Group(group) => group.demand,
        }
    }

    /// What it is entitled to.
    pub fn allocation(self) -> PerResource<f64> {
        match self {
            Line::Tenant(_, tenant) => tenant.allocation,
            Line::Group(group) => group.allocation,
        }
    }

    /// The tenant, where it is one.
    pub fn tenant(self) -> Option<&'a TenantStatus> {
        match self {
            Line::Tenant(_, tenant) => Some(tenant),
            Line::Group(_) => None,
        }
    }
}

/// The thresholds by which readers judge a status, so that all of them judge alike.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Thresholds {
    /// A [`TenantStatus::share_error`] above this counts as unfair.
    pub share_error_ratio: f64,
    /// A tenant whose tasks wait for a larger part of the time counts as under pressure.
    pub pressure_ratio: f64,
    /// A status that is older counts as stale.
    pub stale_seconds: f64,
}

impl Thresholds {
    /// The thresholds of an agent that ticks every `interval_seconds`.
    pub fn for_interval(interval_seconds: f64) -> Thresholds {
        Thresholds { stale_seconds: 1.0 + 2.0 * interval_seconds, ..Thresholds::default() }
    }
}

impl Default for Thresholds {
    fn default() -> Self {
        Thresholds { share_error_ratio: FAIR_ERROR_MAX, pressure_ratio: 0.2, stale_seconds: 3.0 }
    }
}

/// The machine in one tick.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostStatus {
    /// The host name.
    pub name: String,
    /// Which hierarchy enforces.
    pub hierarchy: Cow<'static, str>,
    /// CPUs online.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// What was divided among the tenants.
    #[serde(flatten, with = "wire::capacity")]
    pub capacity: PerResource<f64>,
    /// CPUs that processes outside every tenant used.
    pub outside_cores: Option<f64>,
}

/// One tenant in one tick.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TenantStatus {
    /// Its path of names.
    pub name: SmolStr,
    /// Whether `each` found it.
    pub found: bool,
    /// Its CPU weight in the policy.
    pub weight: f64,
    /// What it gets whenever it wants it.
    #[serde(flatten, with = "wire::guarantee")]
    pub guarantee: PerResource<Option<f64>>,
    /// What it never exceeds.
    #[serde(flatten, with = "wire::limit")]
    pub limit: PerResource<Option<f64>>,
    /// CPUs used since the last tick, and what is held of the others; absent where it could not be read.
    #[serde(flatten, with = "wire::usage")]
    pub usage: PerResource<Option<f64>>,
    /// Share of the time in which some task of it waited for a CPU; absent without PSI.
    pub cpu_pressure_ratio: Option<f64>,
    /// Share of the time in which some task of it waited for memory; absent without PSI.
    pub memory_pressure_ratio: Option<f64>,
    /// What it could use.
    #[serde(flatten, with = "wire::demand")]
    pub demand: PerResource<f64>,
    /// How its CPU demand came about.
    pub demand_basis: CpuBasis,
    /// How its memory demand came about.
    pub memory_demand_basis: MemoryBasis,
    /// What it is entitled to.
    #[serde(flatten, with = "wire::allocation")]
    pub allocation: PerResource<f64>,
    /// What it would be allocated now if it wanted everything: see [`super::would_get`].
    #[serde(flatten, with = "wire::would_get")]
    pub would_get: PerResource<f64>,
    /// CPUs that its weight alone gives it, within its limit.
    pub fair_share_cores: f64,
    /// `cpu` or `memory`, whichever it is allocated the larger weighted share of.
    pub dominant_resource: Option<Cow<'static, str>>,
    /// The part of what is divided of that resource that it is allocated, not weighted.
    pub dominant_share: f64,
    /// That part over its weight when filling stopped: equal for all siblings that one resource holds back.
    pub level: f64,
    /// Whether it is allocated all that it could use.
    pub satisfied: bool,
    /// The part of the CPUs that are divided which it is entitled to, wants, and does not get; absent without
    /// rates.
    pub share_error: Option<f64>,
    /// What it is due by the policy, wants, and does not get: see [`super::shortfall`]. Absent without rates.
    #[serde(flatten, with = "wire::missing")]
    pub missing: PerResource<Option<f64>>,
    /// Why; empty where it gets what it is due.
    pub reasons: Vec<ReasonStatus>,
    /// How often and for how long it lacked something, since the agent started.
    pub faults: FaultsStatus,
    /// Time for which it had less than half of its fair share while it wanted more, since the agent started.
    pub starved_seconds: f64,
    /// CPU time used since the agent started; never decreases, also where the cgroup was re-created.
    pub cpu_usage_seconds: Option<f64>,
    /// Time in which some task of it waited for a CPU, since the agent started; absent without PSI.
    pub cpu_pressure_seconds: Option<f64>,
    /// Time in which some task of it waited for memory, since the agent started; absent without PSI.
    pub memory_pressure_seconds: Option<f64>,
    /// Processes of it that were killed for want of memory since the agent started.
    pub nr_oom_kills: Option<u64>,
    /// Processes and threads that it never exceeds.
    pub limit_pids: Option<u64>,
    /// Processes and threads that it has; absent where the policy limits none, or it could not be read.
    pub usage_pids: Option<u64>,
    /// Forks that were refused since the agent started; absent likewise.
    pub nr_refused_forks: Option<u64>,
    /// How many CPUs wide it should run; absent before the first decision.
    pub dop: Option<u32>,
    /// The CPUs that it is placed on, in the kernel's list format; absent where it is not pinned.
    pub cpus: Option<String>,
    /// The CPU weight that its cgroup holds, in the unit of `cpu.weight`.
    pub cpu_weight: Option<f64>,
    /// Its jobs; absent before its first was submitted.
    pub jobs: Option<TenantJobs>,
}

/// Why a tenant does not get what it is due.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReasonStatus {
    /// Its kind.
    pub kind: ReasonKind,
    /// `cpu` or `memory`.
    pub resource: Cow<'static, str>,
    /// The reason in words.
    pub text: String,
    /// The largest work of no tenant, where that is the reason and was found.
    pub outsiders: Vec<Outsider>,
}

/// Faults of one tenant since the agent started; absent where they were not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FaultsStatus {
    /// It lacked CPUs that it was due.
    pub cpu_short: Option<FaultStatus>,
    /// It had less than half of its fair share of the CPUs.
    pub cpu_starved: Option<FaultStatus>,
    /// A CPU limit held it back.
    pub cpu_throttled: Option<FaultStatus>,
    /// It lacked memory that it was due, or waited at its memory limit.
    pub memory_short: Option<FaultStatus>,
    /// Reclaim took from its memory although that was protected.
    pub memory_reclaimed: Option<FaultStatus>,
}

/// How often and for how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FaultStatus {
    /// Episodes: runs of ticks.
    pub count: u64,
    /// Their length together.
    pub seconds: f64,
}

impl FaultsStatus {
    /// Each that was counted, with what a sentence says of the tenant.
    pub fn each(&self) -> impl Iterator<Item = (&'static str, FaultStatus)> {
        [
            ("short of CPU", self.cpu_short),
            ("starved", self.cpu_starved),
            ("throttled", self.cpu_throttled),
            ("short of memory", self.memory_short),
            ("reclaimed below its protection", self.memory_reclaimed),
        ]
        .into_iter()
        .filter_map(|(name, fault)| Some((name, fault?)))
    }
}

/// One group in one tick: sums over the tenants below it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupStatus {
    /// Its path of names.
    pub name: SmolStr,
    /// Its CPU weight in the policy.
    pub weight: f64,
    /// Tenants below it, at any depth.
    pub nr_tenants: u64,
    /// Those of them that its `each` found.
    pub nr_found: u64,
    /// What it gets whenever its tenants want it.
    #[serde(flatten, with = "wire::guarantee")]
    pub guarantee: PerResource<Option<f64>>,
    /// What its tenants together never exceed.
    #[serde(flatten, with = "wire::limit")]
    pub limit: PerResource<Option<f64>>,
    /// What its tenants use; absent where it could be read for none of them.
    #[serde(flatten, with = "wire::usage")]
    pub usage: PerResource<Option<f64>>,
    /// What its tenants could use.
    #[serde(flatten, with = "wire::demand")]
    pub demand: PerResource<f64>,
    /// What its tenants are entitled to.
    #[serde(flatten, with = "wire::allocation")]
    pub allocation: PerResource<f64>,
    /// What it would be allocated now if all its tenants wanted everything.
    #[serde(flatten, with = "wire::would_get")]
    pub would_get: PerResource<f64>,
    /// CPUs that its weight alone gives it.
    pub fair_share_cores: f64,
    /// Whether all its tenants are allocated all the CPU that they could use.
    pub satisfied: bool,
    /// Processes and threads that its tenants together never exceed.
    pub limit_pids: Option<u64>,
    /// Processes and threads that they have; absent where the policy limits none, or it could not be read.
    pub usage_pids: Option<u64>,
    /// Forks that were refused since the agent started; absent likewise.
    pub nr_refused_forks: Option<u64>,
    /// The CPU weight that its cgroup holds, in the unit of `cpu.weight`.
    pub cpu_weight: Option<f64>,
}

/// One action, as text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
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

/// Processes of one cgroup that a tenant claims.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MoveStatus {
    /// The tenant.
    pub tenant: String,
    /// The cgroup; of many, how many more there are.
    pub from: String,
    /// Their number.
    pub nr_processes: u64,
}

/// What the agent itself costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentStatus {
    /// CPU time since it started.
    pub cpu_seconds: f64,
    /// Memory that it holds; absent where it could not be read.
    pub resident_bytes: Option<u64>,
    /// How long the last tick took.
    pub tick_seconds: f64,
    /// How long the longest tick took since it started.
    pub longest_tick_seconds: f64,
    /// How long after its time the last tick began.
    pub tick_late_seconds: f64,
    /// Ticks since the start that never came or decided nothing, because the one before was late or took too long.
    pub nr_skipped_ticks: u64,
}
