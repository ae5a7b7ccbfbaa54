//! Desired minus observed, as an ordered list of actions.
//!
//! **Problem.** The agent knows the value that each file should hold. Writing all of them every tick would
//! hide the one write that mattered, wake the kernel for nothing and conflict with other programs that write
//! there. The order counts as well: memory protection that grows in a child before its parent is void, and
//! one that shrinks in a parent before its child takes from a sibling for a moment.
//!
//! **Terms.** A *knob* is one setting of a tenant's cgroup ([`Knob`]); a *value* is what it is set to
//! ([`Value`]), in the agent's units and not in a file's text, so that one plan serves both hierarchies. What is
//! *wanted* ([`Wanted`]) is a value beside the one that was observed in its file. An *action* is one write, as data: a
//! dry run prints the same list that apply executes.
//!
//! **Algorithm.** For each value that is wanted, in the order of the policy: nothing where the
//! observed one lies within the dead band; else an action. Then growing actions come first, parents
//! before children; shrinking ones after, children before parents. Sets of CPUs follow in the order of
//! [`tenantd_dop::transition`], which widens before it narrows.
//!
//! **Properties.** Applying a plan and planning again gives nothing (`an_applied_plan_leaves_nothing`). The
//! order puts every grow before every shrink (`grow_before_shrink_parents_before_children`). A knob without
//! a desired value is never touched (`what_the_policy_does_not_name_is_left_alone`).

use std::fmt;

use serde::Serialize;

use super::weight;
use tenantd_core::codec::{Coded, In, Layout, Out, Torn, coded};
use tenantd_core::resource::Resource;
use tenantd_core::units::Limit;
use tenantd_dop::{CpuSet, transition};

/// Weights closer than this to the desired one stay: rewriting them would change no share by more than
/// a twentieth of itself.
pub const WEIGHT_DEAD_BAND_RATIO: f64 = 0.05;

/// ... and closer than this to one that has been wanted for a while ([`super::steady`]).
pub const STEADY_DEAD_BAND_RATIO: f64 = 0.02;

/// A weight that is trimmed is a whole number, and written where its file holds another.
pub const WEIGHT_EXACT_WITHIN: f64 = 0.5;

/// Memory protection closer than this to the desired one stays.
pub const MEMORY_DEAD_BAND_RATIO: f64 = 0.05;

/// ... and in any case closer than this: below it the kernel's own batching of charges blurs the figure.
pub const MEMORY_DEAD_BAND_BYTES: u64 = 4 << 20;

/// A memory bound closer than this to the desired one stays.
pub const BOUND_DEAD_BAND_RATIO: f64 = 0.01;

/// ... and in any case closer than this.
pub const BOUND_DEAD_BAND_BYTES: u64 = 1 << 20;

/// The smallest limit of CPU time that a file holds.
const QUOTA_MIN_MILLI_CPUS: f64 = 10.0;

/// One setting of a tenant's cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Knob {
    /// Its share of CPU time against its siblings.
    CpuWeight,
    /// The CPU time it never exceeds.
    CpuMax,
    /// The memory that reclaim leaves it in any case.
    MemoryMin,
    /// The memory that reclaim leaves it as long as there is other memory to take.
    MemoryLow,
    /// The memory beyond which it waits for its own to be reclaimed.
    MemoryHigh,
    /// The memory it never exceeds.
    MemoryMax,
    /// The processes and threads it never exceeds.
    PidsMax,
    /// The CPUs it runs on.
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

    /// Those that are set above tenants as well.
    pub const ABOVE: [Knob; 3] = [Knob::CpuWeight, Knob::MemoryMin, Knob::MemoryLow];

    /// The resource that it divides; none where it only bounds a number.
    pub fn resource(self) -> Option<Resource> {
        match self {
            Knob::CpuWeight | Knob::CpuMax | Knob::Cpus => Some(Resource::Cpu),
            Knob::MemoryMin | Knob::MemoryLow | Knob::MemoryHigh | Knob::MemoryMax => {
                Some(Resource::Memory)
            }
            Knob::PidsMax => None,
        }
    }

    /// What it is about, in a log: its resource, or `pids`.
    pub fn subject(self) -> &'static str {
        self.resource().map_or("pids", Resource::name)
    }

    /// What a sentence calls it.
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

    /// The knob that limits a resource.
    pub fn limit(resource: Resource) -> Knob {
        match resource {
            Resource::Cpu => Knob::CpuMax,
            Resource::Memory => Knob::MemoryMax,
        }
    }
}

/// What a knob is set to.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A weight in the unit of `cpu.weight`, 1 ..= 10,000; fractions are rounded by the file that takes it.
    Weight(f64),
    /// An amount of a resource, in its smallest unit.
    Amount(Resource, Limit<u64>),
    /// A number of processes and threads.
    Count(Limit<u64>),
    /// A set of CPUs; empty where those of the parent are inherited.
    CpuList(CpuSet),
}

impl Value {
    /// An amount of a resource.
    pub fn amount(resource: Resource, amount: f64) -> Value {
        Value::Amount(resource, Limit::Finite(resource.smallest(amount)))
    }

    /// One number that grows with the value, for ordering a grow against a shrink.
    pub(super) fn magnitude(&self) -> f64 {
        match self {
            Value::Weight(weight) => *weight,
            Value::Amount(_, Limit::Finite(amount)) | Value::Count(Limit::Finite(amount)) => {
                *amount as f64
            }
            Value::Amount(_, Limit::Max) | Value::Count(Limit::Max) => f64::INFINITY,
            Value::CpuList(cpus) => cpus.len() as f64,
        }
    }

    /// Whether `self`, observed, is close enough to `desired` to be left alone.
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
            // Zero and nonzero are different answers to "is it protected?", however small the amount.
            Knob::MemoryLow if now == 0.0 || then == 0.0 => false,
            Knob::MemoryLow => {
                distance <= (MEMORY_DEAD_BAND_RATIO * then).max(MEMORY_DEAD_BAND_BYTES as f64)
            }
            // It moves by a twentieth at most in a step.
            Knob::MemoryHigh if distance.is_infinite() => false,
            Knob::MemoryHigh => {
                distance <= (BOUND_DEAD_BAND_RATIO * then).max(BOUND_DEAD_BAND_BYTES as f64)
            }
            // Promises and limits come from the policy and move only with it: a page of rounding, nothing more.
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
#[derive(Clone, Debug, PartialEq)]
pub struct Action {
    /// Index of the node in the tree of tenants, pre-order.
    pub node: usize,
    /// What is told.
    pub knob: Knob,
    /// What the file held; `None` where it could not be read or is not made yet.
    pub from: Option<Value>,
    /// What it shall hold.
    pub to: Value,
    /// The reason, as text.
    pub reason: String,
}

impl Action {
    /// Whether it takes away from what is there.
    pub fn shrinks(&self) -> bool {
        self.from.as_ref().is_some_and(|from| from.magnitude() > self.to.magnitude())
    }
}

/// A value that a file shall hold, beside the one that it holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// Index of the node in the tree of tenants, pre-order.
    pub node: usize,
    /// What is told.
    pub knob: Knob,
    /// What the file held when it was read last; `None` where it could not be read or is not made yet.
    pub held: Option<Value>,
    /// What it shall hold.
    pub value: Value,
    /// The reason, if it is known yet.
    pub reason: String,
    /// Whether what is held is close enough to be left alone.
    pub is_settled: bool,
}

/// How far a weight in a file may be from the one that is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WeightBand {
    /// By [`WEIGHT_DEAD_BAND_RATIO`].
    #[default]
    Moving,
    /// By [`STEADY_DEAD_BAND_RATIO`].
    Steady,
    /// By [`WEIGHT_EXACT_WITHIN`], because it is trimmed.
    Exact,
}

impl WeightBand {
    /// Whether `now` may stay where `then` is wanted.
    fn settles(self, now: f64, then: f64) -> bool {
        let distance = (now - then).abs();
        // A file holds whole weights, or whole shares: nearer than this it cannot come, and to write the same again each tick
        // would change nothing. What is read back of shares differs from what was computed by a rounding of the last digit.
        let is_nearest = weight::held(then).iter().any(|held| (now - held).abs() <= 1e-9 * held);
        match self {
            _ if is_nearest => true,
            WeightBand::Moving => distance <= WEIGHT_DEAD_BAND_RATIO * then,
            WeightBand::Steady => distance <= STEADY_DEAD_BAND_RATIO * then,
            WeightBand::Exact => distance < WEIGHT_EXACT_WITHIN,
        }
    }
}

impl Wanted {
    /// That the file of `knob`, which holds what `observed` says, shall hold `value`; a weight within its band may stay.
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
    fn action(&self, to: Value) -> Action {
        let (node, knob, reason) = (self.node, self.knob, self.reason.clone());
        Action { node, knob, from: self.held.clone(), to, reason }
    }
}

/// The ordered actions that bring files from what they hold to what is `wanted`, where each node has this depth from the
/// top of the tree.
///
/// `online` are the CPUs that a set may be made of; no set is written while they are not known.
pub fn plan(wanted: &[Wanted], depths: &[usize], online: Option<&CpuSet>) -> Vec<Action> {
    let is_open = |it: &&Wanted| it.knob != Knob::Cpus && !it.is_settled;
    let mut grow = Vec::new();
    let mut shrink = Vec::new();
    for it in wanted.iter().filter(is_open) {
        let grows = it.held.as_ref().is_none_or(|from| from.magnitude() < it.value.magnitude());
        let action = it.action(it.value.clone());
        if grows { grow.push(action) } else { shrink.push(action) }
    }
    let depth = |action: &Action| depths.get(action.node).copied().unwrap_or(0);
    grow.sort_by_key(depth);
    shrink.sort_by_key(|action| std::cmp::Reverse(depth(action)));
    let sets = online.into_iter().flat_map(|online| cpuset_actions(wanted, online));
    grow.into_iter().chain(shrink).chain(sets).collect()
}

/// The writes of sets of CPUs, in an order that leaves no tenant without a CPU in between.
///
/// Only tenants are given sets; groups above them keep all their CPUs, so that nothing has to fit.
fn cpuset_actions(wanted: &[Wanted], online: &CpuSet) -> Vec<Action> {
    let mut owners = Vec::new();
    let mut groups = Vec::new();
    for it in wanted.iter().filter(|it| !it.is_settled) {
        let Value::CpuList(target) = &it.value else { continue };
        let current = match &it.held {
            Some(Value::CpuList(current)) => current.clone(),
            _ => CpuSet::new(),
        };
        owners.push(it);
        groups.push(transition::Group { parent: None, current, target: target.clone() });
    }
    let writes = transition::plan(&groups, online).into_iter();
    writes.map(|write| owners[write.group].action(Value::CpuList(write.cpus))).collect()
}

// --- recorded ---

coded!(
    enum Knob {
        CpuWeight {},
        CpuMax {},
        MemoryMin {},
        MemoryLow {},
        MemoryHigh {},
        MemoryMax {},
        PidsMax {},
        Cpus {},
    }
);
coded!(enum Value {
    Weight { 0: weight }, Amount { 0: resource, 1: amount }, Count { 0: count }, CpuList { 0: cpus },
});

/// Without the reason: no decision depends on that of an action that was carried out.
impl Coded for Action {
    fn blank() -> Self {
        let (from, to) = (None, Value::blank());
        Action { node: 0, knob: Knob::blank(), from, to, reason: String::new() }
    }

    fn put(&self, last: &mut Self, out: &mut Out) {
        let Action { node, knob, from, to, reason: _ } = self;
        node.put(&mut last.node, out);
        knob.put(&mut last.knob, out);
        from.put(&mut last.from, out);
        to.put(&mut last.to, out);
    }

    fn take(last: &mut Self, from: &mut In<'_>) -> Result<Self, Torn> {
        Ok(Action {
            node: usize::take(&mut last.node, from)?,
            knob: Knob::take(&mut last.knob, from)?,
            from: Coded::take(&mut last.from, from)?,
            to: Value::take(&mut last.to, from)?,
            reason: String::new(),
        })
    }

    fn layout(to: &mut Layout) {
        to.note("Action: node, knob, from, to");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Values<'a> = &'a [(Knob, Value)];

    fn wanted_of(node: usize, desired: Values<'_>, observed: Values<'_>) -> Vec<Wanted> {
        wanted_within(node, desired, observed, WeightBand::Moving)
    }

    fn wanted_within(
        node: usize,
        desired: Values<'_>,
        observed: Values<'_>,
        band: WeightBand,
    ) -> Vec<Wanted> {
        let desired = desired.iter().map(|(knob, value)| (*knob, value.clone(), String::new()));
        desired.map(|desired| Wanted::new(node, desired, observed, band)).collect()
    }

    /// What is planned of one node.
    fn planned(desired: Values<'_>, observed: Values<'_>) -> Vec<Action> {
        plan(&wanted_of(0, desired, observed), &[0], Some(&CpuSet::below(8)))
    }

    fn memory(mib: u64) -> Value {
        Value::Amount(Resource::Memory, Limit::Finite(mib << 20))
    }

    #[test]
    fn grow_before_shrink_parents_before_children() {
        let low = Knob::MemoryLow;
        let wanted: Vec<Wanted> = [(100, 500), (50, 400), (800, 300), (700, 200)]
            .into_iter()
            .enumerate()
            .flat_map(|(node, (to, from))| {
                wanted_of(node, &[(low, memory(to))], &[(low, memory(from))])
            })
            .collect();
        let actions = plan(&wanted, &[0, 1, 0, 1], Some(&CpuSet::below(8)));
        let order: Vec<usize> = actions.iter().map(|action| action.node).collect();
        assert_eq!(order, [2, 3, 1, 0]);
    }

    #[test]
    fn an_applied_plan_leaves_nothing() {
        let weight = |w| (Knob::CpuWeight, Value::Weight(w));
        let desired = [weight(300.0), (Knob::MemoryLow, memory(7))];
        let actions = planned(&desired, &[weight(100.0)]);
        assert_eq!(actions.len(), 2);
        let held: Vec<(Knob, Value)> =
            actions.into_iter().map(|action| (action.knob, action.to)).collect();
        assert_eq!(planned(&desired, &held), []);
    }

    #[test]
    fn the_dead_band_holds_small_changes_back() {
        for (now, then, writes) in [(100.0, 104.0, 0), (100.0, 110.0, 1), (100.0, 94.0, 1)] {
            let weight = |weight| [(Knob::CpuWeight, Value::Weight(weight))];
            assert_eq!(planned(&weight(then), &weight(now)).len(), writes, "{now} -> {then}");
        }
        let low = Knob::MemoryLow;
        for (now, then, writes) in [(0, 1, 1), (1, 0, 1), (1000, 1003, 0), (10, 13, 0), (10, 20, 1)]
        {
            let actions = planned(&[(low, memory(then))], &[(low, memory(now))]);
            assert_eq!(actions.len(), writes, "{now} -> {then}");
        }
    }

    #[test]
    fn a_bound_that_ends_is_lifted() {
        let high = Knob::MemoryHigh;
        let max = Value::Amount(Resource::Memory, Limit::Max);
        for (now, then, writes) in
            [(memory(900), max.clone(), 1), (max, memory(900), 1), (memory(1000), memory(1005), 0)]
        {
            assert_eq!(planned(&[(high, then)], &[(high, now)]).len(), writes);
        }
    }

    /// A file of whole numbers cannot hold 3.3: writing 3 again each tick would change nothing.
    #[test]
    fn a_weight_that_is_wanted_for_a_while_is_written_more_closely() {
        let holds = |now: f64, weight_band: WeightBand| {
            let weight = |weight| [(Knob::CpuWeight, Value::Weight(weight))];
            let wanted = wanted_within(0, &weight(106.0), &weight(now), weight_band);
            plan(&wanted, &[0], None).is_empty()
        };
        assert!(holds(101.0, WeightBand::Moving) && !holds(100.0, WeightBand::Moving));
        assert!(holds(104.0, WeightBand::Steady) && !holds(103.0, WeightBand::Steady));
        assert!(holds(106.0, WeightBand::Exact) && !holds(105.0, WeightBand::Exact));
    }

    #[test]
    fn the_nearest_whole_weight_is_near_enough() {
        let weight = Knob::CpuWeight;
        let actions = |wanted: f64, held: f64| {
            let (wanted, held) = (Value::Weight(wanted), Value::Weight(held));
            planned(&[(weight, wanted)], &[(weight, held)]).len()
        };
        assert_eq!([actions(3.3, 3.0), actions(0.4, 1.0), actions(1.4, 1.0)], [0, 0, 0]);
        assert_eq!([actions(3.6, 3.0), actions(3.3, 3.7), actions(2.0, 1.0)], [1, 1, 1]);
    }

    #[test]
    fn what_the_policy_does_not_name_is_left_alone() {
        let observed = [(Knob::CpuMax, Value::amount(Resource::Cpu, 0.5))];
        assert_eq!(planned(&[], &observed), []);
    }

    #[test]
    fn a_removed_limit_becomes_max() {
        let max = Value::Amount(Resource::Memory, Limit::Max);
        let wanted = [(Knob::MemoryMax, max.clone())];
        let actions = planned(&wanted, &[(Knob::MemoryMax, memory(10))]);
        assert_eq!((actions.len(), &actions[0].to), (1, &max));
        assert_eq!(planned(&wanted, &wanted), []);
    }
}
