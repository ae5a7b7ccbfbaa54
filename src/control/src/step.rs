//! What goes into a step of the control loop, and what comes out of it.

use std::time::Duration;

use super::bounds::AncestorBounds;
use super::capacity::Capacity;
use super::drift::{Drift, Observation};
use super::finding::Finding;
use super::plan::{Action, Knob, Value, Wanted};
use super::reason::Surroundings;
use super::sample::{HostSample, PidsSample, TenantSample};
use super::state::Outcome;
use super::thread_budget::Look;
use tenantd_core::codec::coded;
use tenantd_core::resource::PerResource;
use tenantd_dop::Topology;
use tenantd_policy::model::{Allocation, Amount, OnDrift, Policy};

/// What of the policy and the mode decides.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Time from tick to tick.
    pub interval: Duration,
    /// Kept for the system.
    pub reserve: PerResource<Amount>,
    /// How the machine is divided.
    pub allocation: Allocation,
    /// Slots over CPUs.
    pub oversubscription: f64,
    /// Whether weights are trimmed by what they bring about.
    pub trims: bool,
    /// Whether working sets are found by a gentle squeeze.
    pub probes: bool,
    /// Which value wins after a foreign write.
    pub on_drift: OnDrift,
    /// Whether any tenant needs a set of CPUs of its own.
    pub pins: bool,
    /// Whether values are written.
    pub is_enforcing: bool,
}

impl Settings {
    /// The settings of `policy`.
    pub fn of(policy: &Policy, pins: bool, is_enforcing: bool) -> Settings {
        Settings {
            interval: policy.control.interval,
            reserve: policy.host.reserve,
            allocation: policy.control.allocation,
            oversubscription: policy.control.oversubscription,
            trims: policy.control.trim,
            probes: policy.memory.probe,
            on_drift: policy.control.on_drift,
            pins,
            is_enforcing,
        }
    }

    /// Whether foreign values are accepted.
    pub fn leaves_drift(&self) -> bool {
        self.is_enforcing && self.on_drift == OnDrift::Accept
    }
}

/// All that was read from the host in one tick.
#[derive(Clone, Debug, Default)]
pub struct Input {
    /// When the host's counters were read, since any fixed instant.
    pub now: Duration,
    /// The host's counters.
    pub host: HostSample,
    /// One for each number of the tree.
    pub nodes: Vec<NodeInput>,
    /// The machine's CPUs, where they are not those of the tick before.
    pub topology: Option<Topology>,
    /// The limits above the tenants.
    pub above: AncestorBounds,
}

/// What was read of one node.
#[derive(Clone, Debug, Default)]
pub struct NodeInput {
    /// Whether any cgroup is steered for it.
    pub is_governed: bool,
    /// Whether its cgroup is there.
    pub is_present: bool,
    /// Its counters; `None` where they were not read.
    pub sample: Option<TenantSample>,
    /// How long after those of the host they were read.
    pub sampled_after: Duration,
    /// Processes of it that were killed for want of memory, since its cgroup was made; `None` where not asked.
    pub nr_oom_kills: Option<u64>,
    /// Runs of its unit that ended since the last tick because a process was killed for want of memory.
    pub nr_killed_runs: u64,
    /// How many threads it has; `None` where they were not counted.
    pub nr_threads: Option<usize>,
    /// Its processes, where they are limited; `None` where they were not read.
    pub pids: Option<PidsSample>,
    /// What its files hold; `None` where they were not read.
    pub observed: Option<Vec<Observation>>,
    /// Results of values that were requested in earlier ticks.
    pub arrivals: Vec<Outcome>,
    /// Of an ancestor: what its files held before the agent.
    pub held_before: Vec<(Knob, Value)>,
    /// What was found around its cgroup; `None` where it did not lack anything in the tick before.
    pub surroundings: Option<Box<Surroundings>>,
}

/// What to read of one tenant beside its counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sampling {
    /// Its threads: its demand is in question.
    pub threads: Look,
    /// Its kills for want of memory also where no process is left: the last one there may have been killed.
    pub kills_of_empty: bool,
    /// Its CPU and waiting times also where no process is left: its last processes used some while they ended.
    pub times_of_empty: bool,
    /// Its waiting time for input and output: it lacks something.
    pub io: bool,
    /// Everything, whatever seems to stand still; and cgroups that the tenant made inside its own are looked for.
    pub all: bool,
}

/// All that follows from one input.
#[derive(Clone, Debug, Default)]
pub struct Decision {
    /// Whether the tick came too soon after the one before, and decides nothing.
    pub is_void: bool,
    /// Since the tick before.
    pub elapsed: Option<Duration>,
    /// What was divided.
    pub capacity: Capacity,
    /// CPUs that all tenants can be wide together.
    pub slots: u32,
    /// What files shall hold and do hold, node after node.
    pub wanted: Vec<Wanted>,
    /// The writes that bring the one to the other, in order.
    pub actions: Vec<Action>,
    /// Foreign writes in files that the agent writes.
    pub drifts: Vec<Drift>,
    /// The findings of this tick.
    pub findings: Vec<Finding>,
}

// --- recorded ---

coded!(struct Settings {
    interval, reserve, allocation, oversubscription, trims, probes, on_drift, pins, is_enforcing,
});
coded!(struct Input { now, host, nodes, topology, above });
coded!(struct NodeInput {
    is_governed, is_present, sample, sampled_after, nr_threads, nr_oom_kills, nr_killed_runs, pids, observed, arrivals,
    held_before, surroundings,
});
