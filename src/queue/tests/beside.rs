//! Service that a tenant gets beside the queue counts for its turn.

use tenantd_queue::virtual_time::Method;
use tenantd_queue::{Discipline, Estimator, Pick, Request, Rule, TenantId};

use super::harness::Case;

/// Two tenants of one weight always have requests of cost 1, and one of them gets `beside` more while each runs. Returns the
/// requests of that one, as a part.
fn part_with(discipline: Discipline, beside: f64) -> f64 {
    let mut queue = Case::new(discipline, 1, 2).queue();
    let both = [TenantId(0), TenantId(1)];
    for (id, tenant) in (0..).zip(both) {
        assert!(queue.enqueue(tenant, Request::new(id, 1.0), 0.0));
    }
    let mut nr_starts = [0.0; 2];
    for step in 0..400_u32 {
        let now = f64::from(step);
        let Pick::Run(picked) = queue.pick(0, now) else { panic!("no request") };
        assert!(queue.enqueue(picked.tenant, Request::new(u64::from(step) + 2, 1.0), now));
        queue.charge_beside(both[0], beside);
        queue.complete(picked.ticket, 1.0, now + 1.0);
        nr_starts[picked.tenant.0 as usize] += 1.0;
    }
    nr_starts[0] / (nr_starts[0] + nr_starts[1])
}

#[test]
fn service_beside_the_queue_counts() {
    for rule in [Rule::Start, Rule::Finish, Rule::Eligible, Rule::Staggered] {
        for estimator in [Estimator::Declared, Estimator::Pessimistic { alpha: 0.99, initial: 0.1 }]
        {
            let discipline = Discipline::Fair { rule, estimator, virtual_time: Method::Served };
            // x + beside = 1 − x.
            for (beside, part) in [(0.0, 0.5), (0.5, 0.25), (1.0, 0.0)] {
                let found = part_with(discipline.clone(), beside);
                assert!((found - part).abs() <= 0.01, "{discipline:?}, {beside}: {found}");
            }
        }
    }
    assert_eq!(part_with(Discipline::RoundRobin, 1.0), 0.5);
}

/// A tenant without requests keeps its turn.
#[test]
fn service_before_the_first_request_does_not_count() {
    let mut queue = Case::new(Discipline::fair(Rule::Finish), 1, 2).queue();
    queue.charge_beside(TenantId(0), 5.0);
    queue.charge_beside(TenantId(9), 5.0);
    for tenant in [0, 1] {
        assert!(queue.enqueue(TenantId(tenant), Request::new(tenant.into(), 1.0), 0.0));
    }
    assert_eq!(queue.next(0, 0.0), Some(TenantId(0)));
}
