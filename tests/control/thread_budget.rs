//! The budget of threads that are read in a tick.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use tenantd_control::measure::thread_budget::{PER_TENANT, PER_TICK, Pressed, chosen};

fn pressed(counts: &[Option<usize>]) -> Vec<Pressed> {
    let of = |(at, nr): (usize, &Option<usize>)| Pressed { at, nr_threads: *nr };
    counts.iter().enumerate().map(of).collect()
}

fn numbers(counts: &[Option<usize>], tick: u64) -> BTreeSet<usize> {
    chosen(&pressed(counts), tick).iter().map(|tenant| tenant.at).collect()
}

#[test]
fn a_tenant_with_ten_thousand_threads_takes_nothing_from_the_others() {
    let mut counts = vec![Some(20); 20];
    counts.push(Some(10_000));
    for tick in 0..50 {
        assert_eq!(numbers(&counts, tick), (0..20).collect());
    }
}

#[test]
fn tenants_with_as_many_threads_take_turns_of_some_ticks() {
    let counts = [Some(PER_TENANT); 40];
    let (mut nr_pairs, mut last) = ([0; 40], BTreeSet::new());
    for tick in 0..400 {
        let now = numbers(&counts, tick);
        assert_eq!(now.len(), PER_TICK / PER_TENANT);
        now.intersection(&last).for_each(|number| nr_pairs[*number] += 1);
        last = now;
    }
    // Two readings in a row make an estimate.
    assert!(nr_pairs.iter().all(|nr| (55..=65).contains(nr)), "{nr_pairs:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn the_budget_is_kept_and_used_for_the_smallest(
        counts in vec(prop::option::of(0_usize..400), 0..60), tick in 0_u64..10_000,
    ) {
        let tenants = pressed(&counts);
        let read = chosen(&tenants, tick);
        let sum: usize = read.iter().map(|tenant| tenant.allowance()).sum();
        prop_assert!(sum <= PER_TICK);
        for tenant in &read {
            prop_assert!(tenant.nr_threads.unwrap_or(0) <= tenant.allowance());
        }
        let largest = read.iter().map(|tenant| tenant.allowance()).max().unwrap_or(0);
        for out in tenants.iter().filter(|tenant| !read.contains(tenant)) {
            let own = out.allowance();
            prop_assert!(own > PER_TENANT || own >= largest && sum + own > PER_TICK);
        }
    }
}
