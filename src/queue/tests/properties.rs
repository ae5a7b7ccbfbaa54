//! What holds of every discipline, over random instances.

use proptest::prelude::*;
use tenantd_queue::gps::Gps;
use tenantd_queue::virtual_time::Method;
use tenantd_queue::{
    Discipline, Estimator, Machine, Pick, Queue, Request, Rule, Setup, TenantId, Terms, Ties,
};

use super::harness::Case;

pub(super) fn all_disciplines() -> Vec<Discipline> {
    let mut all = vec![
        Discipline::Fifo,
        Discipline::Priority { ageing: 1.0 },
        Discipline::RoundRobin,
        Discipline::Drf { capacity: vec![64.0], ties: Ties::Turn },
        Discipline::Multilevel { multiplier: 2.0 },
    ];
    for rule in [Rule::Start, Rule::Finish, Rule::Eligible, Rule::Staggered] {
        for estimator in [
            Estimator::Declared,
            Estimator::Pessimistic { alpha: 0.99, initial: 1.0 },
            Estimator::MovingAverage { alpha: 0.99, initial: 1.0 },
        ] {
            for virtual_time in [Method::Active, Method::Served] {
                all.push(Discipline::Fair { rule, estimator, virtual_time });
            }
        }
        let (estimator, virtual_time) = (Estimator::Declared, Method::Gps);
        all.push(Discipline::Fair { rule, estimator, virtual_time });
    }
    all
}

pub(super) fn arrivals() -> impl Strategy<Value = Vec<(f64, u32, f64)>> {
    let arrival = (0.0..20.0, 0_u32..5, 0.0..6.0);
    prop::collection::vec(arrival, 1..60).prop_map(|mut arrivals: Vec<(f64, u32, f64)>| {
        arrivals.sort_by(|a, b| a.0.total_cmp(&b.0));
        arrivals
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn no_worker_idles_beside_a_waiting_request(workers in 1_u32..5, arrivals in arrivals()) {
        for discipline in all_disciplines() {
            let mut case = Case::new(discipline.clone(), workers, 5);
            case.arrivals = arrivals.clone();
            case.horizon = 1e4;
            let trace = case.run();
            prop_assert_eq!(trace.dispatches.len(), arrivals.len());
            // With the same work for all orders, workers are busy at the same times as under any other: the
            // total work done by any time is that of a queue without an order.
            for window in trace.dispatches.windows(2) {
                prop_assert!(window[0].time <= window[1].time);
            }
            for (time, tenant, _) in &arrivals {
                let waits = trace.dispatches.iter().filter(|d| d.tenant == *tenant as usize);
                let is_idle = |at: f64| {
                    let busy = trace.dispatches.iter().filter(|d| d.time <= at && at < d.time + d.cost);
                    (busy.count() as u32) < workers
                };
                // A request that waits from its arrival to its dispatch leaves no worker idle in between.
                let numbers = arrivals.iter().filter(|(t, of, _)| of == tenant && t < time).count();
                if let Some(dispatch) = waits.clone().nth(numbers)
                    && dispatch.time > time + 1e-6
                {
                    let middle = (time + dispatch.time) / 2.0;
                    prop_assert!(!is_idle(middle), "{discipline:?} idles at {middle}");
                }
            }
        }
    }

    #[test]
    fn first_in_first_out_within_a_tenant(workers in 1_u32..5, arrivals in arrivals()) {
        for discipline in all_disciplines() {
            let mut case = Case::new(discipline, workers, 5);
            case.arrivals = arrivals.clone();
            case.horizon = 1e4;
            let trace = case.run();
            for tenant in 0..5 {
                let of_tenant = trace.dispatches.iter().filter(|d| d.tenant == tenant);
                let numbers: Vec<u64> = of_tenant.map(|d| d.number).collect();
                prop_assert!(numbers.iter().copied().eq(1..=numbers.len() as u64));
            }
        }
    }

    #[test]
    fn the_lag_is_bounded(
        workers in 1_u32..9,
        costs in prop::collection::vec(1.0_f64..50.0, 2..12),
        weights in prop::collection::vec(1.0_f64..4.0, 12),
    ) {
        for rule in [Rule::Finish, Rule::Eligible, Rule::Staggered] {
            let mut case = Case::backlogged(Discipline::fair(rule), workers, &costs);
            let mut gps = Gps::new(case.machine.speed());
            for (index, terms) in case.terms.iter_mut().enumerate() {
                terms.weight = weights[index];
                gps.set_weight(TenantId(index as u32), weights[index], 0.0);
                gps.set_endless(TenantId(index as u32), 0.0);
            }
            let largest = costs.iter().copied().fold(0.0, f64::max);
            for horizon in [10.0, 33.0, 100.0, 500.0] {
                case.horizon = horizon;
                gps.advance(horizon);
                let served = case.run().served;
                for (index, served) in served.iter().enumerate() {
                    let lag = gps.service(TenantId(index as u32)) - served;
                    let bound = f64::from(workers) * largest;
                    prop_assert!(lag <= bound + 1e-6, "{rule:?} {lag} > {bound} at {horizon}");
                }
            }
        }
    }

    #[test]
    fn gps_serves_all_that_arrives_and_never_idles(arrivals in arrivals(), speed in 0.5_f64..4.0) {
        let mut gps = Gps::recording(speed);
        for tenant in 0..5 {
            gps.set_weight(TenantId(tenant), f64::from(tenant) + 0.5, 0.0);
        }
        let mut backlog = 0.0;
        let mut before = 0.0;
        let mut last_v = 0.0;
        for (number, (time, tenant, cost)) in (0..).zip(&arrivals) {
            backlog = f64::max(backlog - (time - before) * speed, 0.0);
            gps.arrive(TenantId(*tenant), number, *cost, *time);
            let total: f64 = (0..5).map(|t| gps.service(TenantId(t))).sum();
            let arrived: f64 = arrivals[..number as usize].iter().map(|(_, _, cost)| cost).sum();
            prop_assert!((arrived - total - backlog).abs() < 1e-6, "{total} {backlog}");
            prop_assert!(gps.virtual_time() >= last_v);
            last_v = gps.virtual_time();
            backlog += cost;
            before = *time;
        }
        gps.advance(1e6);
        prop_assert_eq!(gps.take_finished().len(), arrivals.len());
    }

    /// Tenants come, go and change their weights at random; nothing is lost and nothing is given out twice.
    #[test]
    fn every_request_is_dispatched_once(
        steps in prop::collection::vec((0_u8..8, 0_u32..6, 0.0_f64..4.0), 1..200),
    ) {
        for discipline in all_disciplines() {
            let setup = Setup { discipline, machine: Machine { workers: 4, rate: 1.0 } };
            let mut queue = Queue::new(setup);
            let (mut entered, mut left, mut now) = (0_usize, 0_usize, 0.0);
            let mut running = Vec::new();
            for (id, (step, tenant, amount)) in (0_u64..).zip(&steps) {
                now += amount / 8.0;
                let tenant = TenantId(*tenant);
                match step {
                    0 | 1 => {
                        let limit = if *amount > 3.0 { *amount } else { f64::INFINITY };
                        let terms = Terms { weight: amount + 0.1, limit, ..Terms::default() };
                        queue.admit(tenant, &terms, now).unwrap();
                    }
                    2 => left += queue.retire(tenant, now).len(),
                    3 => left += usize::from(queue.withdraw(tenant, id.saturating_sub(2), now).is_some()),
                    4 | 5 => {
                        entered += usize::from(queue.enqueue(tenant, Request::new(id, *amount), now));
                    }
                    6 => {
                        if let Pick::Run(picked) = queue.pick(tenant.0 % 4, now) {
                            running.push(picked.ticket);
                        }
                    }
                    _ => {
                        if let Some(ticket) = running.pop() {
                            queue.charge(ticket, amount / 2.0, now);
                            prop_assert!(queue.complete(ticket, amount / 2.0, now).is_some());
                            prop_assert!(queue.complete(ticket, 1.0, now).is_none());
                            left += 1;
                        }
                    }
                }
                prop_assert_eq!(queue.waiting(), entered - left - running.len());
            }
            while let Pick::Run(picked) = queue.pick(0, 1e9) {
                queue.complete(picked.ticket, picked.request.cost, 1e9);
                left += 1;
            }
            prop_assert_eq!(entered, left + running.len());
        }
    }
}

proptest! {
    // Long runs, so a few of them.
    #![proptest_config(ProptestConfig::with_cases(10))]

    #[test]
    fn no_tenant_starves(
        workers in 1_u32..5,
        costs in prop::collection::vec(1.0_f64..20.0, 2..8),
        weights in prop::collection::vec(0.5_f64..4.0, 8),
    ) {
        for rule in [Rule::Start, Rule::Finish, Rule::Eligible, Rule::Staggered] {
            for estimator in [
                Estimator::Declared,
                Estimator::Pessimistic { alpha: 0.99, initial: 1.0 },
                Estimator::MovingAverage { alpha: 0.99, initial: 1.0 },
            ] {
                let virtual_time = Method::Active;
                let discipline = Discipline::Fair { rule, estimator, virtual_time };
                let mut case = Case::backlogged(discipline, workers, &costs);
                for (terms, weight) in case.terms.iter_mut().zip(&weights) {
                    terms.weight = *weight;
                }
                case.refresh = Some(1.0);
                case.horizon = 4000.0;
                let served = case.run().served;
                let whole: f64 = weights.iter().take(costs.len()).sum();
                // All are backlogged, so shares are those of the weights.
                for (served, weight) in served.iter().zip(&weights) {
                    let share = served / (4000.0 * f64::from(workers));
                    prop_assert!((share - weight / whole).abs() < 0.02, "{rule:?} {share}");
                }
            }
        }
    }
}

#[test]
fn ageing_bounds_the_wait() {
    let mut case = Case::new(Discipline::Priority { ageing: 1.0 }, 1, 2);
    case.terms[0].priority = 10.0;
    case.arrivals = (0..40).map(|second| (f64::from(second), 0, 1.0)).collect();
    case.arrivals.insert(1, (0.0, 1, 1.0));
    case.horizon = 100.0;
    let waited = |case: &Case| {
        case.run().dispatches.iter().find(|d| d.tenant == 1).map(|dispatch| dispatch.time)
    };
    assert_eq!(waited(&case), Some(10.0));
    case.discipline = Discipline::Priority { ageing: 0.0 };
    assert_eq!(waited(&case), Some(40.0));
}

#[test]
fn virtual_time_never_falls() {
    let mut gps = Gps::new(2.0);
    gps.set_weight(TenantId(0), 1.0, 0.0);
    gps.arrive(TenantId(0), 0, 4.0, 1.0);
    gps.advance(2.0);
    assert_eq!(gps.virtual_time(), 2.0);
    gps.advance(10.0);
    assert_eq!(gps.virtual_time(), 4.0, "it stands still while no tenant is active");
    gps.advance(5.0);
    assert_eq!(gps.virtual_time(), 4.0);
}
