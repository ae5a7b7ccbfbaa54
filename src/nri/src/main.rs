//! `tenantd-nri`: tells tenantd about containers.

use std::process::ExitCode;

use clap::Parser;
use tenantd_nri::args::Arguments;
use tracing::Level;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    tracing_subscriber::fmt()
        .with_max_level(Level::INFO)
        .with_writer(std::io::stderr)
        .with_target(false)
        .without_time()
        .with_ansi(false)
        .init();
    let error = tenantd_nri::run(&arguments);
    eprintln!("tenantd-nri: {error}");
    error.exit_code().into()
}
