//! Reservations and limits, in every discipline.

use tenantd_queue::{Discipline, Estimator, Pick, Rule, TenantId, Ties, virtual_time::Method};

use super::harness::Case;

fn disciplines() -> Vec<Discipline> {
    let estimator = Estimator::Pessimistic { alpha: 0.99, initial: 1.0 };
    let (rule, virtual_time) = (Rule::Staggered, Method::Active);
    vec![
        Discipline::Fifo,
        Discipline::RoundRobin,
        Discipline::fair(Rule::Start),
        Discipline::fair(Rule::Eligible),
        Discipline::fair(Rule::Staggered),
        Discipline::Fair { rule, estimator, virtual_time },
        Discipline::Multilevel { multiplier: 2.0 },
        Discipline::Drf { capacity: vec![4.0], ties: Ties::Turn },
    ]
}

#[test]
fn reservations_and_limits_hold() {
    for discipline in disciplines() {
        // Weights alone would give the first 4 · 1/18 = 0.22, and the second as much as it wants.
        let mut case = Case::backlogged(discipline.clone(), 4, &[0.5, 0.5, 1.0, 1.0]);
        case.terms[1].weight = 15.0;
        case.terms[0].reservation = 1.0;
        case.terms[1].limit = 0.5;
        case.horizon = 400.0;
        let served = case.run().served;
        assert!(served[0] >= 400.0 - 2.0, "{discipline:?} {served:?}");
        assert!(served[1] <= 0.5 * 400.0 + 2.0, "{discipline:?} {served:?}");
        assert!(served[1] >= 0.5 * 400.0 - 2.0, "{discipline:?} {served:?}");
        let whole: f64 = served.iter().sum();
        assert!(whole > 1590.0, "{discipline:?} leaves workers idle: {served:?}");
    }
}

#[test]
fn a_reservation_is_a_floor_under_the_share_and_not_on_top_of_it() {
    // Half of the machine by weight, a quarter reserved: half.
    let mut case = Case::backlogged(Discipline::fair(Rule::Eligible), 4, &[1.0, 1.0]);
    case.terms[0].reservation = 1.0;
    case.horizon = 400.0;
    let served = case.run().served;
    assert!((served[0] / 1600.0 - 0.5).abs() < 0.02, "{served:?}");
}

#[test]
fn a_limit_alone_leaves_workers_idle_until_a_known_time() {
    let mut case = Case::backlogged(Discipline::fair(Rule::Finish), 2, &[1.0]);
    case.terms[0].limit = 0.25;
    let mut queue = case.queue();
    for id in 0..3 {
        assert!(queue.enqueue(TenantId(0), tenantd_queue::Request::new(id, 1.0), 10.0));
    }
    let Pick::Run(first) = queue.pick(0, 10.0) else { panic!("nothing runs") };
    assert_eq!(queue.pick(1, 10.0), Pick::NotBefore(14.0));
    // It used twice what it said.
    queue.complete(first.ticket, 2.0, 12.0);
    assert_eq!(queue.pick(1, 12.0), Pick::NotBefore(18.0));
    assert!(matches!(queue.pick(1, 18.0), Pick::Run(_)));
    case.horizon = 100.0;
    let times: Vec<f64> = case.run().dispatches.iter().map(|d| d.time).collect();
    assert_eq!(times[..4], [0.0, 4.0, 8.0, 12.0]);
}
