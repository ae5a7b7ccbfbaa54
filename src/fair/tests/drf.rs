//! Properties of the sweep, over random instances, and what must not be asserted of it.

use proptest::prelude::*;
use tenantd_fair::{
    self, Algorithm, Bounds, Demand, Field, Kind, Node, Place, Problem, Reason, Solution, State,
    WorkConserving, max_min, measure, problem,
};

use super::instances::{Shape, assert_close, assert_within, instance};
use super::lexicographic;

fn solve(problem: &Problem, work_conserving: WorkConserving) -> Solution {
    tenantd_fair::allocate(problem, Algorithm::Drf, work_conserving)
}

fn drf(capacity: &[f64], nodes: &[Node]) -> (Problem, Solution) {
    let problem = Problem::try_new(capacity.to_vec(), nodes.to_vec()).unwrap();
    let solution = solve(&problem, WorkConserving::No);
    (problem, solution)
}

fn demand(node: &Node) -> &Demand {
    match &node.kind {
        Kind::Leaf(demand) => demand,
        Kind::Group(_) => panic!("a group demands nothing"),
    }
}

fn leaf(weight: &[f64], demand: Demand) -> Node {
    Node { parent: None, weight: weight.to_vec(), kind: Kind::Leaf(demand) }
}

fn unlimited(task: &[f64]) -> Node {
    leaf(&vec![1.0; task.len()], Demand::tasks(task.to_vec(), f64::INFINITY))
}

fn fractions(solution: &Solution) -> Vec<f64> {
    solution.leaves.iter().map(|leaf| leaf.fraction).collect()
}

/// Whether a leaf runs more tasks than its guarantees pay for.
fn is_above_guarantee(demand: &Demand, tasks: f64) -> bool {
    (0..demand.task.len()).any(|r| {
        demand.task[r] > 0.0 && demand.guarantee[r] < tasks * demand.task[r] * (1.0 - 1e-9)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn drf_keeps_capacity_and_bounds((capacity, nodes) in instance(Shape::FLAT), second: bool) {
        let work_conserving = if second { WorkConserving::Yes } else { WorkConserving::No };
        let problem = Problem::try_new(capacity.clone(), nodes.clone()).unwrap();
        let solution = solve(&problem, work_conserving);
        for (r, whole) in capacity.iter().enumerate() {
            let used: f64 = (0..nodes.len()).map(|node| solution.allocation(node)[r]).sum();
            assert_within(*whole, (0..nodes.len()).map(|node| solution.allocation(node)[r]));
            prop_assert!((whole - used - solution.unallocated[r]).abs() <= 1e-9 * whole);
            prop_assert_eq!(solution.saturated[r], solution.unallocated[r] <= 1e-9 * whole);
        }
        for (node, solved) in nodes.iter().zip(&solution.leaves) {
            let demand = demand(node);
            let row = solution.allocation(solved.node);
            for r in (0..capacity.len()).filter(|&r| demand.task[r] > 0.0) {
                let most = (demand.task[r] * demand.tasks).min(demand.limit[r]);
                prop_assert!(row[r] <= most * (1.0 + 1e-12));
                let complete = (0..capacity.len()).all(|r| demand.task[r] == 0.0 || demand.guarantee[r] > 0.0);
                if second {
                    prop_assert!(row[r] >= demand.guarantee[r].min(most) * (1.0 - 1e-12));
                } else if complete {
                    let paid = |r: usize| demand.guarantee[r].min(demand.limit[r]) / demand.task[r];
                    let demanded = (0..capacity.len()).filter(|&r| demand.task[r] > 0.0);
                    let paid = demanded.map(paid).fold(demand.tasks, f64::min);
                    prop_assert!(solved.fraction >= paid * (1.0 - 1e-12));
                }
            }
        }
    }

    #[test]
    fn drf_is_pareto_efficient((capacity, nodes) in instance(Shape::FLAT)) {
        let (problem, solution) = drf(&capacity, &nodes);
        prop_assert!(measure::pareto_slack(&problem, &solution.allocation) < 1e-9);
        for solved in solution.leaves.iter().filter(|leaf| leaf.state == State::Blocked) {
            let task = problem.task(solved.node);
            prop_assert!((0..task.len()).any(|r| task[r] > 0.0 && solution.saturated[r]));
        }
    }

    #[test]
    fn drf_gives_everyone_a_bottleneck((capacity, nodes) in instance(Shape::FLAT)) {
        let (problem, solution) = drf(&capacity, &nodes);
        for solved in solution.leaves.iter().filter(|leaf| leaf.state == State::Blocked) {
            let is_bottleneck = |r: usize| {
                let users = solution.leaves.iter().filter(|other| problem.task(other.node)[r] > 0.0);
                let mut above = users.filter(|it| is_above_guarantee(demand(&nodes[it.node]), it.fraction));
                solution.saturated[r] && above.all(|it| it.level <= solved.level * (1.0 + 1e-9))
            };
            let task = problem.task(solved.node);
            prop_assert!((0..task.len()).any(|r| task[r] > 0.0 && is_bottleneck(r)));
        }
    }

    #[test]
    fn drf_gives_the_sharing_incentive(
        (capacity, nodes) in instance(Shape { guarantees: false, ..Shape::FLAT }),
    ) {
        let (problem, solution) = drf(&capacity, &nodes);
        prop_assert!(measure::sharing_incentive_slack(&problem, &solution.allocation) > -1e-9);
    }

    #[test]
    fn drf_leaves_no_envy((capacity, nodes) in instance(Shape { weights: true, zeros: 2, ..Shape::PURE })) {
        let (problem, solution) = drf(&capacity, &nodes);
        prop_assert!(measure::largest_envy(&problem, &solution.allocation) < 1e-9);
    }

    #[test]
    fn lying_does_not_pay(
        (capacity, nodes) in instance(Shape { nodes: 2..=8, ..Shape::PURE }),
        lies in prop::collection::vec(1_u32..=60, 4),
        second: bool,
    ) {
        let mut nodes = nodes;
        if let Kind::Leaf(demand) = &mut nodes[0].kind {
            // Without bounds: with a bounded demand one can only lie downwards.
            demand.tasks = f64::INFINITY;
        }
        let work_conserving = if second { WorkConserving::Yes } else { WorkConserving::No };
        let honest = Problem::try_new(capacity.clone(), nodes.clone()).unwrap();
        let mut lying = nodes.clone();
        if let Kind::Leaf(demand) = &mut lying[0].kind {
            let task = lies.iter().take(capacity.len()).map(|&lie| f64::from(lie));
            demand.task = task.collect();
        }
        let lying = Problem::try_new(capacity, lying).unwrap();
        let of = |problem: &Problem| {
            let solution = solve(problem, work_conserving);
            measure::tasks_of(&honest, 0, solution.allocation(0))
        };
        prop_assert!(of(&lying) <= of(&honest) * (1.0 + 1e-9));
    }

    #[test]
    fn drf_of_one_resource_is_max_min((capacity, nodes) in instance(Shape { resources: 1..=1, ..Shape::FLAT })) {
        let (_, solution) = drf(&capacity, &nodes);
        let claim = |node: &Node| {
            let demand = demand(node);
            let most = (demand.task[0] * demand.tasks).min(demand.limit[0]);
            let ceiling = if demand.task[0] > 0.0 { most } else { 0.0 };
            max_min::Claim { weight: node.weight[0], floor: demand.guarantee[0].min(ceiling), ceiling }
        };
        let claims: Vec<_> = nodes.iter().map(claim).collect();
        let division = max_min::divide(capacity[0], &claims);
        for (got, expected) in solution.allocation.iter().zip(division.allocation) {
            assert_close(*got, expected, "one resource");
        }
    }

    #[test]
    fn drf_ignores_the_order((capacity, nodes) in instance(Shape::FLAT), turn in 0_usize..8, second: bool) {
        let work_conserving = if second { WorkConserving::Yes } else { WorkConserving::No };
        let turn = turn.min(nodes.len());
        let solve = |nodes: Vec<Node>| {
            solve(&Problem::try_new(capacity.clone(), nodes).unwrap(), work_conserving)
        };
        let mut turned = nodes.clone();
        turned.rotate_left(turn);
        let mut back = solve(turned).allocation;
        back.rotate_right(turn * capacity.len());
        prop_assert_eq!(solve(nodes).allocation, back);
    }

    #[test]
    fn drf_ignores_the_unit((capacity, nodes) in instance(Shape::FLAT)) {
        let (_, solution) = drf(&capacity, &nodes);
        let scaled: Vec<f64> = capacity.iter().map(|whole| whole * 1024.0 / 1000.0).collect();
        let scale = |node: &Node| {
            let mut demand = demand(node).clone();
            for vector in [&mut demand.task, &mut demand.guarantee, &mut demand.limit] {
                vector.iter_mut().for_each(|amount| *amount *= 1024.0 / 1000.0);
            }
            Node { kind: Kind::Leaf(demand), ..node.clone() }
        };
        let (_, scaled) = drf(&scaled, &nodes.iter().map(scale).collect::<Vec<_>>());
        for (one, other) in fractions(&solution).into_iter().zip(fractions(&scaled)) {
            assert_close(one, other, "in another unit");
        }
    }

    #[test]
    fn a_tenant_without_demand_changes_no_allocation((capacity, nodes) in instance(Shape::FLAT)) {
        let (_, before) = drf(&capacity, &nodes);
        let idle = Demand::once(vec![0.0; capacity.len()]);
        let mut more = nodes.clone();
        more.push(leaf(&vec![7.0; capacity.len()], idle));
        let (_, after) = drf(&capacity, &more);
        prop_assert_eq!(&before.leaves[..], &after.leaves[..nodes.len()]);
        prop_assert_eq!(after.leaves[nodes.len()].state, State::NoDemand);
    }

    /// With scalar weights: raising one of several moves the others' endowments too.
    #[test]
    fn more_weight_is_never_less((capacity, nodes) in instance(Shape { weights: false, zeros: 0, ..Shape::FLAT })) {
        let (_, before) = drf(&capacity, &nodes);
        let mut heavier = nodes.clone();
        heavier[0].weight = vec![2.0; capacity.len()];
        let (_, after) = drf(&capacity, &heavier);
        prop_assert!(after.leaves[0].fraction >= before.leaves[0].fraction * (1.0 - 1e-9));
    }

    /// Only where all demands are positive; see `what_drf_does_not_promise`.
    #[test]
    fn a_departure_reduces_no_share((capacity, nodes) in instance(Shape { nodes: 2..=8, ..Shape::PURE })) {
        let (_, before) = drf(&capacity, &nodes);
        let (_, after) = drf(&capacity, &nodes[..nodes.len() - 1]);
        for (before, after) in fractions(&before).into_iter().zip(fractions(&after)) {
            prop_assert!(after >= before * (1.0 - 1e-9));
        }
    }

    #[test]
    fn the_sweep_is_lexicographically_optimal((capacity, nodes) in instance(Shape { nodes: 1..=6, ..Shape::FLAT })) {
        let (problem, solution) = drf(&capacity, &nodes);
        let optimum = lexicographic::optimum(&problem);
        for (got, expected) in fractions(&solution).into_iter().zip(optimum) {
            // As far as the linear programs are exact.
            prop_assert!((got - expected).abs() <= 1e-5 * expected.max(1.0), "{got} and {expected}");
        }
    }

    #[test]
    fn the_second_stage_stays_under_the_cap((capacity, nodes) in instance(Shape { guarantees: false, ..Shape::FLAT })) {
        let problem = Problem::try_new(capacity.clone(), nodes.clone()).unwrap();
        let (first, second) = (solve(&problem, WorkConserving::No), solve(&problem, WorkConserving::Yes));
        for solved in &first.leaves {
            let row = second.allocation(solved.node);
            let share = measure::weighted_dominant_share(&problem, solved.node, row);
            prop_assert!(share <= solved.level * (1.0 + 1e-9));
            let before = first.allocation(solved.node);
            prop_assert!(row.iter().zip(before).all(|(after, before)| *after >= before * (1.0 - 1e-12)));
        }
        // What is still left nobody may take: he has all he wants, or is under the cap.
        for r in (0..capacity.len()).filter(|&r| !second.saturated[r]) {
            for solved in &first.leaves {
                let cap = solved.level * capacity[r] * problem.weight(solved.node)[r];
                let demand = demand(&nodes[solved.node]);
                let most = (demand.task[r] * demand.tasks).min(demand.limit[r]);
                let most = if demand.task[r] > 0.0 { most.min(cap) } else { 0.0 };
                prop_assert!(second.allocation(solved.node)[r] >= most * (1.0 - 1e-9));
            }
        }
    }
}

#[test]
fn scalar_weights_are_used_as_written() {
    // The counterexample to resource monotonicity is stated for DRF as published.
    let (_, solution) = drf(&[29.0, 16.0], &[unlimited(&[3.0, 0.0]), unlimited(&[2.0, 3.0])]);
    assert_close(solution.leaves[0].fraction, 841.0 / 119.0, "u0");
}

#[test]
fn endowments_are_normalised() {
    let tenant = |task: [f64; 2], weight: [f64; 2]| {
        leaf(&weight, Demand::tasks(task.to_vec(), f64::INFINITY))
    };
    let nodes = [tenant([5.0, 9.0], [2.0, 2.0]), tenant([5.0, 8.0], [2.0, 5.0])];
    let (problem, solution) = drf(&[29.0, 31.0], &nodes);
    // Its own part of the machine: 1/2 of 29 CPUs and 5/7 of 31 of memory.
    assert_close(solution.leaves[1].fraction, 155.0 / 56.0, "u1");
    assert!(measure::sharing_incentive_slack(&problem, &solution.allocation) > -1e-9);
    // Taken as they are, the weights would leave it with less.
    let terms = problem::Terms { weights: problem::Weights::Normalised, ..Default::default() };
    let raw = Problem::try_new_on(terms, vec![29.0, 31.0], nodes.to_vec()).unwrap();
    assert_close(solve(&raw, WorkConserving::No).leaves[1].fraction, 899.0 / 387.0, "u1 raw");
}

#[test]
fn what_drf_does_not_promise() {
    let first = |capacity: [f64; 2], tenants: &[[f64; 2]]| {
        let nodes: Vec<Node> = tenants.iter().map(|task| unlimited(task)).collect();
        drf(&capacity, &nodes).1.leaves[0].fraction
    };
    // Resource monotonicity: more memory, and the tenant has less. Also with positive demands only.
    assert_close(first([29.0, 16.0], &[[3.0, 0.0], [2.0, 3.0]]), 841.0 / 119.0, "little memory");
    assert_close(first([29.0, 32.0], &[[3.0, 0.0], [2.0, 3.0]]), 841.0 / 151.0, "more memory");
    assert_close(first([19.0, 28.0], &[[3.0, 1.0], [4.0, 9.0]]), 1083.0 / 283.0, "little memory");
    assert_close(first([19.0, 39.0], &[[3.0, 1.0], [4.0, 9.0]]), 361.0 / 109.0, "more memory");
    // Population monotonicity with demands of zero: c leaves, and b has less.
    let b = [1.0, 0.0];
    assert_close(first([2.0, 2.0], &[b, [2.0, 3.0], [0.0, 3.0]]), 4.0 / 3.0, "three");
    assert_close(first([2.0, 2.0], &[b, [2.0, 3.0]]), 6.0 / 5.0, "two");
}

#[test]
fn a_partial_guarantee_is_kept() {
    // `a` is short of memory and could not use its CPUs in proportion; they are its own all the same.
    let mut a = Demand::once(vec![8.0, 16.0]);
    a.guarantee = vec![6.0, 0.0];
    let nodes = [leaf(&[1.0, 1.0], a), unlimited(&[1.0, 1.0])];
    let problem = Problem::try_new(vec![10.0, 10.0], nodes.to_vec()).unwrap();
    let solution = solve(&problem, WorkConserving::Yes);
    assert!(solution.allocation(0)[0] >= 6.0);
    assert!(solution.allocation(1)[0] <= 4.0);
    // Without the second stage there is nothing that could be given out of proportion.
    let plain = solve(&problem, WorkConserving::No);
    assert_close(plain.allocation(0)[0] / plain.allocation(0)[1], 0.5, "proportion");
}

#[test]
fn the_second_stage_gives_what_is_left() {
    let nodes = [unlimited(&[1.0, 4.0]), unlimited(&[3.0, 1.0])];
    let problem = Problem::try_new(vec![9.0, 18.0], nodes.to_vec()).unwrap();
    let solution = solve(&problem, WorkConserving::Yes);
    // `a` is at its dominant share of 2/3 already; `b` is not.
    assert_eq!(solution.allocation, [3.0, 12.0, 6.0, 6.0]);
    assert_eq!(solution.saturated, [true, true]);
}

#[test]
fn what_there_is_none_of_is_not_divided() {
    let nodes = [unlimited(&[1.0, 0.0]), unlimited(&[1.0, 1.0]), unlimited(&[0.0, 1.0])];
    let (_, solution) = drf(&[10.0, 0.0], &nodes);
    assert_eq!(fractions(&solution), [10.0, 0.0, 0.0]);
    assert_eq!(solution.leaves[1].state, State::Blocked);
    assert_eq!(solution.leaves[2].dominant_resource, Some(1));
    assert_eq!(solution.saturated, [true, true]);
}

#[test]
fn tasks_fill_the_machine() {
    let nodes = [unlimited(&[0.1, 0.3]), unlimited(&[0.2, 0.1])];
    let problem = Problem::try_new(vec![0.9, 0.9], nodes.to_vec()).unwrap();
    let solution = tenantd_fair::allocate(&problem, Algorithm::DrfTasks, WorkConserving::No);
    assert!(fractions(&solution).iter().all(|tasks| tasks.fract() == 0.0));
    for leaf in &solution.leaves {
        let task = problem.task(leaf.node);
        let fits = (0..2).all(|r| task[r] <= solution.unallocated[r] * (1.0 + 1e-9));
        assert!(!fits, "another task of {} fits", leaf.node);
    }
    // Nine tasks of 0.1 fill 0.9, whatever the last bit of their sum.
    let problem = Problem::try_new(vec![0.9], vec![unlimited(&[0.1])]).unwrap();
    let solution = tenantd_fair::allocate(&problem, Algorithm::DrfTasks, WorkConserving::No);
    assert_eq!(fractions(&solution), [9.0]);
    assert!(solution.allocation[0] <= 0.9);
}

#[test]
fn tasks_without_demand_are_not_granted() {
    let nodes = vec![unlimited(&[0.0]), unlimited(&[1.0])];
    let problem = Problem::try_new(vec![3.0], nodes).unwrap();
    assert_eq!(tenantd_fair::tasks::most_tasks(&problem), 3.0);
    let solution = tenantd_fair::allocate(&problem, Algorithm::DrfTasks, WorkConserving::No);
    assert_eq!(solution.order, [1, 1, 1]);
    assert_eq!(solution.leaves[0].state, State::NoDemand);
}

#[test]
fn guaranteed_tasks_are_granted_first() {
    let mut late = Demand::tasks(vec![1.0], f64::INFINITY);
    late.guarantee = vec![4.5];
    let nodes = vec![unlimited(&[1.0]), leaf(&[1.0], late)];
    let problem = Problem::try_new(vec![6.0], nodes).unwrap();
    let solution = tenantd_fair::allocate(&problem, Algorithm::DrfTasks, WorkConserving::No);
    assert_eq!(fractions(&solution), [2.0, 4.0]);
    assert_eq!(solution.order, [1, 1, 1, 1, 0, 0]);
}

#[test]
fn every_finding_names_its_place() {
    let mut demand = Demand::once(vec![f64::NAN, 1e300]);
    demand.guarantee = vec![3.0, 0.0];
    demand.limit = vec![2.0, -1.0];
    demand.tasks = -1.0;
    let nodes = vec![
        Node { parent: Some(0), weight: vec![0.0], kind: Kind::Group(Bounds::none(2)) },
        Node { parent: None, weight: vec![1.0, f64::INFINITY], kind: Kind::Leaf(demand) },
    ];
    let errors = Problem::try_new(vec![4.0, f64::NAN], nodes).unwrap_err();
    let expect = |place: Place, reason: fn(&Reason) -> bool| {
        assert!(
            errors.iter().any(|e| e.place == place && reason(&e.reason)),
            "{place:?}: {errors:?}"
        );
    };
    let at = |node, field, resource| Place::Node { node, field, resource };
    expect(Place::Capacity(Some(1)), |it| matches!(it, Reason::NotANumber(_)));
    expect(at(0, Field::Parent, None), |it| matches!(it, Reason::Misshapen));
    expect(at(0, Field::Weight, None), |it| matches!(it, Reason::Misshapen));
    expect(at(0, Field::Weight, Some(0)), |it| matches!(it, Reason::OutOfRange(_)));
    expect(at(1, Field::Weight, Some(1)), |it| matches!(it, Reason::OutOfRange(_)));
    expect(at(1, Field::Task, Some(0)), |it| matches!(it, Reason::NotANumber(_)));
    expect(at(1, Field::Task, Some(1)), |it| matches!(it, Reason::OutOfRange(_)));
    expect(at(1, Field::Tasks, None), |it| matches!(it, Reason::NotANumber(_)));
    expect(at(1, Field::Limit, Some(0)), |it| matches!(it, Reason::LimitBelowGuarantee(_)));
    expect(at(1, Field::Limit, Some(1)), |it| matches!(it, Reason::NotANumber(_)));
    assert!(errors.iter().all(|error| !error.to_string().is_empty()));
}

#[test]
fn guarantees_cannot_exceed_the_capacity() {
    let guaranteed = |guarantee| {
        let mut demand = Demand::once(vec![10.0]);
        demand.guarantee = vec![guarantee];
        leaf(&[1.0], demand)
    };
    assert!(Problem::try_new(vec![0.3], vec![guaranteed(0.1), guaranteed(0.2)]).is_ok());
    let errors = Problem::try_new(vec![4.0], vec![guaranteed(3.0), guaranteed(2.0)]).unwrap_err();
    let place = Place::Node { node: 1, field: Field::Guarantee, resource: Some(0) };
    let reason = Reason::Overbooked { promised: 5.0, capacity: 4.0 };
    assert_eq!(errors, [tenantd_fair::ProblemError { place, reason }]);
    // As targets they are only that; and nothing runs away, whatever rule is asked for.
    let terms = problem::Terms { guarantees: problem::Guarantees::Targets, ..Default::default() };
    let nodes = vec![guaranteed(3.0), guaranteed(2.0)];
    let problem = Problem::try_new_on(terms, vec![4.0], nodes).unwrap();
    let yarn = tenantd_fair::allocate(&problem, Algorithm::Yarn, WorkConserving::No);
    assert_eq!(yarn.allocation, [3.0, 2.0]);
    for work_conserving in [WorkConserving::No, WorkConserving::Yes] {
        solve(&problem, work_conserving);
    }
}
