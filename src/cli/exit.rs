//! Exit codes: the same meaning in every command, taken from `sysexits.h` where it has a word for it.

use std::io;
use std::process::ExitCode;

use super::client::ClientError;
use crate::daemon::agent::StartError;
use crate::host::kernfs::{ErrorKind, KernError};
use crate::varlink::listen::ListenError;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done.
    Ok = 0,
    /// It could not be done; the message says why.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// The daemon does not answer.
    Unavailable = 69,
    /// Try again: a queue is full, or the wait timed out.
    TryAgain = 75,
    /// Not permitted.
    NotPermitted = 77,
    /// A policy or problem file is wrong.
    BadConfiguration = 78,
}

impl Exit {
    /// The code for an error that ended a command: what its causes say, or [`Exit::Failed`].
    pub fn of(error: &anyhow::Error) -> Exit {
        for cause in error.chain() {
            if let Some(error) = cause.downcast_ref::<ClientError>() {
                return error.exit();
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

/// Whether `error` says that whoever read our output has seen enough, which is no failure.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kind = |cause: &(dyn std::error::Error + 'static)| match cause.downcast_ref::<io::Error>() {
        Some(error) => Some(error.kind()),
        // JSON that is written as it is made wraps what the pipe said, and does not name it as its cause.
        None => cause.downcast_ref::<serde_json::Error>()?.io_error_kind(),
    };
    error.chain().filter_map(kind).any(|kind| kind == io::ErrorKind::BrokenPipe)
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}
