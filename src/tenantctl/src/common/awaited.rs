//! Tenants that a template of the policy is about to make.
//!
//! **Problem.** A unit, a cgroup or a logged-in user becomes a tenant with the tick that finds it, and its first command may come
//! earlier. **Rule.** If the refusal has `awaited`, the call is made again, for [`AWAITED_TIME`] at most. The daemon keeps nothing
//! for such a caller.

use std::time::{Duration, Instant};

use tenantd_varlink::client::ClientError;
use tenantd_varlink::error::CallError;

const AWAITED_TIME: Duration = Duration::from_secs(5);

/// True if the refused call, first made at `began`, is to be made again after a pause.
pub(crate) fn is_early(error: &ClientError, began: Instant) -> bool {
    let ClientError::Refused(error) = error else { return false };
    let (CallError::NoSuchTenant { awaited, .. } | CallError::NoOwnTenant { awaited, .. }) = error
    else {
        return false;
    };
    *awaited == Some(true) && began.elapsed() < AWAITED_TIME
}
