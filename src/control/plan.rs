//! Desired minus observed, as an ordered list of actions.
//!
//! **Problem.** The agent knows the value that each file should hold. Writing all of them every tick would
//! hide the one write that mattered, wake the kernel for nothing and conflict with other programs that write
//! there. The order counts as well: memory protection that grows in a child before its parent is void, and
//! one that shrinks in a parent before its child takes from a sibling for a moment.
//!
//! **Terms.** A *knob* is one setting of a tenant's cgroup ([`Knob`]); a *value* is what it is set to
//! ([`Value`]), in the agent's units and not in a file's text, so that one plan serves both hierarchies. An
//! *action* is one write, as data: a dry run prints the same list that apply executes.
//!
//! **Algorithm.** For each node in policy order and each knob with a desired value: nothing where the
//! observed value lies within the dead band; else an action. Then growing actions come first, parents
//! before children; shrinking ones after, children before parents. Sets of CPUs follow in the order of
//! [`crate::dop::transition`], which widens before it narrows.
//!
//! **Properties.** Applying a plan and planning again gives nothing (`an_applied_plan_leaves_nothing`). The
//! order puts every grow before every shrink (`grow_before_shrink_parents_before_children`). A knob without
//! a desired value is never touched (`what_the_policy_does_not_name_is_left_alone`).

use std::fmt;

use serde::Serialize;

use crate::codec::{Coded, In, Layout, Out, Torn, coded};
use crate::dop::{CpuSet, transition};
use crate::resource::Resource;
use crate::units::Limit;

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
            Knob::CpuMax | Knob::PidsMax | Knob::Cpus => distance < 1.0,
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

/// What one node's knobs shall hold, and what they hold.
#[derive(Clone, Debug, Default)]
pub struct NodeKnobs {
    /// Distance from the top of the tree.
    pub depth: usize,
    /// Desired values with the reason for each, if it is known yet; a knob that is not named is left alone.
    pub desired: Vec<(Knob, Value, String)>,
    /// Observed values; a knob that could not be read is not named.
    pub observed: Vec<(Knob, Value)>,
    /// How far from the wanted weight the file may be.
    pub weight_band: WeightBand,
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
        // The unified hierarchy holds whole numbers: nearer than this it cannot come.
        let is_nearest = now == then.round().max(1.0);
        match self {
            WeightBand::Moving => distance <= WEIGHT_DEAD_BAND_RATIO * then || is_nearest,
            WeightBand::Steady => distance <= STEADY_DEAD_BAND_RATIO * then || is_nearest,
            WeightBand::Exact => distance < WEIGHT_EXACT_WITHIN,
        }
    }
}

impl NodeKnobs {
    pub(crate) fn observed(&self, knob: Knob) -> Option<&Value> {
        self.observed.iter().find(|(known, _)| *known == knob).map(|(_, value)| value)
    }

    /// Whether the file of `knob` holds a value that is close enough to this one to be left alone.
    pub(crate) fn is_settled(&self, knob: Knob, desired: &Value) -> bool {
        let is_settled = |observed: &Value| observed.settles(desired, knob, self.weight_band);
        self.observed(knob).is_some_and(is_settled)
    }
}

/// The ordered actions that bring `nodes` (in pre-order) from observed to desired.
///
/// `online` are the CPUs that a set may be made of; no set is written while they are not known.
pub fn plan(nodes: &[NodeKnobs], online: Option<&CpuSet>) -> Vec<Action> {
    let mut grow = Vec::new();
    let mut shrink = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        for (knob, to, reason) in node.desired.iter().filter(|(knob, ..)| *knob != Knob::Cpus) {
            if node.is_settled(*knob, to) {
                continue;
            }
            let from = node.observed(*knob);
            let grows = from.is_none_or(|from| from.magnitude() < to.magnitude());
            let action = Action {
                node: index,
                knob: *knob,
                from: from.cloned(),
                to: to.clone(),
                reason: reason.clone(),
            };
            match grows {
                true => grow.push((node.depth, action)),
                false => shrink.push((node.depth, action)),
            }
        }
    }
    grow.sort_by_key(|(depth, _)| *depth);
    shrink.sort_by_key(|(depth, _)| std::cmp::Reverse(*depth));
    let ordered = grow.into_iter().chain(shrink).map(|(_, action)| action);
    let sets = online.into_iter().flat_map(|online| cpuset_actions(nodes, online));
    ordered.chain(sets).collect()
}

/// The writes of sets of CPUs, in an order that leaves no tenant without a CPU in between.
///
/// Only tenants are given sets; groups above them keep all their CPUs, so that nothing has to fit.
fn cpuset_actions(nodes: &[NodeKnobs], online: &CpuSet) -> Vec<Action> {
    let mut owners = Vec::new();
    let mut groups = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        let desired = node.desired.iter().find(|(knob, ..)| *knob == Knob::Cpus);
        let Some((_, Value::CpuList(target), reason)) = desired else { continue };
        let from = node.observed(Knob::Cpus);
        if from.is_some_and(|from| from == &Value::CpuList(target.clone())) {
            continue;
        }
        let current = match from {
            Some(Value::CpuList(current)) => current.clone(),
            _ => CpuSet::new(),
        };
        owners.push((index, from, reason));
        groups.push(transition::Group { parent: None, current, target: target.clone() });
    }
    transition::plan(&groups, online)
        .into_iter()
        .map(|write| {
            let (node, from, reason) = owners[write.group];
            Action {
                node,
                knob: Knob::Cpus,
                from: from.cloned(),
                to: Value::CpuList(write.cpus),
                reason: reason.clone(),
            }
        })
        .collect()
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

    fn node(depth: usize, desired: &[(Knob, Value)], observed: &[(Knob, Value)]) -> NodeKnobs {
        NodeKnobs {
            depth,
            desired: desired.iter().map(|(k, v)| (*k, v.clone(), String::new())).collect(),
            observed: observed.to_vec(),
            weight_band: WeightBand::Moving,
        }
    }

    fn memory(mib: u64) -> Value {
        Value::Amount(Resource::Memory, Limit::Finite(mib << 20))
    }

    #[test]
    fn grow_before_shrink_parents_before_children() {
        let low = Knob::MemoryLow;
        let nodes = [
            node(0, &[(low, memory(100))], &[(low, memory(500))]),
            node(1, &[(low, memory(50))], &[(low, memory(400))]),
            node(0, &[(low, memory(800))], &[(low, memory(300))]),
            node(1, &[(low, memory(700))], &[(low, memory(200))]),
        ];
        let order: Vec<usize> =
            plan(&nodes, Some(&CpuSet::below(8))).iter().map(|action| action.node).collect();
        assert_eq!(order, [2, 3, 1, 0]);
    }

    #[test]
    fn an_applied_plan_leaves_nothing() {
        let weight = |w| (Knob::CpuWeight, Value::Weight(w));
        let mut nodes =
            vec![node(0, &[weight(300.0)], &[weight(100.0)]), node(0, &[weight(7.0)], &[])];
        let actions = plan(&nodes, Some(&CpuSet::below(8)));
        assert_eq!(actions.len(), 2);
        for action in actions {
            nodes[action.node].observed = vec![(action.knob, action.to)];
        }
        assert_eq!(plan(&nodes, Some(&CpuSet::below(8))), []);
    }

    #[test]
    fn the_dead_band_holds_small_changes_back() {
        for (now, then, writes) in [(100.0, 104.0, 0), (100.0, 110.0, 1), (100.0, 94.0, 1)] {
            let nodes = [node(
                0,
                &[(Knob::CpuWeight, Value::Weight(then))],
                &[(Knob::CpuWeight, Value::Weight(now))],
            )];
            assert_eq!(plan(&nodes, Some(&CpuSet::below(8))).len(), writes, "{now} -> {then}");
        }
        let low = Knob::MemoryLow;
        for (now, then, writes) in [(0, 1, 1), (1, 0, 1), (1000, 1003, 0), (10, 13, 0), (10, 20, 1)]
        {
            let nodes = [node(0, &[(low, memory(then))], &[(low, memory(now))])];
            assert_eq!(plan(&nodes, Some(&CpuSet::below(8))).len(), writes, "{now} -> {then}");
        }
    }

    #[test]
    fn a_bound_that_ends_is_lifted() {
        let high = Knob::MemoryHigh;
        let max = Value::Amount(Resource::Memory, Limit::Max);
        for (now, then, writes) in
            [(memory(900), max.clone(), 1), (max, memory(900), 1), (memory(1000), memory(1005), 0)]
        {
            let nodes = [node(0, &[(high, then)], &[(high, now)])];
            assert_eq!(plan(&nodes, Some(&CpuSet::below(8))).len(), writes);
        }
    }

    /// A file of whole numbers cannot hold 3.3: writing 3 again each tick would change nothing.
    #[test]
    fn a_weight_that_is_wanted_for_a_while_is_written_more_closely() {
        let holds = |now: f64, weight_band: WeightBand| {
            let desired = [(Knob::CpuWeight, Value::Weight(106.0))];
            let node = node(1, &desired, &[(Knob::CpuWeight, Value::Weight(now))]);
            plan(&[NodeKnobs { weight_band, ..node }], None).is_empty()
        };
        assert!(holds(101.0, WeightBand::Moving) && !holds(100.0, WeightBand::Moving));
        assert!(holds(104.0, WeightBand::Steady) && !holds(103.0, WeightBand::Steady));
        assert!(holds(106.0, WeightBand::Exact) && !holds(105.0, WeightBand::Exact));
    }

    #[test]
    fn the_nearest_whole_weight_is_near_enough() {
        let weight = Knob::CpuWeight;
        let actions = |wanted: f64, held: f64| {
            let nodes =
                [node(0, &[(weight, Value::Weight(wanted))], &[(weight, Value::Weight(held))])];
            plan(&nodes, None).len()
        };
        assert_eq!([actions(3.3, 3.0), actions(0.4, 1.0), actions(1.4, 1.0)], [0, 0, 0]);
        assert_eq!([actions(3.6, 3.0), actions(3.3, 3.7), actions(2.0, 1.0)], [1, 1, 1]);
    }

    #[test]
    fn what_the_policy_does_not_name_is_left_alone() {
        let observed = [(Knob::CpuMax, Value::amount(Resource::Cpu, 0.5))];
        assert_eq!(plan(&[node(0, &[], &observed)], Some(&CpuSet::below(8))), []);
    }

    #[test]
    fn a_removed_limit_becomes_max() {
        let max = Value::Amount(Resource::Memory, Limit::Max);
        let nodes = [node(0, &[(Knob::MemoryMax, max.clone())], &[(Knob::MemoryMax, memory(10))])];
        let actions = plan(&nodes, Some(&CpuSet::below(8)));
        assert_eq!((actions.len(), &actions[0].to), (1, &max));
        let settled = node(0, &[(Knob::MemoryMax, max.clone())], &[(Knob::MemoryMax, max)]);
        assert_eq!(plan(&[settled], Some(&CpuSet::below(8))), []);
    }
}
