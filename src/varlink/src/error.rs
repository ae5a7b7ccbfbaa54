//! Errors of all interfaces.
//!
//! Each variant is an `error` of a `.varlink` file; `tests/idl.rs` compares the two.

use serde::{Deserialize, Serialize};

use super::jobs::WaitReason;
use tenantd_policy::report::Finding;

/// Error of a call.
#[derive(Clone, Debug, PartialEq, thiserror::Error, Serialize, Deserialize)]
#[serde(tag = "error", content = "parameters")]
pub enum CallError {
    /// The interface is unknown.
    #[error("the interface `{interface}` is unknown")]
    #[serde(rename = "org.varlink.service.InterfaceNotFound")]
    InterfaceNotFound {
        /// Requested name.
        interface: String,
    },
    /// The interface has no such method.
    #[error("the method `{method}` is unknown")]
    #[serde(rename = "org.varlink.service.MethodNotFound")]
    MethodNotFound {
        /// Full name of the called method.
        method: String,
    },
    /// The method exists but cannot be called in this way.
    #[error("the method `{method}` cannot be called in this way")]
    #[serde(rename = "org.varlink.service.MethodNotImplemented")]
    MethodNotImplemented {
        /// Full name of the called method.
        method: String,
    },
    /// A parameter is missing, unknown or of the wrong type.
    #[error("the parameter `{parameter}` is missing, unknown or of the wrong type")]
    #[serde(rename = "org.varlink.service.InvalidParameter")]
    InvalidParameter {
        /// Name of the parameter.
        parameter: String,
    },
    /// The caller lacks the permission for this method.
    #[error("not permitted")]
    #[serde(rename = "org.varlink.service.PermissionDenied")]
    PermissionDenied {},
    /// The method replies more than once, and was called without `more`.
    #[error("the method replies more than once: call it with `more`")]
    #[serde(rename = "org.varlink.service.ExpectedMore")]
    ExpectedMore {},
    /// The policy has no such tenant.
    #[error("the policy has no tenant `{tenant}`")]
    #[serde(rename = "io.tenantd.Manager.NoSuchTenant")]
    NoSuchTenant {
        /// Requested name.
        tenant: String,
        /// Similar names, the most similar first; all names if there are few.
        tenants: Vec<String>,
        /// True if a template may make this tenant with a later tick.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        awaited: Option<bool>,
    },
    /// The policy is invalid; the running policy stays in force.
    #[error("the policy is invalid: the running policy stays in force")]
    #[serde(rename = "io.tenantd.Manager.BadPolicy")]
    BadPolicy {
        /// Findings as text.
        report: String,
        /// Findings as records.
        findings: Vec<Finding>,
    },
    /// The change was tried and failed.
    #[error("{reason}")]
    #[serde(rename = "io.tenantd.Manager.Failed")]
    Failed {
        /// Cause of the failure.
        reason: String,
    },
    /// The work belongs to another user.
    #[error("not permitted: {reason}")]
    #[serde(rename = "io.tenantd.Manager.NotYours")]
    NotYours {
        /// The work, and its owner.
        reason: String,
    },
    /// Too many changes are queued, or the agent is stopping.
    #[error("tenantd is busy: try again")]
    #[serde(rename = "io.tenantd.Manager.Busy")]
    Busy {},
    /// The agent does not enforce, and starts no jobs.
    #[error("tenantd only observes: it starts jobs in mode enforce")]
    #[serde(rename = "io.tenantd.Jobs.OnlyObserves")]
    OnlyObserves {},
    /// The caller has no tenant of its own, and has to name one.
    #[error("{}", own_tenant(tenants))]
    #[serde(rename = "io.tenantd.Jobs.NoOwnTenant")]
    NoOwnTenant {
        /// Tenants open to the caller.
        tenants: Vec<String>,
        /// True if a template may make a tenant for the caller with the next tick.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        awaited: Option<bool>,
    },
    /// There is no such job.
    #[error("there is no job {id}")]
    #[serde(rename = "io.tenantd.Jobs.NoSuchJob")]
    NoSuchJob {
        /// Requested number.
        id: u64,
    },
    /// The queue takes no more jobs of this tenant, or of this user.
    #[error("{reason}")]
    #[serde(rename = "io.tenantd.Jobs.QueueFull")]
    QueueFull {
        /// Full queue and its size.
        reason: String,
    },
    /// A job that must not wait cannot start at once.
    #[error("it cannot start now: {}", reason.text)]
    #[serde(rename = "io.tenantd.Jobs.WouldWait")]
    WouldWait {
        /// Obstacle to the start.
        reason: WaitReason,
    },
    /// A job could never start on this machine under this policy.
    #[error("{reason}")]
    #[serde(rename = "io.tenantd.Jobs.NeverFits")]
    NeverFits {
        /// Reason for the refusal.
        reason: String,
    },
    /// A job was taken out of the queue.
    #[error("{reason}")]
    #[serde(rename = "io.tenantd.Jobs.Cancelled")]
    Cancelled {
        /// User or reason of the cancellation.
        reason: String,
    },
    /// A job that had to succeed first did not.
    #[error("{reason}")]
    #[serde(rename = "io.tenantd.Jobs.RequirementFailed")]
    RequirementFailed {
        /// The other job.
        id: u64,
        /// Its end.
        reason: String,
    },
}

const NAMED_MAX: usize = 8;

fn own_tenant(tenants: &[String]) -> String {
    match tenants {
        [] => {
            "you are no tenant, and no tenant of the policy allows you to submit jobs".to_string()
        }
        names if names.len() <= NAMED_MAX => {
            format!("you are no tenant: name one of {}", names.join(", "))
        }
        names => {
            let (first, others) = names.split_at(NAMED_MAX);
            let (first, nr_others) = (first.join(", "), others.len());
            format!("you are no tenant: name one of {first} and {nr_others} others")
        }
    }
}
