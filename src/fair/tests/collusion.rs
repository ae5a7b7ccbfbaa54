//! Lies of pairs: with two resources no pair gains, with three one tenant can lie for another.

use tenantd_fair::{self, Algorithm, Demand, Kind, Node, Problem, WorkConserving};

/// Tasks of each tenant, by its true `vectors`, if all claim the `claimed` ones and want more than there is.
fn tasks<const R: usize>(vectors: &[[f64; R]], claimed: &[[f64; R]]) -> Vec<f64> {
    let leaf = |task: &[f64; R]| Node {
        parent: None,
        weight: vec![1.0; R],
        kind: Kind::Leaf(Demand::tasks(task.to_vec(), f64::INFINITY)),
    };
    let problem = Problem::try_new(vec![1.0; R], claimed.iter().map(leaf).collect()).unwrap();
    let solution = tenantd_fair::allocate(&problem, Algorithm::Drf, WorkConserving::No);
    let tasks = |(tenant, task): (usize, &[f64; R])| {
        let allocation = solution.allocation(tenant);
        let fits = (0..R).filter(|r| task[*r] > 0.0).map(|r| allocation[r] / task[r]);
        fits.fold(f64::INFINITY, f64::min)
    };
    vectors.iter().enumerate().map(tasks).collect()
}

fn assert_near(found: &[f64], expected: &[f64]) {
    let is_near =
        found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-9);
    assert!(is_near, "{found:?} instead of {expected:?}");
}

/// CPU, memory and a disk. A reads from the disk for nothing of its own: it loses nothing, B gains and C pays. The lie has
/// to be used up, because demand is measured.
#[test]
fn with_three_resources_one_tenant_can_lie_for_another() {
    let [a, b, c, d] =
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0 / 3.0, 1.0], [1.0, 0.0, 1.0 / 3.0]];
    let vectors = [a, b, c, d];
    assert_near(&tasks(&vectors, &vectors), &[0.5, 0.75, 0.75, 0.5]);
    let lie = [1.0, 0.0, 1.0 / 3.0];
    let after = tasks(&vectors, &[lie, b, c, d]);
    assert_near(&after, &[0.5, 7.0 / 9.0, 2.0 / 3.0, 0.5]);
    // What the liar costs: B gains at most 4 %, C loses at most 12 %.
    assert!(after[1] / 0.75 <= 1.04 && after[2] / 0.75 >= 0.88);
}

/// All vectors of three tenants and all lies of two of them, in quarters.
#[test]
fn with_two_resources_no_pair_gains() {
    let quarters = (0..=4).map(|quarter| f64::from(quarter) / 4.0);
    let both = quarters.clone().map(|part| [1.0, part]).chain(quarters.map(|part| [part, 1.0]));
    let mut vectors: Vec<[f64; 2]> = both.collect();
    vectors.dedup();
    let mut nr_lies = 0;
    for (at, first) in vectors.iter().enumerate() {
        for (second, third) in
            vectors[at..].iter().flat_map(|second| vectors.iter().map(move |it| (second, it)))
        {
            let truth = [*first, *second, *third];
            let honest = tasks(&truth, &truth);
            for lies in
                vectors.iter().flat_map(|one| vectors.iter().map(move |other| [*one, *other]))
            {
                let after = tasks(&truth, &[lies[0], lies[1], *third]);
                let gains = |tenant: usize| after[tenant] > honest[tenant] * (1.0 + 1e-9);
                let loses = |tenant: usize| after[tenant] < honest[tenant] * (1.0 - 1e-9);
                let is_gain = (gains(0) || gains(1)) && !loses(0) && !loses(1);
                assert!(!is_gain, "{truth:?} claimed as {lies:?}: {honest:?} becomes {after:?}");
                nr_lies += 1;
            }
        }
    }
    assert!(nr_lies > 40_000, "{nr_lies}");
}
