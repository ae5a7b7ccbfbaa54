//! Desired minus observed values, as an ordered list of actions.
//!
//! **Problem.** Writing all files every tick would hide the writes that matter, cost kernel time and
//! conflict with other programs. The order counts too: protection that grows in a child before its parent
//! is void; protection that shrinks in a parent before its child takes from a sibling for a moment.
//!
//! **Algorithm.** A value within the dead band of its desired value needs no action. Growing actions come
//! first, parents before children; shrinking ones follow, children before parents. CPU sets follow in the
//! order of [`tenantd_dop::transition`], which widens before it narrows.
//!
//! **Properties.** Applying a plan and planning again gives nothing (`an_applied_plan_leaves_nothing`).
//! Every grow precedes every shrink (`grow_before_shrink_parents_before_children`). A knob without a
//! desired value is never touched (`what_the_policy_does_not_name_is_left_alone`).

use crate::words::knob::{Action, Knob, Value, Wanted};
use tenantd_dop::{CpuSet, transition};

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

#[cfg(test)]
mod tests {
    use tenantd_core::resource::Resource;
    use tenantd_core::units::Limit;

    use super::*;
    use crate::words::knob::*;

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

    /// The bands of zero and of "no limit" would contain every other value, or none.
    #[test]
    fn no_band_spans_zero_or_all_memory() {
        let (none, all) = (memory(0), Value::Amount(Resource::Memory, Limit::Max));
        for knob in [Knob::MemoryLow, Knob::MemoryHigh] {
            for (now, then) in [(memory(1), &none), (memory(900), &all)] {
                assert_eq!(planned(&[(knob, then.clone())], &[(knob, now.clone())]).len(), 1);
                assert_eq!(planned(&[(knob, now)], &[(knob, then.clone())]).len(), 1);
            }
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
