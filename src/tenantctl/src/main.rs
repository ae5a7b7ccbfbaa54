//! `tenantctl`: everything a person types.

use std::process::ExitCode;

use clap::Parser;
use tenantd::cli::{self, args::Tenantctl, exit, exit::Exit};

fn main() -> ExitCode {
    let arguments = Tenantctl::parse();
    match cli::run(&arguments) {
        Ok(exit) => exit.into(),
        Err(error) if exit::is_broken_pipe(&error) => Exit::Ok.into(),
        Err(error) => {
            eprintln!("tenantctl: {error:#}");
            Exit::of(&error).into()
        }
    }
}
