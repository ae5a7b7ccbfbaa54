//! `tenantctl`: everything a person types.

use std::io;
use std::process::ExitCode;

use clap::Parser;
use tenantd::cli::{self, args::Tenantctl, exit::Exit};

fn main() -> ExitCode {
    let arguments = Tenantctl::parse();
    match cli::run(&arguments) {
        Ok(exit) => exit.into(),
        Err(error) if is_broken_pipe(&error) => Exit::Ok.into(),
        Err(error) => {
            eprintln!("tenantctl: {error:#}");
            Exit::of(&error).into()
        }
    }
}

/// Whoever read our output has seen enough: no failure.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}
