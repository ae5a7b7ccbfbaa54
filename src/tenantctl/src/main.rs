//! `tenantctl`: everything a person types.

use std::process::ExitCode;

use clap::Parser;
use tenantctl::args::Tenantctl;
use tenantctl::common::complete;
use tenantctl::common::exit::{self, Exit};
use tenantctl::common::output;

fn main() -> ExitCode {
    complete::answer();
    let arguments = match Tenantctl::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => match output::with_short_words(&error.render().to_string()) {
            Some(text) if error.use_stderr() => {
                eprint!("{text}");
                return Exit::Usage.into();
            }
            _ => error.exit(),
        },
    };
    match tenantctl::run(&arguments) {
        Ok(exit) => exit.into(),
        Err(error) if exit::is_broken_pipe(&error) => Exit::Ok.into(),
        Err(error) => {
            eprintln!("tenantctl: {error:#}");
            exit::of(&error).into()
        }
    }
}
