//! The command line of `tenantd`, and options shared by both programs. The only file of this crate that names
//! the argument parser.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// State directory of an installed tenantd.
pub const STATE_DIR: &str = "/run/tenantd";

/// The agent that divides CPU and memory of one machine fairly among its tenants.
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
    /// Restore what an earlier tenantd changed, and exit.
    #[arg(long, conflicts_with_all = ["once", "observe"])]
    pub restore: bool,
    /// With --restore: keep the values that a tenantd left on purpose (`control.on_exit: keep`).
    #[arg(long, requires = "restore")]
    pub unless_kept: bool,
    /// The cgroup of the tenants: relative to the mount point if it starts with `/`, else to the cgroup of
    /// the agent.
    #[arg(long, value_name = "PATH")]
    pub root: Option<PathBuf>,
    /// The socket to listen on, by default `socket` in the state directory; a socket passed by systemd has
    /// precedence.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// The directory of the journal, which records what was changed.
    #[arg(long, value_name = "PATH", default_value = STATE_DIR)]
    pub state_dir: PathBuf,
    /// The directory of the history, which `tenantctl history` reads; without it, none is kept.
    #[arg(long, value_name = "PATH")]
    pub history: Option<PathBuf>,
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

/// True if `stream` gets colours: on a terminal, unless `NO_COLOR` is set (no-color.org). Every coloured output
/// calls this.
pub fn colours(choice: Colour, stream: &impl IsTerminal) -> bool {
    match choice {
        Colour::Always => true,
        Colour::Never => false,
        Colour::Auto => {
            let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
            stream.is_terminal() && wanted
        }
    }
}
