//! Values that the agent writes: the table of knobs, a value, and a write as data.
//!
//! **The table.** A *knob* is one setting of a cgroup ([`Knob`]). Each has one [`Row`] in [`TABLE`] with all
//! facts that do not depend on the machine: its purpose, its unit, its noun, its dead band, and whether it is
//! also set above tenants. Planner, explanation, status, restore and systemd's orders handle knobs by these
//! columns, in the order of the rows. Its files and its property are in the table of `tenantd_host::knobs`.
//!
//! A new knob is a variant, its row here and its row there; then the code that computes its value
//! ([`crate::write::desired`] or [`crate::share::target`]) and its reason ([`crate::write::value_reason`]).
//!
//! **Values.** A [`Value`] is in the agent's units, so that one plan serves both hierarchies. [`Wanted`] is a
//! desired value beside the observed one. An *action* is one write, as data: a dry run prints the list that
//! apply executes.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::measure::disk::Device;
use tenantd_core::disk_rate::DiskRate;
use tenantd_core::node::NodeId;
use tenantd_core::resource::Resource::{self, Cpu, Memory};
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
    /// Weight of requests to disks with io.cost.
    DiskWeight,
    /// Limit of bytes read from each disk.
    DiskReadMax,
    /// Limit of bytes written to each disk.
    DiskWriteMax,
    /// Limit of read operations on each disk.
    DiskReadIopsMax,
    /// Limit of write operations on each disk.
    DiskWriteIopsMax,
    /// Weight of requests to disks under the scheduler bfq.
    BfqWeight,
}

/// Cause of a knob's values, which decides the cgroups that have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Divides time: always set.
    Weight,
    /// Protects memory from reclaim: always set.
    Protection,
    /// Protects guaranteed memory: set if some of it is guaranteed.
    Guarantee,
    /// Takes memory for others: set while the agent bounds the tenant.
    Bound,
    /// Caps usage: set if the policy has such a limit.
    Limit,
    /// Places work on CPUs: set if tenants are pinned.
    Placement,
    /// Divides disks: set if the policy does, and a disk obeys.
    Share,
}

/// Unit of a knob's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// [`Value::Weight`] of CPU time.
    Weight,
    /// [`Value::Weight`] of requests to disks.
    DiskWeight,
    /// [`Value::Amount`] of a resource.
    Amount(Resource),
    /// [`Value::Count`], with the name of the counted things in a log.
    Count(&'static str),
    /// [`Value::CpuList`].
    Cpus,
    /// [`Value::Disks`].
    PerDisk(DiskRate),
}

/// Dead band: the distance from the desired value at which the observed one may stay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DeadBand {
    /// Dead band of weights, by the age of the desired one ([`WeightBand`]).
    Weight,
    /// The part `ratio` of the desired value, at least `bytes`. It spans neither zero nor "no limit", which
    /// differ in kind from all other values.
    Ratio {
        /// Part of the desired value.
        ratio: f64,
        /// Least distance.
        bytes: u64,
    },
    /// Rounding by the kernel alone: less than `within`; desired values below `least` count as `least`.
    Rounding {
        /// Distance that means another value.
        within: f64,
        /// Least value that the kernel takes.
        least: f64,
    },
}

/// Facts of a knob that do not depend on the machine.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    knob: Knob,
    noun: &'static str,
    purpose: Purpose,
    unit: Unit,
    band: DeadBand,
    is_above: bool,
}

const fn row(knob: Knob, noun: &'static str, purpose: Purpose, unit: Unit, band: DeadBand) -> Row {
    Row { knob, noun, purpose, unit, band, is_above: false }
}

impl Row {
    /// The row of a knob that ancestors of tenants have too.
    const fn above(self) -> Row {
        Row { is_above: true, ..self }
    }
}

const PAGE: DeadBand = DeadBand::Rounding { within: 4096.0, least: 0.0 };
/// Of thousandths of a CPU: the kernel takes no quota below a hundredth.
const QUOTA: DeadBand = DeadBand::Rounding { within: 1.0, least: 10.0 };
const WHOLE: DeadBand = DeadBand::Rounding { within: 1.0, least: 0.0 };
/// The kernel batches charges below 4 MiB.
const PROTECTION: DeadBand = DeadBand::Ratio { ratio: 0.05, bytes: 4 << 20 };
/// Whole numbers, so that a closer one is not written again.
const DISK_WEIGHT: DeadBand = DeadBand::Ratio { ratio: WEIGHT_DEAD_BAND_RATIO, bytes: 0 };
/// A bound moves by a twentieth per step at most.
const BOUND: DeadBand = DeadBand::Ratio { ratio: 0.01, bytes: 1 << 20 };

/// One row for each knob, in the order of the variants of [`Knob`].
pub const TABLE: [Row; 14] = {
    use Knob::*;
    use Unit::{Amount, Count, PerDisk};
    const fn disk_limit(knob: Knob, noun: &'static str, rate: DiskRate) -> Row {
        row(knob, noun, Purpose::Limit, PerDisk(rate), WHOLE)
    }
    [
        row(CpuWeight, "CPU weight", Purpose::Weight, Unit::Weight, DeadBand::Weight).above(),
        row(CpuMax, "CPU limit", Purpose::Limit, Amount(Cpu), QUOTA),
        row(MemoryMin, "guaranteed memory", Purpose::Guarantee, Amount(Memory), PAGE).above(),
        row(MemoryLow, "memory protection", Purpose::Protection, Amount(Memory), PROTECTION)
            .above(),
        row(MemoryHigh, "memory bound", Purpose::Bound, Amount(Memory), BOUND),
        row(MemoryMax, "memory limit", Purpose::Limit, Amount(Memory), PAGE),
        row(PidsMax, "limit of processes", Purpose::Limit, Count("pids"), WHOLE),
        row(Cpus, "set of CPUs", Purpose::Placement, Unit::Cpus, WHOLE),
        row(DiskWeight, "disk weight", Purpose::Share, Unit::DiskWeight, DISK_WEIGHT).above(),
        disk_limit(DiskReadMax, "limit of disk reads", DiskRate::Read),
        disk_limit(DiskWriteMax, "limit of disk writes", DiskRate::Write),
        disk_limit(DiskReadIopsMax, "limit of disk read operations", DiskRate::ReadIops),
        disk_limit(DiskWriteIopsMax, "limit of disk write operations", DiskRate::WriteIops),
        row(BfqWeight, "disk weight under bfq", Purpose::Share, Unit::DiskWeight, DISK_WEIGHT)
            .above(),
    ]
};

impl Knob {
    /// All knobs.
    pub const ALL: [Knob; TABLE.len()] = {
        let mut all = [Knob::CpuWeight; TABLE.len()];
        let mut index = 0;
        while index < all.len() {
            all[index] = TABLE[index].knob;
            assert!(all[index] as usize == index, "the table has the order of the variants");
            index += 1;
        }
        all
    };

    fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// Cause of its values.
    pub fn purpose(self) -> Purpose {
        self.row().purpose
    }

    /// Unit of its values.
    pub fn unit(self) -> Unit {
        self.row().unit
    }

    /// Its dead band.
    pub fn dead_band(self) -> DeadBand {
        self.row().band
    }

    /// Noun for a sentence.
    pub fn noun(self) -> &'static str {
        self.row().noun
    }

    /// True if it is also set above tenants.
    pub fn is_above(self) -> bool {
        self.row().is_above
    }

    /// True if it protects memory from reclaim.
    pub fn is_protection(self) -> bool {
        matches!(self.purpose(), Purpose::Protection | Purpose::Guarantee)
    }

    /// Divided resource; `None` if the knob only bounds a number.
    pub fn resource(self) -> Option<Resource> {
        match self.unit() {
            Unit::Weight | Unit::Cpus => Some(Cpu),
            Unit::Amount(resource) => Some(resource),
            Unit::Count(_) | Unit::DiskWeight | Unit::PerDisk(_) => None,
        }
    }

    /// Limited rate of requests to disks.
    pub fn disk_rate(self) -> Option<DiskRate> {
        match self.unit() {
            Unit::PerDisk(rate) => Some(rate),
            _ => None,
        }
    }

    /// Subject in a log: the resource, or the counted things.
    pub fn subject(self) -> &'static str {
        match self.unit() {
            Unit::Count(of) => of,
            Unit::DiskWeight | Unit::PerDisk(_) => "disk",
            Unit::Weight | Unit::Cpus => Cpu.name(),
            Unit::Amount(resource) => resource.name(),
        }
    }

    /// Knob that limits a resource.
    pub fn limit(resource: Resource) -> Knob {
        match resource {
            Cpu => Knob::CpuMax,
            Memory => Knob::MemoryMax,
        }
    }
}

/// Value of a knob.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Value {
    /// Weight in the unit of `cpu.weight`, 1 ..= 10,000, or on disks; the file rounds fractions.
    Weight(f64),
    /// Amount of a resource, in its smallest unit.
    Amount(Resource, Limit<u64>),
    /// Number of processes and threads.
    Count(Limit<u64>),
    /// Set of CPUs; empty if the parent's are inherited.
    CpuList(CpuSet),
    /// Limited disks, in the order of their numbers, each with its limit per second.
    Disks(Vec<(Device, u64)>),
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
            Value::Disks(limits) => {
                limits.iter().map(|(_, limit)| *limit as f64).fold(f64::INFINITY, f64::min)
            }
        }
    }

    /// Leaves out disks that are not among `disks`: what other programs limit there is theirs.
    pub(crate) fn retain_disks(&mut self, disks: &[Device]) {
        if let Value::Disks(limits) = self {
            limits.retain(|(device, _)| disks.contains(device));
        }
    }

    /// True if it limits each disk that `wanted` limits in the same way; other disks do not count. False for other values.
    pub fn has_limits_of(&self, wanted: &Value) -> bool {
        match (self, wanted) {
            (Value::Disks(found), Value::Disks(wanted)) => {
                wanted.iter().all(|limit| found.contains(limit))
            }
            _ => false,
        }
    }

    fn settles(&self, desired: &Value, knob: Knob, weight_band: WeightBand) -> bool {
        if let (Value::CpuList(now), Value::CpuList(then)) = (self, desired) {
            return now == then;
        }
        if matches!(desired, Value::Disks(_)) {
            return self.has_limits_of(desired);
        }
        let (now, then) = (self.magnitude(), desired.magnitude());
        if now == then {
            return true;
        }
        let distance = (now - then).abs();
        match knob.dead_band() {
            DeadBand::Weight => weight_band.settles(now, then),
            DeadBand::Ratio { .. } if now == 0.0 || then == 0.0 || distance.is_infinite() => false,
            DeadBand::Ratio { ratio, bytes } => distance <= (ratio * then).max(bytes as f64),
            DeadBand::Rounding { within, least } => (now - then.max(least)).abs() < within,
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
            Value::Disks(limits) if limits.is_empty() => f.write_str("max"),
            Value::Disks(limits) => {
                let each = limits.iter().map(|(device, limit)| format!("{device} {limit}"));
                f.write_str(&each.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// One write, as data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Action {
    /// The node.
    pub node: NodeId,
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
    /// The node.
    pub node: NodeId,
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
        node: NodeId,
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
