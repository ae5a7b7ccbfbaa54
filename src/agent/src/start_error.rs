//! Reasons why an agent could not start, or begin to enforce.

use std::io;
use std::path::PathBuf;

use nix::errno::Errno;

use tenantd_host::cgroup::{LayoutError, ReadError};
use tenantd_host::enforce::EnforceError;
use tenantd_host::journal::JournalError;
use tenantd_host::kernfs::{ErrorKind, KernError};

/// Reason why an agent could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Failed operation on a kernel file.
    #[error(transparent)]
    Kernel(#[from] KernError),
    /// A kernel file could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// No usable hierarchy.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// Failure of the journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The root could not be made.
    #[error(transparent)]
    Enforce(#[from] EnforceError),
    /// Another agent works below the same root.
    #[error("{} is managed by another tenantd: stop it first, or name another root with --root", .0.display())]
    RootTaken(PathBuf),
    /// Writing is not permitted.
    #[error(
        "not permitted to manage {}: {} ({errno:?}); run as root, in a delegated cgroup, or with --observe",
        path.display(), errno.desc()
    )]
    NotPermitted {
        /// Path of the refused write.
        path: PathBuf,
        /// Error of the kernel.
        errno: Errno,
    },
    /// Neither the cpu nor the memory controller is available.
    #[error(
        "neither the cpu nor the memory controller is available in {}: enable them for it \
         (on a systemd host: Delegate=yes), or run with --observe", .0.display()
    )]
    NoControllers(PathBuf),
}

impl StartError {
    /// True if permissions were the cause.
    pub fn is_denied(&self) -> bool {
        match self {
            StartError::NotPermitted { .. } => true,
            StartError::Kernel(error) | StartError::Read(ReadError::Kernel(error)) => {
                error.kind() == ErrorKind::Denied
            }
            StartError::Journal(JournalError::Io { source, .. }) => {
                source.kind() == io::ErrorKind::PermissionDenied
            }
            _ => false,
        }
    }
}
