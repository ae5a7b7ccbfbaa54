//! The order by dominant share.

use std::cmp::Ordering;

use proptest::prelude::*;
use tenantd_fair::yarn::{Schedulable, compare};
use tenantd_queue::{Discipline, Machine, Pick, Queue, Request, Setup, TenantId, Terms, Ties};

fn queue(capacity: &[f64], terms: &[Terms]) -> Queue {
    queue_with(Ties::Earlier, capacity, terms)
}

fn queue_with(ties: Ties, capacity: &[f64], terms: &[Terms]) -> Queue {
    let discipline = Discipline::Drf { capacity: capacity.to_vec(), ties };
    let mut queue = Queue::new(Setup { discipline, machine: Machine { workers: 100, rate: 1.0 } });
    for (tenant, terms) in (0..).map(TenantId).zip(terms) {
        queue.admit(tenant, terms, 0.0).unwrap();
    }
    queue
}

fn request(id: u64, holds: &[f64]) -> Request {
    Request { holds: holds.into(), ..Request::new(id, 1.0) }
}

#[test]
fn the_example_of_the_drf_paper() {
    let mut queue = queue(&[9.0, 18.0], &[Terms::default(), Terms::default()]);
    for id in 0..20 {
        queue.enqueue(TenantId(0), request(id, &[3.0, 1.0]), 0.0);
        queue.enqueue(TenantId(1), request(id, &[1.0, 4.0]), 0.0);
    }
    let mut order = Vec::new();
    let mut tickets = Vec::new();
    while let Pick::Run(picked) = queue.pick(0, 0.0) {
        order.push(picked.tenant.0);
        tickets.push(picked.ticket);
    }
    assert_eq!(order, [0, 1, 1, 0, 1]);
    // One of the first ends: 3 CPUs and 1 GB are free, and its owner holds least.
    queue.complete(tickets[0], 1.0, 1.0);
    let Pick::Run(next) = queue.pick(0, 1.0) else { panic!("nothing fits") };
    assert_eq!(next.tenant, TenantId(0));
    assert_eq!(queue.pick(0, 1.0), Pick::Nothing);
}

/// One at a time: whenever one is chosen nobody holds anything. A tenant that comes later is served next.
#[test]
fn ties_in_turn_starve_nobody() {
    let served = |ties| {
        let mut queue =
            queue_with(ties, &[1.0], &[Terms::default(), Terms::default(), Terms::default()]);
        let mut served = Vec::new();
        for id in 0..7 {
            for tenant in 0..2 {
                queue.enqueue(TenantId(tenant), request(id, &[]), 0.0);
            }
            if id >= 4 {
                queue.enqueue(TenantId(2), request(id, &[]), 0.0);
            }
            let Pick::Run(picked) = queue.pick(0, 0.0) else { panic!("something waits") };
            served.push(picked.tenant.0);
            queue.complete(picked.ticket, 1.0, 0.0);
        }
        served
    };
    assert_eq!(served(Ties::Turn), [0, 1, 0, 1, 2, 0, 1]);
    assert_eq!(served(Ties::Earlier), [0; 7]);
}

proptest! {
    /// The tenant that is chosen is the first by the comparator, whatever is held.
    #[test]
    fn drf_order_is_that_of_the_comparator(
        capacity in prop::collection::vec(50_u32..100, 3),
        tenants in prop::collection::vec(
            (1_u32..4, prop::collection::vec(0_u32..4, 3), prop::collection::vec(0_u32..6, 3)),
            2..6,
        ),
        steps in 1_usize..20,
    ) {
        let row = |row: &[u32]| row.iter().map(|x| f64::from(*x)).collect::<Vec<f64>>();
        let capacity = row(&capacity);
        let terms: Vec<Terms> = tenants.iter().map(|(weight, _, min)| Terms {
            weight: f64::from(*weight),
            min_share: row(min).into(),
            ..Terms::default()
        }).collect();
        let mut queue = queue(&capacity, &terms);
        let mut held = vec![vec![0.0; 3]; tenants.len()];
        for (index, (_, holds, _)) in tenants.iter().enumerate() {
            for id in 0..20 {
                queue.enqueue(TenantId(index as u32), request(id, &row(holds)), 0.0);
            }
        }
        for _ in 0..steps {
            let names: Vec<String> = (0..tenants.len()).map(|index| index.to_string()).collect();
            let schedulable = |index: usize| Schedulable {
                usage: &held[index],
                min_share: &terms[index].min_share,
                weight: terms[index].weight,
                start_time: index as u64,
                name: &names[index],
            };
            let order = |a: &usize, b: &usize| compare(&capacity, &schedulable(*a), &schedulable(*b));
            let fits = |index: &usize| {
                let total = |r: usize| held.iter().map(|held| held[r]).sum::<f64>();
                (0..3).all(|r| total(r) + f64::from(tenants[*index].1[r]) <= capacity[r])
            };
            let expected = (0..tenants.len()).filter(fits).min_by(|a, b| match order(a, b) {
                Ordering::Equal => a.cmp(b),
                other => other,
            });
            let picked = match queue.pick(0, 0.0) {
                Pick::Run(picked) => Some(picked.tenant.0 as usize),
                _ => None,
            };
            prop_assert_eq!(picked, expected);
            let Some(index) = picked else { break };
            for (held, holds) in held[index].iter_mut().zip(&tenants[index].1) {
                *held += f64::from(*holds);
            }
        }
    }
}
