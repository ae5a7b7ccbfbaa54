//! Values that the agent writes: the knob, its value, and a write as data.
//!
//! A *knob* is one setting of a cgroup ([`Knob`]). A *value* ([`Value`]) is in the agent's units, so that one
//! plan serves both hierarchies. [`Wanted`] is a desired value beside the observed one. An *action* is one
//! write, as data: a dry run prints the list that apply executes.

use std::fmt;

use serde::{Deserialize, Serialize};

use tenantd_core::resource::Resource;
use tenantd_core::units::Limit;
use tenantd_dop::CpuSet;

/// Weights that a file holds.
pub(crate) const WEIGHTS: std::ops::RangeInclusive<f64> = 1.0..=10_000.0;
const SHARES_PER_WEIGHT: f64 = 10.24;
const SHARES_MIN: f64 = 2.0;

/// Value in the file of each hierarchy after a write: a whole weight, or whole shares.
pub(crate) fn held(written: f64) -> [f64; 2] {
    let shares = (written * SHARES_PER_WEIGHT).round().max(SHARES_MIN);
    [written.round().clamp(*WEIGHTS.start(), *WEIGHTS.end()), shares / SHARES_PER_WEIGHT]
}

/// Dead band of weights: rewriting closer ones would change no share by more than a twentieth.
pub const WEIGHT_DEAD_BAND_RATIO: f64 = 0.05;

/// Dead band of a weight that has been wanted for a while ([`crate::share::steady`]).
pub const STEADY_DEAD_BAND_RATIO: f64 = 0.02;

/// Dead band of a trimmed weight, which is a whole number.
pub const WEIGHT_EXACT_WITHIN: f64 = 0.5;

/// Dead band of memory protection.
pub const MEMORY_DEAD_BAND_RATIO: f64 = 0.05;

/// Least dead band of memory protection: the kernel batches charges below it.
pub const MEMORY_DEAD_BAND_BYTES: u64 = 4 << 20;

/// Dead band of a memory bound.
pub const BOUND_DEAD_BAND_RATIO: f64 = 0.01;

/// Least dead band of a memory bound.
pub const BOUND_DEAD_BAND_BYTES: u64 = 1 << 20;

const QUOTA_MIN_MILLI_CPUS: f64 = 10.0;

/// A setting of a tenant's cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Knob {
    /// Weight of CPU time among siblings.
    CpuWeight,
    /// Limit of CPU time.
    CpuMax,
    /// Memory that reclaim never takes.
    MemoryMin,
    /// Memory that reclaim takes only if nothing else is left.
    MemoryLow,
    /// Memory above which tasks stall in reclaim.
    MemoryHigh,
    /// Limit of memory.
    MemoryMax,
    /// Limit of processes and threads.
    PidsMax,
    /// Set of CPUs.
    Cpus,
}

impl Knob {
    /// All knobs.
    pub const ALL: [Knob; 8] = [
        Knob::CpuWeight,
        Knob::CpuMax,
        Knob::MemoryMin,
        Knob::MemoryLow,
        Knob::MemoryHigh,
        Knob::MemoryMax,
        Knob::PidsMax,
        Knob::Cpus,
    ];

    /// Knobs that are also set above tenants.
    pub const ABOVE: [Knob; 3] = [Knob::CpuWeight, Knob::MemoryMin, Knob::MemoryLow];

    /// Divided resource; `None` if the knob only bounds a number.
    pub fn resource(self) -> Option<Resource> {
        match self {
            Knob::CpuWeight | Knob::CpuMax | Knob::Cpus => Some(Resource::Cpu),
            Knob::MemoryMin | Knob::MemoryLow | Knob::MemoryHigh | Knob::MemoryMax => {
                Some(Resource::Memory)
            }
            Knob::PidsMax => None,
        }
    }

    /// Subject in a log: the resource, or `pids`.
    pub fn subject(self) -> &'static str {
        self.resource().map_or("pids", Resource::name)
    }

    /// Noun for a sentence.
    pub fn noun(self) -> &'static str {
        match self {
            Knob::CpuWeight => "CPU weight",
            Knob::CpuMax => "CPU limit",
            Knob::MemoryMin => "guaranteed memory",
            Knob::MemoryLow => "memory protection",
            Knob::MemoryHigh => "memory bound",
            Knob::MemoryMax => "memory limit",
            Knob::PidsMax => "limit of processes",
            Knob::Cpus => "set of CPUs",
        }
    }

    /// Knob that limits a resource.
    pub fn limit(resource: Resource) -> Knob {
        match resource {
            Resource::Cpu => Knob::CpuMax,
            Resource::Memory => Knob::MemoryMax,
        }
    }
}

/// Value of a knob.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Value {
    /// Weight in the unit of `cpu.weight`, 1 ..= 10,000; the file rounds fractions.
    Weight(f64),
    /// Amount of a resource, in its smallest unit.
    Amount(Resource, Limit<u64>),
    /// Number of processes and threads.
    Count(Limit<u64>),
    /// Set of CPUs; empty if the parent's are inherited.
    CpuList(CpuSet),
}

impl Value {
    /// Creates an amount of a resource.
    pub fn amount(resource: Resource, amount: f64) -> Value {
        Value::Amount(resource, Limit::Finite(resource.smallest(amount)))
    }

    /// A number that grows with the value, to order grows and shrinks.
    pub(crate) fn magnitude(&self) -> f64 {
        match self {
            Value::Weight(weight) => *weight,
            Value::Amount(_, Limit::Finite(amount)) | Value::Count(Limit::Finite(amount)) => {
                *amount as f64
            }
            Value::Amount(_, Limit::Max) | Value::Count(Limit::Max) => f64::INFINITY,
            Value::CpuList(cpus) => cpus.len() as f64,
        }
    }

    fn settles(&self, desired: &Value, knob: Knob, weight_band: WeightBand) -> bool {
        if let (Value::CpuList(now), Value::CpuList(then)) = (self, desired) {
            return now == then;
        }
        let (now, then) = (self.magnitude(), desired.magnitude());
        if now == then {
            return true;
        }
        let distance = (now - then).abs();
        match knob {
            Knob::CpuWeight => weight_band.settles(now, then),
            // Zero means "not protected", so no dead band spans it.
            Knob::MemoryLow if now == 0.0 || then == 0.0 => false,
            Knob::MemoryLow => {
                distance <= (MEMORY_DEAD_BAND_RATIO * then).max(MEMORY_DEAD_BAND_BYTES as f64)
            }
            // A finite bound moves by a twentieth per step at most.
            Knob::MemoryHigh if distance.is_infinite() => false,
            Knob::MemoryHigh => {
                distance <= (BOUND_DEAD_BAND_RATIO * then).max(BOUND_DEAD_BAND_BYTES as f64)
            }
            // Guarantees and limits move only with the policy; the band covers rounding to a page.
            Knob::MemoryMin | Knob::MemoryMax => distance < 4096.0,
            // The kernel takes no quota below a hundredth of a CPU.
            Knob::CpuMax => (now - then.max(QUOTA_MIN_MILLI_CPUS)).abs() < 1.0,
            Knob::PidsMax | Knob::Cpus => distance < 1.0,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Weight(weight) => write!(f, "{weight:.1}"),
            Value::Amount(resource, Limit::Finite(amount)) => f.write_str(&resource.short(*amount)),
            Value::Amount(_, Limit::Max) => f.write_str("max"),
            Value::Count(limit) => write!(f, "{limit}"),
            Value::CpuList(cpus) => write!(f, "{cpus}"),
        }
    }
}

/// One write, as data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Action {
    /// Index of the node in the tree of tenants, pre-order.
    pub node: usize,
    /// Knob to write.
    pub knob: Knob,
    /// Observed value; `None` if it could not be read or does not exist yet.
    pub from: Option<Value>,
    /// Value to write.
    pub to: Value,
    /// Reason, as text. Not recorded: no decision depends on it after the action.
    #[serde(skip)]
    pub reason: String,
}

impl Action {
    /// True if it lowers the value.
    pub fn shrinks(&self) -> bool {
        self.from.as_ref().is_some_and(|from| from.magnitude() > self.to.magnitude())
    }
}

/// A desired value beside the observed one.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// Index of the node in the tree of tenants, pre-order.
    pub node: usize,
    /// Knob of the value.
    pub knob: Knob,
    /// Last observed value; `None` if it could not be read or does not exist yet.
    pub held: Option<Value>,
    /// Desired value.
    pub value: Value,
    /// Reason, if known yet.
    pub reason: String,
    /// True if the observed value may stay.
    pub is_settled: bool,
}

/// Allowed distance of a weight in a file from the desired one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WeightBand {
    /// [`WEIGHT_DEAD_BAND_RATIO`].
    #[default]
    Moving,
    /// [`STEADY_DEAD_BAND_RATIO`].
    Steady,
    /// [`WEIGHT_EXACT_WITHIN`], for trimmed weights.
    Exact,
}

impl WeightBand {
    fn settles(self, now: f64, then: f64) -> bool {
        let distance = (now - then).abs();
        // A file holds whole weights or whole shares, so the nearest one may stay; writing it again each
        // tick would change nothing. The tolerance covers rounding in the conversion from shares.
        let is_nearest = held(then).iter().any(|held| (now - held).abs() <= 1e-9 * held);
        match self {
            _ if is_nearest => true,
            WeightBand::Moving => distance <= WEIGHT_DEAD_BAND_RATIO * then,
            WeightBand::Steady => distance <= STEADY_DEAD_BAND_RATIO * then,
            WeightBand::Exact => distance < WEIGHT_EXACT_WITHIN,
        }
    }
}

impl Wanted {
    /// Creates the desired `value` of `knob` beside its observed one. A weight within its band may stay.
    pub fn new(
        node: usize,
        (knob, value, reason): (Knob, Value, String),
        observed: &[(Knob, Value)],
        weight_band: WeightBand,
    ) -> Wanted {
        let held = observed.iter().find(|(known, _)| *known == knob).map(|(_, held)| held);
        let is_settled = held.is_some_and(|held| held.settles(&value, knob, weight_band));
        Wanted { node, knob, held: held.cloned(), value, reason, is_settled }
    }

    /// The write of `to`.
    pub(crate) fn action(&self, to: Value) -> Action {
        let (node, knob, reason) = (self.node, self.knob, self.reason.clone());
        Action { node, knob, from: self.held.clone(), to, reason }
    }
}
