//! The command line of `tenantctl`, as types. The only file that names the argument parser.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::policy::model::Mode;

/// Where tenantd can be asked.
pub const SOCKET: &str = "/run/tenantd/socket";

/// Asks and administers tenantd, the agent that makes one machine fair for all its tenants.
#[derive(Clone, Debug, Parser)]
#[command(name = "tenantctl", version, max_term_width = 100)]
pub struct Tenantctl {
    /// Where tenantd can be asked.
    #[arg(long, global = true, value_name = "PATH", default_value = SOCKET)]
    pub socket: PathBuf,
    /// When to use colours.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub color: Colour,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What `tenantctl` can do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Watch the main job on this machine: tenants are made, loaded, shared fairly and cleaned up.
    Demo(DemoArgs),
    /// Show the tenants now.
    Status(StatusArgs),
    /// Show the tenants each tick, until interrupted.
    Watch(WatchArgs),
    /// Show why each value of a tenant is what it is.
    Explain(ExplainArgs),
    /// Show what would be written now, and why; writes nothing.
    Plan(PlanArgs),
    /// Show every finding of a policy, file or directory.
    Check(CheckArgs),
    /// Show how a policy differs from the running one.
    Diff(DiffArgs),
    /// Take up the policy again; one that is not valid leaves the running one as it is.
    Reload,
    /// Begin or end to enforce.
    Mode(ModeArgs),
    /// Put everything back, and go on observing.
    Restore(RestoreArgs),
    /// Compute the allocation of a problem file.
    Solve(SolveArgs),
    /// Compute an auto-DOP problem file.
    Dop(DopArgs),
    /// Show the tenants on the full screen, until `q`.
    Top(TopArgs),
    /// Print the last tick as OpenMetrics text.
    Metrics(MetricsArgs),
    /// Serve the metrics and a status page over HTTP.
    Serve(ServeArgs),
    /// Write man pages, shell completions or the schema of policies, for packages.
    Generate(GenerateArgs),
    /// Use CPU and memory as told on standard input, until it ends.
    #[command(hide = true)]
    Load(LoadArgs),
}

/// The agent that makes one machine fair for all its tenants, over CPU and memory at once.
#[derive(Clone, Debug, Parser)]
#[command(name = "tenantd", version, max_term_width = 100)]
pub struct Tenantd {
    /// The policy: a YAML file, or a directory of `*.yaml` files.
    #[arg(long, value_name = "PATH", required_unless_present = "restore")]
    pub policy: Option<PathBuf>,
    /// Write nothing, whatever the policy says.
    #[arg(long)]
    pub observe: bool,
    /// Take two samples, decide and write once, leave the values in force, and exit.
    #[arg(long)]
    pub once: bool,
    /// Put back what an earlier tenantd changed, and exit.
    #[arg(long, conflicts_with_all = ["once", "observe"])]
    pub restore: bool,
    /// With --restore: leave what a tenantd kept on purpose when it stopped (`control.on_exit: keep`).
    #[arg(long, requires = "restore")]
    pub unless_kept: bool,
    /// The cgroup under which tenants live: from the mount point if it starts with `/`, else below the
    /// agent's own.
    #[arg(long, value_name = "PATH")]
    pub root: Option<PathBuf>,
    /// The socket on which it can be asked, `socket` in the state directory by default; one that systemd
    /// gives is used instead.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Where the journal of what was changed is kept.
    #[arg(long, value_name = "PATH", default_value = "/run/tenantd")]
    pub state_dir: PathBuf,
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

/// Arguments of `demo`.
#[derive(Clone, Debug, clap::Args)]
pub struct DemoArgs {
    /// How long the loads run under tenantd, 10 to 60; without it they run a third as long before.
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u64).range(10..=60))]
    pub seconds: u64,
    /// Use the simulated kernel, also as root; in real time, except with --json.
    #[arg(long)]
    pub simulated: bool,
    /// Show what the agent knows and writes as well: demand, allocation, weights, findings.
    #[arg(long)]
    pub verbose: bool,
    /// Write the status of every tick to this file, one JSON object a line.
    #[arg(long, value_name = "FILE", hide = true)]
    pub record: Option<PathBuf>,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `plan`.
#[derive(Clone, Debug, clap::Args)]
pub struct PlanArgs {
    /// A policy to plan for, a YAML file or a directory of them; without it, what the running tenantd does,
    /// or else for /etc/tenantd.
    #[arg(long, value_name = "P")]
    pub policy: Option<PathBuf>,
    /// The cgroup under which tenants live, instead of the policy's.
    #[arg(long, value_name = "PATH")]
    pub root: Option<PathBuf>,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Colour {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Arguments of `status`.
#[derive(Clone, Debug, clap::Args)]
pub struct StatusArgs {
    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `watch`.
#[derive(Clone, Debug, clap::Args)]
pub struct WatchArgs {
    /// Print one JSON object a line instead of tables.
    #[arg(long)]
    pub json: bool,
    /// End after so many.
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
}

/// Arguments of `explain`.
#[derive(Clone, Debug, clap::Args)]
pub struct ExplainArgs {
    /// The path of a tenant or group, such as `ci/nightly`.
    #[arg(value_name = "TENANT")]
    pub tenant: String,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `diff`.
#[derive(Clone, Debug, clap::Args)]
pub struct DiffArgs {
    /// A policy file, or a directory of `*.yaml` files.
    #[arg(value_name = "POLICY")]
    pub policy: PathBuf,
    /// Print one JSON object instead of lines.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `mode`.
#[derive(Clone, Debug, clap::Args)]
pub struct ModeArgs {
    /// From now on.
    #[arg(value_name = "MODE")]
    pub mode: ModeWord,
}

/// What `mode` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModeWord {
    /// Write nothing; what was written is put back first.
    Observe,
    /// Write what is computed.
    Enforce,
}

impl From<ModeWord> for Mode {
    fn from(word: ModeWord) -> Mode {
        match word {
            ModeWord::Observe => Mode::Observe,
            ModeWord::Enforce => Mode::Enforce,
        }
    }
}

/// Arguments of `restore`.
#[derive(Clone, Debug, clap::Args)]
pub struct RestoreArgs {
    /// Where the journal is, for when no tenantd runs.
    #[arg(long, value_name = "PATH", default_value = "/run/tenantd")]
    pub state_dir: PathBuf,
}

/// Arguments of `top`.
#[derive(Clone, Debug, clap::Args)]
pub struct TopArgs {
    /// What the tenants are sorted by at first.
    #[arg(long, value_name = "KEY", default_value = "policy")]
    pub sort: SortKey,
}

/// What the tenants of `top` are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SortKey {
    /// Their order in the policy.
    #[default]
    Policy,
    /// Their names.
    Name,
    /// CPUs used, the most first.
    Cpu,
    /// Memory used, the most first.
    Memory,
    /// How far they are below what they are entitled to, the farthest first.
    Error,
    /// How much of the time they wait for a CPU, the most first.
    Pressure,
}

/// Arguments of `metrics`.
#[derive(Clone, Debug, clap::Args)]
pub struct MetricsArgs {
    /// Replace this file, in one step, instead of printing; for node_exporter's textfile collector.
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Arguments of `serve`.
#[derive(Clone, Debug, clap::Args)]
pub struct ServeArgs {
    /// Where to listen. There is no password: beyond this machine, put a proxy before it.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9595")]
    pub listen: SocketAddr,
}

/// Arguments of `generate`.
#[derive(Clone, Debug, clap::Args)]
pub struct GenerateArgs {
    /// What to write.
    #[command(subcommand)]
    pub what: Generated,
}

/// What `generate` writes.
#[derive(Clone, Debug, Subcommand)]
pub enum Generated {
    /// The man pages: tenantd(8), tenantctl(1), one for each command, tenantd.policy(5).
    Man {
        /// The directory that they are written to.
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
    /// Completions of tenantctl for a shell, on standard output.
    Completions {
        /// The shell.
        #[arg(value_name = "SHELL")]
        shell: Shell,
    },
    /// The JSON schema of policies, on standard output.
    Schema,
}

/// A program's command line as the generators of man pages and completions want it.
pub fn command_of(program: Program) -> clap::Command {
    match program {
        Program::Tenantd => Tenantd::command(),
        Program::Tenantctl => Tenantctl::command(),
    }
}

/// One of the two programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// The daemon.
    Tenantd,
    /// What a person types.
    Tenantctl,
}

/// Arguments of the load that the demo starts below itself.
#[derive(Clone, Debug, clap::Args)]
pub struct LoadArgs {
    /// How it starts; further lines on standard input change it.
    #[arg(value_name = "LOAD", default_value = "threads=0")]
    pub load: String,
}
