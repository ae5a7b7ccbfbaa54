//! Reasons for failed changes of the host, and their form for the control loop.

use std::error::Error;
use std::path::PathBuf;

use crate::cgroup::ReadError;
use crate::journal::JournalError;
use crate::kernfs::KernError;
use crate::systemd::UnitError;
use tenantd_control::state::Refusal;
use tenantd_control::words::knob::Value;

/// Reason for a failed change.
#[derive(Debug, thiserror::Error)]
pub enum EnforceError {
    /// The kernel refused.
    #[error(transparent)]
    Kernel(#[from] KernError),
    /// The kernel refused because of the contents of another file.
    #[error("{error}: {remedy}")]
    Invalid {
        /// Error of the kernel.
        error: KernError,
        /// Cause and remedy.
        remedy: String,
    },
    /// A file was unreadable before or after.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The change could not be journaled, so it was not made.
    #[error("nothing was written, because it could not be recorded first: {}", with_causes(error))]
    Journal {
        /// Error of the journal.
        error: JournalError,
    },
    /// A real-time process does not fit into a cgroup without time for such.
    #[error(
        "a real-time process (SCHED_FIFO or SCHED_RR) is not moved into {}: its cpu.rt_runtime_us is 0, and \
         CONFIG_RT_GROUP_SCHED gives real-time tasks in it no time", .0.display()
    )]
    RealTime(PathBuf),
    /// It would do harm now.
    #[error("{0}")]
    Deferred(String),
    /// The kernel took the value, and the file has another one.
    #[error("{path} holds `{found}` after `{written}` was written")]
    NotTaken {
        /// The file.
        path: String,
        /// The written value.
        written: String,
        /// The value in the file.
        found: String,
    },
    /// A value was written, and the present one is unknown.
    #[error(transparent)]
    Unverified(Box<EnforceError>),
    /// Another writer has changed it since the last reading, and the policy leaves such values alone.
    #[error("someone else wrote there since it was read: it holds {0}")]
    Overtaken(Value),
    /// Systemd failed.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// Systemd reported success, and the file has another value.
    #[error(
        "systemd took {property}={written} for {unit}, and its {file} holds {found}: look with \
         `systemctl cat {unit}` for a drop-in that says otherwise, and whether the controller is enabled there"
    )]
    NotArrived {
        /// The unit.
        unit: String,
        /// The property.
        property: &'static str,
        /// The ordered value.
        written: String,
        /// The file.
        file: &'static str,
        /// The value in the file.
        found: String,
    },
    /// Processes of others are in the root.
    #[error(
        "{} holds processes of others, so its children cannot be given controllers: \
         start tenantd in a cgroup of its own (Delegate=yes), or name an empty one with --root", .0.display()
    )]
    RootInUse(PathBuf),
}

impl From<JournalError> for EnforceError {
    fn from(error: JournalError) -> Self {
        EnforceError::Journal { error }
    }
}

/// An error with its causes, in one line; skips a cause that its error already contains.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.ends_with(&said) {
            text = format!("{text}: {said}");
        }
        next = cause.source();
    }
    text
}

impl EnforceError {
    /// Form for the control loop. A missing file was found when the cgroup was opened, so it has no message.
    pub fn refusal(&self) -> Refusal {
        Refusal {
            message: (!self.is_gone()).then(|| self.to_string()),
            is_deferred: matches!(self, EnforceError::Deferred(_)),
            is_overtaken: matches!(self, EnforceError::Overtaken(_)),
            is_unverified: matches!(self, EnforceError::Unverified(_)),
            is_overwritten: matches!(self, EnforceError::NotTaken { .. }),
        }
    }

    /// True if the cgroup was gone.
    pub fn is_gone(&self) -> bool {
        match self {
            EnforceError::Kernel(error) => error.is_gone(),
            EnforceError::Read(error) => error.is_gone(),
            EnforceError::Unverified(error) => error.is_gone(),
            _ => false,
        }
    }
}
