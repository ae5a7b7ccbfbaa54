//! `tenantctl simulate queue`: a scenario file, run and measured.
//!
//! [`read`](mod@read) turns the text into a [`scenario::Scenario`], `generate` makes its work, [`tenantd_queue`] decides (with
//! evictable requests the admission of a host, `hosted`), `measure` compares with the ideal, and `show` prints. The first error
//! of a bad scenario is reported with its place, and the exit code is 78.

mod codes;
mod credits;
mod distribution;
mod evictions;
mod generate;
mod hosted;
mod indices;
mod jobs;
mod keys;
mod measure;
mod members;
mod moments;
mod page;
mod pairs;
mod read;
mod reading;
mod rules;
mod scenario;
mod show;

use std::io::Write as _;

use super::{output, progress};
use crate::args::SimulateArgs;
use crate::problem;
use tenantd::args::Colour;
use tenantd::exit::Exit;

const EXAMPLE: &str = include_str!("../../../../../scenarios/queue/example.yaml");

/// Runs the command.
///
/// # Errors
/// The input could not be read, or the output not written. A bad scenario is no error but an exit code.
pub(super) fn run(args: &SimulateArgs, colour: Colour) -> anyhow::Result<Exit> {
    let Some(path) = args.file.as_ref().filter(|_| !args.example) else {
        return output::answer(|out| out.write_all(EXAMPLE.as_bytes()));
    };
    let (name, text) = problem::read(path)?;
    let result = read::read(&name, text).and_then(|parsed| {
        let mut bar = progress::Bar::new();
        let outcome = measure::run(&parsed.scenario, &mut |part| bar.set(part));
        outcome.map(|outcome| (parsed.scenario, outcome)).map_err(|at| parsed.places.too_many(at))
    });
    let (scenario, outcome) = match result {
        Ok(done) => done,
        Err(report) => {
            problem::refuse(&report, args.json, colour)?;
            return Ok(Exit::BadConfiguration);
        }
    };
    output::page(args, || page::page(&scenario, &outcome))?;
    output::answer(|out| {
        if args.json {
            show::json(out, &scenario, &outcome)
        } else {
            show::table(out, &scenario, &outcome)
        }
    })
}
