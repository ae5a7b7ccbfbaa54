//! The tick as one immutable value for every reader of the agent.
//!
//! The socket, the metrics, the demo and the log show this value only, so that they cannot disagree. It
//! includes the thresholds for judging its figures. Field names are those of the JSON and of
//! `io.tenantd.Manager.varlink` (a test compares the two): snake_case, CPU in cores, memory in bytes,
//! fractions from 0 to 1.
//!
//! A reader may be older or newer than the agent: it ignores unknown fields, and absent fields have their
//! defaults.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::disk::{DiskLimitStatus, DiskShareStatus, DiskStatus, DiskUseStatus};
use super::reason::{Outsider, ReasonKind, without_names};
use crate::share::demand::{CpuBasis, MemoryBasis};
use crate::share::fairness::FAIR_ERROR_MAX;
use crate::words::finding::Finding;
use crate::words::jobs::{JobsStatus, TenantJobs};
use tenantd_core::resource::{PerResource, wire};
use tenantd_core::units::Bytes;
use tenantd_policy::model::Mode;

/// Decisions and actions of one tick.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// Ticks since the agent started, from 1.
    pub tick: u64,
    /// Publication time by the wall clock: RFC 3339, in UTC. Absent without a clock.
    pub time: Option<String>,
    /// Version of the agent.
    pub version: Cow<'static, str>,
    /// Mode: values are written, or only computed.
    pub mode: Mode,
    /// Mode in the policy, which the next start takes.
    pub policy_mode: Option<Mode>,
    /// Time from tick to tick, in seconds.
    pub interval_seconds: f64,
    /// The machine and its divided capacity.
    pub host: HostStatus,
    /// Tenants in the order of the policy.
    pub tenants: Vec<TenantStatus>,
    /// Groups in the order of the policy.
    pub groups: Vec<GroupStatus>,
    /// Writes of the tick, done or planned.
    pub actions: Vec<ActionStatus>,
    /// Processes that the last search found outside the tenants that claim them: moved, or to be moved.
    pub moves: Vec<MoveStatus>,
    /// Work that was attached while the agent ran, by tenant.
    pub attached: Vec<AttachedStatus>,
    /// Problems with reading, writing or effect, each with a remedy if there is one.
    pub findings: Vec<String>,
    /// The same findings as records, in the same order.
    pub finding_records: Vec<Finding>,
    /// Foreign writes found since the agent started.
    pub nr_drift: u64,
    /// Number of times the agent yielded to a program that kept overwriting a value, since it started.
    pub nr_yields: u64,
    /// Values left to such programs now.
    pub nr_contested: u64,
    /// Values, written or planned, that cannot take effect.
    pub nr_ineffective: u64,
    /// Processes moved into tenants that claim them, since the agent started.
    pub nr_moves: u64,
    /// Jobs of all tenants; absent before the first was submitted.
    pub jobs: Option<JobsStatus>,
    /// Work that ends first when memory runs out, or would in mode enforce. Absent without `memory: { victims: share }`, and
    /// while no tenant holds more than its guarantee.
    pub victim: Option<VictimStatus>,
    /// Policy reloads since the agent started.
    pub nr_reloads: u64,
    /// Jain's index over the deliveries of the tenants that want more; 1 for an exact division. Absent if
    /// no tenant wants more.
    pub jain_index: Option<f64>,
    /// Largest [`TenantStatus::share_error`]; absent without rates.
    pub max_share_error: Option<f64>,
    /// Length of the current or last unfairness episode; absent if there never was one.
    pub convergence_seconds: Option<f64>,
    /// Thresholds for judging these figures.
    pub thresholds: Thresholds,
    /// Cost of the agent itself.
    pub agent: AgentStatus,
}

/// A tenant or a group, as one line of a list.
#[derive(Clone, Copy, Debug)]
pub enum Line<'a> {
    /// A tenant, with its index among the tenants of the policy.
    Tenant(usize, &'a TenantStatus),
    /// A group.
    Group(&'a GroupStatus),
}

impl Status {
    /// Tenants and groups in the order of the policy: each group before its first tenant.
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

    /// Tenants selected by `name`: the tenant itself, or those in the group of this name.
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
    /// Path of names.
    pub fn name(self) -> &'a str {
        match self {
            Line::Tenant(_, tenant) => &tenant.name,
            Line::Group(group) => &group.name,
        }
    }

    /// Usage.
    pub fn usage(self) -> PerResource<Option<f64>> {
        match self {
            Line::Tenant(_, tenant) => tenant.usage,
            Line::Group(group) => group.usage,
        }
    }

    /// Demand.
    pub fn demand(self) -> PerResource<f64> {
        match self {
            Line::Tenant(_, tenant) => tenant.demand,
            Line::Group(group) => group.demand,
        }
    }

    /// Allocation.
    pub fn allocation(self) -> PerResource<f64> {
        match self {
            Line::Tenant(_, tenant) => tenant.allocation,
            Line::Group(group) => group.allocation,
        }
    }

    /// Share if busy.
    pub fn share_if_busy(self) -> PerResource<f64> {
        let (cores, bytes) = match self {
            Line::Tenant(_, it) => (it.fair_share_cores, it.fair_share_memory_bytes),
            Line::Group(it) => (it.fair_share_cores, it.fair_share_memory_bytes),
        };
        PerResource([cores, bytes])
    }

    /// Credit in seconds, and its factor; `None` if the policy has no credits.
    pub fn credit(self) -> Option<(f64, f64)> {
        match self {
            Line::Tenant(_, tenant) => tenant.credit_seconds.zip(tenant.credit_factor),
            Line::Group(group) => group.credit_seconds.zip(group.credit_factor),
        }
    }

    /// Effect that credits would have.
    pub fn credit_preview(self) -> Option<CreditPreview> {
        match self {
            Line::Tenant(_, tenant) => tenant.credit_preview,
            Line::Group(group) => group.credit_preview,
        }
    }

    /// The tenant, if the line is one.
    pub fn tenant(self) -> Option<&'a TenantStatus> {
        match self {
            Line::Tenant(_, tenant) => Some(tenant),
            Line::Group(_) => None,
        }
    }
}

/// Thresholds of a status, so that all readers judge alike.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Thresholds {
    /// [`TenantStatus::share_error`] above which a tenant is treated unfairly.
    pub share_error_ratio: f64,
    /// Waiting ratio above which a tenant is under pressure.
    pub pressure_ratio: f64,
    /// Age above which a status is stale.
    pub stale_seconds: f64,
}

impl Thresholds {
    /// Thresholds of an agent that ticks every `interval_seconds`.
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
    /// Host name.
    pub name: String,
    /// Hierarchy in use.
    pub hierarchy: Cow<'static, str>,
    /// Online CPUs.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Huge pages in it, which no tenant gets, in bytes.
    pub huge_pages_bytes: u64,
    /// Capacity divided among the tenants.
    #[serde(flatten, with = "wire::capacity")]
    pub capacity: PerResource<f64>,
    /// CPUs used by processes outside every tenant.
    pub outside_cores: Option<f64>,
    /// The busiest disks; empty if the kernel does not count them.
    pub disks: Vec<DiskStatus>,
}

/// Cause of a death.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeathCause {
    /// The host had no memory left.
    Host,
    /// A memory limit was reached.
    Limit,
    /// The job reached its declared memory.
    Declared,
    /// systemd-oomd ended a unit.
    Oomd,
    /// Only the counters of the cgroup show it.
    #[default]
    Unknown,
}

impl DeathCause {
    /// Word in the log and in JSON.
    pub fn word(self) -> &'static str {
        match self {
            DeathCause::Host => "host",
            DeathCause::Limit => "limit",
            DeathCause::Declared => "declared",
            DeathCause::Oomd => "oomd",
            DeathCause::Unknown => "unknown",
        }
    }
}

/// A death for lack of memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeathStatus {
    /// Time since it was found.
    pub age_seconds: f64,
    /// Number of its job.
    pub job: Option<u64>,
    /// User of its first process.
    pub uid: Option<u32>,
    /// Its first process.
    pub pid: Option<u32>,
    /// Program of that process.
    pub program: Option<String>,
    /// Killed processes.
    pub nr_processes: u64,
    /// Resident memory of these processes.
    pub held_bytes: Option<u64>,
    /// Kind of the cause.
    pub cause: DeathCause,
    /// Cgroup of the first process, below the mount.
    pub cgroup: Option<String>,
    /// Cause, figures and remedy as a sentence.
    pub text: String,
}

impl DeathStatus {
    /// The same for a user: without the process and the cgroup if it was another user's.
    pub fn seen_by(&self, uid: u32) -> DeathStatus {
        let mut death = self.clone();
        if self.uid.is_some_and(|owner| owner != uid) {
            (death.pid, death.program, death.cgroup) = (None, None, None);
        }
        death
    }
}

impl fmt::Display for DeathStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(job) = self.job {
            write!(f, "job {job}: ")?;
        }
        match (&self.program, self.pid, self.nr_processes) {
            (Some(program), Some(pid), 0 | 1) => write!(f, "{program} (process {pid})"),
            (Some(program), Some(pid), nr) => {
                write!(f, "{program} (process {pid}) and {} more", nr - 1)
            }
            (_, _, 1) => f.write_str("1 process"),
            (_, _, nr) => write!(f, "{nr} processes"),
        }?;
        if let Some(held) = self.held_bytes {
            write!(f, " with {}", Bytes(held).rounded())?;
        }
        write!(f, " killed: {}", self.text)
    }
}

/// One tenant in one tick.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TenantStatus {
    /// Path of names.
    pub name: SmolStr,
    /// True if `each` found it.
    pub found: bool,
    /// CPU weight in the policy.
    pub weight: f64,
    /// Guaranteed amount.
    #[serde(flatten, with = "wire::guarantee")]
    pub guarantee: PerResource<Option<f64>>,
    /// True if memory protection does not reach its processes, so that its memory guarantee is not kept.
    pub memory_guarantee_void: bool,
    /// Upper limit.
    #[serde(flatten, with = "wire::limit")]
    pub limit: PerResource<Option<f64>>,
    /// CPUs used since the last tick, and memory held; absent if unreadable.
    #[serde(flatten, with = "wire::usage")]
    pub usage: PerResource<Option<f64>>,
    /// Memory of processes moved into it that is charged to the cgroups they came from, in bytes: at least this
    /// much. Absent if nothing is known of any.
    pub memory_elsewhere_bytes: Option<u64>,
    /// PSI `some` for CPU; absent without PSI.
    pub cpu_pressure_ratio: Option<f64>,
    /// PSI `some` for memory; absent without PSI.
    pub memory_pressure_ratio: Option<f64>,
    /// PSI `some` for IO; absent without PSI.
    pub disk_pressure_ratio: Option<f64>,
    /// Its work on each disk, the largest part first; empty if it used none, or if it is not counted.
    pub disks: Vec<DiskUseStatus>,
    /// Demand.
    #[serde(flatten, with = "wire::demand")]
    pub demand: PerResource<f64>,
    /// Basis of its CPU demand.
    pub demand_basis: CpuBasis,
    /// Basis of its memory demand.
    pub memory_demand_basis: MemoryBasis,
    /// Allocation: its *share now*.
    #[serde(flatten, with = "wire::allocation")]
    pub allocation: PerResource<f64>,
    /// Allocation if it wanted everything now: see [`crate::share::would_get`].
    #[serde(flatten, with = "wire::would_get")]
    pub would_get: PerResource<f64>,
    /// CPUs if all tenants wanted everything: its *share if busy*.
    pub fair_share_cores: f64,
    /// Memory if all tenants wanted everything.
    #[serde(serialize_with = "wire::bytes")]
    pub fair_share_memory_bytes: f64,
    /// `cpu` or `memory`: the resource with its largest weighted share.
    pub dominant_resource: Option<Cow<'static, str>>,
    /// Allocated part of the capacity of that resource, not weighted.
    pub dominant_share: f64,
    /// Ratio of that part to its weight when filling stopped: equal for all siblings limited by one resource.
    pub level: f64,
    /// True if its allocation meets its demand.
    pub satisfied: bool,
    /// Part of the divided CPUs that it wants, within its share now, and does not get; absent without rates.
    pub share_error: Option<f64>,
    /// Amount that it wants, within its share, and does not get: see [`crate::why::shortfall`]. Absent without rates.
    #[serde(flatten, with = "wire::missing")]
    pub missing: PerResource<Option<f64>>,
    /// Reasons for the shortfall; empty without one.
    pub reasons: Vec<ReasonStatus>,
    /// Fault counters since the agent started.
    pub faults: FaultsStatus,
    /// Time with less than half of its share if busy while it wanted more, since the agent started.
    pub starved_seconds: f64,
    /// CPU time since the agent started; never decreases, even if the cgroup was re-created.
    pub cpu_usage_seconds: Option<f64>,
    /// Time in which a task waited for a CPU, since the agent started; absent without PSI.
    pub cpu_pressure_seconds: Option<f64>,
    /// Time in which a task stalled on memory, since the agent started; absent without PSI.
    pub memory_pressure_seconds: Option<f64>,
    /// Time in which a task stalled on IO, since the agent started; absent without PSI.
    pub disk_pressure_seconds: Option<f64>,
    /// Bytes read from disks since the agent started; absent if they are not counted.
    pub disk_read_bytes: Option<u64>,
    /// Bytes written to disks that the kernel charges to it; absent likewise.
    pub disk_written_bytes: Option<u64>,
    /// Operations on disks; absent likewise.
    pub nr_disk_operations: Option<u64>,
    /// OOM kills since the agent started.
    pub nr_oom_kills: Option<u64>,
    /// Deaths for lack of memory since the agent started; each may be of several processes.
    pub nr_deaths: u64,
    /// The last of them, oldest first.
    pub deaths: Vec<DeathStatus>,
    /// Limit of processes and threads.
    pub limit_pids: Option<u64>,
    /// Limits of requests to each disk; absent without one.
    pub limit_disk: Option<DiskLimitStatus>,
    /// Share of the time of disks; absent if the policy weighs none.
    pub disk_share: Option<Box<DiskShareStatus>>,
    /// Processes and threads; absent if the policy has no limit, or if unreadable.
    pub usage_pids: Option<u64>,
    /// Refused forks since the agent started; absent likewise.
    pub nr_refused_forks: Option<u64>,
    /// Degree of parallelism; absent before the first decision.
    pub dop: Option<u32>,
    /// CPUs in the kernel's list format; absent if it is not pinned.
    pub cpus: Option<String>,
    /// CPU weight in its file, in the unit of `cpu.weight`.
    pub cpu_weight: Option<f64>,
    /// Credit for CPU time that it left to its siblings, in seconds of its own fair share; negative after an overdraft.
    /// Absent if the policy has no credits.
    pub credit_seconds: Option<f64>,
    /// Factor of its CPU weight by its credit; absent likewise.
    pub credit_factor: Option<f64>,
    /// Effect of `control.credits`; absent if the policy has it, or if it would change nothing now.
    pub credit_preview: Option<CreditPreview>,
    /// Its jobs; absent before its first was submitted.
    pub jobs: Option<Box<TenantJobs>>,
}

/// Effect that credits would have on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CreditPreview {
    /// Credit, in seconds of its own fair share.
    pub seconds: f64,
    /// Factor of its CPU weight.
    pub factor: f64,
    /// CPUs of its fair share.
    pub fair_share_cores: f64,
    /// CPUs that it would keep during bursts of its siblings.
    pub kept_cores: f64,
}

/// Reason for a shortfall.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReasonStatus {
    /// Kind of the reason.
    pub kind: ReasonKind,
    /// `cpu` or `memory`.
    pub resource: Cow<'static, str>,
    /// Reason in words.
    pub text: String,
    /// Largest outside work, if that is the reason and was found.
    pub outsiders: Vec<Outsider>,
}

impl ReasonStatus {
    /// Reason for users who may not read about others: see [`without_names`].
    pub fn without_names(&self) -> ReasonStatus {
        let text = without_names(self.kind, &self.text).into_owned();
        ReasonStatus { text, outsiders: Vec::new(), ..self.clone() }
    }
}

/// Faults of one tenant since the agent started; absent if not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FaultsStatus {
    /// Shortfall of CPUs.
    pub cpu_short: Option<FaultStatus>,
    /// Less than half of its share of the CPUs if busy.
    pub cpu_starved: Option<FaultStatus>,
    /// Throttled by a CPU limit.
    pub cpu_throttled: Option<FaultStatus>,
    /// Shortfall of memory, or stalls at its memory limit.
    pub memory_short: Option<FaultStatus>,
    /// Reclaim of protected memory.
    pub memory_reclaimed: Option<FaultStatus>,
}

/// Number and length of a fault's episodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FaultStatus {
    /// Number of episodes (runs of ticks).
    pub count: u64,
    /// Total length.
    pub seconds: f64,
}

impl FaultsStatus {
    /// Counted faults, each with its phrase for a sentence.
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
    /// Path of names.
    pub name: SmolStr,
    /// CPU weight in the policy.
    pub weight: f64,
    /// Tenants below it, at any depth.
    pub nr_tenants: u64,
    /// Tenants found by its `each`.
    pub nr_found: u64,
    /// Guaranteed amount for its tenants.
    #[serde(flatten, with = "wire::guarantee")]
    pub guarantee: PerResource<Option<f64>>,
    /// Upper limit of its tenants together.
    #[serde(flatten, with = "wire::limit")]
    pub limit: PerResource<Option<f64>>,
    /// Usage of its tenants; absent if unreadable for all of them.
    #[serde(flatten, with = "wire::usage")]
    pub usage: PerResource<Option<f64>>,
    /// Demand of its tenants.
    #[serde(flatten, with = "wire::demand")]
    pub demand: PerResource<f64>,
    /// Allocation of its tenants.
    #[serde(flatten, with = "wire::allocation")]
    pub allocation: PerResource<f64>,
    /// Allocation if all its tenants wanted everything now.
    #[serde(flatten, with = "wire::would_get")]
    pub would_get: PerResource<f64>,
    /// CPUs if all tenants wanted everything.
    pub fair_share_cores: f64,
    /// Memory if all tenants wanted everything.
    #[serde(serialize_with = "wire::bytes")]
    pub fair_share_memory_bytes: f64,
    /// True if the allocations of all its tenants meet their CPU demands.
    pub satisfied: bool,
    /// Limit of processes and threads of its tenants together.
    pub limit_pids: Option<u64>,
    /// Limits of requests to each disk; absent without one.
    pub limit_disk: Option<DiskLimitStatus>,
    /// Processes and threads; absent if the policy has no limit, or if unreadable.
    pub usage_pids: Option<u64>,
    /// Refused forks since the agent started; absent likewise.
    pub nr_refused_forks: Option<u64>,
    /// CPU weight in its file, in the unit of `cpu.weight`.
    pub cpu_weight: Option<f64>,
    /// Credit for CPU time that it left to its siblings, in seconds of its own fair share; negative after an overdraft.
    /// Absent if the policy has no credits.
    pub credit_seconds: Option<f64>,
    /// Factor of its CPU weight by its credit; absent likewise.
    pub credit_factor: Option<f64>,
    /// Effect of `control.credits`; absent if the policy has it, or if it would change nothing now.
    pub credit_preview: Option<CreditPreview>,
}

/// One action, as text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ActionStatus {
    /// Tenant or group; empty for a setting of a disk.
    pub tenant: String,
    /// Path of the file.
    pub path: String,
    /// Earlier value; absent if it could not be read or does not exist yet.
    pub from: Option<String>,
    /// New value, written or planned.
    pub to: String,
    /// Reason for the action.
    pub reason: String,
}

/// Processes of one cgroup that a tenant claims.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MoveStatus {
    /// The tenant.
    pub tenant: String,
    /// The cgroup; for many, one and the number of others.
    pub from: String,
    /// Number of processes.
    pub nr_processes: u64,
}

/// Work that ends first when memory runs out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VictimStatus {
    /// The tenant.
    pub tenant: String,
    /// Its job; absent for all other work of the tenant.
    pub job: Option<u64>,
    /// Memory of this work that reclaim cannot take.
    pub held_bytes: u64,
    /// The same of the whole tenant.
    pub tenant_held_bytes: u64,
    /// Weight-fair share of the tenant.
    pub tenant_share_bytes: u64,
}

/// Name of the group of a tenant or group; empty at the top.
pub fn group_of(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(group, _)| group)
}

/// Work that was attached to one tenant while the agent ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AttachedStatus {
    /// The tenant.
    pub tenant: String,
    /// Attached processes that run, without those that they started.
    pub nr_processes: u64,
    /// The first [`ATTACHED_MAX`] of them.
    pub processes: Vec<u32>,
    /// Attached cgroups.
    pub nr_cgroups: u64,
    /// The first [`ATTACHED_MAX`] of them, by path from the mount.
    pub cgroups: Vec<String>,
    /// The first [`ATTACHED_MAX`] pods of them whose tenant the policy chose, as `NAMESPACE/NAME`.
    pub pods: Vec<String>,
}

/// Most processes and cgroups of a tenant that an [`AttachedStatus`] names.
pub const ATTACHED_MAX: usize = 5;

impl fmt::Display for AttachedStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |nr: u64, one: &str, many: &str, named: Vec<String>| {
            let more = nr.saturating_sub(named.len() as u64);
            let more = if more == 0 { String::new() } else { format!(", and {more} more") };
            let noun = if nr == 1 { one } else { many };
            (nr > 0).then(|| format!("{noun} {}{more}", named.join(", ")))
        };
        let pids = self.processes.iter().map(u32::to_string).collect();
        let processes = list(self.nr_processes, "process", "processes", pids);
        let cgroups = list(self.nr_cgroups, "cgroup", "cgroups", self.cgroups.clone());
        let pods = list(self.pods.len() as u64, "pod", "pods", self.pods.clone());
        let all: Vec<String> = processes.into_iter().chain(cgroups).chain(pods).collect();
        f.write_str(&all.join("; "))
    }
}

/// Cost of the agent itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentStatus {
    /// CPU time since it started.
    pub cpu_seconds: f64,
    /// Memory of the agent; absent if unreadable.
    pub resident_bytes: Option<u64>,
    /// Duration of the last tick.
    pub tick_seconds: f64,
    /// Duration of the longest tick since it started.
    pub longest_tick_seconds: f64,
    /// Delay of the last tick.
    pub tick_late_seconds: f64,
    /// Ticks since the start that were skipped or void, because the previous one was late or slow.
    pub nr_skipped_ticks: u64,
}
