//! Exit codes, with the same meaning in every command; from `sysexits.h` where it has one.

use std::error::Error;
use std::io;
use std::process::ExitCode;

use crate::agent::StartError;
use tenantd_host::kernfs::{ErrorKind, KernError};
use tenantd_varlink::listen::ListenError;

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
    /// A job could never start on this host.
    NeverStarts = 65,
    /// A job that had to succeed before this one did not.
    RequirementFailed = 66,
    /// The tenant of a waiting job has left the policy.
    NoTenant = 67,
    /// The daemon does not answer.
    Unavailable = 69,
    /// Temporary failure, such as a full queue: try again.
    TryAgain = 75,
    /// Not permitted.
    NotPermitted = 77,
    /// A policy or problem file is invalid.
    BadConfiguration = 78,
    /// As xargs has it: tasks of a set failed.
    TasksFailed = 123,
    /// The exit status of a job is not known, or it never started; also a job that was cancelled while it waited.
    NotKnown = 125,
    /// As shells have it: the command cannot be executed.
    NotExecutable = 126,
    /// As shells have it: there is no such command.
    NoSuchCommand = 127,
}

impl Exit {
    /// Code of the first cause of an error that has one, or [`Exit::Failed`].
    pub fn of(error: &anyhow::Error) -> Exit {
        error.chain().find_map(Exit::of_cause).unwrap_or(Exit::Failed)
    }

    /// Code of one cause of an error, if it has one.
    pub fn of_cause(cause: &(dyn Error + 'static)) -> Option<Exit> {
        let is_denied = cause.downcast_ref::<ListenError>().is_some_and(ListenError::is_denied)
            || cause.downcast_ref::<StartError>().is_some_and(StartError::is_denied)
            || cause
                .downcast_ref::<KernError>()
                .is_some_and(|error| error.kind() == ErrorKind::Denied)
            || cause
                .downcast_ref::<io::Error>()
                .is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
        is_denied.then_some(Exit::NotPermitted)
    }
}

/// True if `error` means that the reader of the output closed it, which is not a failure.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kind = |cause: &(dyn Error + 'static)| match cause.downcast_ref::<io::Error>() {
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
