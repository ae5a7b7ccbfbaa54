//! The commands of `tenantctl`, one file each; those that need no daemon and no host are in [`tenantd_lab`].

#![deny(missing_docs)]

pub mod args;
mod ask;
pub mod common;
mod demo;
pub mod policy;
mod run;
pub mod show;

use args::{Command, Tenantctl};
use common::exit::Exit;
use tenantd_lab::{dop, simulate, solve};
use tenantd_varlink::client::Endpoint;

/// Runs one command line.
///
/// # Errors
/// The failure of the command; the caller prints it and exits with [`common::exit::of`].
pub fn run(arguments: &Tenantctl) -> anyhow::Result<Exit> {
    let daemon = Endpoint { path: arguments.socket.clone(), timeout: arguments.timeout };
    let daemon = &daemon;
    let colour = arguments.color;
    match &arguments.command {
        Command::Demo(args) => demo::run(args),
        Command::Status(args) => ask::status::run(daemon, args),
        Command::Watch(args) => ask::status::watch(daemon, args),
        Command::Explain(args) => ask::explain::run(daemon, args),
        Command::Me(args) => ask::me::run(daemon, args),
        Command::Plan(args) => ask::plan::run(daemon, args, colour),
        Command::History(args) => show::history::run(daemon, args),
        Command::Diff(args) => ask::administer::diff(daemon, args, colour),
        Command::Reload(args) => ask::administer::reload(daemon, args, colour),
        Command::Mode(args) => ask::mode::mode(daemon, args),
        Command::Restore(args) => ask::administer::restore(daemon, args),
        Command::Attach(args) => ask::attach::attach(daemon, args),
        Command::Detach(args) => ask::attach::detach(daemon, args),
        Command::Run(args) => run::run(daemon, args),
        Command::Jobs(args) => ask::finished::list(daemon, args),
        Command::Wait(args) => ask::finished::wait(daemon, args),
        Command::Logs(args) => run::log::logs(args),
        Command::Cancel(args) => ask::jobs::cancel(daemon, args),
        Command::Top(args) => show::top::run(daemon, args, colour),
        Command::Metrics(args) => show::metrics::run(daemon, args),
        Command::Serve(args) => show::serve::run(daemon, args),
        Command::Generate(args) => policy::generate::run(args),
        Command::Load(args) => demo::load::run(args),
        Command::Init(args) => policy::init::run(args, colour),
        Command::Check(args) => policy::check::run(args, colour),
        Command::Solve(args) => solve::run(args, colour),
        Command::Dop(args) => dop::run(args, colour),
        Command::Simulate(args) => simulate::run(&args.what, colour),
    }
}
