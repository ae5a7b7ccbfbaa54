//! The trait of the kernel: its operations, and their errors.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;

use super::log::KernelLog;
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
/// Implementations are single-threaded and reuse one buffer for every read: the returned slice is valid until
/// the next call.
pub trait KernFs {
    /// Opens the directory at an absolute `path` and keeps it. Fails with ENOENT if it is missing, ENOTDIR or
    /// EACCES.
    fn open_dir(&mut self, path: &Path) -> Result<DirId, KernError>;

    /// Closes a directory and every file opened in it.
    fn close_dir(&mut self, dir: DirId);

    /// Path at which `dir` was opened, for messages.
    fn dir_path(&self, dir: DirId) -> PathBuf;

    /// Inode number of `dir`: distinguishes cgroups of the same name.
    fn inode(&mut self, dir: DirId) -> Result<u64, KernError>;

    /// Number of directories in `dir`, without listing them.
    fn nr_dirs(&mut self, dir: DirId) -> Result<u64, KernError>;

    /// Opens `name` (relative to `dir`, may contain `/`) for reading and keeps it. Fails with ENOENT if the
    /// file is missing, ENODEV or ENOENT if the cgroup is gone, or EACCES.
    fn open_file(&mut self, dir: DirId, name: &str) -> Result<FileId, KernError>;

    /// Reads the whole text of a kept file. Fails with ENODEV if the cgroup is gone, or EOPNOTSUPP if the
    /// kernel has the feature switched off.
    fn read(&mut self, file: FileId) -> Result<&[u8], KernError>;

    /// Reads the whole text of a file that is not kept: for files read once, or rarely.
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

    /// Writes without waiting for the kernel: a lower `memory.high` returns only after reclaim. A later read of
    /// the file shows the result. Fails with EAGAIN while the last such write to `dir`, or too many others, are
    /// under way.
    fn write_aside(&mut self, dir: DirId, name: &str, value: &str) -> Result<(), KernError> {
        self.write(dir, name, value)
    }

    /// Makes the cgroup `name` below `dir`. Fails with EEXIST, EACCES, EROFS, or EAGAIN at
    /// `cgroup.max.descendants`.
    fn make_dir(&mut self, dir: DirId, name: &str) -> Result<(), KernError>;

    /// Removes the cgroup `name` below `dir`. Fails with EBUSY while it has a process or a child, or ENOENT.
    fn remove_dir(&mut self, dir: DirId, name: &str) -> Result<(), KernError>;

    /// Names of the directories below `dir`, unordered; names may be any bytes. Fails with ENODEV or ENOENT if
    /// it is gone.
    fn list_dirs(&mut self, dir: DirId) -> Result<Vec<OsString>, KernError>;

    /// Locks `dir` for this agent, until it is closed or the agent ends. Fails with EAGAIN if another agent has
    /// locked it. A kernel that no other agent can reach never refuses.
    fn lock_dir(&mut self, _dir: DirId) -> Result<(), KernError> {
        Ok(())
    }

    /// Manager of the units of this kernel's host; `None` without one. It connects with the first order.
    fn unit_manager(&self) -> Option<Box<dyn UnitManager>> {
        None
    }

    /// Opens the kernel's log at its end. Fails with ENOENT without one, or EPERM if it may not be read.
    fn kernel_log(&self) -> Result<Box<dyn KernelLog>, KernError> {
        Err(KernError::new(Operation::Open, "the kernel's log", Errno::ENOENT))
    }

    /// Time since any fixed instant, on a clock that is never set.
    fn clock(&self) -> Duration;

    /// Lets time pass on this host.
    fn pause(&mut self, time: Duration) {
        std::thread::sleep(time);
    }

    /// Moves a process, with all its threads, into the cgroup `dir`. Fails with ESRCH if the process ended,
    /// EBUSY for an internal node of cgroup v2, or EACCES.
    fn move_process(&mut self, dir: DirId, pid: u32) -> Result<(), KernError> {
        self.write(dir, "cgroup.procs", &pid.to_string())
    }
}

/// An operation on kernel files.
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

/// Kind of a [`KernError`], by the caller's remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The cgroup or process is gone: forget the handle, look again.
    Gone,
    /// The kernel lacks the feature or switched it off: continue without it, and report that.
    Unsupported,
    /// Not permitted, or mounted read-only: do not retry.
    Denied,
    /// The kernel refused this value or this moment (EBUSY, ENOSPC, EINVAL, ERANGE): retry later.
    Rejected,
    /// Any other error.
    Io,
}

/// A failed operation on a kernel file: operation, path, value and errno.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot {operation} {}{}: {} ({errno:?})", text_of_path(path), shown(value), errno.desc())]
pub struct KernError {
    /// The operation.
    pub operation: Operation,
    /// The file or directory.
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
    /// Makes an error without a value.
    pub fn new(operation: Operation, path: impl Into<PathBuf>, errno: Errno) -> Self {
        KernError { operation, path: path.into(), value: None, errno }
    }

    /// Kind of the error.
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

    /// True if the cgroup, file or process is gone.
    pub fn is_gone(&self) -> bool {
        self.kind() == ErrorKind::Gone
    }
}
