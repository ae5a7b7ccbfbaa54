//! `tenantd`: the daemon.

use std::process::ExitCode;

use clap::Parser;
use tenantd::cli::args::Tenantd;
use tenantd::cli::daemon;

fn main() -> ExitCode {
    let arguments = Tenantd::parse();
    match daemon::run(&arguments) {
        Ok(exit) => exit.into(),
        Err(error) => daemon::fail(&error).into(),
    }
}
