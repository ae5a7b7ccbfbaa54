//! `tenantd`: the daemon.

use std::process::ExitCode;

use clap::Parser;
use tenantd::cli::args::Tenantd;
use tenantd::cli::daemon;
use tenantd::cli::exit::Exit;

fn main() -> ExitCode {
    let arguments = Tenantd::parse();
    match daemon::run(&arguments) {
        Ok(exit) => exit.into(),
        Err(error) => {
            eprintln!("tenantd: {error:#}");
            Exit::of(&error).into()
        }
    }
}
