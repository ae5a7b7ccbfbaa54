//! Replaces this process by the command.

use std::env;
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread;

use nix::fcntl::{FcntlArg, fcntl};

use tenantd::exit::Exit;
use tenantd_dop::environment::{self, Jobserver, Width};
use tenantd_varlink::jobs::{Started, Valve};

/// Lowest descriptor of the job server: shell scripts use lower ones by number.
const DESCRIPTOR_MIN: i32 = 10;

pub(super) fn find(command: &[OsString]) -> io::Result<()> {
    let missing = || io::Error::from(io::ErrorKind::NotFound);
    let program = Path::new(command.first().ok_or_else(missing)?);
    if program.components().count() > 1 || program.has_root() {
        return fs::metadata(program).map(|_| ());
    }
    // Without a PATH, exec(3) has one of its own.
    let Some(path) = env::var_os("PATH") else { return Ok(()) };
    let found = env::split_paths(&path).any(|dir| dir.join(program).exists());
    found.then_some(()).ok_or_else(missing)
}

/// Command with the width of its turn.
pub(super) fn command(line: &[OsString], started: &Started) -> Command {
    let is_set = |name: &str| env::var_os(name).is_some();
    let valve = started.valve.as_ref().filter(|_| environment::takes_jobserver(line, is_set));
    let jobserver = valve.and_then(|valve| match inherited(valve) {
        Ok((read, write)) => Some(Jobserver { fifo: &valve.fifo, read, write }),
        Err(error) => {
            eprintln!("tenantctl: no job server: {}: {error}", valve.fifo);
            None
        }
    });
    let width = Width { dop: started.dop, is_pinned: started.cpus.is_some(), jobserver };
    let mut command = with_width(line, started.dop);
    command.envs(environment::variables(&width, line, is_set));
    command
}

/// Command without a turn: `{dop}` is the parallelism that is available anyway.
pub(super) fn plain(line: &[OsString]) -> Command {
    let dop = thread::available_parallelism().map_or(1, |dop| dop.get() as u32);
    with_width(line, dop)
}

fn with_width(line: &[OsString], dop: u32) -> Command {
    let (program, arguments) = line.split_first().map_or((None, line), |(p, a)| (Some(p), a));
    let mut command = Command::new(program.map_or_else(OsString::new, OsString::clone));
    command.args(arguments.iter().map(|argument| environment::substitute(argument, dop)));
    command
}

/// Two descriptors of the job server for the command. Each has a state of its own, because make sets its
/// read descriptor to non-blocking.
fn inherited(valve: &Valve) -> io::Result<(i32, i32)> {
    let open = || {
        let file = OpenOptions::new().read(true).write(true).open(&valve.fifo)?;
        // The copy stays open in the command; the original is closed by exec.
        fcntl(&file, FcntlArg::F_DUPFD(DESCRIPTOR_MIN)).map_err(io::Error::from)
    };
    Ok((open()?, open()?))
}

/// Executes the command. Returns only if that fails.
pub(super) fn execute(mut command: Command, line: &[OsString]) -> Exit {
    report(line, &command.exec())
}

/// Reports the failure of the command, and returns the exit code of shells for it.
pub(super) fn report(line: &[OsString], error: &io::Error) -> Exit {
    let program = line.first().map(|program| program.to_string_lossy()).unwrap_or_default();
    eprintln!("tenantctl: cannot run {program}: {error}");
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Exit::NoSuchCommand,
        _ => Exit::NotExecutable,
    }
}
