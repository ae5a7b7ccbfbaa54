//! What a tick leaves behind so that it can be explained: the values that it went through, not the words.
//!
//! A few hundred bytes for each node. What a tick made anyway is moved here, not copied; only the counters
//! of the sample before are kept for this alone.

use std::sync::Arc;
use std::time::Duration;

use super::demand::{Context, Demand};
use super::explain::Outcome;
use super::plan::{Knob, Value};
use super::sample::TenantSample;
use super::target::Target;
use super::tree::TreeNode;
use super::usage::Usage;
use super::width::Breadth;
use crate::policy::model::Allocation;

/// One tick, as far as it is needed to explain any value of it.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// When it was, on the clock of the agent.
    pub now: Duration,
    /// Since the tick before.
    pub elapsed: Option<Duration>,
    /// What was divided: cores and bytes.
    pub capacity: [f64; 2],
    /// How it was divided.
    pub rule: Allocation,
    /// CPUs that all tenants can be wide together.
    pub slots: u32,
    /// The nodes of the policy, in pre-order.
    pub nodes: Arc<[TreeNode]>,
    /// One for each node.
    pub records: Vec<Record>,
    /// How files are named and values are spelled.
    pub spelling: Spelling,
}

/// One node in one tick.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// What the kernel had counted at the tick before, without threads.
    pub before: Option<TenantSample>,
    /// What it counted at this one, without threads.
    pub now: Option<TenantSample>,
    /// What the two come to.
    pub usage: Option<Usage>,
    /// What bounded its demand, where it was estimated in this tick.
    pub context: Option<Context>,
    /// Its demand.
    pub demand: Option<Demand>,
    /// What it is entitled to.
    pub target: Target,
    /// Its width and its place.
    pub breadth: Breadth,
    /// Its values, in the order of the links that made them.
    pub values: Vec<ValueRecord>,
}

/// One value in one tick.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueRecord {
    /// What is told.
    pub knob: Knob,
    /// What the file held before the tick.
    pub held: Option<Value>,
    /// What it shall hold.
    pub wanted: Value,
    /// Why.
    pub reason: String,
    /// What came of it.
    pub outcome: Outcome,
    /// What went wrong, or why it has no effect; absent where the outcome says all.
    pub detail: Option<String>,
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
