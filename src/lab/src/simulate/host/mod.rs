//! `tenantctl simulate host`: tenants with demand over time, under tenantd, with static settings, and with
//! neither.
//!
//! `read` and `work` turn the text into a [`scenario::Scenario`]; `world` is one simulated machine,
//! `measure` runs three of them side by side and compares them, `show` and `page` print. The first error of
//! a bad scenario, or all of its policy, is reported with its place, and the exit code is 78. The same file gives the same
//! answer, byte for byte.

mod codes;
mod findings;
mod measure;
mod page;
mod read;
mod scenario;
mod show;
mod work;
mod world;

use std::io::Write as _;

pub use measure::entitled;
pub use scenario::Scenario;
pub use world::{Works, root};

use super::{output, progress};
use crate::args::SimulateArgs;
use crate::problem;
use tenantd::args::Colour;
use tenantd::exit::Exit;
use tenantd_policy::Report;

const EXAMPLE: &str = include_str!("../../../../../scenarios/host/waking-tenant.yaml");

/// Reads a scenario.
///
/// # Errors
/// The first error, or all findings of a policy.
pub fn scenario(name: &str, text: &str) -> Result<Scenario, Report> {
    read::read(name, text.into())
}

/// Runs the command.
///
/// # Errors
/// The input could not be read, or the output not written. A bad scenario is no error but an exit code.
pub(super) fn run(args: &SimulateArgs, colour: Colour) -> anyhow::Result<Exit> {
    let Some(path) = args.file.as_ref().filter(|_| !args.example) else {
        return output::answer(|out| out.write_all(EXAMPLE.as_bytes()));
    };
    let (name, text) = problem::read(path)?;
    let scenario = match read::read(&name, text) {
        Ok(scenario) => scenario,
        Err(report) => {
            problem::refuse(&report, args.json, colour)?;
            return Ok(Exit::BadConfiguration);
        }
    };
    let mut bar = progress::Bar::new();
    let outcome = measure::run(&scenario, &mut |part| bar.set(part))?;
    drop(bar);
    output::page(args, || page::page(&scenario, &outcome))?;
    output::answer(|out| {
        if args.json {
            show::json(out, &scenario, &outcome)
        } else {
            show::table(out, &scenario, &outcome)
        }
    })
}
