//! `tenantctl run`: waits for its turn, and becomes the command.
//!
//! **Problem.** A command must start when the host has room for it, in the cgroup of its tenant and with a
//! suitable width. Otherwise it must be the same as without `tenantctl`: standard streams, terminal,
//! signals, job control and exit code, in a shell, a pipeline, a CI step or under cron. **Answer.** This
//! process is the job. It waits on its connection to the daemon, is moved by it, and then executes the
//! command in place ([`launch`]), so that nothing remains in between. While it waits it handles no signal:
//! its end closes the connection, and that takes it out of the queue.
//!
//! With `--array` this process is not replaced: it starts a child for each turn ([`mod@array`]).
//! With `--requeue` it stays too, and starts the command again after an eviction ([`requeue`]).
//! With `--background` a supervisor is the parent of this process and the caller returns ([`background`]).
//!
//! **Properties** (`tests/cli/run.rs`, `tests/kernel/run.rs`): a command keeps its process ID; signals, the
//! terminal and job control reach it directly; without a turn it starts only with `--or-run`.

mod array;
mod background;
mod launch;
pub(crate) mod log;
mod progress;
mod request;
mod requeue;

use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use super::args::RunArgs;
use crate::common::awaited;
use crate::common::exit::Exit;
use background::{ROLE, Role};
use progress::Progress;
use request::parameters;
use tenantd_lab::text::visible;
use tenantd_varlink::client::{ClientError, Endpoint, RESTART_PAUSE, RESTART_TIME};
use tenantd_varlink::error::CallError;
use tenantd_varlink::interface::{Signature, method};
use tenantd_varlink::jobs::{Started, SubmitParameters, SubmitReply};

/// Runs the command. Returns only if the command does not run.
pub(crate) fn run(daemon: &Endpoint, args: &RunArgs) -> anyhow::Result<Exit> {
    let role = if args.background { Role::of_this_process() } else { Role::Caller };
    if role == Role::Supervisor {
        return background::supervise(daemon, args);
    }
    // A misspelt name must not wait for its turn.
    if let Err(missing) = launch::find(&args.command) {
        return Ok(launch::report(&args.command, &missing));
    }
    if args.background && role == Role::Caller {
        return background::begin();
    }
    if let Some(range) = args.array.or(args.requeue.then_some(array::RUNS)) {
        return array::run(daemon, args, range, role);
    }
    let mut command = match turn(daemon, args, role) {
        Ok(started) => {
            let note = launch::real_time_note(&args.command, &started);
            for what in started.ineffective.iter().chain(&note) {
                eprintln!("tenantctl: {}", visible(what));
            }
            launch::command(&args.command, &started)
        }
        Err(error) if args.or_run => return launch::without_turn(args, error),
        Err(error) => return Err(error.into()),
    };
    command.env_remove(ROLE);
    if role == Role::Job {
        command.stdin(Stdio::null());
    }
    Ok(launch::execute(command, &args.command))
}

fn turn(daemon: &Endpoint, args: &RunArgs, role: Role) -> Result<Started, ClientError> {
    let deadline = daemon.timeout.map(|time| (Instant::now() + time, time));
    // The option limits the time in the queue; a call has its own limit.
    let daemon = Endpoint { timeout: None, ..daemon.clone() };
    let mut parameters = parameters(args);
    let mut progress = Progress::default();
    let began = Instant::now();
    let has_time = || deadline.is_none_or(|(end, _)| Instant::now() < end);
    let mut last_seen: Option<Instant> = None;
    let mut id = None;
    loop {
        let mut is_queued = false;
        let mut number = None;
        let outcome = wait(&daemon, &parameters, deadline, |reply| {
            if role == Role::Job && reply.inside {
                return Err(not_inside(reply.id));
            }
            if role == Role::Job && number.replace(reply.id) != Some(reply.id) {
                background::tell_number(reply.id);
            }
            if let Some(waiting) = &reply.waiting {
                is_queued = true;
                progress.show(&reply.tenant, waiting);
            }
            id = Some(reply.id);
            Ok(())
        });
        // A daemon that restarts forgets its queue; a job that has waited is submitted again, under its number.
        parameters.id = id;
        if is_queued {
            last_seen = Some(Instant::now());
        }
        let is_early = |since: Instant| since.elapsed() < RESTART_TIME;
        let may_return = last_seen.is_some_and(is_early);
        match outcome {
            Err(ClientError::Ended(_)) if may_return || is_early(began) => {
                thread::sleep(RESTART_PAUSE);
            }
            Err(ClientError::NotRunning(_)) if may_return => thread::sleep(RESTART_PAUSE),
            Err(ClientError::Refused(CallError::NoSuchTenant { tenant, .. })) if is_queued => {
                return Err(ClientError::TenantGone(tenant));
            }
            Err(error) if !args.no_wait && has_time() && awaited::is_early(&error, began) => {
                thread::sleep(RESTART_PAUSE);
            }
            outcome => return outcome,
        }
    }
}

/// Submits this process, and calls `told` with each reply until it has started or `deadline`, the end of a
/// time, is past.
fn wait(
    daemon: &Endpoint,
    parameters: &SubmitParameters,
    deadline: Option<(Instant, Duration)>,
    mut told: impl FnMut(&SubmitReply) -> Result<(), ClientError>,
) -> Result<Started, ClientError> {
    let mut replies = daemon.connect()?.stream::<method::Submit>(parameters)?;
    let left = || deadline.map(|(end, _)| end.saturating_duration_since(Instant::now()));
    // A live daemon answers at once, even if the job waits.
    let first = daemon.time(method::Submit::METHOD.access());
    let mut time = Some(left().map_or(first, |left| left.min(first)));
    loop {
        let reply = match (replies.next(time), deadline) {
            (Err(ClientError::Late { .. }), Some((end, time))) if end <= Instant::now() => {
                return Err(ClientError::NotStarted(time));
            }
            (reply, _) => reply?,
        };
        told(&reply)?;
        if let Some(started) = reply.started {
            return Ok(started);
        }
        time = left();
    }
}

fn not_inside(id: u64) -> ClientError {
    let reason = format!(
        "this process is part of job {id}, and so is what it runs, until that job ends: leave out --background, and use `&`"
    );
    ClientError::Refused(CallError::Failed { reason })
}
