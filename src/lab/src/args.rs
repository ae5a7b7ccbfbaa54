//! Command lines of this crate as types. No other file of the crate names the argument parser.

use std::path::PathBuf;

use clap::Subcommand;

use crate::formats;

/// Arguments of `solve`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = formats::SOLVE)]
pub struct SolveArgs {
    /// The problem, YAML or JSON; `-` reads standard input.
    #[arg(value_name = "PROBLEM", required_unless_present = "example")]
    pub problem: Option<PathBuf>,
    /// Print a commented problem that can be solved, and explains the format.
    #[arg(long, conflicts_with_all = ["problem", "json", "steps", "audit"])]
    pub example: bool,
    /// List every grant of a whole task, and what its tenant and all tenants hold after it.
    #[arg(long)]
    pub steps: bool,
    /// Check the properties of the division: who would do better alone, who envies whom, what is wasted, and, under drf and
    /// max-min, who gains by a lie and which two by lying together.
    #[arg(long)]
    pub audit: bool,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `dop`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = formats::DOP)]
pub struct DopArgs {
    /// The problem, YAML or JSON; `-` reads standard input.
    #[arg(value_name = "PROBLEM", required_unless_present = "example")]
    pub problem: Option<PathBuf>,
    /// Print a commented problem that can be solved, and explains the format.
    #[arg(long, conflicts_with_all = ["problem", "json"])]
    pub example: bool,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `simulate`.
#[derive(Clone, Debug, clap::Args)]
pub struct SimulateCommand {
    /// What to simulate.
    #[command(subcommand)]
    pub what: Simulated,
}

/// What `simulate` simulates.
#[derive(Clone, Debug, Subcommand)]
pub enum Simulated {
    /// Tenants whose requests wait for workers, under any discipline.
    #[command(after_long_help = formats::QUEUE)]
    Queue(SimulateArgs),
    /// Tenants with demand over time: with tenantd, with static settings, and with neither.
    Host(SimulateArgs),
}

/// Arguments of one simulation.
#[derive(Clone, Debug, clap::Args)]
pub struct SimulateArgs {
    /// The scenario, YAML or JSON; `-` reads standard input.
    #[arg(value_name = "FILE", required_unless_present = "example")]
    pub file: Option<PathBuf>,
    /// Print a commented scenario that can be simulated, and explains the format.
    #[arg(long, conflicts_with_all = ["file", "json", "report"])]
    pub example: bool,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    pub json: bool,
    /// Write a page with pictures to this file as well.
    #[arg(long, value_name = "OUT.html")]
    pub report: Option<PathBuf>,
}
