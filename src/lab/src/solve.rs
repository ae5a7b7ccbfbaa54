//! `tenantctl solve`: the allocation of a problem file.
//!
//! `read` parses the text into a [`fair::Problem`], `judge` maps the findings of its constructor to places
//! in the text, `show` prints the solution as a table or as JSON. The first error of a problem is reported, on
//! standard error in the style of rustc, and with `--json` on standard output as a record; the exit code is
//! then 78.

mod amounts;
mod audit;
mod codes;
mod judge;
mod read;
mod rules;
mod show;
mod steps;
mod task;
mod values;

use std::io::{self, BufWriter, Write};

use super::problem;
use crate::args::SolveArgs;
use task::{Answer, Asked, Rule, Task};
use tenantd::args::Colour;
use tenantd::exit::Exit;
use tenantd_fair::audit::Audit;
use tenantd_fair::{self as fair, Algorithm, Problem, measure, order};

/// A commented problem that can be solved.
const EXAMPLE: &str = include_str!("../../../scenarios/solve/example.yaml");

/// Runs the command.
///
/// # Errors
/// The problem could not be read or the answer not written. A bad problem is no error but an exit code.
pub fn run(args: &SolveArgs, colour: Colour) -> anyhow::Result<Exit> {
    let mut out = BufWriter::new(io::stdout().lock());
    let Some(path) = args.problem.as_ref().filter(|_| !args.example) else {
        out.write_all(EXAMPLE.as_bytes())?;
        out.flush()?;
        return Ok(Exit::Ok);
    };
    let (name, text) = problem::read(path)?;
    let asked = Asked { steps: args.steps, audit: args.audit };
    let task = match read::read(&name, text, asked) {
        Ok(task) => task,
        Err(report) => {
            problem::refuse(&report, args.json, colour)?;
            return Ok(Exit::BadConfiguration);
        }
    };
    if let Rule::Order(sorter) = task.rule {
        let order = order::walk(&task.problem, sorter, &task.allocations, &task.active);
        show::order(&mut out, &task, &order, args.json)?;
        out.flush()?;
        return Ok(Exit::Ok);
    }
    let answer = answer(&task, asked);
    if args.json {
        show::json(&mut out, &task, &answer)?;
    } else {
        show::table(&mut out, &task, &answer)?;
    }
    out.flush()?;
    Ok(Exit::Ok)
}

fn answer(task: &Task, asked: Asked) -> Answer {
    let divide = |problem: &Problem, work_conserving| match (task.rule, &task.cluster) {
        (Rule::Divide(algorithm), None) => fair::allocate(problem, algorithm, work_conserving),
        (_, Some(cluster)) => fair::allocate_on(problem, &cluster.nodes, cluster.slots),
        _ => fair::allocate(problem, Algorithm::DrfTasks, work_conserving),
    };
    let solution = divide(&task.problem, task.work_conserving);
    let claims = task.truth.as_ref().map(|truth| {
        let honest = divide(truth, task.work_conserving).leaves;
        let useful = |leaf: usize| {
            let wants = truth.task(leaf).iter().any(|&task| task > 0.0);
            let row = solution.allocation(leaf);
            if wants { measure::tasks_of(truth, leaf, row) } else { 0.0 }
        };
        honest.iter().map(|leaf| (leaf.fraction, useful(leaf.node))).collect()
    });
    let nodes = task.cluster.as_ref().map(|cluster| &cluster.nodes);
    let audit = asked.audit.then(|| {
        let audit = fair::audit::audit(&task.problem, &solution, task.rule.is_whole(), nodes);
        let lies = match task.rule {
            Rule::Divide(algorithm) if task.rule.believes_claims() => {
                Some(fair::audit::lies(&task.problem, algorithm))
            }
            _ => None,
        };
        Audit { lies, ..audit }
    });
    Answer { solution, claims, audit, lists_steps: asked.steps }
}
