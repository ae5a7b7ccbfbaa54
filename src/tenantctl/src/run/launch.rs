//! Replaces this process by the command.

use std::env;
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};

use super::background::ROLE;
use crate::args::RunArgs;
use crate::common::exit::{self, Exit};
use tenantd_core::kernel_text::mountinfo::cgroup_mounts;
use tenantd_core::kernel_text::path_of;
use tenantd_dop::environment::{self, Jobserver, Make, Width};
use tenantd_lab::text::visible;
use tenantd_varlink::client::ClientError;
use tenantd_varlink::jobs::{Started, Valve};

/// Time for real-time tasks of a legacy cgroup, where the kernel has CONFIG_RT_GROUP_SCHED.
const RT_RUNTIME: &str = "cpu.rt_runtime_us";
/// The first descriptor that the job server may get: shell scripts use those below by number.
const DESCRIPTOR_MIN: i32 = 10;

pub(crate) fn find(command: &[OsString]) -> io::Result<()> {
    let missing = || io::Error::from(io::ErrorKind::NotFound);
    let program = Path::new(command.first().ok_or_else(missing)?);
    if program.components().count() > 1 || program.has_root() {
        let is_dir = fs::metadata(program)?.is_dir();
        return if is_dir { Err(io::ErrorKind::IsADirectory.into()) } else { Ok(()) };
    }
    // Without a PATH, exec(3) has one of its own.
    let Some(path) = env::var_os("PATH") else { return Ok(()) };
    let found = env::split_paths(&path).any(|dir| dir.join(program).exists());
    found.then_some(()).ok_or_else(missing)
}

/// Command with the width of its turn.
pub(crate) fn command(line: &[OsString], started: &Started) -> Command {
    let is_set = |name: &str| env::var_os(name).is_some();
    let valve = started.valve.as_ref().filter(|_| environment::takes_jobserver(line, is_set));
    let jobserver = valve.and_then(|valve| jobserver(valve, make(line)));
    let cgroup = &started.cgroup;
    let width = Width { dop: started.dop, is_pinned: started.cpus.is_some(), jobserver, cgroup };
    let mut command = with_width(line, started.dop);
    command.envs(environment::variables(&width, line, is_set));
    for assigned in &started.assigned {
        let names = assigned.env.iter().filter(|name| !is_set(name));
        command.envs(names.map(|name| (name, assigned.list())));
    }
    command
}

/// An explanation for a command that asks for a real-time policy where the kernel refuses it (EPERM); `None` for others.
pub(crate) fn real_time_note(line: &[OsString], started: &Started) -> Option<String> {
    let program = Path::new(line.first()?).file_name()?;
    let mounts = cgroup_mounts(&fs::read("/proc/self/mountinfo").ok()?);
    let mount = mounts.iter().find(|mount| mount.has("cpu"))?;
    let below = path_of(started.cgroup.trim_start_matches('/'));
    let runtime = fs::read_to_string(mount.mount_point.join(below).join(RT_RUNTIME)).ok()?;
    (program == "chrt" && runtime.trim() == "0").then(|| {
        format!(
            "{RT_RUNTIME} of {} is 0, so the kernel refuses real-time policies in it (Operation not permitted): run the \
             command outside of tenantd, or with `chrt --other`; docs/host.md has the reasons",
            started.cgroup
        )
    })
}

/// Executes the command without a turn if the host cannot, or does not let this user, take part in its queue. A full queue
/// is none of these.
///
/// # Errors
/// `error`, of another kind.
pub(crate) fn without_turn(args: &RunArgs, error: ClientError) -> anyhow::Result<Exit> {
    if !matches!(exit::of_client(&error), Exit::Unavailable | Exit::NotPermitted) {
        return Err(error.into());
    }
    eprintln!("tenantctl: {error}; the command runs without a turn");
    let mut command = plain(&args.command);
    command.env_remove(ROLE);
    Ok(execute(command, &args.command))
}

/// The command without a turn: `{dop}` is what the process may use anyway.
fn plain(line: &[OsString]) -> Command {
    let dop = thread::available_parallelism().map_or(1, |dop| dop.get() as u32);
    with_width(line, dop)
}

fn with_width(line: &[OsString], dop: u32) -> Command {
    let (program, arguments) = line.split_first().map_or((None, line), |(p, a)| (Some(p), a));
    let mut command = Command::new(program.map_or_else(OsString::new, OsString::clone));
    command.args(arguments.iter().map(|argument| environment::substitute(argument, dop)));
    command
}

/// The job server as this make knows it.
fn jobserver(valve: &Valve, make: Make) -> Option<Jobserver<'_>> {
    let descriptors = match make {
        Make::Foreign => return None,
        Make::Fifo => None,
        Make::Descriptors => match inherited(valve) {
            Ok(both) => Some(both),
            Err(error) => {
                eprintln!("tenantctl: no job server: {}: {error}", valve.fifo);
                return None;
            }
        },
    };
    Some(Jobserver { fifo: &valve.fifo, descriptors })
}

/// The make that the command uses.
fn make(line: &[OsString]) -> Make {
    let mut ask = Command::new(Make::program(line));
    ask.arg("--version").stdin(Stdio::null()).stderr(Stdio::null());
    // Inside of a make its flags would have this one print or wait.
    ask.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").env("LC_ALL", "C");
    match ask.output() {
        Ok(output) if output.stdout.is_empty() => Make::Foreign,
        Ok(output) => Make::of(&output.stdout),
        Err(_) => Make::of(b""),
    }
}

/// Two descriptors of the job server that the command inherits. Each has a state of its own, because make sets the one
/// from which it reads to non-blocking.
fn inherited(valve: &Valve) -> io::Result<(i32, i32)> {
    let open = || {
        let file = OpenOptions::new().read(true).write(true).open(&valve.fifo)?;
        // The copy stays open in the command; the original is closed by exec.
        fcntl(&file, FcntlArg::F_DUPFD(DESCRIPTOR_MIN)).map_err(io::Error::from)
    };
    Ok((open()?, open()?))
}

/// Executes the command. Returns only if that fails.
pub(crate) fn execute(mut command: Command, line: &[OsString]) -> Exit {
    report(line, &command.exec())
}

/// Reports the failure of the command, and returns the exit code of shells for it.
pub(crate) fn report(line: &[OsString], error: &io::Error) -> Exit {
    let program = line.first().map_or_else(OsString::new, OsString::clone);
    let (text, exit) = failure(Path::new(&program), error);
    eprintln!("tenantctl: {}: {text}", visible(&program.to_string_lossy()));
    exit
}

/// Text and exit code of shells for a command that does not run.
fn failure(program: &Path, error: &io::Error) -> (String, Exit) {
    let is_path = program.components().count() > 1 || program.has_root();
    let own = error.to_string();
    // Without the number that Rust appends.
    let own = own.split(" (os error").next().unwrap_or(&own).to_string();
    match error.kind() {
        io::ErrorKind::NotFound if !is_path => {
            ("command not found".to_string(), Exit::NoSuchCommand)
        }
        // The interpreter in its first line, or its loader, is missing.
        io::ErrorKind::NotFound if program.exists() => {
            ("cannot execute: required file not found".to_string(), Exit::NoSuchCommand)
        }
        io::ErrorKind::NotFound => ("No such file or directory".to_string(), Exit::NoSuchCommand),
        io::ErrorKind::NotADirectory => ("Not a directory".to_string(), Exit::NoSuchCommand),
        _ if program.is_dir() => ("Is a directory".to_string(), Exit::NotExecutable),
        _ if error.raw_os_error() == Some(Errno::ENOEXEC as i32) => {
            (format!("cannot execute binary file: {own}"), Exit::NotExecutable)
        }
        _ => (own, Exit::NotExecutable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_does_not_run_is_reported_as_shells_do() {
        let of = |program: &str, errno: Errno| {
            let (text, exit) = failure(Path::new(program), &io::Error::from(errno));
            (text, exit as u8)
        };
        for (program, errno, text, exit) in [
            ("no-such", Errno::ENOENT, "command not found", 127),
            ("/no/such", Errno::ENOENT, "No such file or directory", 127),
            ("/etc/passwd", Errno::ENOENT, "cannot execute: required file not found", 127),
            ("/etc/passwd", Errno::EACCES, "Permission denied", 126),
            ("/etc", Errno::EACCES, "Is a directory", 126),
            ("/etc/passwd", Errno::ENOEXEC, "cannot execute binary file: Exec format error", 126),
            ("/etc/passwd/x", Errno::ENOTDIR, "Not a directory", 127),
        ] {
            assert_eq!(of(program, errno), (text.to_string(), exit), "{program} {errno}");
        }
        // A directory does not wait for its turn.
        let kind = |program: &str| find(&[program.into()]).map_err(|error| error.kind());
        assert_eq!(kind("/etc"), Err(io::ErrorKind::IsADirectory));
        assert_eq!(kind("/etc/passwd"), Ok(()));
    }
}
