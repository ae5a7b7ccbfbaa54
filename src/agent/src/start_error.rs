//! Why an agent could not start, or begin to enforce.

use std::io;
use std::path::PathBuf;

use nix::errno::Errno;

use tenantd_host::cgroup::{LayoutError, ReadError};
use tenantd_host::enforce::EnforceError;
use tenantd_host::journal::JournalError;
use tenantd_host::kernfs::{ErrorKind, KernError};

/// Why an agent could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A kernel file.
    #[error(transparent)]
    Kernel(#[from] KernError),
    /// A kernel file that could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// No hierarchy.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The root could not be made.
    #[error(transparent)]
    Enforce(#[from] EnforceError),
    /// Another agent works below the same root.
    #[error("{} is managed by another tenantd: stop it first, or name another root with --root", .0.display())]
    RootTaken(PathBuf),
    /// Nothing may be written.
    #[error(
        "not permitted to manage {}: {} ({errno:?}); run as root, in a delegated cgroup, or with --observe",
        path.display(), errno.desc()
    )]
    NotPermitted {
        /// Where it was tried.
        path: PathBuf,
        /// What the kernel answered.
        errno: Errno,
    },
    /// Nothing could be enforced.
    #[error(
        "neither the cpu nor the memory controller is available in {}: enable them for it \
         (on a systemd host: Delegate=yes), or run with --observe", .0.display()
    )]
    NoControllers(PathBuf),
}

impl StartError {
    /// Whether it was a matter of permission.
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
