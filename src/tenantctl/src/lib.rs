//! The commands of `tenantctl`, one file each; those that need no daemon and no host are in [`tenantd_lab`].

#![deny(missing_docs)]

mod administer;
pub mod args;
mod attach;
mod check;
pub mod client;
mod demo;
pub mod exit;
mod explain;
mod file;
mod generate;
mod history;
pub mod init;
mod jobs;
mod load;
mod machine;
pub mod metrics;
mod plan;
mod run;
pub mod serve;
mod status;
pub mod top;

use args::{Command, Tenantctl};
use client::Endpoint;
use exit::Exit;
use tenantd_lab::{dop, simulate, solve};

/// Runs one command line.
///
/// # Errors
/// The failure of the command; the caller prints it and exits with [`exit::of`].
pub fn run(arguments: &Tenantctl) -> anyhow::Result<Exit> {
    let daemon = Endpoint { path: arguments.socket.clone(), timeout: arguments.timeout };
    let daemon = &daemon;
    let colour = arguments.color;
    match &arguments.command {
        Command::Demo(args) => demo::run(args),
        Command::Status(args) => status::run(daemon, args),
        Command::Watch(args) => status::watch(daemon, args),
        Command::Explain(args) => explain::run(daemon, args),
        Command::Plan(args) => plan::run(daemon, args, colour),
        Command::History(args) => history::run(args),
        Command::Diff(args) => administer::diff(daemon, args, colour),
        Command::Reload(args) => administer::reload(daemon, args, colour),
        Command::Mode(args) => administer::mode(daemon, args),
        Command::Restore(args) => administer::restore(daemon, args),
        Command::Attach(args) => attach::attach(daemon, args),
        Command::Detach(args) => attach::detach(daemon, args),
        Command::Run(args) => run::run(daemon, args),
        Command::Jobs(args) => jobs::list(daemon, args),
        Command::Cancel(args) => jobs::cancel(daemon, args),
        Command::Top(args) => top::run(daemon, args, colour),
        Command::Metrics(args) => metrics::run(daemon, args),
        Command::Serve(args) => serve::run(daemon, args),
        Command::Generate(args) => generate::run(args),
        Command::Load(args) => load::run(args),
        Command::Init(args) => init::run(args, colour),
        Command::Check(args) => check::run(args, colour),
        Command::Solve(args) => solve::run(args, colour),
        Command::Dop(args) => dop::run(args, colour),
        Command::Simulate(args) => simulate::run(&args.what, colour),
    }
}
