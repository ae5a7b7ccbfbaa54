//! `tenantctl simulate`: the effect of a discipline, or of a policy.

pub mod host;
mod output;
mod progress;
mod queue;
pub mod report;

use crate::args::Simulated;
use tenantd::args::Colour;
use tenantd::exit::Exit;

/// Runs the command.
///
/// # Errors
/// The input could not be read, or the output not printed. A bad file is not an error but an exit code.
pub fn run(what: &Simulated, colour: Colour) -> anyhow::Result<Exit> {
    match what {
        Simulated::Queue(args) => queue::run(args, colour),
        Simulated::Host(args) => host::run(args, colour),
    }
}
