//! The control chain as functions: what must hold for every tree, every demand, every sample.

mod contest;
mod control_loop;
mod explain;
mod govern;
mod members;
mod protect;
mod shortfall;
mod thread_budget;
mod turns;
mod vectors;
mod weights;
mod would_get;

use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use tenantd_control::measure::sample::{MemorySample, TenantSample};
use tenantd_control::measure::usage::{self, Usage};
use tenantd_control::share::demand::{self, Context, Demand};
use tenantd_control::share::target::{self, Target};
use tenantd_control::tree::{self, TreeNode};
use tenantd_control::words::knob::{Knob, Value, Wanted, WeightBand};
use tenantd_control::write::plan;
use tenantd_core::node::NodeId;
use tenantd_core::resource::{CPU, MEMORY, PerResource};
use tenantd_core::units::Weight;
use tenantd_dop::CpuSet;
use tenantd_policy::model::{Allocation, Amount, Policy, Tenant};

const CORES: f64 = 16.0;
const MEMORY_BYTES: f64 = (64_u64 << 30) as f64;
const CAPACITY: PerResource<f64> = PerResource([CORES, MEMORY_BYTES]);

/// One leaf: its weights, and what part of its share of the machine is guaranteed and what part the limit.
fn leaf() -> impl Strategy<Value = Tenant> {
    let weight = prop_oneof![Just(100.0), 1.0..10_000.0_f64];
    (weight.clone(), weight, option::of((0.0..1.0_f64, 0.0..1.0_f64)), option::of(0.01..2.0_f64))
        .prop_map(|(cpu, memory, guarantee, limit)| {
            let weight = |weight| Weight::try_new(weight).unwrap();
            // There are at most twelve leaves, and their guarantees fit together.
            let part = |part: f64, whole: f64| (whole / 12.0 * part) as u64;
            let guarantee = guarantee.map_or_else(PerResource::default, |(cpu, memory)| {
                PerResource([Some(part(cpu, CORES * 1000.0)), Some(part(memory, MEMORY_BYTES))])
            });
            let limit = limit.map_or_else(PerResource::default, |limit| {
                let most = |whole: f64, promised: Option<u64>| {
                    Some(((whole * limit) as u64).max(promised.unwrap_or_default()))
                };
                let PerResource([cpu, memory]) = guarantee;
                PerResource([most(CORES * 1000.0, cpu), most(MEMORY_BYTES, memory)])
            });
            let weight = PerResource([weight(cpu), weight(memory)]);
            let absolute = |amounts: PerResource<Option<u64>>| {
                amounts.map(|amount| amount.map(Amount::Absolute))
            };
            let (guarantee, limit) = (absolute(guarantee), absolute(limit).into());
            Tenant {
                weight: weight.into(),
                guarantee: guarantee.into(),
                limit,
                ..Tenant::default()
            }
        })
}

/// The nodes of a policy of up to four tenants or groups of up to three.
fn nodes() -> impl Strategy<Value = Vec<TreeNode>> {
    let group = (1.0..1000.0_f64, vec(leaf(), 1..4)).prop_map(|(weight, tenants)| {
        let weight = Weight::try_new(weight).unwrap();
        let tenants = tenants.into_iter().enumerate();
        let tenants = tenants.map(|(i, leaf)| Tenant { name: format!("t{i}"), ..leaf }).collect();
        Tenant { weight: PerResource::all(weight).into(), tenants, ..Tenant::default() }
    });
    vec(prop_oneof![2 => leaf(), 1 => group], 1..5).prop_map(|tenants| {
        let tenants = tenants.into_iter().enumerate();
        let tenants =
            tenants.map(|(i, tenant)| Tenant { name: format!("n{i}"), ..tenant }).collect();
        tree::flatten(&Policy { tenants, ..Policy::default() })
    })
}

/// What a tenant could want: nothing, a little, or more than there is.
fn a_demand() -> impl Strategy<Value = Demand> {
    let part = || prop_oneof![Just(0.0), 1e-9..1e-3_f64, 0.0..1.0_f64, Just(1.0)];
    (part(), part()).prop_map(|(cpu, memory)| Demand {
        amount: PerResource([cpu * CORES, memory * MEMORY_BYTES]),
        ..Demand::UNKNOWN
    })
}

/// A tree and as many demands as it has nodes, within their limits.
fn tree_and_demands() -> impl Strategy<Value = (Vec<TreeNode>, Vec<Demand>)> {
    nodes().prop_flat_map(|nodes| {
        let demands = vec(a_demand(), nodes.len());
        (Just(nodes), demands).prop_map(|(nodes, mut demands)| {
            for (node, demand) in nodes.iter().zip(&mut demands) {
                let limit = node.limit.map(|limit| limit.unwrap_or(f64::INFINITY));
                for resource in [CPU, MEMORY] {
                    demand.amount[resource] = demand.amount[resource].min(limit[resource]);
                }
            }
            (nodes, demands)
        })
    })
}

fn rule() -> impl Strategy<Value = Allocation> {
    prop_oneof![Just(Allocation::Drf), Just(Allocation::MaxMin), Just(Allocation::Static)]
}

/// Two samples of one cgroup with any counters, the second not always later.
fn samples() -> impl Strategy<Value = (TenantSample, TenantSample)> {
    let counter = || option::of(0..10_000_000_u64);
    let sample = move || {
        let memory = (0..1_u64 << 40, 0..1_u64 << 40, 0..1_u64 << 40, counter());
        let memory = memory.prop_map(|(current, inactive, active, refaults)| MemorySample {
            current_bytes: current,
            inactive_file_bytes: inactive,
            active_file_bytes: active,
            refaults,
            ..MemorySample::default()
        });
        let counters = (counter(), counter(), counter(), counter());
        (0..2_u64, option::of(any::<bool>()), counters, option::of(memory)).prop_map(
            |(generation, populated, (usage, throttled, cpu_some, memory_some), memory)| {
                TenantSample {
                    generation,
                    populated,
                    usage_usec: usage,
                    nr_throttled: throttled,
                    cpu_some_usec: cpu_some,
                    memory_some_usec: memory_some,
                    memory,
                    ..TenantSample::default()
                }
            },
        )
    };
    (sample(), sample())
}

fn is_amount(value: f64) -> bool {
    value.is_finite() && value >= 0.0
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rates_are_amounts_or_absent((before, now) in samples(), msec in 0..5000_u64) {
        let Some(usage) = usage::usage(&before, &now, Duration::from_millis(msec)) else { return Ok(()) };
        prop_assert!(is_amount(usage.cpu_cores), "{usage:?}");
        for ratio in [usage.cpu_some_ratio, usage.memory_some_ratio].into_iter().flatten() {
            prop_assert!((0.0..=1.0).contains(&ratio), "{usage:?}");
        }
        let amounts =
            [usage.held[MEMORY], usage.unreclaimable_bytes, usage.refaults_per_sec, usage.wanted_cores];
        prop_assert!(amounts.into_iter().flatten().all(is_amount), "{usage:?}");
    }

    #[test]
    fn demands_are_amounts_within_limit_and_machine(
        (before, now) in samples(),
        allocation in 0.0..CORES,
        guarantee in 0.0..CORES,
        max_cores in 0.01..CORES,
        last in option::of(a_demand()),
        is_bounded: bool,
        wanted in option::of(0.0..1000.0_f64),
        killed_peak_bytes in option::of(0.0..2.0 * MEMORY_BYTES),
    ) {
        let second = Duration::from_secs(1);
        let Some(usage) = usage::usage(&before, &now, second) else { return Ok(()) };
        let usage = Usage { wanted_cores: wanted, ..usage };
        let context = Context {
            allocation_cores: allocation,
            guarantee_cores: guarantee,
            max: PerResource([max_cores, MEMORY_BYTES]),
            is_bounded,
            is_probed: is_bounded,
            killed_peak_bytes,
            last,
        };
        let demand = demand::estimate(&usage, &context, second);
        prop_assert!(is_amount(demand.amount[CPU]) && demand.amount[CPU] <= max_cores, "{demand:?}");
        prop_assert!(is_amount(demand.amount[MEMORY]) && demand.amount[MEMORY] <= MEMORY_BYTES, "{demand:?}");
    }

    #[test]
    fn allocations_fit_the_capacity_and_the_limits((nodes, demands) in tree_and_demands(), rule in rule()) {
        let targets = target::targets(&nodes, &demands, CAPACITY, rule);
        for resource in [CPU, MEMORY] {
            let leaves = nodes.iter().zip(&targets).filter(|(node, _)| node.is_leaf);
            let mut sum = 0.0;
            for (node, target) in leaves {
                let amount = target.allocation[resource];
                let limit = node.limit[resource].unwrap_or(f64::INFINITY);
                prop_assert!(is_amount(amount) && amount <= limit * (1.0 + 1e-9), "{node:?} {target:?}");
                sum += amount;
            }
            // By weight alone a guarantee may push others' shares beyond what is left: for comparison only.
            let fits = rule == Allocation::Static || sum <= CAPACITY[resource] * (1.0 + 1e-9);
            prop_assert!(fits, "{sum} of {}", CAPACITY[resource]);
        }
    }

    #[test]
    fn weights_fit_the_kernel_s_range((nodes, demands) in tree_and_demands(), rule in rule()) {
        let targets = target::targets(&nodes, &demands, CAPACITY, rule);
        for target in &targets {
            prop_assert!((1.0..=10_000.0).contains(&target.cpu_weight), "{target:?}");
            prop_assert!(is_amount(target.burst[CPU]), "{target:?}");
        }
        for (node, knobs) in nodes.iter().zip(target::knobs(&nodes, &targets)) {
            let named = |knob| knobs.iter().any(|(named, _)| *named == knob);
            prop_assert!(named(Knob::CpuWeight) && named(Knob::MemoryLow));
            prop_assert_eq!(named(Knob::CpuMax), node.limit[CPU].is_some(), "a limit only where the policy has one");
            prop_assert_eq!(named(Knob::MemoryMax), node.limit[MEMORY].is_some());
        }
    }

    #[test]
    fn a_guarantee_that_is_wanted_is_allocated((nodes, demands) in tree_and_demands()) {
        let targets = target::targets(&nodes, &demands, CAPACITY, Allocation::Drf);
        for ((node, demand), target) in nodes.iter().zip(&demands).zip(&targets) {
            let wanted = demand.amount;
            for resource in [CPU, MEMORY] {
                let promised = node.guarantee[resource].unwrap_or(0.0).min(wanted[resource]);
                let given = target.allocation[resource];
                // A millionth of a CPU, or a byte, counts as no demand.
                prop_assert!(!node.is_leaf || given >= promised * (1.0 - 1e-9) - 1.0, "{node:?} {target:?}");
            }
        }
    }

    #[test]
    fn protection_of_a_group_covers_what_is_below_it((nodes, demands) in tree_and_demands()) {
        let targets = target::targets(&nodes, &demands, CAPACITY, Allocation::Drf);
        let low: Vec<f64> = target::knobs(&nodes, &targets).iter().map(|knobs| protection(knobs)).collect();
        for (index, node) in nodes.iter().enumerate().filter(|(_, node)| !node.is_leaf) {
            let children = nodes.iter().zip(&low).filter(|(child, _)| child.parent == Some(index));
            let sum: f64 = children.map(|(_, low)| low).sum();
            // Each is cut to whole bytes.
            prop_assert!(low[index] + 16.0 >= sum, "{}: {} of {sum}", node.path, low[index]);
        }
    }

    #[test]
    fn an_applied_plan_leaves_no_actions(
        (nodes, demands) in tree_and_demands(),
        (_, other_demands) in tree_and_demands(),
    ) {
        let demands_of = |demands: &[Demand]| -> Vec<Demand> {
            nodes.iter().enumerate().map(|(i, _)| demands[i % demands.len()]).collect()
        };
        let mut observed: Vec<Vec<(Knob, Value)>> = vec![Vec::new(); nodes.len()];
        for demands in [demands_of(&demands), demands_of(&other_demands)] {
            let targets = target::targets(&nodes, &demands, CAPACITY, Allocation::Drf);
            let ids: Vec<NodeId> = NodeId::first().take(nodes.len()).collect();
            let at = |id| ids.iter().position(|it| *it == id).unwrap();
            let planned = |observed: &[Vec<(Knob, Value)>]| {
                let mut wanted = Vec::new();
                for (node, desired) in target::knobs(&nodes, &targets).into_iter().enumerate() {
                    wanted.extend(desired.into_iter().map(|(knob, value)| {
                        let desired = (knob, value, String::new());
                        Wanted::new(ids[node], desired, &observed[node], WeightBand::Moving)
                    }));
                }
                plan::plan(&wanted, |id| nodes[at(id)].depth, Some(&CpuSet::below(16)))
            };
            for action in planned(&observed) {
                observed[at(action.node)].retain(|(knob, _)| *knob != action.knob);
                observed[at(action.node)].push((action.knob, action.to));
            }
            prop_assert_eq!(planned(&observed), vec![]);
        }
    }
}

fn protection(knobs: &[(Knob, Value)]) -> f64 {
    let low = knobs.iter().find(|(knob, _)| *knob == Knob::MemoryLow);
    match low {
        Some((_, Value::Amount(_, tenantd_core::units::Limit::Finite(bytes)))) => *bytes as f64,
        other => panic!("{other:?}"),
    }
}

/// What tenants that are allocated next to nothing may take from one of the others: the kernel has no weight
/// below 1, so they weigh more than they should. In CPUs of sixteen.
const LEAST_WEIGHT: f64 = 0.1;

/// What a kernel gives to siblings of these weights and demands: all it has, by weight, nobody more than it
/// wants.
fn kernel_gives(weights: &[f64], demands: &[f64], cores: f64) -> Vec<f64> {
    let mut given = vec![None; weights.len()];
    let mut left = cores;
    loop {
        let open = || (0..weights.len()).filter(|i| given[*i].is_none());
        let level = left / open().map(|i| weights[i]).sum::<f64>();
        let full: Vec<usize> = open().filter(|i| demands[*i] <= level * weights[*i]).collect();
        if full.is_empty() {
            return (0..weights.len()).map(|i| given[i].unwrap_or(level * weights[i])).collect();
        }
        for i in full {
            given[i] = Some(demands[i]);
            left -= demands[i];
        }
    }
}

/// Siblings of weights that are far enough from the ends of the kernel's range, each with a CPU demand as a
/// part of the machine and a memory demand.
fn siblings() -> impl Strategy<Value = Vec<(f64, f64, f64)>> {
    let part = prop_oneof![1 => Just(0.0), 3 => 0.001..1.0_f64, 1 => Just(1.0)];
    vec((1.0..20.0_f64, part, 0.0..1.0_f64), 2..6)
}

fn without_limits(siblings: &[(f64, f64, f64)]) -> (Vec<f64>, Vec<Target>) {
    let tenants: Vec<(f64, f64, f64)> = siblings
        .iter()
        .map(|(weight, cpu, memory)| (*weight, cpu * CORES, memory * MEMORY_BYTES))
        .collect();
    (tenants.iter().map(|(_, cpu, _)| *cpu).collect(), side_by_side(&tenants))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn weights_bring_about_the_allocation(siblings in siblings()) {
        let (demands, targets) = without_limits(&siblings);
        let weights: Vec<f64> = targets.iter().map(|target| target.cpu_weight).collect();
        let given = kernel_gives(&weights, &demands, CORES);
        for (target, given) in targets.iter().zip(&given) {
            prop_assert!(*given >= target.allocation[CPU] - LEAST_WEIGHT, "{given} of {target:?}");
        }
    }

    #[test]
    fn a_tenant_that_wakes_gets_its_burst(siblings in siblings(), who in any::<prop::sample::Index>()) {
        let who = who.index(siblings.len());
        let mut asleep = siblings;
        (asleep[who].1, asleep[who].2) = (0.0, 0.0);
        let (mut demands, targets) = without_limits(&asleep);
        let weights: Vec<f64> = targets.iter().map(|target| target.cpu_weight).collect();
        demands[who] = CORES;
        let given = kernel_gives(&weights, &demands, CORES);
        let burst = targets[who].burst[CPU];
        prop_assert!(given[who] >= burst - LEAST_WEIGHT, "{} of {burst}: {targets:?}", given[who]);
    }
}

/// The targets of leaves side by side with these weights and demands, on sixteen CPUs.
fn side_by_side(tenants: &[(f64, f64, f64)]) -> Vec<Target> {
    let leaf = |(i, (weight, ..)): (usize, &(f64, f64, f64))| {
        let weight = Weight::try_new(*weight).unwrap();
        let weight = PerResource::all(weight);
        Tenant { name: format!("t{i}"), weight: weight.into(), ..Tenant::default() }
    };
    let tenants_of = tenants.iter().enumerate().map(leaf).collect();
    let policy = Policy { tenants: tenants_of, ..Policy::default() };
    let demand = |&(_, cpu_cores, memory_bytes): &(f64, f64, f64)| Demand {
        amount: PerResource([cpu_cores, memory_bytes]),
        ..Demand::UNKNOWN
    };
    let demands: Vec<Demand> = tenants.iter().map(demand).collect();
    target::targets(&tree::flatten(&policy), &demands, CAPACITY, Allocation::Drf)
}

fn cpu_weights(tenants: &[(f64, f64)]) -> Vec<f64> {
    let tenants: Vec<(f64, f64, f64)> = tenants.iter().map(|(w, cpu)| (*w, *cpu, 0.0)).collect();
    side_by_side(&tenants).iter().map(|target| target.cpu_weight).collect()
}

#[test]
fn unmet_tenants_are_weighed_by_allocation() {
    let targets = side_by_side(&[(1.0, 16.0, 0.0), (3.0, 16.0, 0.0), (4.0, 2.0, 0.0)]);
    let [a, b] = [&targets[0], &targets[1]];
    assert!(!a.satisfied && !b.satisfied && targets[2].satisfied);
    let ratio = b.allocation[CPU] / a.allocation[CPU];
    assert!((b.cpu_weight / a.cpu_weight - ratio).abs() < 1e-9, "{targets:?}");
}

#[test]
fn going_idle_and_waking_writes_nothing() {
    let awake = cpu_weights(&[(1.0, 16.0), (2.0, 16.0), (4.0, 16.0)]);
    for demands in [[16.0, 16.0, 0.0], [16.0, 0.0, 0.0], [0.0, 3.0, 1.0], [0.0, 0.0, 0.0]] {
        let tenants: Vec<(f64, f64)> = [1.0, 2.0, 4.0].into_iter().zip(demands).collect();
        let weights = cpu_weights(&tenants);
        let same = weights.iter().zip(&awake).all(|(a, b)| (a - b).abs() < 1e-6);
        assert!(same, "{demands:?}: {weights:?} is not {awake:?}");
    }
}
