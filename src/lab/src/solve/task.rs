//! The content of a problem file.

use tenantd_fair::audit::Audit;
use tenantd_fair::order::Sorter;
use tenantd_fair::{Algorithm, Nodes, Placement, Problem, Solution, WorkConserving};
use tenantd_policy::types::Words;

#[derive(Debug)]
pub(super) struct Task {
    pub(super) rule: Rule,
    pub(super) work_conserving: WorkConserving,
    pub(super) resources: Vec<Resource>,
    /// The path of each node: its groups and itself, joined by `/`.
    pub(super) paths: Vec<String>,
    pub(super) problem: Problem,
    /// The problem with true demands, if some tenants claim otherwise.
    pub(super) truth: Option<Problem>,
    pub(super) cluster: Option<Cluster>,
    /// By node, as all that follows.
    pub(super) deadlines: Vec<Option<Deadline>>,
    pub(super) running: Vec<Option<f64>>,
    /// Number of allocations so far, for an order.
    pub(super) allocations: Vec<u64>,
    pub(super) active: Vec<bool>,
}

/// Requests beside the division.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) steps: bool,
    pub(super) audit: bool,
}

/// The division, and what was asked beside it.
pub(super) struct Answer {
    pub(super) solution: Solution,
    /// The tasks of each leaf with true claims of all, and the true tasks that it runs; `None` if all
    /// claims are true.
    pub(super) claims: Option<Vec<(f64, f64)>>,
    pub(super) audit: Option<Audit>,
    pub(super) lists_steps: bool,
}

/// The rule that divides, or orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// A rule of the core.
    Divide(Algorithm),
    /// Whole tasks, first come first served.
    Fifo,
    /// Slots; demands of tasks are ignored.
    Slots,
    /// An order instead of a division.
    Order(Sorter),
}

impl Rule {
    pub(super) fn is_whole(self) -> bool {
        matches!(self, Rule::Divide(Algorithm::DrfTasks) | Rule::Fifo | Rule::Slots)
    }

    /// True for rules that the audit of false claims supports.
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
    /// True if its capacity was written in bytes; amounts are then shown in bytes.
    pub(super) in_bytes: bool,
}

#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) names: Vec<String>,
    pub(super) nodes: Nodes,
    /// Slots on each of them, if tasks take slots.
    pub(super) slots: Option<u64>,
}

/// The work of a tenant, in seconds of a task, and its deadline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Deadline {
    pub(super) work: f64,
    pub(super) seconds: f64,
}

impl Deadline {
    /// Time at which this number of tasks finishes the work; `None` for never.
    pub(super) fn finish(self, tasks: f64) -> Option<f64> {
        (tasks > 0.0).then(|| self.work / tasks)
    }

    /// True if it is done in time.
    pub(super) fn is_met(self, tasks: f64) -> bool {
        self.finish(tasks).is_some_and(|finish| finish <= self.seconds * (1.0 + 1e-9))
    }
}
