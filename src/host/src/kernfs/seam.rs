//! The trait of the kernel: its operations, and their errors.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;

use crate::systemd::UnitManager;
use tenantd_core::kernel_text::{cleaned, text_of_path};

/// A kept directory. Dead after [`KernFs::close_dir`]; using a dead one returns EBADF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DirId(pub u32);

/// A file kept open for reading. Dies with the directory it was opened in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId(pub u32);

/// Reads and writes kernel files.
///
/// Implementations are single-threaded and keep one buffer that every read reuses: the slice that a read
/// returns is valid until the next call.
pub trait KernFs {
    /// Opens the directory at an absolute `path` and keeps it.
    ///
    /// # Errors
    /// ENOENT where nothing is there, ENOTDIR, EACCES.
    fn open_dir(&mut self, path: &Path) -> Result<DirId, KernError>;

    /// Forgets a directory and every file opened in it.
    fn close_dir(&mut self, dir: DirId);

    /// The path `dir` was opened at, for messages.
    fn dir_path(&self, dir: DirId) -> PathBuf;

    /// The inode number of `dir`: distinguishes cgroups of the same name.
    ///
    /// # Errors
    /// EBADF for a dead handle.
    fn inode(&mut self, dir: DirId) -> Result<u64, KernError>;

    /// How many directories are in `dir`, without listing them.
    ///
    /// # Errors
    /// EBADF for a dead handle.
    fn nr_dirs(&mut self, dir: DirId) -> Result<u64, KernError>;

    /// Opens `name` (relative to `dir`, may contain `/`) for reading and keeps it.
    ///
    /// # Errors
    /// ENOENT where the file is not there, ENODEV or ENOENT where the cgroup is gone, EACCES.
    fn open_file(&mut self, dir: DirId, name: &str) -> Result<FileId, KernError>;

    /// The whole text of a kept file, read from its beginning.
    ///
    /// # Errors
    /// ENODEV where the cgroup is gone, EOPNOTSUPP where the kernel has the feature switched off.
    fn read(&mut self, file: FileId) -> Result<&[u8], KernError>;

    /// The whole text of a file that is not kept: for files read once, or rarely.
    ///
    /// # Errors
    /// As [`KernFs::open_file`] and [`KernFs::read`].
    fn read_once(&mut self, dir: DirId, name: &str) -> Result<&[u8], KernError>;

    /// The beginning of such a file, `max` bytes at most: for lists that other programs make as long as they like.
    ///
    /// # Errors
    /// As [`KernFs::read_once`].
    fn read_start(&mut self, dir: DirId, name: &str, max: usize) -> Result<&[u8], KernError> {
        let text = self.read_once(dir, name)?;
        Ok(&text[..text.len().min(max)])
    }

    /// Writes `value` to the existing file `name` in one write.
    ///
    /// # Errors
    /// The errno of the kernel, with the value in the message. A short write is EIO.
    fn write(&mut self, dir: DirId, name: &str, value: &str) -> Result<(), KernError>;

    /// The same without waiting for the kernel: a lower `memory.high` returns only when memory was reclaimed. Whether
    /// it was written is seen when the file is read.
    ///
    /// # Errors
    /// EAGAIN while the last such write to `dir` is under way, or too many others are; and as [`KernFs::open_file`].
    fn write_aside(&mut self, dir: DirId, name: &str, value: &str) -> Result<(), KernError> {
        self.write(dir, name, value)
    }

    /// Makes the cgroup `name` below `dir`.
    ///
    /// # Errors
    /// EEXIST, EACCES, EROFS, and EAGAIN at `cgroup.max.descendants`.
    fn make_dir(&mut self, dir: DirId, name: &str) -> Result<(), KernError>;

    /// Removes the cgroup `name` below `dir`.
    ///
    /// # Errors
    /// EBUSY while it holds a process or a child, ENOENT.
    fn remove_dir(&mut self, dir: DirId, name: &str) -> Result<(), KernError>;

    /// The names of the directories below `dir`, in no particular order: any bytes.
    ///
    /// # Errors
    /// ENODEV or ENOENT where it is gone.
    fn list_dirs(&mut self, dir: DirId) -> Result<Vec<OsString>, KernError>;

    /// Locks `dir` for this agent, until it is closed or the agent ends.
    ///
    /// # Errors
    /// EAGAIN where another agent has it. A kernel that no other agent can reach never refuses.
    fn lock_dir(&mut self, _dir: DirId) -> Result<(), KernError> {
        Ok(())
    }

    /// The manager of the units of this kernel's host; `None` without one. Nothing is connected or started
    /// before the first order.
    fn unit_manager(&self) -> Option<Box<dyn UnitManager>> {
        None
    }

    /// The time since any fixed instant, on a clock that nobody sets.
    fn clock(&self) -> Duration;

    /// Lets time pass on this host.
    fn pause(&mut self, time: Duration) {
        std::thread::sleep(time);
    }

    /// Moves a process, with all its threads, into the cgroup `dir`.
    ///
    /// # Errors
    /// ESRCH where the process ended, EBUSY for an internal node of the unified hierarchy, EACCES.
    fn move_process(&mut self, dir: DirId, pid: u32) -> Result<(), KernError> {
        self.write(dir, "cgroup.procs", &pid.to_string())
    }
}

/// The operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Opening a directory or file.
    Open,
    /// Reading a file.
    Read,
    /// Writing a value.
    Write,
    /// Making a cgroup.
    MakeDir,
    /// Removing a cgroup.
    RemoveDir,
    /// Listing a directory.
    List,
    /// Locking a directory.
    Lock,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::Open => "open",
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::MakeDir => "make",
            Operation::RemoveDir => "remove",
            Operation::List => "list",
            Operation::Lock => "lock",
        })
    }
}

/// What a caller can do about a [`KernError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The cgroup or process is not there any more: forget the handle, look again.
    Gone,
    /// The kernel lacks the feature or has it switched off: continue without it, and report that.
    Unsupported,
    /// Not permitted, or mounted read-only: nothing to retry.
    Denied,
    /// The kernel refused this value or this moment (EBUSY, ENOSPC, EINVAL, ERANGE): retry later.
    Rejected,
    /// Anything else.
    Io,
}

/// A kernel file operation that failed: what was tried, where, with which value, and the errno.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot {operation} {}{}: {} ({errno:?})", text_of_path(path), shown(value), errno.desc())]
pub struct KernError {
    /// What was tried.
    pub operation: Operation,
    /// On which file or directory.
    pub path: PathBuf,
    /// The value of a write.
    pub value: Option<String>,
    /// The errno of the kernel.
    pub errno: Errno,
}

fn shown(value: &Option<String>) -> String {
    value.as_ref().map(|v| format!(" with `{}`", cleaned(v.trim_end()))).unwrap_or_default()
}

impl KernError {
    /// An error without a value.
    pub fn new(operation: Operation, path: impl Into<PathBuf>, errno: Errno) -> Self {
        KernError { operation, path: path.into(), value: None, errno }
    }

    /// What the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self.errno {
            Errno::ENODEV | Errno::ENOENT | Errno::ESRCH => ErrorKind::Gone,
            Errno::EOPNOTSUPP | Errno::ENOSYS => ErrorKind::Unsupported,
            Errno::EACCES | Errno::EPERM | Errno::EROFS => ErrorKind::Denied,
            Errno::EBUSY | Errno::ENOSPC | Errno::EINVAL | Errno::ERANGE | Errno::EAGAIN => {
                ErrorKind::Rejected
            }
            _ => ErrorKind::Io,
        }
    }

    /// Whether the cgroup, file or process is gone.
    pub fn is_gone(&self) -> bool {
        self.kind() == ErrorKind::Gone
    }
}
