//! `tenantctl diff`, `reload` and `restore`: commands that change the agent, or show the change.
//!
//! With `--json` each prints one object, even after a partial success. A restore without a daemon works
//! from the journal of a state directory. A socket does not identify that directory, so `restore` with
//! `--socket` and without a daemon refuses instead of taking the journal of another agent.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::json;
use tracing::level_filters::LevelFilter;

use crate::args::{Colour, DiffArgs, ReloadArgs, RestoreArgs, SOCKET, STATE_DIR};
use crate::common::exit::{self, Exit};
use tenantd::args::colours;
use tenantd::command::{load, may_look_into};
use tenantd::log;
use tenantd::recovery::leftover;
use tenantd_host::kernfs::RealKernFs;
use tenantd_lab::json;
use tenantd_lab::text::wrapped;
use tenantd_policy::outline::{Change, ChangeKind, Outline};
use tenantd_varlink::client::{ClientError, Endpoint};
use tenantd_varlink::error::CallError;
use tenantd_varlink::interface::{Nothing, ReloadReply, RestoreReply, method};

#[derive(Serialize)]
struct Difference {
    equal: bool,
    changes: Vec<Change>,
}

pub(crate) fn diff(daemon: &Endpoint, args: &DiffArgs, colour: Colour) -> anyhow::Result<Exit> {
    let Some(policy) = load(&args.policy, colour) else { return Ok(Exit::BadConfiguration) };
    let running = daemon.call::<method::GetPolicy>(&Nothing {})?;
    let changes = running.policy.changes_to(&Outline::of(&policy));
    let equal = changes.is_empty();
    let mut out = io::stdout().lock();
    match (args.json, equal) {
        (true, _) => json::write_line(&mut out, &Difference { equal, changes })?,
        (false, true) => writeln!(out, "no differences from the running policy")?,
        (false, false) => {
            let colour = colours(colour, &out);
            print_changes(&mut out, &changes, colour)?;
        }
    }
    Ok(if args.exit_code && !equal { Exit::Failed } else { Exit::Ok })
}

pub(crate) fn reload(daemon: &Endpoint, args: &ReloadArgs, colour: Colour) -> anyhow::Result<Exit> {
    let mut out = io::stdout().lock();
    let reply: ReloadReply = match daemon.call::<method::Reload>(&Nothing {}) {
        Err(ClientError::Refused(CallError::BadPolicy { report, findings })) => {
            if args.json {
                json::write_line(&mut out, &json!({ "reloaded": false, "findings": findings }))?
            } else {
                eprint!("{report}")
            }
            eprintln!("tenantctl: the policy is invalid: the running policy stays in force");
            return Ok(Exit::BadConfiguration);
        }
        outcome => outcome?,
    };
    let ReloadReply { changes, findings } = &reply;
    if args.json {
        let object = json!({ "reloaded": true, "changes": changes, "findings": findings });
        json::write_line(&mut out, &object)?;
        return Ok(Exit::Ok);
    }
    if changes.is_empty() {
        writeln!(out, "reloaded: no changes")?
    } else {
        let colour = colours(colour, &out);
        print_changes(&mut out, changes, colour)?;
        writeln!(out, "reloaded")?;
    }
    for finding in findings {
        let place = finding.line.map_or(finding.file.clone(), |l| format!("{}:{l}", finding.file));
        writeln!(out, "{}", wrapped("note: ", &format!("{} ({place})", finding.message)))?;
    }
    Ok(Exit::Ok)
}

#[derive(Serialize)]
struct Restored {
    #[serde(flatten)]
    reply: RestoreReply,
    /// True if a running daemon did it, which observes from now on.
    by_daemon: bool,
}

/// Runs `restore`: by the daemon, or without one from the journal.
pub(crate) fn restore(daemon: &Endpoint, args: &RestoreArgs) -> anyhow::Result<Exit> {
    let restored = match daemon.connect() {
        Ok(mut client) => {
            Restored { reply: client.call::<method::Restore>(&Nothing {})?, by_daemon: true }
        }
        Err(error @ ClientError::NotRunning(_)) => {
            let Some(state_dir) = state_dir(daemon, args) else {
                eprintln!("tenantctl: {}", unknown_journal(&daemon.path));
                return Ok(exit::of(&error.into()));
            };
            Restored { reply: restore_from_journal(&state_dir)?, by_daemon: false }
        }
        Err(error) => return Err(error.into()),
    };
    let reply = &restored.reply;
    let mut out = io::stdout().lock();
    if args.json {
        json::write_line(&mut out, &restored)?;
    } else {
        writeln!(
            out,
            "restored: {} files, {} processes; removed: {} cgroups",
            reply.files, reply.processes, reply.cgroups
        )?;
        for left in &reply.left {
            writeln!(out, "{}", wrapped("", left))?;
        }
        if restored.by_daemon {
            writeln!(out, "tenantd observes now; `tenantctl mode enforce` lets it enforce again")?;
        }
    }
    Ok(print_failures(NOT_RESTORED, &reply.failures, args.json))
}

/// State directory to restore from: the named one, or the default one beside the default socket.
fn state_dir(daemon: &Endpoint, args: &RestoreArgs) -> Option<PathBuf> {
    let default = (daemon.path == Path::new(SOCKET)).then(|| PathBuf::from(STATE_DIR));
    args.state_dir.clone().or(default)
}

fn unknown_journal(socket: &Path) -> String {
    // tenantd creates its socket in its state directory by default.
    let usual = socket.parent().filter(|dir| !dir.as_os_str().is_empty());
    let usual = usual.unwrap_or(Path::new(".")).display();
    format!(
        "tenantd does not answer on {}. Without it, restore needs the state directory with its journal, \
         usually {usual}: name it with --state-dir {usual}",
        socket.display()
    )
}

fn restore_from_journal(state_dir: &Path) -> anyhow::Result<RestoreReply> {
    log::start(LevelFilter::WARN);
    may_look_into(state_dir)?;
    let restored = leftover::restore_only(&mut RealKernFs::new(), state_dir)?;
    Ok(RestoreReply {
        files: restored.nr_files as u64,
        processes: restored.nr_processes as u64,
        cgroups: restored.nr_cgroups as u64,
        left: restored.remarks(),
        failures: restored.failures,
    })
}

pub(crate) const NOT_RESTORED: &str = "not restored: ";

/// Prints failures, unless the JSON contains them.
pub(crate) fn print_failures(what: &str, failures: &[String], is_json: bool) -> Exit {
    for failure in failures.iter().filter(|_| !is_json) {
        eprintln!("{}", wrapped(what, failure));
    }
    if failures.is_empty() { Exit::Ok } else { Exit::Failed }
}

/// Prints a line for each difference: `+` added, `-` removed, `~` changed.
fn print_changes(out: &mut impl Write, changes: &[Change], colour: bool) -> io::Result<()> {
    for change in changes {
        let (mark, code) = match (change.kind, &change.key) {
            (ChangeKind::Added, None) => ("+", "32"),
            (ChangeKind::Removed, None) => ("-", "31"),
            _ => ("~", "33"),
        };
        let line = wrapped(&format!("{mark} "), &change.to_string());
        if colour { writeln!(out, "\x1b[{code}m{line}\x1b[0m")? } else { writeln!(out, "{line}")? }
    }
    Ok(())
}
