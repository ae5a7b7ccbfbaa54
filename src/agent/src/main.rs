//! `tenantd`: the daemon.

use std::process::ExitCode;

use clap::Parser;
use tenantd::args::Tenantd;
use tenantd::command;

fn main() -> ExitCode {
    let arguments = Tenantd::parse();
    match command::run(&arguments) {
        Ok(exit) => exit.into(),
        Err(error) => command::fail(&error).into(),
    }
}
