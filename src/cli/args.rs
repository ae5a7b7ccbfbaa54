//! The command line of `tenantctl`, as types. The only file that names the argument parser.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Asks and administers tenantd, the agent that makes one machine fair for all its tenants.
#[derive(Clone, Debug, Parser)]
#[command(name = "tenantctl", version, max_term_width = 100)]
pub struct Tenantctl {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What `tenantctl` can do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Show every finding of a policy, file or directory.
    Check(CheckArgs),
    /// Compute the allocation of a problem file.
    Solve(SolveArgs),
    /// Compute an auto-DOP problem file.
    Dop(DopArgs),
}

/// Arguments of `check`.
#[derive(Clone, Debug, clap::Args)]
pub struct CheckArgs {
    /// Policy files, or directories of `*.yaml` files that make one policy.
    #[arg(value_name = "POLICY", required = true)]
    pub policies: Vec<PathBuf>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `solve`.
#[derive(Clone, Debug, clap::Args)]
pub struct SolveArgs {
    /// The problem, YAML or JSON; `-` reads standard input.
    #[arg(value_name = "PROBLEM")]
    pub problem: PathBuf,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `dop`.
#[derive(Clone, Debug, clap::Args)]
pub struct DopArgs {
    /// The problem, YAML or JSON; `-` reads standard input.
    #[arg(value_name = "PROBLEM")]
    pub problem: PathBuf,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
}
