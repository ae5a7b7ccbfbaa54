//! Intermediate values of a tick, kept for explanations.
//!
//! A few hundred bytes per node, half of that for an empty cgroup. Values of the tick are moved here, not
//! copied; only the counters of the previous sample are kept just for this. Lists of variable length span
//! all nodes: one list per node would cost a thousand allocations in every tick.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::measure::sample::TenantSample;
use crate::measure::usage::Usage;
use crate::share::credit::Credit;
use crate::share::demand::{Context, Demand};
use crate::share::target::Target;
use crate::tree::Tree;
use crate::width::WidthStatus;
use crate::words::knob::{Knob, Value};
use tenantd_core::kernel_text::proc_files::CgroupLine;
use tenantd_core::resource::PerResource;
use tenantd_policy::model::{Allocation, CreditsPolicy};

/// Data of one tick to explain any of its values.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Time of the tick, on the clock of the agent.
    pub now: Duration,
    /// Time since the last tick.
    pub elapsed: Option<Duration>,
    /// Capacity of the machine.
    pub machine: PerResource<f64>,
    /// Divided capacity.
    pub capacity: PerResource<f64>,
    /// Allocation rule.
    pub rule: Allocation,
    /// Terms of credits; `None` if the policy has none.
    pub credits: Option<CreditsPolicy>,
    /// CPUs for the widths of all tenants.
    pub slots: u32,
    /// Nodes of the policy, their members, and the ancestors of their cgroups.
    pub tree: Tree,
    /// One entry per number of the tree.
    pub records: Vec<Record>,
    /// Samples of the populated nodes.
    pub counters: Vec<Counters>,
    /// Usage of the tenants with members.
    pub usages: Vec<Usage>,
    /// Values of all nodes, node after node, each in the order of the chain.
    pub values: Vec<ValueRecord>,
    /// Spelling of file names and values.
    pub spelling: Spelling,
}

/// One node in one tick.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Sample of the node; `None` without one.
    pub seen: Option<Seen>,
    /// Demand.
    pub demand: Option<Demand>,
    /// Entitlement and weights.
    pub target: Target,
    /// Credit against its siblings.
    pub credit: Credit,
    /// Width and placement.
    pub width: WidthStatus,
    /// Range of its values in the trace.
    pub values: Range<usize>,
}

/// Sample of one tenant.
#[derive(Clone, Copy, Debug)]
pub enum Seen {
    /// Its cgroup has no process.
    Empty,
    /// Its cgroup has a process: index into the counters of the trace.
    Counters(usize),
    /// Several cgroups: index of their sum in the usages of the trace; `None` if none has a rate.
    Members(Option<usize>),
}

/// Samples of one tenant, and the usage between them.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Counters at the last tick, without threads.
    pub before: Option<TenantSample>,
    /// Counters at this tick, without threads.
    pub now: TenantSample,
    /// Usage between the two.
    pub usage: Option<Usage>,
    /// Bounds of its demand, if it was estimated in this tick.
    pub context: Option<Context>,
}

impl Trace {
    /// Samples of a node, if its cgroup was populated.
    pub fn counters(&self, record: &Record) -> Option<&Counters> {
        match record.seen? {
            Seen::Counters(index) => self.counters.get(index),
            Seen::Empty | Seen::Members(_) => None,
        }
    }

    /// Usage of a node; zero for an empty cgroup.
    pub fn usage(&self, record: &Record) -> Option<Usage> {
        match record.seen? {
            Seen::Counters(_) => self.counters(record)?.usage,
            Seen::Empty => Some(Usage::of_empty()),
            Seen::Members(index) => self.usages.get(index?).copied(),
        }
    }

    /// Values of a node.
    pub fn values(&self, record: &Record) -> &[ValueRecord] {
        self.values.get(record.values.clone()).unwrap_or_default()
    }
}

/// Result of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The file's value is exact or close enough.
    #[default]
    Settled,
    /// The value was written.
    Written,
    /// The value would be written in mode enforce.
    Planned,
    /// The write was deferred, because it would do harm now.
    Deferred,
    /// The write failed.
    Failed,
    /// The file does not exist.
    Missing,
    /// The file holds the value, but it cannot take effect.
    Ineffective,
}

/// One value in one tick.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueRecord {
    /// The knob.
    pub knob: Knob,
    /// Value before the tick.
    pub held: Option<Value>,
    /// Time of its reading or writing.
    pub held_at: Duration,
    /// Desired value.
    pub wanted: Value,
    /// Result of the write.
    pub outcome: Outcome,
    /// Error, or obstacle to the effect; absent if the outcome is enough.
    pub detail: Option<Box<str>>,
}

/// Function that names the file of a knob for the node with this path.
pub type Paths = Arc<dyn Fn(Knob, &str) -> String + Send + Sync>;

/// Function that returns names of nodes, members without `./`, whose cgroups may contain a process with these lines in
/// `/proc/PID/cgroup`, the innermost first.
pub type Places = Arc<dyn Fn(&[CgroupLine]) -> Vec<String> + Send + Sync>;

/// Host-specific names of files and spelling of values: functions, because this crate knows no host.
#[derive(Clone)]
pub struct Spelling {
    /// Finds the node of a process.
    pub places: Places,
    /// Names the file of a knob for the node with this path.
    pub path: Paths,
    /// Spells a value for its file.
    pub text: fn(Knob, &Value) -> String,
}

impl Default for Spelling {
    fn default() -> Self {
        Spelling {
            places: Arc::new(|_| Vec::new()),
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
