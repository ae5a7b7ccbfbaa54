//! What a tenant would get if it woke up is what the allocation gives it then.

use proptest::prelude::*;
use tenantd_control::share::demand::Demand;
use tenantd_control::share::target;
use tenantd_control::share::would_get::would_get;
use tenantd_control::tree;
use tenantd_core::resource::{CPU, MEMORY, PerResource, Resource};
use tenantd_core::units::Weight;
use tenantd_policy::model::{Allocation, Amount, Policy, Tenant};

use super::{CAPACITY, tree_and_demands};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn it_is_what_the_allocation_gives_with_the_demand_raised((nodes, demands) in tree_and_demands()) {
        for resource in [CPU, MEMORY] {
            let amount = |demand: &Demand| demand.amount[resource];
            let amounts: Vec<f64> = demands.iter().map(amount).collect();
            let would = would_get(&nodes, &amounts, CAPACITY[resource], resource);
            for (index, node) in nodes.iter().enumerate().filter(|(_, node)| node.is_leaf) {
                let mut awake = demands.clone();
                let max = |r: Resource| node.limit[r].unwrap_or(f64::INFINITY).min(CAPACITY[r]);
                awake[index].amount = PerResource::from_fn(max);
                let targets = target::targets(&nodes, &awake, CAPACITY, Allocation::MaxMin);
                let (given, told) = (targets[index].allocation[resource], would[index]);
                let noise = 1e-6 * CAPACITY[resource];
                prop_assert!((given - told).abs() <= noise, "{}: {given} {told}", node.path);
                let now = target::targets(&nodes, &demands, CAPACITY, Allocation::MaxMin);
                prop_assert!(told + noise >= now[index].allocation[resource]);
            }
        }
    }
}

fn tenant(name: &str, weight: f64, guarantee: Option<u64>) -> Tenant {
    let weight = Weight::try_new(weight).unwrap();
    let guarantee = PerResource([guarantee.map(Amount::Absolute), None]);
    let weight = PerResource::all(weight);
    Tenant {
        name: name.into(),
        weight: weight.into(),
        guarantee: guarantee.into(),
        ..Tenant::default()
    }
}

#[test]
fn an_idle_tenant_gets_its_guarantee_or_its_part_whichever_is_more() {
    let tenants = vec![
        tenant("idle", 1.0, Some(2000)),
        tenant("busy", 7.0, None),
        Tenant {
            tenants: vec![tenant("a", 1.0, None), tenant("b", 3.0, None)],
            ..tenant("group", 8.0, None)
        },
    ];
    let nodes = tree::flatten(&Policy { tenants, ..Policy::default() });
    let would = |demands: [f64; 5]| would_get(&nodes, &demands, 16.0, CPU);
    // Everything is wanted by others: the part by weight is 1 of 16, the guarantee 2.
    let hungry = would([0.0, 16.0, 0.0, 16.0, 16.0]);
    assert!((hungry[0] - 2.0).abs() < 1e-9, "{hungry:?}");
    assert!(
        (hungry[1] - 16.0 * 7.0 / 15.0).abs() < 1e-9,
        "an idle guarantee is divided among the others"
    );
    // Nobody else wants anything: all there is.
    assert_eq!(would([0.0; 5])[0], 16.0);
    // One of a group wakes, and takes from its sibling by their weights.
    let group = would([0.0, 16.0, 0.0, 0.0, 16.0]);
    assert!((group[3] - 16.0 * 8.0 / 15.0 / 4.0).abs() < 1e-9, "{group:?}");
}
