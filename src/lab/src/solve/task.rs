//! The content of a problem file.

use tenantd_fair::order::Sorter;
use tenantd_fair::{Algorithm, Nodes, Placement, Problem, WorkConserving};
use tenantd_policy::types::Words;

/// The content of a problem file.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) rule: Rule,
    pub(super) work_conserving: WorkConserving,
    pub(super) resources: Vec<Resource>,
    /// The path of each node: its groups and itself, joined by `/`.
    pub(super) paths: Vec<String>,
    /// The problem as claimed.
    pub(super) problem: Problem,
    /// The problem as it is, where some tenants claim otherwise.
    pub(super) truth: Option<Problem>,
    pub(super) cluster: Option<Cluster>,
    /// By node, as all that follows.
    pub(super) deadlines: Vec<Option<Deadline>>,
    pub(super) running: Vec<Option<f64>>,
    /// How often something was allocated to it, and whether it takes part in an order.
    pub(super) allocations: Vec<u64>,
    pub(super) active: Vec<bool>,
}

/// What is asked for beside the division.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) steps: bool,
    pub(super) audit: bool,
}

/// The rule that divides, or orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// One of the core's.
    Divide(Algorithm),
    /// Whole tasks, first come first served.
    Fifo,
    /// Slots, whatever tasks take.
    Slots,
    /// No division: who is next.
    Order(Sorter),
}

impl Rule {
    /// Whether it grants whole tasks.
    pub(super) fn is_whole(self) -> bool {
        matches!(self, Rule::Divide(Algorithm::DrfTasks) | Rule::Fifo | Rule::Slots)
    }

    /// Whether it is one whose tenants gain nothing by a lie, as far as that is audited.
    pub(super) fn believes_claims(self) -> bool {
        matches!(self, Rule::Divide(Algorithm::Drf | Algorithm::MaxMin))
    }
}

impl Words for Rule {
    const WORDS: &'static [(&'static str, Rule)] = &[
        ("max-min", Rule::Divide(Algorithm::MaxMin)),
        ("drf", Rule::Divide(Algorithm::Drf)),
        ("drf-tasks", Rule::Divide(Algorithm::DrfTasks)),
        ("yarn", Rule::Divide(Algorithm::Yarn)),
        ("fifo", Rule::Fifo),
        ("slots", Rule::Slots),
        ("mesos-order", Rule::Order(Sorter::Mesos)),
        ("yarn-order", Rule::Order(Sorter::Yarn)),
    ];
}

/// The placements by the words of a problem file.
pub(super) const PLACEMENTS: &[(&str, Placement)] =
    &[("spread", Placement::Spread), ("pack", Placement::Pack)];

/// A resource with its name in the file.
#[derive(Debug)]
pub(super) struct Resource {
    pub(super) name: String,
    /// Whether its capacity was written in bytes, and its amounts are best shown so.
    pub(super) in_bytes: bool,
}

/// The machines of a file.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) names: Vec<String>,
    pub(super) nodes: Nodes,
    /// Slots on each of them, where tasks take slots.
    pub(super) slots: Option<u64>,
}

/// The work of a tenant, in seconds of a task, and when it has to be done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Deadline {
    pub(super) work: f64,
    pub(super) seconds: f64,
}

impl Deadline {
    /// When the work is done with so many tasks; `None` for never.
    pub(super) fn finish(self, tasks: f64) -> Option<f64> {
        (tasks > 0.0).then(|| self.work / tasks)
    }

    /// Whether it is done in time.
    pub(super) fn is_met(self, tasks: f64) -> bool {
        self.finish(tasks).is_some_and(|finish| finish <= self.seconds * (1.0 + 1e-9))
    }
}
