//! Why a change to the host was not made, and what the control loop is told of it.

use std::error::Error;
use std::path::PathBuf;

use crate::cgroup::ReadError;
use crate::journal::JournalError;
use crate::kernfs::KernError;
use crate::systemd::UnitError;
use tenantd_control::plan::Value;
use tenantd_control::state::Refusal;

/// Why a change was not made.
#[derive(Debug, thiserror::Error)]
pub enum EnforceError {
    /// The kernel refused.
    #[error(transparent)]
    Kernel(#[from] KernError),
    /// The kernel refused because of what another file holds.
    #[error("{error}: {remedy}")]
    Invalid {
        /// What the kernel said.
        error: KernError,
        /// Why, and what helps.
        remedy: String,
    },
    /// A file could not be read before or after.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It could not be recorded, so it was not done.
    #[error("nothing was written, because it could not be recorded first: {}", with_causes(error))]
    Journal {
        /// What the journal said.
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
    /// The kernel took the value and holds another.
    #[error("{path} holds `{found}` after `{written}` was written")]
    NotTaken {
        /// The file.
        path: String,
        /// What was written.
        written: String,
        /// What it holds.
        found: String,
    },
    /// Something was written, and it is not known what the file holds now.
    #[error(transparent)]
    Unverified(Box<EnforceError>),
    /// Another writer has changed it since it was read last, and the policy leaves such values alone.
    #[error("someone else wrote there since it was read: it holds {0}")]
    Overtaken(Value),
    /// Systemd did not do it.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// Systemd says that it did it, and the file holds another value.
    #[error(
        "systemd took {property}={written} for {unit}, and its {file} holds {found}: look with \
         `systemctl cat {unit}` for a drop-in that says otherwise, and whether the controller is enabled there"
    )]
    NotArrived {
        /// The unit.
        unit: String,
        /// The property.
        property: &'static str,
        /// What was asked for.
        written: String,
        /// The file.
        file: &'static str,
        /// What it holds.
        found: String,
    },
    /// The root holds processes of others.
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

/// An error with its causes, in one line; a cause that it tells already is not told again.
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
    /// What the control loop is told of it. A file that is not there was found when the cgroup was opened.
    pub fn refusal(&self) -> Refusal {
        Refusal {
            message: (!self.is_gone()).then(|| self.to_string()),
            is_deferred: matches!(self, EnforceError::Deferred(_)),
            is_overtaken: matches!(self, EnforceError::Overtaken(_)),
            is_unverified: matches!(self, EnforceError::Unverified(_)),
            is_overwritten: matches!(self, EnforceError::NotTaken { .. }),
        }
    }

    /// Whether the cgroup was gone.
    pub fn is_gone(&self) -> bool {
        match self {
            EnforceError::Kernel(error) => error.is_gone(),
            EnforceError::Read(error) => error.is_gone(),
            EnforceError::Unverified(error) => error.is_gone(),
            _ => false,
        }
    }
}
