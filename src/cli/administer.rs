//! `tenantctl diff`, `reload`, `mode` and `restore`: what changes the agent, or would.

use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use tracing::level_filters::LevelFilter;

use super::args::{Colour, DiffArgs, ModeArgs, RestoreArgs};
use super::client::{Client, ClientError};
use super::daemon::load;
use super::exit::Exit;
use super::log;
use super::text::{colours, wrapped};
use crate::daemon::recovery::leftover;
use crate::host::kernfs::RealKernFs;
use crate::policy::model::Mode;
use crate::policy::outline::{Change, ChangeKind, Outline};
use crate::varlink::interface::{
    CallError, Method, ModeReply, Nothing, PolicyReply, ReloadReply, RestoreReply,
    SetModeParameters,
};

/// The JSON of `diff`.
#[derive(Serialize)]
struct Difference {
    equal: bool,
    changes: Vec<Change>,
}

/// Runs `diff`: a policy against the running one.
///
/// # Errors
/// The daemon did not answer, or the output was not written.
pub(super) fn diff(socket: &Path, args: &DiffArgs, colour: Colour) -> anyhow::Result<Exit> {
    let Some(policy) = load(&args.policy, colour) else { return Ok(Exit::BadConfiguration) };
    let running: PolicyReply = Client::connect(socket)?.call(Method::GetPolicy, &Nothing {})?;
    let changes = running.policy.changes_to(&Outline::of(&policy));
    let mut out = io::stdout().lock();
    if args.json {
        let difference = Difference { equal: changes.is_empty(), changes };
        writeln!(out, "{}", serde_json::to_string(&difference)?)?;
        return Ok(Exit::Ok);
    }
    match changes.is_empty() {
        true => writeln!(out, "no difference to the running policy")?,
        false => {
            let colour = colours(colour, &out);
            print_changes(&mut out, &changes, colour)?;
        }
    }
    Ok(Exit::Ok)
}

/// Runs `reload`.
///
/// # Errors
/// As [`diff`].
pub(super) fn reload(socket: &Path, colour: Colour) -> anyhow::Result<Exit> {
    let reply: ReloadReply = match Client::connect(socket)?.call(Method::Reload, &Nothing {}) {
        Err(ClientError::Refused(CallError::BadPolicy { report, .. })) => {
            eprint!("{report}");
            eprintln!("tenantctl: the policy is not valid: the running one stays");
            return Ok(Exit::BadConfiguration);
        }
        outcome => outcome?,
    };
    let mut out = io::stdout().lock();
    match reply.changes.is_empty() {
        true => writeln!(out, "reloaded: nothing is different")?,
        false => {
            let colour = colours(colour, &out);
            print_changes(&mut out, &reply.changes, colour)?;
            writeln!(out, "reloaded")?;
        }
    }
    for finding in &reply.findings {
        let place = finding.line.map_or(finding.file.clone(), |l| format!("{}:{l}", finding.file));
        writeln!(out, "{}", wrapped("note: ", &format!("{} ({place})", finding.message)))?;
    }
    Ok(Exit::Ok)
}

/// Runs `mode`.
///
/// # Errors
/// As [`diff`].
pub(super) fn mode(socket: &Path, args: &ModeArgs) -> anyhow::Result<Exit> {
    let mode = Mode::from(args.mode);
    let reply: ModeReply =
        Client::connect(socket)?.call(Method::SetMode, &SetModeParameters { mode })?;
    let mut out = io::stdout().lock();
    match reply.before == mode {
        true => writeln!(out, "mode {}, as before", mode.word())?,
        false => writeln!(out, "mode {}, it was {}", mode.word(), reply.before.word())?,
    }
    tell_failures(&reply.failures)
}

/// Runs `restore`: by the daemon where there is one, or else from its journal.
///
/// # Errors
/// As [`diff`], or the journal cannot be read.
pub(super) fn restore(socket: &Path, args: &RestoreArgs) -> anyhow::Result<Exit> {
    let (reply, by_daemon) = match Client::connect(socket) {
        Ok(mut client) => (client.call(Method::Restore, &Nothing {})?, true),
        Err(ClientError::NotRunning(_)) => {
            log::start(LevelFilter::WARN);
            let restored = leftover::restore_only(&mut RealKernFs::new(), &args.state_dir)?;
            let reply = RestoreReply {
                files: restored.nr_files as u64,
                processes: restored.nr_processes as u64,
                cgroups: restored.nr_cgroups as u64,
                failures: restored.failures,
            };
            (reply, false)
        }
        Err(error) => return Err(error.into()),
    };
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "put back: {} files, {} processes; removed: {} cgroups",
        reply.files, reply.processes, reply.cgroups
    )?;
    if by_daemon {
        writeln!(out, "tenantd goes on observing; `tenantctl mode enforce` lets it enforce again")?;
    }
    tell_failures(&reply.failures)
}

fn tell_failures(failures: &[String]) -> anyhow::Result<Exit> {
    for failure in failures {
        eprintln!("{}", wrapped("not put back: ", failure));
    }
    Ok(if failures.is_empty() { Exit::Ok } else { Exit::Failed })
}

/// A line for each difference: `+` what is new, `-` what is gone, `~` what is another.
fn print_changes(out: &mut impl Write, changes: &[Change], colour: bool) -> io::Result<()> {
    for change in changes {
        let (mark, code) = match (change.kind, &change.key) {
            (ChangeKind::Added, None) => ("+", "32"),
            (ChangeKind::Removed, None) => ("-", "31"),
            _ => ("~", "33"),
        };
        let line = wrapped(&format!("{mark} "), &change.to_string());
        match colour {
            true => writeln!(out, "\x1b[{code}m{line}\x1b[0m")?,
            false => writeln!(out, "{line}")?,
        }
    }
    Ok(())
}
