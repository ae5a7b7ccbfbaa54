//! The commands of `tenantctl`, one file each.

mod administer;
pub mod args;
mod check;
pub mod client;
pub mod daemon;
mod demo;
mod dop;
pub mod exit;
mod explain;
mod generate;
mod load;
mod log;
mod machine;
pub mod metrics;
mod plan;
mod problem;
pub mod serve;
mod solve;
mod status;
mod text;
pub mod top;

use args::{Command, Tenantctl};
use exit::Exit;

/// Runs one command line.
///
/// # Errors
/// Whatever the command could not do; the caller prints it and exits with [`Exit::Failed`].
pub fn run(arguments: &Tenantctl) -> anyhow::Result<Exit> {
    let socket = arguments.socket.as_path();
    let colour = arguments.color;
    match &arguments.command {
        Command::Demo(args) => demo::run(args),
        Command::Status(args) => status::run(socket, args),
        Command::Watch(args) => status::watch(socket, args),
        Command::Explain(args) => explain::run(socket, args),
        Command::Plan(args) => plan::run(socket, args, colour),
        Command::Diff(args) => administer::diff(socket, args, colour),
        Command::Reload => administer::reload(socket, colour),
        Command::Mode(args) => administer::mode(socket, args),
        Command::Restore(args) => administer::restore(socket, args),
        Command::Top(args) => top::run(socket, args, colour),
        Command::Metrics(args) => metrics::run(socket, args),
        Command::Serve(args) => serve::run(socket, args),
        Command::Generate(args) => generate::run(args),
        Command::Load(args) => load::run(args),
        Command::Check(args) => check::run(args, colour),
        Command::Solve(args) => solve::run(args, colour),
        Command::Dop(args) => dop::run(args, colour),
    }
}
