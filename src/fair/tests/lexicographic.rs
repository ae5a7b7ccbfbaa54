//! The exact oracles for flat problems, and for trees of one resource: lexicographic max-min by
//! linear programs.
//!
//! First everyone is raised as far as all can be raised together; then, for each, one program asks whether
//! he alone could be raised further. Who cannot is fixed, and the rest are raised again.

use microlp::{ComparisonOp, OptimizationDirection, Problem as Program, Variable};
use tenantd_fair::Problem;

/// The tasks of every leaf of a flat problem.
pub(crate) fn optimum(problem: &Problem) -> Vec<f64> {
    let leaves: Vec<Leaf> = problem.leaves().map(|leaf| Leaf::new(problem, leaf)).collect();
    let mut fixed: Vec<Option<f64>> = leaves
        .iter()
        .map(|leaf| (leaf.rho == 0.0 || leaf.hi <= leaf.lo).then_some(leaf.lo))
        .collect();
    while fixed.contains(&None) {
        let (level, _) = raise(problem, &leaves, &fixed, None);
        let open: Vec<usize> = (0..leaves.len()).filter(|&i| fixed[i].is_none()).collect();
        let mut stuck: Vec<usize> = Vec::new();
        let mut closest = (f64::INFINITY, open[0]);
        for &i in &open {
            let (_, most) = raise(problem, &leaves, &fixed, Some((level, i)));
            let room = leaves[i].rho * most - level.max(leaves[i].rho * leaves[i].lo);
            if room <= 1e-7 {
                stuck.push(i);
            }
            closest = if room < closest.0 { (room, i) } else { closest };
        }
        if stuck.is_empty() {
            stuck.push(closest.1);
        }
        for i in stuck {
            let Leaf { rho, lo, hi } = leaves[i];
            fixed[i] = Some((level / rho).max(lo).min(hi));
        }
    }
    fixed.into_iter().map(|tasks| tasks.unwrap_or(0.0)).collect()
}

struct Leaf {
    rho: f64,
    lo: f64,
    hi: f64,
}

impl Leaf {
    fn new(problem: &Problem, leaf: usize) -> Leaf {
        let (task, weight) = (problem.task(leaf), problem.weight(leaf));
        let demanded = || (0..task.len()).filter(|&r| task[r] > 0.0);
        let share = |r: usize| task[r] / (problem.capacity()[r] * weight[r]);
        let limit = |r: usize| problem.limit(leaf)[r] / task[r];
        let guarantee = |r: usize| problem.guarantee(leaf)[r] / task[r];
        let hi = demanded().map(limit).fold(problem.tasks(leaf), f64::min);
        let lo = demanded().map(guarantee).fold(hi, f64::min);
        let nothing = demanded().next().is_none();
        Leaf {
            rho: demanded().map(share).fold(0.0, f64::max),
            lo: if nothing { 0.0 } else { lo },
            hi: if nothing { 0.0 } else { hi },
        }
    }
}

/// The highest common level of the open leaves; or, with one of them named and the others at least at a
/// level, the most tasks it can run.
fn raise(
    problem: &Problem,
    leaves: &[Leaf],
    fixed: &[Option<f64>],
    alone: Option<(f64, usize)>,
) -> (f64, f64) {
    let mut program = Program::new(OptimizationDirection::Maximize);
    let weight = if alone.is_some() { 0.0 } else { 1.0 };
    let level = program.add_var(weight, (0.0, f64::INFINITY));
    let mut tasks: Vec<Variable> = Vec::new();
    for (i, leaf) in leaves.iter().enumerate() {
        let is_alone = alone.is_some_and(|(_, one)| one == i);
        let bounds = fixed[i].map_or((leaf.lo, leaf.hi), |tasks| (tasks, tasks));
        tasks.push(program.add_var(if is_alone { 1.0 } else { 0.0 }, bounds));
        if fixed[i].is_none() {
            let at_least = [(tasks[i], leaf.rho), (level, -1.0)];
            program.add_constraint(at_least, ComparisonOp::Ge, 0.0);
        }
    }
    if let Some((least, _)) = alone {
        program.add_constraint([(level, 1.0)], ComparisonOp::Ge, least * (1.0 - 1e-9));
    }
    for (r, capacity) in problem.capacity().iter().enumerate() {
        let users = problem.leaves().zip(&tasks).filter(|(leaf, _)| problem.task(*leaf)[r] > 0.0);
        let terms: Vec<_> =
            users.map(|(leaf, tasks)| (*tasks, problem.task(leaf)[r] / capacity)).collect();
        program.add_constraint(&terms, ComparisonOp::Le, 1.0 + 1e-9);
    }
    let solution = program.solve().unwrap().into_solution().unwrap();
    let of_one = alone.map_or(0.0, |(_, one)| solution.var_value(tasks[one]));
    (solution.var_value(level), of_one)
}

/// What every node of a tree gets of the one resource: the siblings under the machine first, then
/// the members of each group with what it has got.
pub(crate) fn optimum_of_tree(problem: &Problem) -> Vec<f64> {
    let mut fixed: Vec<Option<f64>> = vec![None; problem.nodes()];
    let groups = (0..problem.nodes()).filter(|&node| !problem.leaves().any(|leaf| leaf == node));
    for group in std::iter::once(None).chain(groups.map(Some)) {
        let mut open: Vec<usize> =
            (0..problem.nodes()).filter(|&node| problem.parent(node) == group).collect();
        while !open.is_empty() {
            let (level, _) = raise_nodes(problem, &fixed, &open, None);
            let room = |&node: &usize| {
                let (_, most) = raise_nodes(problem, &fixed, &open, Some((level, node)));
                (most - level * problem.weight(node)[0]) / problem.capacity()[0]
            };
            let rooms: Vec<f64> = open.iter().map(room).collect();
            let smallest = rooms.iter().copied().fold(f64::INFINITY, f64::min).max(1e-7);
            let stuck: Vec<usize> =
                open.iter().zip(rooms).filter(|it| it.1 <= smallest).map(|it| *it.0).collect();
            for node in stuck {
                let (_, most) = raise_nodes(problem, &fixed, &open, Some((level, node)));
                fixed[node] = Some(most);
                open.retain(|&it| it != node);
            }
        }
    }
    fixed.into_iter().map(|amount| amount.unwrap_or(0.0)).collect()
}

/// The highest common `amount / weight` of the open nodes; or, with one of them named and the
/// others at least at a level as far as they can, the most it can have. A promise counts as far as
/// those below can use it.
fn raise_nodes(
    problem: &Problem,
    fixed: &[Option<f64>],
    open: &[usize],
    alone: Option<(f64, usize)>,
) -> (f64, f64) {
    let is_leaf = |node: usize| problem.leaves().any(|leaf| leaf == node);
    let members = |group: Option<usize>| {
        (0..problem.nodes()).filter(move |&node| problem.parent(node) == group)
    };
    let mut bounds = vec![(0.0, 0.0); problem.nodes()];
    for node in (0..problem.nodes()).rev() {
        let below = members(Some(node))
            .fold((0.0, 0.0), |sum: (f64, f64), it| (sum.0 + bounds[it].0, sum.1 + bounds[it].1));
        let most = match (is_leaf(node), problem.task(node)[0]) {
            (true, 0.0) => 0.0,
            (true, task) => task * problem.tasks(node),
            (false, _) => below.1,
        };
        let most = most.min(problem.limit(node)[0]);
        bounds[node] = (problem.guarantee(node)[0].max(below.0).min(most), most);
    }
    let mut program = Program::new(OptimizationDirection::Maximize);
    let level = program.add_var(if alone.is_some() { 0.0 } else { 1.0 }, (0.0, 1e6));
    let amount = |node: usize| {
        let aim = alone.is_some_and(|(_, one)| one == node);
        let bounds = fixed[node].map_or(bounds[node], |amount| (amount, amount));
        (if aim { 1.0 } else { 0.0 }, bounds)
    };
    let amounts: Vec<Variable> = (0..problem.nodes())
        .map(|node| {
            let (aim, bounds) = amount(node);
            program.add_var(aim, bounds)
        })
        .collect();
    for &node in open {
        // Above the level, unless it is at the most that it can have.
        let weight = problem.weight(node)[0];
        match alone {
            None => {
                let most = bounds[node].1;
                if most > 0.0 {
                    let at_least = [(amounts[node], 1.0), (level, -weight)];
                    program.add_constraint(at_least, ComparisonOp::Ge, 0.0);
                }
            }
            Some((least, _)) => {
                let least = (least * weight * (1.0 - 1e-9)).min(bounds[node].1);
                program.add_constraint([(amounts[node], 1.0)], ComparisonOp::Ge, least);
            }
        }
    }
    for group in (0..problem.nodes()).filter(|&node| !is_leaf(node)) {
        let mut sum: Vec<(Variable, f64)> =
            members(Some(group)).map(|node| (amounts[node], 1.0)).collect();
        sum.push((amounts[group], -1.0));
        program.add_constraint(&sum, ComparisonOp::Eq, 0.0);
    }
    let top: Vec<(Variable, f64)> = members(None).map(|node| (amounts[node], 1.0)).collect();
    let whole = problem.capacity()[0] * (1.0 + 1e-9);
    program.add_constraint(&top, ComparisonOp::Le, whole);
    let solution = program.solve().unwrap().into_solution().unwrap();
    let of_one = alone.map_or(0.0, |(_, one)| solution.var_value(amounts[one]));
    (solution.var_value(level), of_one)
}
