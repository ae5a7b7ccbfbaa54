//! Properties of the tree, over random trees.

use microlp::{ComparisonOp, OptimizationDirection, Problem as Program, Variable};
use proptest::prelude::*;
use tenantd_fair::problem::{Terms, Weights};
use tenantd_fair::{
    self, Algorithm, Bounds, Demand, Kind, Leaf, Node, Problem, Solution, State, WorkConserving,
    measure,
};

use super::discrete::Filling;
use super::instances::{Shape, assert_close, assert_within, instance};

fn solve(capacity: &[f64], nodes: &[Node], algorithm: Algorithm) -> (Problem, Solution) {
    let problem = Problem::try_new(capacity.to_vec(), nodes.to_vec()).unwrap();
    let solution = tenantd_fair::allocate(&problem, algorithm, WorkConserving::No);
    (problem, solution)
}

/// DRF with weights taken as they are, as the oracles take them.
fn drf_as_given(capacity: &[f64], nodes: &[Node]) -> (Problem, Solution) {
    let terms = Terms { weights: Weights::Normalised, ..Terms::default() };
    let problem = Problem::try_new_on(terms, capacity.to_vec(), nodes.to_vec()).unwrap();
    let solution = tenantd_fair::allocate(&problem, Algorithm::Drf, WorkConserving::No);
    (problem, solution)
}

/// Whether two fractions of a leaf are within so many levels.
fn near(leaf: &Leaf, other: f64, levels: f64) -> bool {
    leaf.fraction == other || (leaf.level / leaf.fraction * (other - leaf.fraction)).abs() < levels
}

/// Whether small steps lead there. Where two resources run out at one level, the length of the steps decides which of them
/// does first, and with it what others get; a bound of a few steps adds an error of its own. Steps of some length have to
/// lead there.
fn is_a_limit(capacity: &[f64], nodes: &[Node], exact: &Solution) -> bool {
    [2000.0, 3000.0, 1000.0, 1700.0, 1300.0, 2500.0].iter().any(|nr_steps| {
        let slow = Filling::new(capacity, nodes).run(1.0 / nr_steps);
        exact.leaves.iter().all(|leaf| near(leaf, slow[leaf.node], 0.01))
    })
}

#[test]
fn which_resource_runs_out_first_may_be_a_matter_of_the_step() {
    let bounds = || Kind::Group(Bounds::none(3));
    let group = |parent, weight: [f64; 3]| Node { parent, weight: weight.to_vec(), kind: bounds() };
    let leaf = |parent, weight: [f64; 3], task: [f64; 3], tasks| Node {
        parent: Some(parent),
        weight: weight.to_vec(),
        kind: Kind::Leaf(Demand::tasks(task.to_vec(), tasks)),
    };
    let nodes = [
        group(None, [1.0, 2.0, 2.0]),
        group(Some(0), [3.0; 3]),
        group(Some(1), [2.0, 1.0, 1.0]),
        leaf(2, [3.0, 3.0, 4.0], [26.0, 0.0, 58.0], 1.0),
        leaf(1, [1.0; 3], [0.0, 1.0, 0.0], f64::INFINITY),
        leaf(1, [1.0, 1.0, 3.0], [0.0, 0.0, 1.0], f64::INFINITY),
        group(None, [1.0; 3]),
        group(Some(6), [3.0, 1.0, 1.0]),
        group(Some(7), [1.0; 3]),
        leaf(8, [1.0; 3], [0.0, 2.0, 0.0], 1.0),
        leaf(8, [5.0; 3], [13.0, 0.0, 19.0], 1.0),
    ];
    let capacity = [12.0, 10.0, 58.0];
    let steps = |nr_steps: f64| Filling::new(&capacity, &nodes).run(1.0 / nr_steps)[4];
    assert!((steps(1000.0) - 8.0).abs() < 0.01 && (steps(2000.0) - 8.85).abs() < 0.01);
    assert!(is_a_limit(&capacity, &nodes, &drf_as_given(&capacity, &nodes).1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_tree_is_the_limit_of_small_steps(
        (capacity, nodes) in prop_oneof![instance(Shape::TREE), instance(Shape::SPARSE)],
    ) {
        let (_, exact) = drf_as_given(&capacity, &nodes);
        prop_assert!(is_a_limit(&capacity, &nodes, &exact), "{:?}", exact.leaves);
    }

    /// The product's own discrete algorithm, with a thousandth of every task.
    #[test]
    fn the_tree_is_the_limit_of_small_tasks(
        (capacity, nodes) in instance(Shape { guarantees: false, weights: false, ..Shape::TREE }),
    ) {
        const PARTS: f64 = 1000.0;
        let mut nodes = nodes;
        for node in &mut nodes {
            if let Kind::Leaf(demand) = &mut node.kind {
                // Shares of a half to one: into the room that one task needs of a resource no hundred of
                // another leaf shall fit.
                for (task, capacity) in demand.task.iter_mut().zip(&capacity) {
                    *task = if *task > 0.0 { capacity * (0.5 + *task / 120.0) } else { 0.0 };
                }
            }
        }
        let (_, divisible) = solve(&capacity, &nodes, Algorithm::Drf);
        let mut small = nodes;
        for node in &mut small {
            if let Kind::Leaf(demand) = &mut node.kind {
                demand.task.iter_mut().for_each(|task| *task /= PARTS);
                demand.tasks = (demand.tasks * PARTS).round();
            }
        }
        let (problem, whole) = solve(&capacity, &small, Algorithm::DrfTasks);
        for (leaf, whole) in divisible.leaves.iter().zip(&whole.leaves) {
            // As many levels as there are leaves that may have been granted one task too many.
            prop_assert!((leaf.level - whole.level).abs() < 0.004 * problem.nodes() as f64, "{leaf:?} {whole:?}");
        }
    }

    /// Limits on groups beside those of leaves, and promises to leaves: the paper's rules a small
    /// step at a time.
    #[test]
    fn bounded_groups_are_the_limit_of_small_steps(
        (capacity, nodes) in prop_oneof![instance(Shape::BOUNDED), instance(Shape::BOUNDED_SPARSE)],
    ) {
        let (_, exact) = drf_as_given(&capacity, &nodes);
        prop_assert!(is_a_limit(&capacity, &nodes, &exact), "{:?}", exact.leaves);
    }

    #[test]
    fn bounds_of_groups_are_kept((capacity, nodes) in instance(Shape::PROMISED), second: bool) {
        let work_conserving = if second { WorkConserving::Yes } else { WorkConserving::No };
        let problem = Problem::try_new(capacity.clone(), nodes.clone()).unwrap();
        let solution = tenantd_fair::allocate(&problem, Algorithm::Drf, work_conserving);
        let below = |leaf: usize, node: usize| {
            leaf == node || problem.groups_above(leaf).any(|group| group == node)
        };
        for node in 0..nodes.len() {
            for (r, capacity) in capacity.iter().enumerate() {
                let row = |leaf: &Leaf| solution.allocation(leaf.node)[r];
                let leaves = || solution.leaves.iter().filter(|leaf| below(leaf.node, node));
                if matches!(nodes[node].kind, Kind::Group(_)) {
                    assert_within(problem.limit(node)[r].min(*capacity), leaves().map(row));
                }
                // What is owed to a group is bounded by what those in it could use.
                if second && leaves().all(|leaf| leaf.state == State::Blocked) && leaves().next().is_some() {
                    let could = most_usable(&problem, node, r);
                    let owed = problem.guarantee(node)[r].min(could);
                    let has: f64 = leaves().map(row).sum();
                    prop_assert!(has >= owed * (1.0 - 1e-9), "{node} has {has} of {owed}");
                }
            }
        }
        // Bottleneck: a leaf with less than it could use demands a resource that is used up, for the machine or
        // for a group above it.
        for leaf in solution.leaves.iter().filter(|leaf| leaf.state == State::Blocked) {
            let task = problem.task(leaf.node);
            prop_assert!((0..capacity.len()).any(|r| task[r] > 0.0 && solution.saturated[r]), "{leaf:?}");
        }
        for leaf in solution.leaves.iter().filter(|leaf| leaf.state == State::Limited) {
            let at_limit = |node: usize, r: usize| {
                solution.allocation(node)[r] >= problem.limit(node)[r] * (1.0 - 1e-9)
            };
            let task = problem.task(leaf.node);
            let held = |r: usize| {
                let group = problem.groups_above(leaf.node).any(|group| at_limit(group, r));
                task[r] > 0.0 && (group || at_limit(leaf.node, r))
            };
            prop_assert!((0..capacity.len()).any(held), "{leaf:?}");
        }
    }

    /// With one resource: every set of siblings divided by a search for its level, from the top.
    #[test]
    fn bounds_of_groups_hold_as_a_search_finds_them(
        (capacity, nodes) in instance(Shape { resources: 1..=1, nodes: 2..=40, ..Shape::PROMISED }),
    ) {
        let expected = by_search(capacity[0], &nodes);
        for (algorithm, work_conserving) in [
            (Algorithm::Drf, WorkConserving::No),
            (Algorithm::Drf, WorkConserving::Yes),
            (Algorithm::MaxMin, WorkConserving::No),
        ] {
            let problem = Problem::try_new(capacity.clone(), nodes.clone()).unwrap();
            let solution = tenantd_fair::allocate(&problem, algorithm, work_conserving);
            for leaf in &solution.leaves {
                let (got, expected) = (solution.allocation(leaf.node)[0], expected[leaf.node]);
                prop_assert!(
                    (got - expected).abs() <= 1e-9 * expected.max(1e-3),
                    "{algorithm:?}: {leaf:?} instead of {expected}"
                );
            }
        }
    }

    /// With one resource, against linear programs: the set of siblings that has least is raised as far as all
    /// bounds below allow, one set after the other from the top.
    #[test]
    fn bounds_of_groups_are_lexicographically_optimal(
        (capacity, nodes) in instance(Shape { resources: 1..=1, nodes: 2..=7, ..Shape::PROMISED }),
    ) {
        let problem = Problem::try_new(capacity.clone(), nodes.clone()).unwrap();
        let solution = tenantd_fair::allocate(&problem, Algorithm::Drf, WorkConserving::No);
        let optimum = super::lexicographic::optimum_of_tree(&problem);
        for leaf in &solution.leaves {
            let (got, expected) = (solution.allocation(leaf.node)[0], optimum[leaf.node]);
            prop_assert!((got - expected).abs() <= 1e-5 * capacity[0], "{leaf:?} instead of {expected}");
        }
    }

    #[test]
    fn a_flat_tree_is_the_sweep((capacity, nodes) in instance(Shape::FLAT), second: bool) {
        let work_conserving = if second { WorkConserving::Yes } else { WorkConserving::No };
        let flat = Problem::try_new(capacity.clone(), nodes.clone()).unwrap();
        // An empty group is nobody, but it makes a tree.
        let mut tree = nodes;
        tree.push(Node { parent: None, weight: vec![5.0; capacity.len()], kind: Kind::Group(Bounds::none(capacity.len())) });
        let tree = Problem::try_new(capacity, tree).unwrap();
        let flat = tenantd_fair::allocate(&flat, Algorithm::Drf, work_conserving);
        let tree = tenantd_fair::allocate(&tree, Algorithm::Drf, work_conserving);
        for (got, expected) in tree.allocation.iter().zip(&flat.allocation) {
            assert_close(*got, *expected, "in a tree");
        }
    }

    #[test]
    fn one_resource_is_recursive_max_min((capacity, nodes) in instance(Shape { resources: 1..=1, ..Shape::TREE })) {
        let (_, tree) = solve(&capacity, &nodes, Algorithm::Drf);
        let (_, max_min) = solve(&capacity, &nodes, Algorithm::MaxMin);
        for (got, expected) in tree.allocation.iter().zip(&max_min.allocation) {
            assert_close(*got, *expected, "one resource");
        }
    }

    #[test]
    fn the_tree_keeps_capacity_and_bounds((capacity, nodes) in instance(Shape::TREE), second: bool) {
        let work_conserving = if second { WorkConserving::Yes } else { WorkConserving::No };
        let problem = Problem::try_new(capacity.clone(), nodes.clone()).unwrap();
        let solution = tenantd_fair::allocate(&problem, Algorithm::Drf, work_conserving);
        for (r, whole) in capacity.iter().enumerate() {
            let leaves = solution.leaves.iter();
            assert_within(*whole, leaves.map(|leaf| solution.allocation(leaf.node)[r]));
        }
        prop_assert!(measure::pareto_slack(&problem, &solution.allocation) < 1e-9);
        for leaf in &solution.leaves {
            let row = solution.allocation(leaf.node);
            let (task, limit) = (problem.task(leaf.node), problem.limit(leaf.node));
            let demanded = || (0..capacity.len()).filter(|&r| task[r] > 0.0);
            let most = |r: usize| (task[r] * problem.tasks(leaf.node)).min(limit[r]);
            prop_assert!(demanded().all(|r| row[r] <= most(r) * (1.0 + 1e-12)));
            prop_assert!((0..capacity.len()).all(|r| task[r] > 0.0 || row[r] == 0.0));
            if second {
                let least = |r: usize| problem.guarantee(leaf.node)[r].min(most(r));
                prop_assert!(demanded().all(|r| row[r] >= least(r) * (1.0 - 1e-12)));
            }
            if leaf.state == State::Blocked {
                prop_assert!(demanded().any(|r| solution.saturated[r]));
            }
        }
    }

    /// SoCC'13 §2.3: without guarantees to others, a node whose leaves could use it gets its weight's part
    /// of its parent's part, in dominant share.
    #[test]
    fn every_group_gets_its_part(
        (capacity, nodes) in instance(Shape { guarantees: false, limits: false, zeros: 0, ..Shape::TREE }),
    ) {
        // In one share of everything, that is: a part of each resource says less about a dominant share.
        let mut nodes = nodes;
        for node in &mut nodes {
            let weight = node.weight[0];
            node.weight.fill(weight);
        }
        let (problem, solution) = solve(&capacity, &nodes, Algorithm::Drf);
        let parts = measure::endowments(&problem);
        for node in 0..nodes.len() {
            let below = |leaf: &Leaf| {
                std::iter::successors(Some(leaf.node), |&it| problem.parent(it)).any(|it| it == node)
            };
            let mut leaves = solution.leaves.iter().filter(|leaf| below(leaf)).peekable();
            if leaves.peek().is_none() || leaves.any(|leaf| leaf.state != State::Blocked) {
                continue;
            }
            let row = solution.allocation(node);
            let m = capacity.len();
            let reached = (0..m).map(|r| row[r] / (capacity[r] * parts[node * m + r])).fold(0.0, f64::max);
            prop_assert!(reached >= 1.0 - 1e-9, "node {node} has {reached} of its part");
        }
    }

    #[test]
    fn the_tree_ignores_the_order((capacity, nodes) in instance(Shape::TREE)) {
        let (_, straight) = solve(&capacity, &nodes, Algorithm::Drf);
        // Mirrored: siblings in reverse, every group still before its members.
        let mut order: Vec<usize> = Vec::new();
        let mut stack: Vec<usize> = (0..nodes.len()).filter(|&node| nodes[node].parent.is_none()).collect();
        while let Some(node) = stack.pop() {
            order.push(node);
            stack.extend((0..nodes.len()).filter(|&member| nodes[member].parent == Some(node)));
        }
        let place = |node: usize| order.iter().position(|&it| it == node).unwrap();
        let mirrored: Vec<Node> = order
            .iter()
            .map(|&node| Node { parent: nodes[node].parent.map(place), ..nodes[node].clone() })
            .collect();
        let (_, mirrored) = solve(&capacity, &mirrored, Algorithm::Drf);
        for node in 0..nodes.len() {
            prop_assert_eq!(straight.allocation(node), mirrored.allocation(place(node)));
        }
    }

    #[test]
    fn the_first_saturation_of_the_tree_is_optimal(
        (capacity, nodes) in instance(Shape { nodes: 2..=8, guarantees: false, limits: false, zeros: 0, ..Shape::TREE }),
    ) {
        let mut nodes = nodes;
        for node in &mut nodes {
            if let Kind::Leaf(demand) = &mut node.kind {
                demand.tasks = f64::INFINITY;
            }
        }
        let (problem, solution) = drf_as_given(&capacity, &nodes);
        prop_assume!(!solution.leaves.is_empty());
        // All demands are positive, so that the first saturation blocks all.
        let optimum = first_saturation(&problem, &capacity, &nodes);
        for leaf in &solution.leaves {
            let expected = optimum[leaf.node];
            prop_assert!((leaf.fraction - expected).abs() <= 1e-4 * expected, "{leaf:?} and {expected}");
        }
    }
}

/// What the leaves below a node could use of a resource within every limit on the way.
fn most_usable(problem: &Problem, node: usize, r: usize) -> f64 {
    if problem.leaves().any(|leaf| leaf == node) {
        let task = problem.task(node)[r];
        return if task > 0.0 {
            (task * problem.tasks(node)).min(problem.limit(node)[r])
        } else {
            0.0
        };
    }
    let members = (node + 1..problem.nodes()).filter(|&it| problem.parent(it) == Some(node));
    let sum: f64 = members.map(|member| most_usable(problem, member, r)).sum();
    sum.min(problem.limit(node)[r])
}

/// The slow reference for one resource: at every node the level is found by bisection, from the top.
fn by_search(capacity: f64, nodes: &[Node]) -> Vec<f64> {
    let members = |group: Option<usize>| -> Vec<usize> {
        (0..nodes.len()).filter(|&node| nodes[node].parent == group).collect()
    };
    let mut bounds = vec![(0.0, 0.0); nodes.len()];
    for node in (0..nodes.len()).rev() {
        bounds[node] = match &nodes[node].kind {
            Kind::Leaf(demand) if demand.task[0] > 0.0 => {
                let most = (demand.task[0] * demand.tasks).min(demand.limit[0]);
                (demand.guarantee[0].min(most), most)
            }
            Kind::Leaf(_) => (0.0, 0.0),
            Kind::Group(own) => {
                let below = members(Some(node));
                let floor: f64 = below.iter().map(|&member| bounds[member].0).sum();
                let most: f64 = below.iter().map(|&member| bounds[member].1).sum();
                let most = most.min(own.limit[0]);
                (floor.max(own.guarantee[0]).min(most), most)
            }
        };
    }
    let mut share = vec![0.0; nodes.len()];
    for group in std::iter::once(None).chain((0..nodes.len()).map(Some)) {
        let (whole, siblings) = (group.map_or(capacity, |it| share[it]), members(group));
        let at = |level: f64, node: usize| {
            (level * nodes[node].weight[0]).max(bounds[node].0).min(bounds[node].1)
        };
        let sum = |level: f64| siblings.iter().map(|&node| at(level, node)).sum::<f64>();
        let (mut low, mut high) = (0.0, 1e9);
        for _ in 0..200 {
            let middle = 0.5 * (low + high);
            if sum(middle) < whole { low = middle } else { high = middle }
        }
        for &node in &siblings {
            share[node] = at(high, node);
        }
    }
    share
}

/// The exact oracle for the first phase: an integer program. The highest common level of the nodes under
/// the machine, where a group's level is its members' largest weighted share: a binary for each resource
/// says which one it is.
fn first_saturation(problem: &Problem, capacity: &[f64], nodes: &[Node]) -> Vec<f64> {
    let m = capacity.len();
    let mut program = Program::new(OptimizationDirection::Maximize);
    let top = program.add_var(1.0, (0.0, 10.0));
    let inner: Vec<Variable> = nodes.iter().map(|_| program.add_var(0.0, (0.0, 100.0))).collect();
    // Shares of the capacity, by node and resource.
    let shares: Vec<Vec<Variable>> =
        nodes.iter().map(|_| (0..m).map(|_| program.add_var(0.0, (0.0, 1.0))).collect()).collect();
    let has_leaf = |node: usize| {
        problem.leaves().any(|leaf| {
            std::iter::successors(Some(leaf), |&it| problem.parent(it)).any(|it| it == node)
        })
    };
    for (node, it) in nodes.iter().enumerate().filter(|(node, _)| has_leaf(*node)) {
        let level = it.parent.map_or(top, |group| inner[group]);
        if let Kind::Leaf(demand) = &it.kind {
            let share = |r: usize| demand.task[r] / capacity[r];
            let rho = (0..m).map(|r| share(r) / it.weight[r]).fold(0.0, f64::max);
            for (r, &own) in shares[node].iter().enumerate() {
                let ray = [(own, 1.0), (level, -share(r) / rho)];
                program.add_constraint(ray, ComparisonOp::Eq, 0.0);
            }
            continue;
        }
        let mut dominant = Vec::new();
        for (r, &own) in shares[node].iter().enumerate() {
            let members = (0..nodes.len())
                .filter(|&member| nodes[member].parent == Some(node) && has_leaf(member));
            let mut sum: Vec<(Variable, f64)> =
                members.map(|member| (shares[member][r], 1.0)).collect();
            sum.push((own, -1.0));
            program.add_constraint(&sum, ComparisonOp::Eq, 0.0);
            let below = [(own, 1.0), (level, -it.weight[r])];
            program.add_constraint(below, ComparisonOp::Le, 0.0);
            let is_dominant = program.add_binary_var(0.0);
            let reaches = [(own, 1.0), (level, -it.weight[r]), (is_dominant, -100.0)];
            program.add_constraint(reaches, ComparisonOp::Ge, -100.0);
            dominant.push((is_dominant, 1.0));
        }
        program.add_constraint(&dominant, ComparisonOp::Eq, 1.0);
    }
    for r in 0..m {
        let tops = (0..nodes.len()).filter(|&node| nodes[node].parent.is_none() && has_leaf(node));
        let sum: Vec<(Variable, f64)> = tops.map(|node| (shares[node][r], 1.0)).collect();
        program.add_constraint(&sum, ComparisonOp::Le, 1.0);
    }
    let solution = program.solve().unwrap().into_solution().unwrap();
    let tasks = |(node, it): (usize, &Node)| match &it.kind {
        Kind::Leaf(demand) => solution.var_value(shares[node][0]) * capacity[0] / demand.task[0],
        Kind::Group(_) => 0.0,
    };
    nodes.iter().enumerate().map(tasks).collect()
}

fn member(parent: Option<usize>, weight: f64, demand: Demand) -> Node {
    Node { parent, weight: vec![weight; demand.task.len()], kind: Kind::Leaf(demand) }
}

fn group(parent: Option<usize>, resources: usize) -> Node {
    Node { parent, weight: vec![1.0; resources], kind: Kind::Group(Bounds::none(resources)) }
}

/// A chain of groups, each with a leaf that wants CPU only; memory is wanted at the bottom alone.
#[test]
fn three_thousand_groups_deep() {
    let mut nodes = Vec::new();
    let mut above = None;
    for _ in 0..3000 {
        nodes.push(member(above, 1.0, Demand::tasks(vec![1.0, 0.0], f64::INFINITY)));
        nodes.push(group(above, 2));
        above = Some(nodes.len() - 1);
    }
    nodes.push(member(above, 1.0, Demand::tasks(vec![0.0, 1.0], f64::INFINITY)));
    let (_, solution) = solve(&[8.0, 16.0], &nodes, Algorithm::Drf);
    assert_close(solution.leaves[0].fraction, 4.0, "half of the CPUs");
    assert_close(solution.leaves[1].fraction, 2.0, "half of the rest");
    assert_close(solution.leaves[3000].fraction, 16.0, "all the memory");
}

/// A CPU-only leaf, a memory-only leaf and a guaranteed group of both: the group gets all of both.
#[test]
fn a_group_has_its_guarantee_of_each_resource() {
    let mut bounds = Bounds::none(2);
    bounds.guarantee = vec![6.0, 8.0];
    let unlimited = |task: [f64; 2]| Demand::tasks(task.to_vec(), f64::INFINITY);
    let nodes = [
        Node { parent: None, weight: vec![1.0; 2], kind: Kind::Group(bounds) },
        member(Some(0), 1.0, unlimited([1.0, 0.0])),
        member(Some(0), 1.0, unlimited([0.0, 1.0])),
        member(None, 99.0, unlimited([1.0, 1.0])),
    ];
    let (_, solution) = solve(&[10.0, 10.0], &nodes, Algorithm::Drf);
    // The memory that is left lets the other run two tasks; the CPU-only leaf takes the rest.
    for (got, expected) in solution.allocation.iter().zip([8.0, 8.0, 8.0, 0.0, 0.0, 8.0, 2.0, 2.0])
    {
        assert_close(*got, expected, "a guaranteed group");
    }
}

/// A group that is out of CPU goes on with memory, also through the groups in it.
#[test]
fn a_group_at_one_limit_continues_with_its_other_resources() {
    let mut bounds = Bounds::none(2);
    bounds.limit = vec![2.0, f64::INFINITY];
    let nodes = [
        Node { parent: None, weight: vec![1.0; 2], kind: Kind::Group(bounds) },
        group(Some(0), 2),
        single(Some(1), 1.0, 0),
        single(Some(1), 1.0, 1),
        single(Some(0), 1.0, 0),
        single(None, 1.0, 0),
        single(None, 1.0, 1),
    ];
    let (_, solution) = solve(&[10.0, 10.0], &nodes, Algorithm::Drf);
    let fractions: Vec<f64> = solution.leaves.iter().map(|leaf| leaf.fraction).collect();
    for (got, expected) in fractions.iter().zip([1.0, 5.0, 1.0, 8.0, 5.0]) {
        assert_close(*got, expected, "beside a full group");
    }
}

/// Whole tasks stay within the limit of their group.
#[test]
fn tasks_stay_within_the_limits_of_groups() {
    let mut bounds = Bounds::none(1);
    bounds.limit = vec![2.5];
    let nodes = [
        Node { parent: None, weight: vec![1.0], kind: Kind::Group(bounds) },
        member(Some(0), 1.0, Demand::tasks(vec![1.0], f64::INFINITY)),
        member(Some(0), 1.0, Demand::tasks(vec![0.5], f64::INFINITY)),
        member(None, 1.0, Demand::tasks(vec![1.0], f64::INFINITY)),
    ];
    let (_, solution) = solve(&[10.0], &nodes, Algorithm::DrfTasks);
    assert_eq!(solution.allocation, [2.5, 1.0, 1.5, 7.0]);
    assert_eq!(solution.leaves[0].state, State::Limited);
}

/// While the largest share of a group belongs to a member at its limit, the others catch up at once.
#[test]
fn a_group_catches_up_while_its_level_is_constant() {
    let bounded = |task: [f64; 2], tasks: f64| Demand::tasks(task.to_vec(), tasks);
    let nodes = [
        group(None, 2),
        // Rises twice as fast as its sibling, and stops at 4 CPUs.
        member(Some(0), 2.0, bounded([1.0, 0.0], 4.0)),
        member(Some(0), 1.0, bounded([0.0, 1.0], f64::INFINITY)),
        member(None, 1.0, bounded([0.0, 1.0], f64::INFINITY)),
    ];
    let (_, solution) = solve(&[10.0, 10.0], &nodes, Algorithm::Drf);
    let fractions: Vec<f64> = solution.leaves.iter().map(|leaf| leaf.fraction).collect();
    assert_close(fractions[0], 4.0, "the limit");
    // Without the jump the group's other member would have stayed behind with 3.
    assert_close(fractions[1], 5.0, "caught up");
    assert_close(fractions[2], 5.0, "the sibling");
}

/// A leaf that wants one resource only: 0 is CPU, 1 is memory.
fn single(parent: Option<usize>, weight: f64, resource: usize) -> Node {
    let mut task = vec![0.0; 2];
    task[resource] = 1.0;
    member(parent, weight, Demand::tasks(task, f64::INFINITY))
}

/// Checks the tasks of the leaves, and that small steps come to the same.
fn assert_tree(capacity: [f64; 2], nodes: &[Node], expected: &[f64]) {
    let (_, solution) = solve(&capacity, nodes, Algorithm::Drf);
    let slow = Filling::new(&capacity, nodes).run(1.0 / 20_000.0);
    for (leaf, expected) in solution.leaves.iter().zip(expected) {
        assert_close(leaf.fraction, *expected, &format!("node {}", leaf.node));
        assert!(
            (slow[leaf.node] - expected).abs() < 0.02,
            "node {}: {}",
            leaf.node,
            slow[leaf.node]
        );
    }
}

/// Rule 3. When the CPUs are gone both groups have half of them, and one has more memory than the other.
/// What is left of the memory belongs to the other, for the CPUs do not count any more.
#[test]
fn saturated_resources_do_not_count() {
    let nodes = [
        group(None, 2),
        single(Some(0), 1.0, 0),
        single(Some(0), 0.2, 1),
        group(None, 2),
        single(Some(3), 1.0, 0),
        single(Some(3), 0.6, 1),
        single(None, 1.0, 1),
    ];
    assert_tree([10.0, 10.0], &nodes, &[5.0, 2.0, 5.0, 3.0, 5.0]);
}

/// Rule 1. When the CPUs are gone, the memory of the first group's two members is 3 and 9. By the smaller,
/// the group is behind the second, which has 4.5; by the sum it would be ahead.
#[test]
fn members_ahead_are_rescaled() {
    let nodes = [
        Node { weight: vec![2.0; 2], ..group(None, 2) },
        group(Some(0), 2),
        single(Some(1), 1.0, 0),
        single(Some(1), 0.3, 1),
        group(Some(0), 2),
        single(Some(4), 1.0, 0),
        single(Some(4), 0.9, 1),
        group(None, 2),
        single(Some(7), 1.0, 0),
        single(Some(7), 0.45, 1),
        single(None, 1.0, 1),
    ];
    assert_tree([30.0, 30.0], &nodes, &[10.0, 5.5, 10.0, 9.0, 10.0, 5.5, 10.0]);
}

/// Rule 2. The first group's blocked member holds 5 of the memory, and that counts, although the other
/// member has 1: the second group, with 2, is behind.
#[test]
fn blocked_members_count_as_they_are() {
    let nodes = [
        Node { weight: vec![2.0; 2], ..group(None, 2) },
        member(Some(0), 1.0, Demand::tasks(vec![1.0, 0.5], f64::INFINITY)),
        group(Some(0), 2),
        single(Some(2), 1.0, 0),
        single(Some(2), 0.1, 1),
        group(None, 2),
        single(Some(5), 1.0, 0),
        single(Some(5), 0.2, 1),
        single(None, 1.0, 1),
        single(None, 1.0, 1),
    ];
    let (third, ten) = (1.0 / 3.0, 10.0);
    assert_tree([30.0, 30.0], &nodes, &[ten, ten, 1.0 + 2.0 * third, ten, 3.0 + third, ten, ten]);
}

#[test]
fn groups_have_what_their_leaves_have() {
    let nodes = [
        group(None, 1),
        group(Some(0), 1),
        member(Some(1), 1.0, Demand::once(vec![2.0])),
        member(Some(0), 1.0, Demand::once(vec![3.0])),
        group(None, 1),
    ];
    let (_, solution) = solve(&[10.0], &nodes, Algorithm::Drf);
    assert_eq!(solution.allocation, [5.0, 2.0, 2.0, 3.0, 0.0]);
    assert_eq!(solution.unallocated, [5.0]);
}
