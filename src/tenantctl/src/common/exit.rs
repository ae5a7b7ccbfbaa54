//! Exit codes of failed calls to the daemon; all others are in [`tenantd::exit`].

pub use tenantd::exit::{Exit, is_broken_pipe};
use tenantd_varlink::error::CallError;

use tenantd_varlink::client::ClientError;

/// Exit code of an error, from the first of its causes that has one, or [`Exit::Failed`].
pub fn of(error: &anyhow::Error) -> Exit {
    let code = |cause: &(dyn std::error::Error + 'static)| match cause.downcast_ref() {
        Some(error) => Some(of_client(error)),
        None => Exit::of_cause(cause),
    };
    error.chain().find_map(code).unwrap_or(Exit::Failed)
}

pub(crate) fn of_client(error: &ClientError) -> Exit {
    match error {
        ClientError::NotPermittedToConnect { .. }
        | ClientError::NotReader { .. }
        | ClientError::NotPermitted(_)
        | ClientError::NotYours(_)
        | ClientError::NotYourJob(_)
        | ClientError::Refused(CallError::NoOwnTenant { .. } | CallError::NotYours { .. }) => {
            Exit::NotPermitted
        }
        ClientError::NotStarted(_)
        | ClientError::NotEnded(..)
        | ClientError::Refused(
            CallError::Busy {} | CallError::QueueFull { .. } | CallError::WouldWait { .. },
        ) => Exit::TryAgain,
        ClientError::Refused(CallError::NeverFits { .. }) => Exit::NeverStarts,
        ClientError::Refused(CallError::Cancelled { .. }) => Exit::NotKnown,
        ClientError::Refused(CallError::RequirementFailed { .. }) => Exit::RequirementFailed,
        ClientError::TenantGone(_) => Exit::NoTenant,
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
