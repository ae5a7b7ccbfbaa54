//! `tenantctl run --background`: a supervisor of the user starts the command, keeps its output, and reports its exit status.
//!
//! **Problem.** The caller wants its prompt back, and later the output and the exit status. The daemon runs nothing on
//! behalf of a user, and only the parent of a process gets its exit status. **Answer.** Three processes of the same
//! program: the *caller* prints the number and ends; the *supervisor*, in a session of its own, is the parent of the *job*,
//! which waits for its turn and becomes the command as in the foreground. The job writes its number to its standard
//! input, a socket of the supervisor, and gets an empty one with the command.
//!
//! **End.** The supervisor reports the status to the daemon, then runs the command of `--on-end`. It holds a lock on the
//! log until then, so that `logs -f` sees the end without a daemon.

use std::env;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{self, Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::unistd::{setsid, write};
use serde_json::json;

use super::log::Log;
use crate::args::RunArgs;
use crate::ask::finished::status_of;
use crate::common::exit::Exit;
use tenantd_varlink::client::{ClientError, Endpoint, RESTART_PAUSE, RESTART_TIME};
use tenantd_varlink::error::CallError;
use tenantd_varlink::interface::method;
use tenantd_varlink::jobs::{EndReason, FinishedJob, ReportParameters, WaitParameters};

/// Variable with the role of a process that this program starts; removed from the environment of the command.
pub(super) const ROLE: &str = "TENANTCTL_ROLE";
const SUPERVISOR: &str = "supervisor";
const JOB: &str = "job";
/// Longest message of a failed start that is passed on.
const MESSAGE_MAX: u64 = 4096;
/// Time in which the daemon must confirm the end.
const CONFIRM_TIME: Duration = Duration::from_secs(5);

/// Role of this process in a run in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Caller,
    Supervisor,
    Job,
}

impl Role {
    pub(super) fn of_this_process() -> Role {
        match env::var_os(ROLE) {
            Some(role) if role == SUPERVISOR => Role::Supervisor,
            Some(role) if role == JOB => Role::Job,
            _ => Role::Caller,
        }
    }
}

/// This command line in another role.
fn again(role: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("tenantctl").args(env::args_os().skip(1)).env(ROLE, role);
    command
}

/// Starts the supervisor, and prints the number of the job.
pub(super) fn begin() -> anyhow::Result<Exit> {
    let mut supervisor = again(SUPERVISOR)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let closed = || io::Error::from(io::ErrorKind::BrokenPipe);
    let mut told = BufReader::new(supervisor.stdout.take().ok_or_else(closed)?);
    let mut line = String::new();
    told.read_line(&mut line)?;
    if let Some(id) = line.strip_prefix("job ") {
        write!(io::stdout().lock(), "{id}")?;
        return Ok(Exit::Ok);
    }
    let mut message = String::new();
    told.take(MESSAGE_MAX).read_to_string(&mut message)?;
    eprint!("{message}");
    let code = line.strip_prefix("failed ").and_then(|code| code.trim().parse().ok());
    // The code of a command that failed before its turn, whatever it is.
    process::exit(code.unwrap_or(Exit::Failed as i32))
}

/// Passes the number of the job on to the supervisor.
pub(super) fn tell_number(id: u64) {
    // Without a supervisor no process needs it.
    let _ = write(io::stdin(), format!("{id}\n").as_bytes());
}

/// Supervises the command until its end.
pub(super) fn supervise(daemon: &Endpoint, args: &RunArgs) -> anyhow::Result<Exit> {
    let begun = setsid().map_err(io::Error::from).and_then(|_| Log::begin()).and_then(|log| {
        let (own, of_job) = UnixStream::pair()?;
        let (out, err) = (log.for_command()?, log.for_command()?);
        let job = again(JOB).stdin(OwnedFd::from(of_job)).stdout(out).stderr(err).spawn()?;
        Ok((log, own, job))
    });
    let (mut log, own, mut job) = match begun {
        Ok(begun) => begun,
        Err(error) => {
            tell(&format!(
                "failed {}\ntenantctl: no job in the background: {error}",
                Exit::Failed as u8
            ));
            return Ok(Exit::Failed);
        }
    };
    let mut id = None;
    for line in BufReader::new(own).lines().map_while(Result::ok) {
        let Ok(number) = line.parse::<u64>() else { continue };
        // A job that has waited gets another number from a daemon that restarts.
        let named = log.name(number);
        if id.replace(number).is_none() {
            match named {
                Ok(()) => tell(&format!("job {number}")),
                Err(error) => {
                    tell(&format!(
                        "failed {}\ntenantctl: no log of job {number}: {error}",
                        Exit::Failed as u8
                    ));
                    let _ = job.kill();
                }
            }
        }
    }
    let status = job.wait()?;
    let Some(id) = id else {
        let code = status.code().unwrap_or(Exit::Failed as i32);
        tell(&format!("failed {code}\n{}", log.discard(MESSAGE_MAX)));
        return Ok(Exit::Failed);
    };
    let code = |code: i32| u8::try_from(code).ok();
    let status = ReportParameters {
        id,
        exit_code: status.code().and_then(code),
        exit_signal: status.signal().and_then(code),
        ..ReportParameters::default()
    };
    let end = End::of(confirmed(daemon, &status), &status);
    if let Some(command) = &args.on_end {
        run_on_end(command, id, &end, &log)?.wait()?;
    }
    Ok(Exit::Ok)
}

/// Writes to the caller, which may have ended.
fn tell(text: &str) {
    let _ = writeln!(io::stdout().lock(), "{text}");
}

/// Reports the exit status to a daemon that may be restarting, for so long.
pub(super) fn report(daemon: &Endpoint, status: &ReportParameters, patience: Duration) {
    let begin = Instant::now();
    loop {
        match daemon.call::<method::Report>(status) {
            // A daemon that restarts finds its jobs at its first tick.
            Err(
                ClientError::NotRunning(_)
                | ClientError::Ended(_)
                | ClientError::Refused(CallError::NoSuchJob { .. }),
            ) if begin.elapsed() < patience => thread::sleep(RESTART_PAUSE),
            // A job that never started has no status.
            _ => return,
        }
    }
}

/// Reports the exit status. Returns the record of the job, if the daemon answers.
fn confirmed(daemon: &Endpoint, status: &ReportParameters) -> Option<FinishedJob> {
    let daemon = Endpoint { timeout: None, ..daemon.clone() };
    report(&daemon, status, RESTART_TIME);
    let wait = WaitParameters { id: status.id };
    let mut replies = daemon.connect().ok()?.stream::<method::Wait>(&wait).ok()?;
    replies.next(Some(CONFIRM_TIME)).ok().map(|reply| reply.job)
}

/// End of a job for the command of `--on-end`.
struct End {
    exit: String,
    reason: String,
}

impl End {
    /// End as the daemon has it, or without a daemon as the supervisor saw it.
    fn of(record: Option<FinishedJob>, status: &ReportParameters) -> End {
        let &ReportParameters { exit_code, exit_signal, .. } = status;
        let reason = if exit_signal.is_some() { EndReason::Signalled } else { EndReason::Exited };
        let seen = || FinishedJob { exit_code, exit_signal, reason, ..FinishedJob::default() };
        let job = record.unwrap_or_else(seen);
        let exit = status_of(&job).map_or_else(String::new, |exit| exit.to_string());
        let reason = json!(job.reason).as_str().unwrap_or_default().to_string();
        End { exit, reason }
    }
}

fn run_on_end(command: &str, id: u64, end: &End, log: &Log) -> io::Result<Child> {
    let out: [File; 2] = [log.for_command()?, log.for_command()?];
    let [out, err] = out;
    Command::new("sh")
        .args(["-c", command])
        .env_remove(ROLE)
        .env("TENANTD_JOB_ID", id.to_string())
        .env("TENANTD_EXIT", &end.exit)
        .env("TENANTD_REASON", &end.reason)
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .spawn()
}
