//! Desired minus observed values, as an ordered list of actions.
//!
//! **Problem.** Writing all files every tick would hide the writes that matter, cost kernel time and
//! conflict with other programs. The order counts too: protection that grows in a child before its parent
//! is void; protection that shrinks in a parent before its child takes from a sibling for a moment.
//!
//! **Terms.** A *knob* is one setting of a cgroup ([`Knob`]). A *value* ([`Value`]) is in the agent's
//! units, so one plan serves both hierarchies. [`Wanted`] is a desired value beside the observed one. An
//! *action* is one write, as data: a dry run prints the list that apply executes.
//!
//! **Algorithm.** A value within the dead band of its desired value needs no action. Growing actions come
//! first, parents before children; shrinking ones follow, children before parents. CPU sets follow in the
//! order of [`tenantd_dop::transition`], which widens before it narrows.
//!
//! **Properties.** Applying a plan and planning again gives nothing (`an_applied_plan_leaves_nothing`).
//! Every grow precedes every shrink (`grow_before_shrink_parents_before_children`). A knob without a
//! desired value is never touched (`what_the_policy_does_not_name_is_left_alone`).

use std::fmt;

use serde::Serialize;

use super::weight;
use tenantd_core::codec::{Coded, In, Layout, Out, Torn, coded};
use tenantd_core::resource::Resource;
use tenantd_core::units::Limit;
use tenantd_dop::{CpuSet, transition};

/// Dead band of weights: rewriting closer ones would change no share by more than a twentieth.
pub const WEIGHT_DEAD_BAND_RATIO: f64 = 0.05;

/// Dead band of a weight that has been wanted for a while ([`super::steady`]).
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
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
#[derive(Clone, Debug, PartialEq)]
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
#[derive(Clone, Debug, PartialEq)]
pub struct Action {
    /// Index of the node in the tree of tenants, pre-order.
    pub node: usize,
    /// Knob to write.
    pub knob: Knob,
    /// Observed value; `None` if it could not be read or does not exist yet.
    pub from: Option<Value>,
    /// Value to write.
    pub to: Value,
    /// Reason, as text.
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

    fn action(&self, to: Value) -> Action {
        let (node, knob, reason) = (self.node, self.knob, self.reason.clone());
        Action { node, knob, from: self.held.clone(), to, reason }
    }
}

/// Ordered actions from observed to `wanted` values; `depths` are the depths of the nodes from the top.
///
/// `online` are the CPUs allowed in a set; no set is written while they are unknown.
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

/// Writes of CPU sets, in an order that never leaves a tenant without a CPU. Groups keep all their CPUs, so
/// nothing has to fit into them.
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

/// Encoded without the reason: no decision depends on it after the action.
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
