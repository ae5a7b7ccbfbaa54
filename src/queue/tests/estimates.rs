//! Unknown costs: what a tenant is charged, whatever was thought of its requests.

use proptest::prelude::*;
use tenantd_queue::virtual_time::Method;
use tenantd_queue::{Discipline, Estimator, Ledger, Rule};

use super::harness::Case;

proptest! {
    #[test]
    fn charges_add_up_to_the_cost(
        initial in 0.0_f64..100.0,
        alpha in 0.1_f64..1.0,
        requests in prop::collection::vec(prop::collection::vec(0.0_f64..50.0, 1..6), 1..20),
    ) {
        for estimator in [
            Estimator::Pessimistic { alpha, initial },
            Estimator::MovingAverage { alpha, initial },
            Estimator::Declared,
        ] {
            let mut ledger = Ledger::new(estimator);
            let mut paid = 0.0;
            for uses in &requests {
                let total: f64 = uses.iter().sum();
                let mut credit = ledger.dispatch(0, initial);
                let (last, before) = uses.split_last().unwrap();
                for used in before {
                    credit = ledger.refresh(credit, *used);
                }
                ledger.complete(0, credit, *last, total);
                paid += total;
                prop_assert!((ledger.charged() - paid).abs() < 1e-6 * (1.0 + paid));
            }
        }
    }
}

#[test]
fn estimates_are_kept_for_each_class() {
    let mut ledger = Ledger::new(Estimator::MovingAverage { alpha: 0.5, initial: 3.0 });
    assert_eq!(ledger.estimate(7, 0.0), 3.0);
    for (class, cost) in [(7, 10.0), (8, 2.0), (7, 20.0)] {
        let credit = ledger.dispatch(class, 0.0);
        ledger.complete(class, credit, cost, cost);
    }
    assert_eq!((ledger.estimate(7, 0.0), ledger.estimate(8, 0.0)), (15.0, 2.0));
}

/// A tenant that turns out to be expensive pays while it runs: refresh charging lets the other catch up
/// before its request is done.
#[test]
fn refresh_charges_what_runs() {
    let estimator = Estimator::Pessimistic { alpha: 0.99, initial: 1.0 };
    let (rule, virtual_time) = (Rule::Finish, Method::Active);
    let mut case = Case::new(Discipline::Fair { rule, estimator, virtual_time }, 2, 2);
    case.arrivals = vec![(0.0, 0, 100.0)];
    case.arrivals.extend((0..8).map(|_| (0.0, 0, 2.0)));
    case.arrivals.extend((0..40).map(|_| (0.0, 1, 2.0)));
    case.horizon = 60.0;
    let first_of_the_expensive = |case: &Case| {
        let trace = case.run();
        trace.dispatches.iter().filter(|d| d.tenant == 0).nth(2).map_or(60.0, |d| d.time)
    };
    let without = first_of_the_expensive(&case);
    case.refresh = Some(0.1);
    let with = first_of_the_expensive(&case);
    assert!(without < 10.0 && with > 30.0, "{with} {without}");
}
