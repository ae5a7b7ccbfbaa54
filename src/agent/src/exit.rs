//! Exit codes, with the same meaning in every command; from `sysexits.h` where it has one.

use std::io;
use std::process::ExitCode;

use super::client::ClientError;
use crate::daemon::agent::StartError;
use crate::host::kernfs::{ErrorKind, KernError};
use crate::varlink::error::CallError;
use crate::varlink::listen::ListenError;

/// The exit code of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Success.
    Ok = 0,
    /// Failure; the message gives the cause.
    Failed = 1,
    /// The command line is invalid.
    Usage = 2,
    /// The daemon does not answer.
    Unavailable = 69,
    /// Temporary failure, such as a full queue: try again.
    TryAgain = 75,
    /// Not permitted.
    NotPermitted = 77,
    /// A policy or problem file is invalid.
    BadConfiguration = 78,
    /// As shells have it: the command cannot be executed.
    NotExecutable = 126,
    /// As shells have it: there is no such command.
    NoSuchCommand = 127,
}

impl Exit {
    /// The code for an error, from the first of its causes that has one, or [`Exit::Failed`].
    pub fn of(error: &anyhow::Error) -> Exit {
        for cause in error.chain() {
            if let Some(error) = cause.downcast_ref::<ClientError>() {
                return of_client(error);
            }
            if cause.downcast_ref::<ListenError>().is_some_and(ListenError::is_denied) {
                return Exit::NotPermitted;
            }
            if cause.downcast_ref::<StartError>().is_some_and(StartError::is_denied) {
                return Exit::NotPermitted;
            }
            if let Some(error) = cause.downcast_ref::<KernError>()
                && error.kind() == ErrorKind::Denied
            {
                return Exit::NotPermitted;
            }
            if let Some(error) = cause.downcast_ref::<io::Error>()
                && error.kind() == io::ErrorKind::PermissionDenied
            {
                return Exit::NotPermitted;
            }
        }
        Exit::Failed
    }
}

/// The code for a failed call to the daemon.
pub(super) fn of_client(error: &ClientError) -> Exit {
    match error {
        ClientError::NotPermittedToConnect(_)
        | ClientError::NotPermitted(_)
        | ClientError::NotYours(_)
        | ClientError::Refused(CallError::NoOwnTenant { .. }) => Exit::NotPermitted,
        ClientError::NotStarted(_)
        | ClientError::Refused(
            CallError::Busy {} | CallError::QueueFull { .. } | CallError::WouldWait { .. },
        ) => Exit::TryAgain,
        ClientError::Refused(CallError::BadPolicy { .. }) => Exit::BadConfiguration,
        ClientError::Refused(CallError::OnlyObserves {}) => Exit::Unavailable,
        ClientError::Refused(_) => Exit::Failed,
        ClientError::NotRunning(_)
        | ClientError::Ended(_)
        | ClientError::Late { .. }
        | ClientError::NotUnderstood { .. }
        | ClientError::OlderDaemon(_) => Exit::Unavailable,
    }
}

/// Whether `error` means that the reader of the output closed it, which is not a failure.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kind = |cause: &(dyn std::error::Error + 'static)| match cause.downcast_ref::<io::Error>() {
        Some(error) => Some(error.kind()),
        // serde_json wraps the IO error and does not return it as its source.
        None => cause.downcast_ref::<serde_json::Error>()?.io_error_kind(),
    };
    error.chain().filter_map(kind).any(|kind| kind == io::ErrorKind::BrokenPipe)
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}
