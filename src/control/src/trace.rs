//! What a tick keeps so that it can be explained: its intermediate values, not the text.
//!
//! A few hundred bytes for each node, and half as many for an empty cgroup. Values that the tick made anyway
//! are moved here, not copied; only the counters of the previous sample are kept for this alone. What nodes have different
//! numbers of is in lists of all nodes: a list for each of a thousand nodes is a thousand allocations in every tick.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::demand::{Context, Demand};
use super::plan::{Knob, Value};
use super::sample::TenantSample;
use super::target::Target;
use super::tree::Tree;
use super::usage::Usage;
use super::width::WidthStatus;
use tenantd_core::resource::PerResource;
use tenantd_policy::model::Allocation;

/// One tick, as far as it is needed to explain any value of it.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// When it was, on the clock of the agent.
    pub now: Duration,
    /// Since the tick before.
    pub elapsed: Option<Duration>,
    /// What the machine has.
    pub machine: PerResource<f64>,
    /// What was divided of it.
    pub capacity: PerResource<f64>,
    /// How it was divided.
    pub rule: Allocation,
    /// CPUs that all tenants can be wide together.
    pub slots: u32,
    /// The nodes of the policy, their members, and what is above their cgroups.
    pub tree: Tree,
    /// One for each number of the tree.
    pub records: Vec<Record>,
    /// The samples of the nodes where some process is.
    pub counters: Vec<Counters>,
    /// What the tenants with members use.
    pub usages: Vec<Usage>,
    /// The values of all nodes, node after node, and of each in the order of the links that made them.
    pub values: Vec<ValueRecord>,
    /// How files are named and values are spelled.
    pub spelling: Spelling,
}

/// One node in one tick.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// What was seen of it; `None` where it was not sampled.
    pub seen: Option<Seen>,
    /// Its demand.
    pub demand: Option<Demand>,
    /// What it is entitled to.
    pub target: Target,
    /// Its width and its place.
    pub width: WidthStatus,
    /// Its values, among those of the trace.
    pub values: Range<usize>,
}

/// What was seen of one tenant.
#[derive(Clone, Copy, Debug)]
pub enum Seen {
    /// No process is in its cgroup.
    Empty,
    /// Some process is in its cgroup: these, among the counters of the trace.
    Counters(usize),
    /// It has several cgroups, which use this together, among the usages of the trace; `None` where none of them has a rate.
    Members(Option<usize>),
}

/// The samples of one tenant, and what they come to.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// What the kernel had counted at the tick before, without threads.
    pub before: Option<TenantSample>,
    /// What it counted at this one, without threads.
    pub now: TenantSample,
    /// What the two come to.
    pub usage: Option<Usage>,
    /// What bounded its demand, where it was estimated in this tick.
    pub context: Option<Context>,
}

impl Trace {
    /// The samples of a node, where its cgroup was populated.
    pub fn counters(&self, record: &Record) -> Option<&Counters> {
        match record.seen? {
            Seen::Counters(index) => self.counters.get(index),
            Seen::Empty | Seen::Members(_) => None,
        }
    }

    /// What a node used; zero for an empty cgroup.
    pub fn usage(&self, record: &Record) -> Option<Usage> {
        match record.seen? {
            Seen::Counters(_) => self.counters(record)?.usage,
            Seen::Empty => Some(Usage::of_empty()),
            Seen::Members(index) => self.usages.get(index?).copied(),
        }
    }

    /// The values of a node.
    pub fn values(&self, record: &Record) -> &[ValueRecord] {
        self.values.get(record.values.clone()).unwrap_or_default()
    }
}

/// The result of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The file holds it already, exactly or closely enough.
    #[default]
    Settled,
    /// It was written.
    Written,
    /// It would be written, in mode enforce.
    Planned,
    /// It was put off, because it would do harm now.
    Deferred,
    /// It was refused.
    Failed,
    /// There is no such file.
    Missing,
    /// The file holds it, and it cannot take effect.
    Ineffective,
}

/// One value in one tick.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueRecord {
    /// What is told.
    pub knob: Knob,
    /// What the file held before the tick.
    pub held: Option<Value>,
    /// When that was read, or written.
    pub held_at: Duration,
    /// What it shall hold.
    pub wanted: Value,
    /// What came of it.
    pub outcome: Outcome,
    /// What went wrong, or why it has no effect; absent where the outcome says all.
    pub detail: Option<Box<str>>,
}

/// Names the file of a knob for the node with this path.
pub type Paths = Arc<dyn Fn(Knob, &str) -> String + Send + Sync>;

/// How the host names its files and spells its values: functions, because this room knows no host.
#[derive(Clone)]
pub struct Spelling {
    /// The file of a knob for the node with this path.
    pub path: Paths,
    /// A value as the file spells it.
    pub text: fn(Knob, &Value) -> String,
}

impl Default for Spelling {
    fn default() -> Self {
        Spelling {
            path: Arc::new(|knob, node| format!("{node}/{knob:?}")),
            text: |_, value| value.to_string(),
        }
    }
}

impl std::fmt::Debug for Spelling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Spelling")
    }
}
