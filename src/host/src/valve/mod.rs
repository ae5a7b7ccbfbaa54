//! The job server of one job: a build gets wider and narrower while it runs.
//!
//! # Problem
//! make, cargo, ninja and others take a token from the job server of GNU make for each command beside the first
//! one, and put it back when that command has ended (GNU make manual, "Integrating GNU make", "POSIX Jobserver
//! Interaction"). The job server is a pipe with a byte for each free token. Missing tokens are in use, but the
//! pipe does not show by which client. Clients may be killed while they have tokens, and so may the process
//! that hands tokens out.
//!
//! # Terms
//! *Target*: the wanted number of tokens, one less than the degree of parallelism, because every client runs
//! one command without a token. *Total*: the existing tokens, free and in use. *Debt*: total less target.
//!
//! # Algorithm
//! The pipe is a FIFO of the job's user, so that clients find it by name or by descriptor. Widening writes
//! tokens. Narrowing takes the free ones at once, and the others as they are returned. Clients immediately take
//! tokens that they have just returned, so a reader that polls would find none; instead a thread waits in the
//! kernel, as the clients do, until the debt is zero. Free tokens are always counted in the pipe.
//!
//! The total is recorded beside the FIFO: before tokens are written, and after they are taken. After a kill the
//! record is valid except for the interrupted step: it then counts tokens that do not exist. [`Valve::audit`]
//! corrects that, and the loss of tokens with killed clients: each token in use belongs to a thread of the job,
//! so the number of threads bounds the tokens in use.
//!
//! # Properties
//! Total and target agree as soon as tokens are returned, through kills of clients and of the holder
//! (`tests/valve.rs`). make, ninja and cargo follow in both directions (`tests/valve/tools.rs`), with two
//! limits: ninja before 1.14 notices new tokens only when one of its commands ends, and cargo returns a token
//! only when no crate is ready for it.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{
    DirBuilderExt, FileExt, FileTypeExt, OpenOptionsExt, PermissionsExt, fchown,
};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

const FIFO: &str = "jobserver";
/// The recorded total, beside it: a decimal number of [`RECORD_DIGITS`] digits and a newline.
const RECORD: &str = "tokens";
/// Digits of the record, so that each write replaces all of the previous one.
const RECORD_DIGITS: usize = 10;
/// Most tokens of a valve. They all fit into an empty pipe, whose capacity is 64 KiB.
pub const TOKENS_MAX: u32 = 32 << 10;
/// A token. Clients may return any byte for it.
const TOKEN: u8 = b'+';
/// Stack of the thread that waits for tokens: it calls three functions.
const STACK_BYTES: usize = 64 << 10;

/// A failed operation of a valve.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {}", path.display())]
pub struct ValveError {
    /// The operation.
    pub operation: &'static str,
    /// The file.
    pub path: PathBuf,
    /// Error of the kernel.
    #[source]
    pub source: io::Error,
}

/// The job server of one job.
#[derive(Debug)]
pub struct Valve {
    dir: PathBuf,
    shared: Arc<Shared>,
    missing: u32,
}

#[derive(Debug)]
struct Shared {
    fifo: File,
    record: File,
    stop: EventFd,
    tokens: Mutex<Tokens>,
}

#[derive(Debug)]
struct Tokens {
    total: u32,
    target: u32,
    collecting: bool,
}

impl Tokens {
    fn debt(&self) -> u32 {
        self.total.saturating_sub(self.target)
    }
}

impl Valve {
    /// Makes the directory `dir`, which belongs to the valve only, with a job server of `tokens` tokens for
    /// processes of the user `uid`. Replaces an earlier valve. On an error the other files are removed.
    pub fn create(dir: &Path, uid: u32, tokens: u32) -> Result<Valve, ValveError> {
        remove(dir)?;
        let made = Valve::make(dir, uid, tokens);
        if made.is_err() {
            // The first error is the one to report.
            let _ = remove(dir);
        }
        made
    }

    fn make(dir: &Path, uid: u32, tokens: u32) -> Result<Valve, ValveError> {
        let failed = |operation| error(operation, dir);
        DirBuilder::new().mode(0o755).create(dir).map_err(failed("make the directory"))?;
        // Independent of the umask: the user must reach the FIFO.
        let open = Permissions::from_mode(0o755);
        fs::set_permissions(dir, open).map_err(failed("set the mode of"))?;
        let path = dir.join(FIFO);
        let own = Mode::S_IRUSR | Mode::S_IWUSR;
        mkfifo(&path, own).map_err(io::Error::from).map_err(error("make the FIFO", &path))?;
        let fifo = open_fifo(&path)?;
        fchown(&fifo, Some(uid), None).map_err(error("change the owner of", &path))?;
        let record = dir.join(RECORD);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(&record);
        let file = file.map_err(error("make", &record))?;
        let mut valve = Valve::new(dir, fifo, file, 0)?;
        valve.set(tokens)?;
        Ok(valve)
    }

    /// Opens the valve in `dir` that another process left. Its target is the recorded total.
    pub fn open(dir: &Path) -> Result<Valve, ValveError> {
        let fifo = open_fifo(&dir.join(FIFO))?;
        let path = dir.join(RECORD);
        let record = OpenOptions::new().read(true).write(true).open(&path);
        let record = record.map_err(error("open", &path))?;
        let mut text = String::new();
        (&record).take(64).read_to_string(&mut text).map_err(error("read", &path))?;
        let total = text.trim_end().parse().ok().filter(|total| *total <= TOKENS_MAX);
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "it holds no number of tokens");
        let total = total.ok_or_else(damaged).map_err(error("understand", &path))?;
        Valve::new(dir, fifo, record, total)
    }

    fn new(dir: &Path, fifo: File, record: File, total: u32) -> Result<Valve, ValveError> {
        let stop = EventFd::from_flags(EfdFlags::EFD_CLOEXEC);
        let stop = stop.map_err(io::Error::from).map_err(error("make an event for", dir))?;
        let tokens = Mutex::new(Tokens { total, target: total, collecting: false });
        let shared = Arc::new(Shared { fifo, record, stop, tokens });
        Ok(Valve { dir: dir.to_path_buf(), shared, missing: 0 })
    }

    /// The FIFO that clients open.
    pub fn fifo(&self) -> PathBuf {
        self.dir.join(FIFO)
    }

    /// The wanted number of tokens.
    pub fn target(&self) -> u32 {
        self.shared.lock().target
    }

    /// Tokens that clients must return before the target is reached.
    pub fn debt(&self) -> u32 {
        self.shared.lock().debt()
    }

    /// Tokens that no client uses.
    pub fn free(&self) -> Result<u32, ValveError> {
        let free = rustix::io::ioctl_fionread(&self.shared.fifo).map_err(io::Error::from);
        let free = free.map_err(error("count the tokens in", &self.fifo()))?;
        // The user may have written any number of bytes.
        Ok(u32::try_from(free).unwrap_or(u32::MAX))
    }

    /// Sets the target, at most [`TOKENS_MAX`]. More tokens are there at once; fewer as soon as clients return
    /// theirs. After an error the next call tries again.
    pub fn set(&mut self, target: u32) -> Result<(), ValveError> {
        let mut tokens = self.shared.lock();
        tokens.target = target.min(TOKENS_MAX);
        self.shared.widen(&mut tokens).map_err(error("write tokens to", &self.fifo()))?;
        self.shared.take(&mut tokens).map_err(error("take tokens from", &self.fifo()))?;
        if tokens.debt() > 0 && !tokens.collecting {
            let shared = Arc::clone(&self.shared);
            let thread = thread::Builder::new().name("valve".into()).stack_size(STACK_BYTES);
            let started = thread.spawn(move || shared.collect());
            started.map_err(error("start a thread for", &self.fifo()))?;
            tokens.collecting = true;
        }
        Ok(())
    }

    /// Compares the total with the free tokens and the number of threads of the job (`pids.current`): replaces
    /// lost tokens and removes surplus ones. To be called now and then. Between taking a token and starting a
    /// command a client seems to have lost it, so two audits must agree.
    pub fn audit(&mut self, threads: u32) -> Result<(), ValveError> {
        let free = self.free()?;
        let target = {
            let mut tokens = self.shared.lock();
            // The first thread needs no token, and each of the others uses at most one.
            let seen = free.saturating_add(threads.saturating_sub(1));
            let missing = tokens.total.saturating_sub(seen);
            tokens.total -= missing.min(self.missing);
            self.missing = missing;
            tokens.total = tokens.total.max(free).min(TOKENS_MAX);
            tokens.target
        };
        self.set(target)
    }

    /// Removes the valve and its files. Clients that still run keep their tokens.
    pub fn remove(self) -> Result<(), ValveError> {
        remove(&self.dir)
    }
}

impl Drop for Valve {
    fn drop(&mut self) {
        // Only a counter at its maximum refuses to be raised.
        let _ = self.shared.stop.write(1);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Tokens> {
        // The numbers are consistent after every step, and no step panics.
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn widen(&self, tokens: &mut Tokens) -> io::Result<()> {
        let short = tokens.target.saturating_sub(tokens.total);
        if short == 0 {
            return Ok(());
        }
        self.record(tokens.target)?;
        // A pipe takes only a part if it is almost full, which only bytes written by the job itself can cause.
        tokens.total += (&self.fifo).write(&vec![TOKEN; short as usize])? as u32;
        Ok(())
    }

    fn take(&self, tokens: &mut Tokens) -> io::Result<()> {
        while tokens.debt() > 0 {
            let mut bytes = vec![0; tokens.debt() as usize];
            match (&self.fifo).read(&mut bytes) {
                Ok(taken) => tokens.total -= taken as u32,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            self.record(tokens.total)?;
        }
        Ok(())
    }

    fn record(&self, total: u32) -> io::Result<()> {
        let line = format!("{total:0RECORD_DIGITS$}\n");
        self.record.write_all_at(line.as_bytes(), 0)
    }

    /// Takes tokens as they are returned, until the target is reached or the valve is closed.
    fn collect(&self) {
        loop {
            let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
            let mut events = [readable(self.fifo.as_fd()), readable(self.stop.as_fd())];
            // An error is an interruption; the bytes are looked for in any case.
            let _ = poll(&mut events, PollTimeout::NONE);
            let stopped = events[1].any().unwrap_or(false);
            let mut tokens = self.lock();
            let taken = self.take(&mut tokens);
            if stopped || taken.is_err() || tokens.debt() == 0 {
                // After an error the next call of `set` starts another thread.
                tokens.collecting = false;
                return;
            }
        }
    }
}

/// Opens a FIFO for reading and writing, so that neither end is ever missing, without waiting.
fn open_fifo(path: &Path) -> Result<File, ValveError> {
    let flags = (OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW).bits();
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
    let file = file.map_err(error("open", path))?;
    let kind = file.metadata().map_err(error("look at", path))?.file_type();
    let other = || io::Error::new(io::ErrorKind::InvalidData, "it is no FIFO");
    kind.is_fifo().then_some(file).ok_or_else(other).map_err(error("use", path))
}

fn remove(dir: &Path) -> Result<(), ValveError> {
    let absent = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    for name in [FIFO, RECORD] {
        let path = dir.join(name);
        match fs::remove_file(&path) {
            Err(source) if !absent(&source) => return Err(error("remove", &path)(source)),
            _ => {}
        }
    }
    match fs::remove_dir(dir) {
        Err(source) if !absent(&source) => Err(error("remove", dir)(source)),
        _ => Ok(()),
    }
}

fn error(operation: &'static str, path: &Path) -> impl Fn(io::Error) -> ValveError {
    let path = path.to_path_buf();
    move |source| ValveError { operation, path: path.clone(), source }
}
