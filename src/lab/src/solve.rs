//! `tenantctl solve`: the allocation of a problem file.
//!
//! Makes the pure core available from the command line: `read` turns the text into a [`fair::Problem`], `judge`
//! maps the findings of its constructor to places in the text, `show` prints the solution as a table or as
//! JSON. Everything that is wrong with a problem is reported at once, on standard error in the style of rustc,
//! and with `--json` on standard output as records; the exit code is then 78.

mod codes;
mod judge;
mod read;
mod show;
mod task;
mod values;

use std::io::{self, BufWriter, Write};

use super::problem;
use crate::args::SolveArgs;
use tenantd::args::Colour;
use tenantd::exit::Exit;
use tenantd_fair as fair;

/// Runs the command.
///
/// # Errors
/// The problem could not be read or the answer not written. A bad problem is no error but an exit code.
pub fn run(args: &SolveArgs, colour: Colour) -> anyhow::Result<Exit> {
    let (name, text) = problem::read(&args.problem)?;
    let task = match read::read(&name, text) {
        Ok(task) => task,
        Err(report) => {
            problem::refuse(&report, args.json, colour)?;
            return Ok(Exit::BadConfiguration);
        }
    };
    let solution = fair::allocate(&task.problem, task.algorithm, task.work_conserving);
    let mut out = BufWriter::new(io::stdout().lock());
    match args.json {
        true => show::json(&mut out, &task, &solution)?,
        false => show::table(&mut out, &task, &solution)?,
    }
    out.flush()?;
    Ok(Exit::Ok)
}
