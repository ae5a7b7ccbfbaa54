//! What is said of an allocation is what ended its filling.

use tenantd_control::report::status::Status;
use tenantd_control::report::trace::{Record, Trace};
use tenantd_control::share::demand::Demand;
use tenantd_control::share::target;
use tenantd_control::tree::{self, Tree};
use tenantd_control::why::explain::{AllocationBound, explain};
use tenantd_core::resource::PerResource;
use tenantd_policy::model::{Allocation, Policy, Tenant};

const GIB: f64 = (1_u64 << 30) as f64;

/// Why the first of tenants of equal weight has no more of four CPUs and 64 GiB.
fn why(demands: &[(f64, f64)]) -> (AllocationBound, String) {
    let leaf = |i: usize| Tenant { name: format!("t{i}"), ..Tenant::default() };
    let tenants = (0..demands.len()).map(leaf).collect();
    let nodes = tree::flatten(&Policy { tenants, ..Policy::default() });
    let demand = |&(cpu_cores, gib): &(f64, f64)| Demand {
        amount: PerResource([cpu_cores, gib * GIB]),
        ..Demand::UNKNOWN
    };
    let demands: Vec<Demand> = demands.iter().map(demand).collect();
    let capacity = PerResource([4.0, 64.0 * GIB]);
    let targets = target::targets(&nodes, &demands, capacity, Allocation::Drf);
    let record = |(demand, target)| Record { demand: Some(demand), target, ..Record::default() };
    let records = demands.into_iter().zip(targets).map(record).collect();
    let (tree, machine) = (Tree::new(nodes.into()), capacity);
    let trace = Trace { machine, capacity, tree, records, ..Trace::default() };
    let allocation = explain(&trace, &Status::default(), "t0").unwrap().allocation;
    (allocation.bound, allocation.reason)
}

#[test]
fn what_is_used_up_need_not_be_what_it_has_most_of() {
    // Memory is the larger share of the first, and there is enough of it.
    let (bound, reason) = why(&[(2.0, 40.0), (4.0, 1.0)]);
    assert_eq!(bound, AllocationBound::Level);
    assert!(reason.starts_with("held back: cpu is used up at a level of 0.0056"), "{reason}");
    let (_, reason) = why(&[(1.0, 60.0), (1.0, 60.0)]);
    assert!(reason.starts_with("held back: memory is used up"), "{reason}");
    let (_, reason) = why(&[(4.0, 64.0), (4.0, 64.0)]);
    assert!(reason.starts_with("held back: cpu and memory are used up"), "{reason}");
    assert_eq!(why(&[(1.0, 1.0), (1.0, 1.0)]).0, AllocationBound::Demand);
}
