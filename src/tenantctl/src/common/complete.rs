//! Completion in shells: commands, options and files, and the tenants and jobs of the running daemon.
//!
//! The scripts of `tenantctl generate completions` call this program with [`VARIABLE`] set. A completion never fails and never
//! delays the shell: a daemon that does not answer within [`TIME`] has no values.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;
use std::{env, io};

use clap::{Arg, ValueHint};
use clap_complete::Shell;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};

use crate::args::{Program, SOCKET, command_of};
use tenantd_varlink::client::{ClientError, Endpoint};
use tenantd_varlink::interface::{Nothing, method};
use tenantd_varlink::jobs::FinishedParameters;

/// Environment variable that names the shell.
const VARIABLE: &str = "TENANTCTL_COMPLETE";
/// Deadline of each call.
const TIME: Duration = Duration::from_millis(500);

/// Arguments that name tenants, and those that name tenants or groups, by command.
const TENANTS: [(&str, &str); 2] = [("attach", "tenant"), ("run", "tenant")];
const NODES: [(&str, &str); 5] = [
    ("status", "tenant"),
    ("watch", "tenant"),
    ("explain", "tenant"),
    ("history", "tenant"),
    ("top", "tenant"),
];
/// Arguments that name jobs: those that run and wait, and finished ones too.
const ACTIVE: [(&str, &str); 1] = [("cancel", "id")];
const JOBS: [(&str, &str); 3] = [("jobs", "id"), ("wait", "id"), ("logs", "id")];
/// Arguments that are paths, and are text because they name cgroups or commands.
const PATHS: [(&str, &str); 3] = [("attach", "cgroup"), ("detach", "cgroup"), ("run", "command")];

/// Answers a shell and ends the process if this is a call for a completion.
pub fn answer() {
    CompleteEnv::with_factory(command).var(VARIABLE).completer("tenantctl").complete();
}

/// Writes the script that makes `shell` call this program.
pub(crate) fn script(shell: Shell, out: &mut impl Write) -> io::Result<()> {
    let shells = Shells::builtins();
    let name = shell.to_string();
    let Some(shell) = shells.completer(&name) else { return Ok(()) };
    let mut text = Vec::new();
    shell.write_registration(VARIABLE, "tenantctl", "tenantctl", "tenantctl", &mut text)?;
    out.write_all(&text)?;
    if name == "zsh" {
        // An autoloaded file is the body of the function at its first call.
        writeln!(out, "[[ $funcstack[1] == _tenantctl ]] && {ZSH_FUNCTION} \"$@\"")?;
    }
    Ok(())
}

const ZSH_FUNCTION: &str = "_clap_dynamic_completer_tenantctl";

/// Arguments, by command and name, and what completes them.
type Source = (&'static [(&'static str, &'static str)], fn() -> Vec<CompletionCandidate>);

/// The command line without hidden commands, with the values of its arguments.
fn command() -> clap::Command {
    let whole = command_of(Program::Tenantctl);
    let visible = whole.get_subcommands().filter(|command| !command.is_hide_set());
    let mut command =
        clap::Command::new("tenantctl").args(whole.get_arguments()).subcommands(visible.cloned());
    let sources: [Source; 4] = [
        (&TENANTS, || tenants(false)),
        (&NODES, || tenants(true)),
        (&ACTIVE, || jobs(false)),
        (&JOBS, || jobs(true)),
    ];
    let changed = |command: clap::Command, place: &(&str, &str), change: &dyn Fn(Arg) -> Arg| {
        let (name, argument) = *place;
        // In place: mut_arg would change the order of positional arguments.
        let of = |it: Arg| if it.get_id().as_str() == argument { change(it) } else { it };
        command.mut_subcommand(name, |it| it.mut_args(of))
    };
    for (places, values) in sources {
        for place in places {
            command = changed(command, place, &|it| it.add(ArgValueCandidates::new(values)));
        }
    }
    for place in &PATHS {
        command = changed(command, place, &|it| it.value_hint(ValueHint::AnyPath));
    }
    command
}

/// The daemon on the socket of the command line.
fn daemon() -> Endpoint {
    let words: Vec<OsString> = env::args_os().collect();
    let typed = words.windows(2).rev().find(|pair| pair[0] == "--socket");
    let path = typed.map_or_else(|| PathBuf::from(SOCKET), |pair| PathBuf::from(&pair[1]));
    Endpoint { path, timeout: Some(TIME) }
}

/// Names of all tenants, for a user without permission of the own ones.
fn tenants(with_groups: bool) -> Vec<CompletionCandidate> {
    let daemon = daemon();
    let names: Result<Vec<String>, ClientError> = match daemon
        .call::<method::GetStatus>(&Nothing {})
    {
        Ok(reply) => {
            let groups = reply.status.groups.into_iter().filter(|_| with_groups);
            let tenants = reply.status.tenants.into_iter().map(|tenant| tenant.name.to_string());
            Ok(tenants.chain(groups.map(|group| group.name.to_string())).collect())
        }
        Err(ClientError::NotReader { .. }) => {
            let view = daemon.call::<method::GetOwnView>(&Nothing {});
            view.map(|reply| reply.view.tenants.into_iter().map(|tenant| tenant.name).collect())
        }
        Err(error) => Err(error),
    };
    names.unwrap_or_default().into_iter().map(CompletionCandidate::new).collect()
}

/// Numbers of jobs, each with its command.
fn jobs(with_finished: bool) -> Vec<CompletionCandidate> {
    let daemon = daemon();
    let listed = daemon.call::<method::List>(&Nothing {}).map(|reply| reply.jobs);
    let active = listed.unwrap_or_default().into_iter().map(|job| (job.id, job.command));
    let finished = with_finished
        .then(|| daemon.call::<method::Finished>(&FinishedParameters { id: None }))
        .and_then(Result::ok)
        .map(|reply| reply.jobs)
        .unwrap_or_default();
    let finished = finished.into_iter().rev().map(|job| (job.id, job.command));
    let candidate = |(id, command): (u64, Option<String>)| {
        CompletionCandidate::new(id.to_string()).help(command.map(Into::into))
    };
    active.chain(finished).map(candidate).collect()
}
