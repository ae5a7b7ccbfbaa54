//! Logs of jobs in the background, and `tenantctl logs`.
//!
//! A log is a file of the user, `ID.log`, mode 0600, in `$XDG_STATE_HOME/tenantd/jobs` or `~/.local/state/tenantd/jobs`.
//! Its supervisor holds a lock on it. At each start the oldest logs beyond [`LOGS_MAX`] are removed, but none with a lock.

use std::env;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::thread;
use std::time::{Duration, SystemTime};

use nix::fcntl::{Flock, FlockArg};
use nix::unistd::{User, getuid};

use crate::args::LogsArgs;
use crate::common::exit::Exit;

/// Logs that are kept, as many as the daemon keeps records of one user.
const LOGS_MAX: usize = 100;
/// Time between two looks at a log that is followed.
const FOLLOW_PAUSE: Duration = Duration::from_millis(200);
const COPY_BYTES: usize = 64 << 10;

fn dir() -> io::Result<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|it| it.is_absolute());
    let of_account = || User::from_uid(getuid()).ok().flatten().map(|user| user.dir);
    let state = absolute("XDG_STATE_HOME")
        .or_else(|| Some(absolute("HOME").or_else(of_account)?.join(".local/state")));
    let missing = "neither XDG_STATE_HOME nor HOME is an absolute path: set one for the log";
    let state = state.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, missing))?;
    Ok(state.join("tenantd/jobs"))
}

fn path_of(dir: &Path, id: u64) -> PathBuf {
    dir.join(format!("{id}.log"))
}

fn with_path(path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// The log of a job, held by its supervisor.
#[derive(Debug)]
pub(super) struct Log {
    dir: PathBuf,
    path: PathBuf,
    _lock: Flock<File>,
}

impl Log {
    /// Creates a log for a job without a number.
    pub(super) fn begin() -> io::Result<Log> {
        let dir = dir()?;
        DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(with_path(&dir))?;
        prune(&dir);
        let path = dir.join(format!("starting-{}.log", process::id()));
        // One of an earlier process with this number has no reader.
        let _ = fs::remove_file(&path);
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(&path);
        let file = file.map_err(with_path(&path))?;
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock);
        let lock = lock.map_err(|(_, errno)| io::Error::from(errno))?;
        Ok(Log { dir, path, _lock: lock })
    }

    /// The log as an output; a description of its own, so that the command does not hold the lock.
    pub(super) fn for_command(&self) -> io::Result<File> {
        OpenOptions::new().append(true).open(&self.path).map_err(with_path(&self.path))
    }

    /// Names the log after its job. A second number is a second name.
    pub(super) fn name(&mut self, id: u64) -> io::Result<()> {
        let named = path_of(&self.dir, id);
        if named == self.path {
            return Ok(());
        }
        let is_first = self
            .path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("starting-"));
        if is_first {
            // Replaces that of an earlier boot, whose numbers are used again.
            fs::rename(&self.path, &named).map_err(with_path(&named))?;
        } else {
            let _ = fs::remove_file(&named);
            fs::hard_link(&self.path, &named).map_err(with_path(&named))?;
        }
        self.path = named;
        Ok(())
    }

    /// Removes the log. Returns its beginning.
    pub(super) fn discard(&self, max: u64) -> String {
        let mut text = Vec::new();
        // What cannot be read is missing from the message.
        let _ = File::open(&self.path).and_then(|file| file.take(max).read_to_end(&mut text));
        let _ = fs::remove_file(&self.path);
        String::from_utf8_lossy(&text).trim_end().to_string()
    }
}

/// Removes the oldest logs beyond the number that is kept.
fn prune(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    let written = |entry: &fs::DirEntry| entry.metadata().and_then(|it| it.modified()).ok();
    let mut logs: Vec<(SystemTime, PathBuf)> = entries
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|extension| extension == "log"))
        .filter_map(|entry| Some((written(&entry)?, entry.path())))
        .collect();
    logs.sort_unstable_by(|a, b| b.cmp(a));
    for (_, path) in logs.into_iter().skip(LOGS_MAX - 1) {
        if has_ended(&path) {
            // The next start tries again.
            let _ = fs::remove_file(&path);
        }
    }
}

/// True if no supervisor holds the log.
fn has_ended(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return true };
    Flock::lock(file, FlockArg::LockSharedNonblock).is_ok()
}

/// Prints the log of a job, and with `-f` what is added to it until its supervisor ends.
pub(crate) fn logs(args: &LogsArgs) -> anyhow::Result<Exit> {
    let path = path_of(&dir()?, args.id);
    let mut file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let id = args.id;
            anyhow::bail!(
                "there is no log of job {id}: {} does not exist; only jobs of yours with `run --background` have one",
                path.display()
            );
        }
        Err(error) => return Err(with_path(&path)(error).into()),
    };
    let mut out = io::stdout().lock();
    loop {
        // Before reading, so that nothing is missed.
        let is_last = !args.follow || has_ended(&path);
        copy(&mut file, &mut out)?;
        if is_last {
            return Ok(Exit::Ok);
        }
        thread::sleep(FOLLOW_PAUSE);
    }
}

fn copy(file: &mut File, out: &mut impl Write) -> io::Result<()> {
    let mut bytes = vec![0; COPY_BYTES];
    loop {
        match file.read(&mut bytes)? {
            0 => return out.flush(),
            count => out.write_all(&bytes[..count])?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn log(dir: &Path, name: &str) -> Log {
        let path = dir.join(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).unwrap();
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| errno);
        Log { dir: dir.to_path_buf(), path, _lock: lock.unwrap() }
    }

    #[test]
    fn a_log_has_the_numbers_of_its_job() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path();
        fs::write(path_of(dir, 7), "of an earlier boot").unwrap();
        let mut log = log(dir, "starting-1.log");
        log.for_command().unwrap().write_all(b"out\n").unwrap();
        log.name(7).unwrap();
        log.name(7).unwrap();
        log.name(12).unwrap();
        for id in [7, 12] {
            let path = path_of(dir, id);
            assert_eq!(fs::read_to_string(&path).unwrap(), "out\n");
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(fs::read_dir(dir).unwrap().count(), 2);
    }

    #[test]
    fn old_logs_are_removed_and_those_in_use_stay() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path();
        let held = log(dir, "1.log");
        let at = |path: &Path, seconds| {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
        };
        at(&held.path, 1);
        for id in 2..=LOGS_MAX as u64 + 10 {
            fs::write(path_of(dir, id), "").unwrap();
            at(&path_of(dir, id), id);
        }
        prune(dir);
        assert_eq!(fs::read_dir(dir).unwrap().count(), LOGS_MAX);
        assert!(path_of(dir, 1).exists() && !path_of(dir, 2).exists());
        assert!(path_of(dir, LOGS_MAX as u64).exists());
        assert!(!has_ended(&held.path));
    }
}
