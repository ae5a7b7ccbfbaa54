//! `tenantctl`: everything a person types.

use std::process::ExitCode;

use clap::Parser;
use tenantctl::args::Tenantctl;
use tenantctl::common::complete;
use tenantctl::common::exit::{self, Exit};

fn main() -> ExitCode {
    complete::answer();
    let arguments = Tenantctl::parse();
    match tenantctl::run(&arguments) {
        Ok(exit) => exit.into(),
        Err(error) if exit::is_broken_pipe(&error) => Exit::Ok.into(),
        Err(error) => {
            eprintln!("tenantctl: {error:#}");
            exit::of(&error).into()
        }
    }
}
