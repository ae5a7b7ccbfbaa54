//! The exact oracle for flat problems: lexicographic max-min by linear programs.
//!
//! First everyone is raised as far as all can be raised together; then, for each, one program asks whether
//! he alone could be raised further. Who cannot is fixed, and the rest are raised again.

use microlp::{ComparisonOp, OptimizationDirection, Problem as Program, Variable};
use tenantd::fair::Problem;

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
