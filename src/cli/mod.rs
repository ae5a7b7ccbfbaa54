//! The commands of `tenantctl`, one file each.

pub mod args;
mod check;
pub mod daemon;
mod demo;
mod dop;
pub mod exit;
mod load;
mod log;
mod machine;
mod plan;
mod problem;
mod solve;

use args::{Command, Tenantctl};
use exit::Exit;

/// Runs one command line.
///
/// # Errors
/// Whatever the command could not do; the caller prints it and exits with [`Exit::Failed`].
pub fn run(arguments: &Tenantctl) -> anyhow::Result<Exit> {
    match &arguments.command {
        Command::Demo(args) => demo::run(args),
        Command::Plan(args) => plan::run(args),
        Command::Load(args) => load::run(args),
        Command::Check(args) => check::run(args),
        Command::Solve(args) => solve::run(args),
        Command::Dop(args) => dop::run(args),
    }
}
