//! `tenantctl dop`: the auto-DOP of a problem file.
//!
//! [`read`](mod@read) parses the text into a round, or into a run of queries over time. This file solves
//! rounds and [`course`] prints runs, as a table or as one JSON object. The first error of a bad
//! problem is reported with its place, and the exit code is 78.

mod course;
mod read;

use std::io::{self, BufWriter, Write};

use serde::Serialize;

use super::text::visible;
use super::{json, problem, table};
use crate::args::DopArgs;
use crate::table::MOST_ROWS;
use read::{Asked, Task};
use tenantd::args::Colour;
use tenantd::exit::Exit;
use tenantd_dop::target::{Admission, Problem, Query, Width};

/// A commented problem that can be solved.
const EXAMPLE: &str = include_str!("../../../scenarios/dop/example.yaml");

/// The widest bar.
const BAR_WIDTH: u64 = 32;

/// Runs the command.
///
/// # Errors
/// The problem could not be read or the answer not written. A bad problem is no error but an exit code.
pub fn run(args: &DopArgs, colour: Colour) -> anyhow::Result<Exit> {
    let mut out = BufWriter::new(io::stdout().lock());
    let Some(path) = args.problem.as_ref().filter(|_| !args.example) else {
        out.write_all(EXAMPLE.as_bytes())?;
        out.flush()?;
        return Ok(Exit::Ok);
    };
    let (name, text) = problem::read(path)?;
    let task = match read::read(&name, text) {
        Ok(task) => task,
        Err(report) => {
            problem::refuse(&report, args.json, colour)?;
            return Ok(Exit::BadConfiguration);
        }
    };
    match &task.asked {
        Asked::Round(problem) => {
            let admission = task.rule.admit(problem);
            if args.json {
                print_json(&mut out, &task, &admission)?;
            } else {
                print_table(&mut out, &task, problem, &admission)?;
            }
        }
        Asked::Course(course, lists) => match (course.run(), args.json) {
            (Ok(outcome), true) => course::json(&mut out, task.rule, course, &outcome, *lists)?,
            (Ok(outcome), false) => course::table(&mut out, course, &outcome, *lists)?,
            (Err(too_many), _) => {
                problem::refuse(&read::too_long(&name, too_many.0), args.json, colour)?;
                return Ok(Exit::BadConfiguration);
            }
        },
    }
    out.flush()?;
    Ok(Exit::Ok)
}

#[derive(Serialize)]
struct Output<'a> {
    algorithm: &'static str,
    dop: &'a [u64],
    admitted: usize,
    memory_bound: bool,
    idle_slots: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    bound_by: Option<&'a str>,
}

fn print_json(out: &mut impl Write, task: &Task, admission: &Admission) -> io::Result<()> {
    let output = Output {
        algorithm: problem::word_of(read::RULES, task.rule),
        dop: &admission.dop,
        admitted: admission.admitted(),
        memory_bound: admission.memory_bound,
        idle_slots: admission.idle_slots,
        bound_by: bound_by(task, admission),
    };
    json::write_line(out, &output)
}

/// The resource that ended the admission; `None` if slots did, or nothing.
fn bound_by<'t>(task: &'t Task, admission: &Admission) -> Option<&'t str> {
    match admission.bound_by {
        Some(resource) => Some(&task.resources[resource]),
        None => admission.memory_bound.then_some("memory"),
    }
}

fn print_table(
    out: &mut impl Write,
    task: &Task,
    problem: &Problem,
    admission: &Admission,
) -> io::Result<()> {
    let mut table = table::plain();
    let resources = task.resources.iter().map(|name| visible(name));
    let first = ["query", "width", "weight", "memory"].map(str::to_string).into_iter();
    table.set_header(first.chain(resources).chain(["dop".to_string(), String::new()]));
    let widest = admission.dop.iter().copied().max().unwrap_or(0);
    let queries = problem.queue().iter().zip(&admission.dop);
    for (index, (query, dop)) in queries.enumerate().take(MOST_ROWS) {
        let state = match dop {
            0 => "waits".to_string(),
            _ => bar(*dop, widest),
        };
        let width = (*dop).max(1);
        let amounts = (0..task.resources.len()).map(|it| shown(query.resource_at(it, width)));
        let (first, memory) = ((index + 1).to_string(), shown(query.memory_at(width)));
        let first = [first, shown_width(query), query.weight.to_string(), memory];
        table.add_row(first.into_iter().chain(amounts).chain([dop.to_string(), state]));
    }
    let figures = 2..=task.resources.len() + 4;
    table::align_right(&mut table, std::iter::once(0).chain(figures));
    table::fit(&mut table);
    table::print(out, &table, problem.queue().len(), MOST_ROWS)?;
    writeln!(out, "\n{}", summary(problem, admission, bound_by(task, admission)))
}

/// `3 of 4 start on 7 of 8 slots; the rest waits for slots`.
fn summary(problem: &Problem, admission: &Admission, bound_by: Option<&str>) -> String {
    let (started, waiting) = (admission.admitted(), problem.queue().len() - admission.admitted());
    let running = match problem.running().len() {
        0 => String::new(),
        count => format!(", beside {count} running"),
    };
    let used: u64 = admission.dop.iter().sum();
    let free = problem.free_slots();
    let rest = match waiting {
        0 => String::new(),
        _ => format!("; the rest waits for {}", visible(bound_by.unwrap_or("slots"))),
    };
    let total = problem.queue().len();
    format!("{started} of {total} start on {used} of {free} free slots{running}{rest}")
}

fn shown_width(query: &Query) -> String {
    match query.width {
        Width::Auto => "auto".to_string(),
        Width::AtMost(max) => format!("at most {max}"),
        Width::Manual(dop) => format!("manual {dop}"),
    }
}

fn shown(amount: f64) -> String {
    match amount {
        0.0 => "-".to_string(),
        amount => ((amount * 1e4).round() / 1e4).to_string(),
    }
}

/// A bar as long as the DOP if there is room, else in proportion; at least one block.
fn bar(dop: u64, widest: u64) -> String {
    let blocks = if widest <= BAR_WIDTH { dop } else { (dop * BAR_WIDTH).div_ceil(widest) };
    "█".repeat(blocks as usize)
}
