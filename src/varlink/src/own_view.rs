//! Types of the own view of a user on the wire, and the claims of the policy on users. `io.tenantd.Manager.varlink` documents
//! each field; [`super::view`] makes the value.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use tenantd_control::report::disk::DiskLimitStatus;
use tenantd_control::report::status::{DeathStatus, FaultsStatus, ReasonStatus};
use tenantd_core::resource::{PerResource, wire};
use tenantd_policy::model::Mode;

/// The last tick for one user.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnView {
    /// The caller.
    pub uid: u32,
    /// Ticks since the agent started, from 1.
    pub tick: u64,
    /// Publication time by the wall clock: RFC 3339, in UTC.
    pub time: Option<String>,
    /// Mode: values are written, or only computed.
    pub mode: Mode,
    /// Age above which the view is stale.
    pub stale_seconds: f64,
    /// Online CPUs.
    pub cpus: u32,
    /// Capacity divided among all tenants.
    #[serde(flatten, with = "wire::capacity")]
    pub capacity: PerResource<f64>,
    /// Tenants of the caller, in the order of the policy.
    pub tenants: Vec<OwnTenant>,
}

/// Reason for which a tenant is the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnBasis {
    /// Its `match` names the user.
    User,
    /// Its `match` names a group of the calling process.
    Group,
    /// A job of the user runs or waits in it.
    Job,
    /// The calling process is in a cgroup of it.
    Process,
}

/// A tenant of the caller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnTenant {
    /// Path of names.
    pub name: String,
    /// Reasons for which it is the caller's.
    pub basis: Vec<OwnBasis>,
    /// True if `each` made it for the caller alone.
    pub is_one_user: bool,
    /// CPU weight in the policy.
    pub weight: f64,
    /// Guaranteed amount.
    #[serde(flatten, with = "wire::guarantee")]
    pub guarantee: PerResource<Option<f64>>,
    /// True if its memory guarantee is not kept.
    pub memory_guarantee_void: bool,
    /// Upper limit.
    #[serde(flatten, with = "wire::limit")]
    pub limit: PerResource<Option<f64>>,
    /// Amount that it can have now, with the present demands of others.
    #[serde(flatten, with = "wire::share_now")]
    pub share_now: PerResource<f64>,
    /// Amount that it has if all tenants want everything; absent before it is known.
    #[serde(flatten, with = "wire::share_if_busy")]
    pub share_if_busy: PerResource<Option<f64>>,
    /// CPUs used since the last tick, and memory held; absent if unreadable.
    #[serde(flatten, with = "wire::usage")]
    pub usage: PerResource<Option<f64>>,
    /// Tenants with processes in its group, or beside it at the top, including itself.
    pub nr_sharing: u64,
    /// CPUs that these can have together now; absent if unknown.
    pub shared_cores: Option<f64>,
    /// PSI `some` for CPU; absent without PSI.
    pub cpu_pressure_ratio: Option<f64>,
    /// PSI `some` for memory; absent without PSI.
    pub memory_pressure_ratio: Option<f64>,
    /// Amount that it is due, wants, and does not get.
    #[serde(flatten, with = "wire::missing")]
    pub missing: PerResource<Option<f64>>,
    /// Reasons for that, without names of others.
    pub reasons: Vec<ReasonStatus>,
    /// Fault counters since the agent started.
    pub faults: FaultsStatus,
    /// OOM kills since the agent started.
    pub nr_oom_kills: Option<u64>,
    /// The last deaths for lack of memory, oldest first, without processes of others.
    pub deaths: Vec<DeathStatus>,
    /// Limit of processes and threads.
    pub limit_pids: Option<u64>,
    /// Limits of requests to each disk; absent without one.
    pub limit_disk: Option<DiskLimitStatus>,
    /// Processes and threads.
    pub usage_pids: Option<u64>,
    /// CPUs in the kernel's list format; absent if it is not pinned.
    pub cpus: Option<String>,
}

/// First tenant that claims each user and each group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claimants {
    /// Path of a tenant, by UID.
    pub users: HashMap<u32, String>,
    /// Path of a tenant, by GID.
    pub groups: HashMap<u32, String>,
}
