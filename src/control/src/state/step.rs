//! Input and output of a step of the control loop.

use serde::{Deserialize, Serialize};
use std::time::Duration;

use super::capacity::Capacity;
use super::drift::{Drift, Observation};
use crate::measure::death::Kill;
use crate::measure::disk::Device;
use crate::measure::sample::{HostSample, PidsSample, TenantSample};
use crate::measure::thread_budget::Look;
use crate::measure::ways::Ways;
use crate::report::reason::Surroundings;
use crate::share::turns::Slots;
use crate::state::Outcome;
use crate::tree::Tree;
use crate::tree::bounds::AncestorBounds;
use crate::words::finding::Finding;
use crate::words::knob::{Action, Knob, Value, Wanted};
use tenantd_core::node::NodeId;
use tenantd_core::resource::PerResource;
use tenantd_dop::Topology;
use tenantd_policy::model::{Allocation, Amount, Coupling, CreditsPolicy, OnDrift, Policy};

/// Settings of the policy and the mode that decide.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Time from tick to tick.
    pub interval: Duration,
    /// Reserve for the system.
    pub reserve: PerResource<Amount>,
    /// Allocation rule.
    pub allocation: Allocation,
    /// True if the contended disk counts for the division of CPU and memory.
    pub couples_disk: bool,
    /// Slots over CPUs.
    pub oversubscription: f64,
    /// True if weights are trimmed by feedback.
    pub trims: bool,
    /// Terms of the credits; `None` if no weight is raised.
    pub credits: Option<CreditsPolicy>,
    /// True if working sets are probed.
    pub probes: bool,
    /// Winner after a foreign write.
    pub on_drift: OnDrift,
    /// True if a tenant needs its own set of CPUs.
    pub pins: bool,
    /// True if values are written.
    pub is_enforcing: bool,
}

impl Settings {
    /// Settings of `policy`.
    pub fn of(policy: &Policy, pins: bool, is_enforcing: bool) -> Settings {
        Settings {
            interval: policy.control.interval,
            reserve: policy.host.reserve,
            allocation: policy.control.allocation,
            couples_disk: policy.control.allocation == Allocation::Drf
                && policy.control.couple == Coupling::WithDisk,
            oversubscription: policy.control.oversubscription,
            trims: policy.control.trim,
            credits: policy.control.credits,
            probes: policy.memory.probe,
            on_drift: policy.control.on_drift,
            pins,
            is_enforcing,
        }
    }

    /// True if foreign values are accepted.
    pub fn leaves_drift(&self) -> bool {
        self.is_enforcing && self.on_drift == OnDrift::Accept
    }
}

/// Everything read from the host in one tick.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Input {
    /// Time of the host's counters, since any fixed instant.
    pub now: Duration,
    /// Counters of the host.
    pub host: HostSample,
    /// One entry per number of the tree. A recording keeps each one apart.
    #[serde(skip)]
    pub nodes: Vec<NodeInput>,
    /// CPUs of the machine, if they changed.
    pub topology: Option<Topology>,
    /// Limits above the tenants.
    pub above: AncestorBounds,
    /// Ways in which the disks divide their time; empty if the policy weighs no disk.
    pub ways: Ways,
    /// Disks on which requests can be limited; empty if the policy limits none, or if they could not be read.
    pub leaves: Vec<Device>,
}

/// Readings of one node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NodeInput {
    /// True if the agent governs a cgroup for it.
    pub is_governed: bool,
    /// True if its cgroup exists.
    pub is_present: bool,
    /// True for a unit of systemd.
    pub is_unit: bool,
    /// Counters; `None` if they were not read.
    pub sample: Option<TenantSample>,
    /// Time between the host's counters and these.
    pub sampled_after: Duration,
    /// OOM kills since its cgroup was made; `None` if not read.
    pub nr_oom_kills: Option<u64>,
    /// Runs of its unit that ended by an OOM kill since the last tick.
    pub nr_killed_runs: u64,
    /// Kills of its work that the kernel log or systemd explains; only for a tenant.
    pub kills: Vec<Kill>,
    /// Number of threads; `None` if not counted.
    pub nr_threads: Option<usize>,
    /// Processes, if limited; `None` if not read.
    pub pids: Option<PidsSample>,
    /// Values of its files; `None` if not read.
    pub observed: Option<Vec<Observation>>,
    /// Results of values requested in earlier ticks.
    pub arrivals: Vec<Outcome>,
    /// Values before the agent; only for an ancestor.
    pub held_before: Vec<(Knob, Value)>,
    /// Findings around its cgroup; `None` without a shortfall in the last tick.
    pub surroundings: Option<Box<Surroundings>>,
    /// Its part of the queue; only for a tenant.
    pub slots: Slots,
}

/// Files to read of one tenant beside its counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sampling {
    /// Threads, because its demand is uncertain.
    pub threads: Look,
    /// OOM kills even of an empty cgroup: its last process may have been killed.
    pub kills_of_empty: bool,
    /// CPU and wait times even of an empty cgroup: its last processes used some while they ended.
    pub times_of_empty: bool,
    /// Everything, even if it seems idle; and a search for cgroups inside the tenant's own.
    pub all: bool,
}

/// Replacement of the tree.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TreeChange {
    /// The new tree.
    pub tree: Tree,
    /// Tenants whose one cgroup becomes a member, each with that member.
    pub handed: Vec<(NodeId, NodeId)>,
    /// Nodes that may run anywhere.
    pub unpinned: Vec<NodeId>,
}

/// Result of one input.
#[derive(Clone, Debug, Default)]
pub struct Decision {
    /// True if the tick came too soon after the last one, and decides nothing.
    pub is_void: bool,
    /// Time since the last tick.
    pub elapsed: Option<Duration>,
    /// Divided capacity.
    pub capacity: Capacity,
    /// CPUs for the widths of all tenants.
    pub slots: u32,
    /// Desired and observed values, node after node.
    pub wanted: Vec<Wanted>,
    /// Ordered writes from observed to desired values.
    pub actions: Vec<Action>,
    /// Foreign writes in files that the agent writes.
    pub drifts: Vec<Drift>,
    /// Findings of this tick.
    pub findings: Vec<Finding>,
}
