//! The command line of `tenantctl`, as types. The only file of this crate that names the argument parser.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use crate::common::host_size::{HostSize, host_size};
pub use crate::common::job_options::{self, Indices};
use clap::{Arg, CommandFactory, Parser, Subcommand, ValueEnum, value_parser};
use clap_complete::Shell;
pub use tenantd::args::{Colour, STATE_DIR, Tenantd};
use tenantd_lab::args::{DopArgs, SimulateCommand, SolveArgs};

use tenantd_core::units::Bytes;
use tenantd_policy::model::Mode;
use tenantd_varlink::jobs::Units;

/// The socket of an installed tenantd.
pub const SOCKET: &str = "/run/tenantd/socket";
/// The history of an installed tenantd.
pub const HISTORY_DIR: &str = "/var/lib/tenantd/history";
/// The longest time that can be given.
const TIME_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// Query and administer tenantd, the agent that divides one machine fairly among its tenants.
#[derive(Clone, Debug, Parser)]
#[command(name = "tenantctl", version, max_term_width = 100)]
pub struct Tenantctl {
    /// The socket of the running tenantd.
    #[arg(long, global = true, value_name = "PATH", default_value = SOCKET)]
    pub socket: PathBuf,
    /// The time for each call to tenantd, in seconds or as in `5min`, instead of 10 (to read) or 30 (to change
    /// something). For `run`: the time in the queue, instead of any.
    #[arg(long, global = true, value_name = "TIME", value_parser = time)]
    pub timeout: Option<Duration>,
    /// When to use colours.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub color: Colour,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// A positive time of at most 30 days.
fn time(text: &str) -> Result<Duration, String> {
    let number = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let parsed = number.or_else(|| humantime::parse_duration(text).ok());
    let in_range = parsed.filter(|time| *time > Duration::ZERO && *time <= TIME_MAX);
    in_range.ok_or_else(|| "must be a number of seconds, or a time such as `90s` or `2h`, above 0 and up to 30 days".to_string())
}

/// Options that a command accepts, because all do, and that have no effect on it: its help does not list them.
fn unused() -> [Arg; 2] {
    let hidden = |name: &'static str| Arg::new(name).long(name).global(true).hide(true);
    [hidden("socket").value_parser(value_parser!(PathBuf)), hidden("timeout").value_parser(time)]
}

/// The commands of `tenantctl`.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Demonstrate fair sharing on this machine: create tenants, load them, show their shares, clean up.
    Demo(DemoArgs),
    /// Print the tenants and their shares.
    Status(StatusArgs),
    /// Print your own tenant: its shares, its use, its limits, why it is slow, and your jobs. Every user may call it.
    Me(MeArgs),
    /// Print the tenants at each tick, until interrupted.
    Watch(WatchArgs),
    /// Explain how each value of a tenant came about.
    Explain(ExplainArgs),
    /// Print the values that would be written now, with reasons; writes nothing.
    Plan(PlanArgs),
    /// Print past shortages with their reasons, and past usage and shares.
    History(HistoryArgs),
    /// Propose a policy from what runs on this host, and check it.
    Init(InitArgs),
    /// Check a policy, file or directory, and print all findings.
    #[command(args = unused())]
    Check(CheckArgs),
    /// Print the differences between a policy and the running one.
    Diff(DiffArgs),
    /// Load the policy again; an invalid policy leaves the running one in force.
    Reload(ReloadArgs),
    /// Switch between observe and enforce.
    Mode(ModeArgs),
    /// Restore everything that tenantd changed; a running tenantd then only observes.
    Restore(RestoreArgs),
    /// Hand running work to a tenant: a cgroup where it is, or processes, which are moved.
    Attach(AttachArgs),
    /// Take back what was attached.
    Detach(DetachArgs),
    /// Run a command as a job: it waits for a fair turn, and starts as wide as fits.
    Run(RunArgs),
    /// Print the jobs that run and wait, and those that have finished.
    Jobs(JobsArgs),
    /// Wait until a job has ended, and exit with its exit status.
    Wait(WaitArgs),
    /// Print the output of a job that runs in the background.
    Logs(LogsArgs),
    /// Take a job out of the queue, or end its processes.
    Cancel(CancelArgs),
    /// Compute the allocation of a problem file.
    #[command(args = unused())]
    Solve(SolveArgs),
    /// Compute an auto-DOP problem file.
    #[command(args = unused())]
    Dop(DopArgs),
    /// Simulate a queue beside the ideal, or a host beside static settings.
    #[command(args = unused())]
    Simulate(SimulateCommand),
    /// Show the tenants on the full screen; `q` quits.
    Top(TopArgs),
    /// Print the last tick as metrics, in the text format of Prometheus or OpenMetrics.
    Metrics(MetricsArgs),
    /// Serve the metrics and a status page over HTTP: tenants, reasons, jobs, processes, the last hour.
    Serve(ServeArgs),
    /// Generate man pages, shell completions or the JSON schema of policies, for packages.
    #[command(args = unused())]
    Generate(GenerateArgs),
    /// Generate load as specified on standard input, until it ends.
    #[command(hide = true)]
    Load(LoadArgs),
}

/// Arguments of `init`.
#[derive(Clone, Debug, clap::Args)]
pub struct InitArgs {
    /// The file to write, which must not exist; `-` prints the proposal. By default /etc/tenantd/policy.yaml where
    /// tenantd is installed and that file is missing or as installed; otherwise the proposal is printed.
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print one JSON object, with the policy as text and what `check` finds.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `check`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct CheckArgs {
    /// Policy files, or directories whose `*.yaml` files form one policy; `-` reads standard input.
    #[arg(value_name = "POLICY", required = true)]
    pub policies: Vec<PathBuf>,
    /// Check for a machine of this size, as in `cpus=64,memory=256GiB`, instead of this one. Users, groups, units
    /// and cgroups are not looked up then.
    #[arg(long, value_name = "SIZE", value_parser = host_size)]
    pub host: Option<HostSize>,
    /// Print all findings in full, not only the first ten; errors come before warnings and notes.
    #[arg(long)]
    pub all: bool,
    /// Exit with 78 also for warnings.
    #[arg(long)]
    pub strict: bool,
    /// Print one JSON object instead of text.
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
    /// Exit with 1 also if there is no verdict because other programs took CPU time: for CI.
    #[arg(long)]
    pub strict: bool,
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
    /// The policy to plan for, a YAML file or a directory; by default the one of the running tenantd, or else
    /// /etc/tenantd.
    #[arg(long, value_name = "P")]
    pub policy: Option<PathBuf>,
    /// The cgroup of the tenants, instead of the one in the policy.
    #[arg(long, value_name = "PATH")]
    pub root: Option<PathBuf>,
    /// Plan for what was recorded, a directory or one file of the history, beside what was decided then.
    #[arg(long, value_name = "PATH", requires = "policy", conflicts_with = "root")]
    pub replay: Option<PathBuf>,
    /// Write a page with pictures of the replay to this file as well.
    #[arg(long, value_name = "OUT.html", requires = "replay")]
    pub report: Option<PathBuf>,
    /// Print times of a replay in UTC, not in the time zone of this host.
    #[arg(long, requires = "replay")]
    pub utc: bool,
    /// Print one JSON object instead of a table; of a replay, one for each tick, and the summary last.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `history`.
#[derive(Clone, Debug, clap::Args)]
pub struct HistoryArgs {
    /// The path of a tenant, such as `ci/nightly`: its course over the time. Without it, all tenants.
    #[arg(value_name = "TENANT")]
    pub tenant: Option<String>,
    /// The beginning: a time of the last day as `03:00`, a date and time as `2026-01-31 03:00`, `yesterday`, or a time
    /// before now as `2h` or `-2h`. Without it, an hour before the end.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub since: Option<String>,
    /// The end, likewise; without it, that of the recording.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub until: Option<String>,
    /// The directory of the history, or one file of it; by default that of the running tenantd, or else
    /// /var/lib/tenantd/history.
    #[arg(long, value_name = "PATH")]
    pub dir: Option<PathBuf>,
    /// Read and print times in UTC; without it, in the time zone of this host (or of TZ). JSON is in UTC anyway.
    #[arg(long)]
    pub utc: bool,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    pub json: bool,
}

/// Choice, order and columns of the tenants in `status` and `watch`.
#[derive(Clone, Debug, clap::Args)]
pub struct TenantsArgs {
    /// Only this tenant, or this group with its tenants.
    #[arg(value_name = "TENANT")]
    pub tenant: Option<String>,
    /// Only tenants that lack a part of their share, with all reasons.
    #[arg(long)]
    pub lacking: bool,
    /// Sort by this column.
    #[arg(long, value_name = "COLUMN", default_value = "policy")]
    pub sort: SortKey,
    /// Show more columns (most CPUs that a tenant could get now, dominant share, degree of parallelism), and each idle
    /// tenant. Without it, a terminal shows three or more idle tenants of a group as one row.
    #[arg(long, short)]
    pub verbose: bool,
}

/// Arguments of `status`.
#[derive(Clone, Debug, clap::Args)]
pub struct StatusArgs {
    /// Tenants to show.
    #[command(flatten)]
    pub tenants: TenantsArgs,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `watch`.
#[derive(Clone, Debug, clap::Args)]
pub struct WatchArgs {
    /// Tenants to show.
    #[command(flatten)]
    pub tenants: TenantsArgs,
    /// Print one JSON object a line instead of tables.
    #[arg(long)]
    pub json: bool,
    /// End after N ticks.
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
}

/// Arguments of `me`.
#[derive(Clone, Debug, clap::Args)]
pub struct MeArgs {
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
    /// Print one line for a login. Print nothing, and exit with 0, if tenantd does not answer within a second or only
    /// observes, or if no tenant is yours.
    #[arg(long, conflicts_with = "json")]
    pub line: bool,
}

/// Arguments of `explain`.
#[derive(Clone, Debug, clap::Args)]
pub struct ExplainArgs {
    /// The path of a tenant or group, such as `ci/nightly`. Without it, your own tenant.
    #[arg(value_name = "TENANT")]
    pub tenant: Option<String>,
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
    /// Exit with 1 if there are differences, and with 0 if there are none.
    #[arg(long)]
    pub exit_code: bool,
}

/// Arguments of `reload`.
#[derive(Clone, Debug, clap::Args)]
pub struct ReloadArgs {
    /// Print one JSON object instead of lines.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `mode`.
#[derive(Clone, Debug, clap::Args)]
pub struct ModeArgs {
    /// The new mode.
    #[arg(value_name = "MODE")]
    pub mode: ModeWord,
    /// Write the mode into the policy as well; otherwise it ends with the next start of tenantd.
    #[arg(long)]
    pub save: bool,
    /// Print one JSON object instead of lines.
    #[arg(long)]
    pub json: bool,
}

/// The modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModeWord {
    /// Restore what was written, and write nothing.
    Observe,
    /// Write the computed values.
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
    /// The directory of the journal, for when no tenantd runs; /run/tenantd, unless --socket is given.
    #[arg(long, value_name = "PATH")]
    pub state_dir: Option<PathBuf>,
    /// Print one JSON object instead of lines.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `attach`.
#[derive(Clone, Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("work").required(true))]
#[command(
    override_usage = "tenantctl attach [OPTIONS] TENANT PID...\n       tenantctl attach [OPTIONS] TENANT --cgroup PATH"
)]
pub struct AttachArgs {
    /// The tenant, not a group.
    #[arg(value_name = "TENANT")]
    pub tenant: String,
    /// Processes: they are moved into a cgroup of the tenant's, and go back when they are detached.
    #[arg(value_name = "PID", group = "work", value_parser = clap::value_parser!(u32).range(1..))]
    pub pids: Vec<u32>,
    /// A cgroup, from the mount point: it becomes a part of the tenant where it is, until it ends.
    #[arg(long, value_name = "PATH", group = "work")]
    pub cgroup: Option<String>,
    /// Move processes out of their service or session too. Systemd takes them for ended then: a service without other
    /// processes stops.
    #[arg(long, conflicts_with = "cgroup")]
    pub leave_unit: bool,
    /// Print one JSON object instead of a line.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `detach`.
#[derive(Clone, Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("work").required(true))]
#[command(
    override_usage = "tenantctl detach [OPTIONS] PID...\n       tenantctl detach [OPTIONS] --cgroup PATH"
)]
pub struct DetachArgs {
    /// Processes: those that are still where they were put go where they came from.
    #[arg(value_name = "PID", group = "work", value_parser = clap::value_parser!(u32).range(1..))]
    pub pids: Vec<u32>,
    /// A cgroup that was attached.
    #[arg(long, value_name = "PATH", group = "work")]
    pub cgroup: Option<String>,
    /// Print one JSON object instead of a line.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `run`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct RunArgs {
    /// The tenant; by default that of the user.
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    /// A name for jobs that cost about the same, so that the cost of the next one is known.
    #[arg(long, value_name = "NAME")]
    pub class: Option<String>,
    /// The memory that it needs, such as `4GiB`: it is reserved for the job, which cannot use more.
    #[arg(long, value_name = "AMOUNT", value_parser = job_options::memory)]
    pub memory: Option<Bytes>,
    /// The GPUs that it needs: short for `--resource gpu=N`.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub gpu: Option<u32>,
    /// Units that it needs of a counted resource of the policy; can be repeated.
    #[arg(long = "resource", value_name = "NAME=N", value_parser = job_options::units)]
    pub resources: Vec<Units>,
    /// Exactly as many CPUs wide; it waits until they are free.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub dop: Option<u32>,
    /// At most as many CPUs wide.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "dop")]
    pub max_dop: Option<u32>,
    /// Exit with 75 where it cannot start at once.
    #[arg(long)]
    pub no_wait: bool,
    /// Run the command all the same if no tenantd answers, if it only observes, or if you may not submit jobs.
    #[arg(long)]
    pub or_run: bool,
    /// Print the number of the job and return; its output goes to a file (see `logs`).
    #[arg(long, conflicts_with = "or_run")]
    pub background: bool,
    /// Run the command once for each index from FIRST to LAST, at most N at a time: each start waits for its own turn. In
    /// the arguments `{index}` becomes the index, which is also in TENANTD_ARRAY_INDEX. Exits with 0 if all succeeded, else
    /// with 123.
    #[arg(long, value_name = "FIRST-LAST[%N]", value_parser = job_options::indices, conflicts_with = "or_run")]
    pub array: Option<Indices>,
    /// Older jobs that have to end before it, whatever their result.
    #[arg(long, value_name = "ID[,ID…]", value_delimiter = ',', conflicts_with = "or_run")]
    pub after: Vec<u64>,
    /// Older jobs that have to exit with 0 before it; if one does not, it does not start, and `run` exits with 66.
    #[arg(long, value_name = "ID[,ID…]", value_delimiter = ',', conflicts_with = "or_run")]
    pub after_ok: Vec<u64>,
    /// Start no further index after one that has failed.
    #[arg(long, requires = "array")]
    pub stop_on_failure: bool,
    /// Let tenantd end it for a guarantee, or for a job of a tenant below its share, and run it again later. `tenantctl` stays
    /// until the end; the exit code is that of the last run.
    #[arg(long, conflicts_with = "array")]
    pub requeue: bool,
    /// With --requeue: time between SIGTERM and SIGKILL [default: 30s].
    #[arg(long, value_name = "TIME", value_parser = job_options::grace, requires = "requeue")]
    pub grace: Option<u32>,
    /// A shell command that runs as you when the job has ended, with TENANTD_JOB_ID, TENANTD_EXIT and TENANTD_REASON
    /// in its environment.
    #[arg(long, value_name = "COMMAND", requires = "background")]
    pub on_end: Option<String>,
    /// The command. In its arguments `{dop}` becomes the number of CPUs that it may use.
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

impl RunArgs {
    /// Time between SIGTERM and SIGKILL of an eviction, in seconds.
    pub fn grace(&self) -> u32 {
        self.grace.unwrap_or(job_options::GRACE_SECONDS)
    }
}

/// Arguments of `jobs`.
#[derive(Clone, Debug, clap::Args)]
pub struct JobsArgs {
    /// The number of a job: everything about it.
    #[arg(value_name = "ID", conflicts_with = "all")]
    pub id: Option<u64>,
    /// Print the finished jobs as well: yours, or all for root and administrators.
    #[arg(long)]
    pub all: bool,
    /// Print the figures of the finished jobs of a class: peak memory, times, and the memory to declare.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["id", "all"])]
    pub class: Option<String>,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `wait`.
#[derive(Clone, Debug, clap::Args)]
pub struct WaitArgs {
    /// The number of the job: see `tenantctl jobs --all`.
    #[arg(value_name = "ID")]
    pub id: u64,
    /// Print one JSON object instead of a line.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `logs`.
#[derive(Clone, Debug, clap::Args)]
pub struct LogsArgs {
    /// The number of the job, as `run --background` printed it.
    #[arg(value_name = "ID")]
    pub id: u64,
    /// Print what is added, until the job has ended.
    #[arg(short, long)]
    pub follow: bool,
}

/// Arguments of `cancel`.
#[derive(Clone, Debug, clap::Args)]
pub struct CancelArgs {
    /// The number of the job: see `tenantctl jobs`.
    #[arg(value_name = "ID")]
    pub id: u64,
    /// Print one JSON object instead of a line.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `top`.
#[derive(Clone, Debug, clap::Args)]
pub struct TopArgs {
    /// Open this tenant or group: its members and its processes.
    #[arg(value_name = "TENANT")]
    pub tenant: Option<String>,
    /// The initial sort key.
    #[arg(long, value_name = "KEY", default_value = "policy")]
    pub sort: SortKey,
    /// Show the tick of this time from the recording: a time of the last day as `03:00`, a date and time as
    /// `2026-01-31 03:00`, or a time before now as `2h`.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub at: Option<String>,
    /// The directory of the recording, or one file of it.
    #[arg(long, value_name = "PATH", default_value = HISTORY_DIR, requires = "at")]
    pub dir: PathBuf,
    /// Read and print the time in UTC; without it, in the time zone of this host (or of TZ).
    #[arg(long, requires = "at")]
    pub utc: bool,
}

/// The sort keys of `status`, `watch` and `top`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SortKey {
    /// The order of the policy.
    #[default]
    Policy,
    /// Tenants that lack a part of their share first, each group with the first of its tenants.
    Lacking,
    /// The name.
    Name,
    /// CPU usage, largest first.
    Cpu,
    /// CPUs wanted, most first.
    Wanted,
    /// CPUs of the share now, most first.
    ShareNow,
    /// CPUs of the share if busy, most first.
    ShareIfBusy,
    /// Memory usage, largest first.
    Memory,
    /// The share error, largest first.
    Error,
    /// CPU pressure, largest first.
    Pressure,
}

/// Arguments of `metrics`.
#[derive(Clone, Debug, clap::Args)]
pub struct MetricsArgs {
    /// Replace FILE atomically instead of printing; for node_exporter's textfile collector.
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The text format.
    #[arg(long, value_name = "FORMAT", default_value = "prometheus")]
    pub format: Format,
}

/// The text formats of metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// The text format of Prometheus, version 0.0.4.
    #[default]
    Prometheus,
    /// OpenMetrics 1.0.
    Openmetrics,
}

/// Arguments of `serve`.
#[derive(Clone, Debug, clap::Args)]
pub struct ServeArgs {
    /// The address to listen on. There is no authentication: put a proxy in front for other machines.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9595")]
    pub listen: SocketAddr,
}

/// Arguments of `generate`.
#[derive(Clone, Debug, clap::Args)]
pub struct GenerateArgs {
    /// What to generate.
    #[command(subcommand)]
    pub what: Generated,
}

/// The outputs of `generate`.
#[derive(Clone, Debug, Subcommand)]
pub enum Generated {
    /// The man pages: tenantd(8), tenantctl(1), one for each command, tenantd.policy(5).
    Man {
        /// The output directory.
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

/// The command line of a program, for the generators of man pages and completions.
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
    /// The command for administrators and users.
    Tenantctl,
}

/// Arguments of the load generator of the demo.
#[derive(Clone, Debug, clap::Args)]
pub struct LoadArgs {
    /// The initial load; lines on standard input change it.
    #[arg(value_name = "LOAD", default_value = "threads=0")]
    pub load: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_memory_of_a_job_is_named() {
        let parse =
            |memory| Tenantctl::try_parse_from(["tenantctl", "run", "--memory", memory, "x"]);
        let error = parse("5").map(drop).unwrap_err().to_string();
        assert!(error.contains("no process fits into less than 1MiB"), "{error}");
        for memory in ["0", "1MiB", "5GiB"] {
            assert!(parse(memory).is_ok(), "{memory}");
        }
    }

    #[test]
    fn commands_without_a_daemon_take_its_options_and_do_not_list_them() {
        for command in ["check", "solve", "dop", "simulate", "generate"] {
            let mut all = Tenantctl::command();
            all.build();
            let help = all.find_subcommand_mut(command).unwrap().render_long_help().to_string();
            assert!(!help.contains("--socket") && !help.contains("--timeout"), "{help}");
        }
        for line in [
            ["tenantctl", "--socket", "/s", "solve", "--example"],
            ["tenantctl", "solve", "--socket", "/s", "--example"],
        ] {
            let parsed = Tenantctl::try_parse_from(line).map_err(|error| error.to_string());
            assert_eq!(parsed.unwrap().socket, PathBuf::from("/s"), "{line:?}");
        }
        let parsed = Tenantctl::try_parse_from(["tenantctl", "solve", "--example"]).unwrap();
        assert_eq!(parsed.socket, PathBuf::from(SOCKET));
    }
}
