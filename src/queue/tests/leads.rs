//! Tenants with credit start earlier, pay for it, and delay others by no more than their banks.

use proptest::prelude::*;
use tenantd_queue::virtual_time::Method;
use tenantd_queue::{Discipline, Estimator, Pick, Request, Rule, TenantId};

use super::harness::{Case, Trace};
use super::properties::{all_disciplines, arrivals};

/// Requests of each worker by which two schedules of the same work differ anyway.
const SLACK: f64 = 1.0;

const RULES: [Rule; 4] = [Rule::Start, Rule::Finish, Rule::Eligible, Rule::Staggered];

/// Tenants 1 and 2 always have work; tenant 0 has `nr_requests` after ten seconds and a bank. All costs are 1.
fn sleeper(discipline: Discipline, workers: u32, nr_requests: usize, bank: f64) -> Case {
    let mut case = Case::new(discipline, workers, 3);
    for tenant in 1..3 {
        case.terms[tenant].endless = true;
        case.endless.push((TenantId(tenant as u32), 1.0));
    }
    case.arrivals = vec![(10.5, 0, 1.0); nr_requests];
    case.banks = vec![bank, 5.0, 5.0];
    case
}

/// Starts of tenant 0 among the first `nr` starts after its arrival.
fn early(trace: &Trace, nr: usize) -> usize {
    let after = trace.dispatches.iter().filter(|it| it.time > 10.0 + 0.5);
    after.take(nr).filter(|it| it.tenant == 0).count()
}

#[test]
fn a_waking_tenant_goes_first_and_pays() {
    for rule in RULES {
        let plain = sleeper(Discipline::fair(rule), 1, 6, 0.0).run();
        let led = sleeper(Discipline::fair(rule), 1, 6, 4.0).run();
        assert!(early(&plain, 4) <= 2, "{rule:?} {:?}", plain.order());
        assert_eq!(early(&led, 4), 4, "{rule:?} {:?}", led.order());
        // The others had always work, so they never wake.
        assert!(led.fees[0] <= 4.0 && led.fees[0] >= 2.0, "{rule:?} {:?}", led.fees);
        assert_eq!(led.fees[1..], [0.0, 0.0], "{rule:?}");
        assert_eq!(plain.fees, [0.0; 3]);
    }
}

#[test]
fn unknown_costs_pay_the_estimate() {
    let estimator = Estimator::Pessimistic { alpha: 0.99, initial: 0.75 };
    let (rule, virtual_time) = (Rule::Staggered, Method::Served);
    let discipline = Discipline::Fair { rule, estimator, virtual_time };
    let mut case = sleeper(discipline, 8, 12, 4.0);
    // Before any of its requests has completed.
    case.horizon = 11.5;
    let fees = case.run().fees;
    assert!(fees[0] >= 0.75 && fees[0] % 0.75 == 0.0, "{fees:?}");
    assert_eq!(fees[1..], [0.0; 2]);
}

#[test]
fn a_start_that_delays_no_request_is_free() {
    for rule in RULES {
        // Workers for all: tenant 0 goes first, and the others start at the same instant.
        let mut case = Case::new(Discipline::fair(rule), 4, 3);
        case.arrivals = vec![(0.0, 1, 8.0), (9.0, 1, 1.0), (9.0, 0, 1.0), (9.0, 2, 1.0)];
        case.banks = vec![4.0; 3];
        let mut queue = case.queue();
        assert_eq!(case.run().fees, [0.0; 3], "{rule:?}");
        // Its own requests wait, and no others: it would have started anyway.
        case.arrivals = vec![(0.0, 1, 8.0), (9.0, 0, 1.0), (9.0, 0, 1.0), (9.0, 0, 1.0)];
        case.machine.workers = 1;
        assert_eq!(case.run().fees, [0.0; 3], "{rule:?}");
        assert_eq!(queue.fees(0.0), []);
    }
}

#[test]
fn a_smaller_bank_shortens_the_head_start() {
    let case = sleeper(Discipline::fair(Rule::Start), 1, 0, 4.0);
    let starts = |bank: Option<f64>| {
        let mut queue = case.queue();
        let mut id = 0;
        let mut next = |tenant: u32| {
            id += 1;
            (TenantId(tenant), Request::new(id, 1.0))
        };
        for tenant in [1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2] {
            let (tenant, request) = next(tenant);
            assert!(queue.enqueue(tenant, request, 0.0));
        }
        let mut now = 0.0;
        let mut serve = |queue: &mut tenantd_queue::Queue| {
            let Pick::Run(picked) = queue.pick(0, now) else { panic!("no request") };
            let fees = queue.fees(now);
            now += 1.0;
            queue.complete(picked.ticket, 1.0, now);
            (picked.tenant.0, fees)
        };
        (0..6).for_each(|_| drop(serve(&mut queue)));
        for _ in 0..4 {
            let (tenant, request) = next(0);
            assert!(queue.enqueue(tenant, request, 6.0));
        }
        if let Some(bank) = bank {
            queue.lend(TenantId(0), bank);
        }
        let (tenants, fees): (Vec<u32>, Vec<_>) = (0..4).map(|_| serve(&mut queue)).unzip();
        let fees: f64 = fees.iter().flatten().map(|(_, fee)| fee).sum();
        (tenants.iter().filter(|tenant| **tenant == 0).count(), fees)
    };
    let (nr_early, fees) = starts(None);
    assert_eq!(nr_early, 4);
    assert!(fees > 2.0 && fees <= 4.0, "{fees}");
    let (nr_fewer, fees) = starts(Some(1.0));
    assert!(nr_fewer < nr_early && fees > 0.0 && fees <= 1.0, "{nr_fewer} {fees}");
    assert_eq!(starts(Some(0.0)).1, 0.0);
}

fn banks() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(prop_oneof![Just(0.0), 0.0_f64..6.0], 5)
}

/// Up to 40 requests of each tenant at once.
fn bursts() -> impl Strategy<Value = Vec<(f64, u32, f64)>> {
    let burst = (5.0_f64..20.0, 0_u32..4, 0.5_f64..2.0, 1_usize..40);
    prop::collection::vec(burst, 1..6).prop_map(|mut bursts| {
        bursts.sort_by(|a, b| a.0.total_cmp(&b.0));
        let each = |(time, tenant, cost, count)| vec![(time, tenant, cost); count];
        bursts.into_iter().flat_map(each).collect()
    })
}

fn weights() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(0.5_f64..4.0, 5)
}

/// Random work of five tenants, of which the last one always has more.
fn random(
    discipline: Discipline,
    workers: u32,
    arrivals: &[(f64, u32, f64)],
    weights: &[f64],
) -> Case {
    let mut case = Case::new(discipline, workers, 5);
    case.terms.iter_mut().zip(weights).for_each(|(terms, weight)| terms.weight = *weight);
    case.arrivals = arrivals.iter().filter(|(_, tenant, _)| *tenant != 4).copied().collect();
    case.terms[4].endless = true;
    case.endless = vec![(TenantId(4), 2.0)];
    case.horizon = 200.0;
    case
}

/// Service of each tenant by some time.
fn served(trace: &Trace, time: f64) -> [f64; 5] {
    let mut served = [0.0; 5];
    for it in &trace.dispatches {
        served[it.tenant] += (time - it.time).clamp(0.0, it.cost);
    }
    served
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn fees_are_covered_by_banks(
        workers in 1_u32..5,
        arrivals in arrivals(),
        banks in banks(),
        weights in weights(),
    ) {
        for discipline in all_disciplines() {
            let mut case = random(discipline.clone(), workers, &arrivals, &weights);
            case.banks = banks.clone();
            let trace = case.run();
            for (fee, bank) in trace.fees.iter().zip(&banks) {
                prop_assert!(*fee <= bank + 1e-9, "{discipline:?} {fee} > {bank}");
            }
            prop_assert_eq!(trace.fees[4], 0.0, "{:?}: always backlogged", discipline);
            if !matches!(discipline, Discipline::Fair { .. }) {
                prop_assert_eq!(trace.fees, vec![0.0; 5]);
                case.banks.clear();
                prop_assert_eq!(case.run().dispatches, trace.dispatches);
            }
        }
    }

    #[test]
    fn others_lose_at_most_the_banks(
        workers in 1_u32..5,
        arrivals in bursts(),
        banks in banks(),
        weights in weights(),
    ) {
        for rule in RULES {
            let mut case = random(Discipline::fair(rule), workers, &arrivals, &weights);
            let plain = case.run();
            case.banks = banks.clone();
            let led = case.run();
            for time in (0..40).map(|step| f64::from(step) * 5.0) {
                let (before, after) = (served(&plain, time), served(&led, time));
                for tenant in 0..5 {
                    let others: f64 = banks.iter().sum::<f64>() - banks[tenant];
                    let lost = before[tenant] - after[tenant];
                    let requests = SLACK * 2.0 * f64::from(workers);
                    prop_assert!(lost <= others + requests, "{rule:?} {lost} > {others} + {requests}");
                }
            }
        }
    }

    #[test]
    fn without_a_bank_nothing_changes(
        workers in 1_u32..5,
        arrivals in arrivals(),
        weights in weights(),
    ) {
        for discipline in all_disciplines() {
            let mut case = random(discipline, workers, &arrivals, &weights);
            let plain = case.run();
            let stored = serde_json::to_string(&case.queue()).unwrap();
            case.banks = vec![0.0; 5];
            prop_assert_eq!(&case.run().dispatches, &plain.dispatches);
            prop_assert_eq!(serde_json::to_string(&case.queue()).unwrap(), stored);
        }
    }
}
