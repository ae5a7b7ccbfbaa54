//! The errors that a call is answered with, of both interfaces.
//!
//! Each variant is an `error` of a `.varlink` file; `tests/varlink/idl.rs` compares the two.

use serde::{Deserialize, Serialize};

use super::jobs::WaitReason;
use tenantd_policy::report::Finding;

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error, Serialize, Deserialize)]
#[serde(tag = "error", content = "parameters")]
pub enum CallError {
    /// The interface is unknown.
    #[error("the interface `{interface}` is unknown")]
    #[serde(rename = "org.varlink.service.InterfaceNotFound")]
    InterfaceNotFound {
        /// The name that was asked for.
        interface: String,
    },
    /// The interface has no such method.
    #[error("the method `{method}` is unknown")]
    #[serde(rename = "org.varlink.service.MethodNotFound")]
    MethodNotFound {
        /// The full name that was called.
        method: String,
    },
    /// The method exists and cannot be called in this way.
    #[error("the method `{method}` cannot be called in this way")]
    #[serde(rename = "org.varlink.service.MethodNotImplemented")]
    MethodNotImplemented {
        /// The full name that was called.
        method: String,
    },
    /// A parameter is missing, unknown or of the wrong type.
    #[error("the parameter `{parameter}` is missing, unknown or of the wrong type")]
    #[serde(rename = "org.varlink.service.InvalidParameter")]
    InvalidParameter {
        /// The name of the parameter.
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
        /// The name that was asked for.
        tenant: String,
        /// Similar names, the most similar first; all names where there are few.
        tenants: Vec<String>,
    },
    /// The policy is invalid; the running policy stays in force.
    #[error("the policy is invalid: the running policy stays in force")]
    #[serde(rename = "io.tenantd.Manager.BadPolicy")]
    BadPolicy {
        /// The findings as text.
        report: String,
        /// The findings as records.
        findings: Vec<Finding>,
    },
    /// The change was tried and failed.
    #[error("{reason}")]
    #[serde(rename = "io.tenantd.Manager.Failed")]
    Failed {
        /// The cause.
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
    /// The caller is no tenant, and has to name one.
    #[error("{}", own_tenant(tenants))]
    #[serde(rename = "io.tenantd.Jobs.NoOwnTenant")]
    NoOwnTenant {
        /// Those that it may submit to.
        tenants: Vec<String>,
    },
    /// There is no such job.
    #[error("there is no job {id}")]
    #[serde(rename = "io.tenantd.Jobs.NoSuchJob")]
    NoSuchJob {
        /// The number that was asked for.
        id: u64,
    },
    /// The queue takes no more jobs of this tenant, or of this user.
    #[error("{reason}")]
    #[serde(rename = "io.tenantd.Jobs.QueueFull")]
    QueueFull {
        /// Whose queue, and how many it takes.
        reason: String,
    },
    /// A job cannot start at once, and was not to wait.
    #[error("it cannot start now: {}", reason.text)]
    #[serde(rename = "io.tenantd.Jobs.WouldWait")]
    WouldWait {
        /// Why not.
        reason: WaitReason,
    },
    /// A job could never start on this machine under this policy.
    #[error("{reason}")]
    #[serde(rename = "io.tenantd.Jobs.NeverFits")]
    NeverFits {
        /// Why not.
        reason: String,
    },
    /// A job was taken out of the queue.
    #[error("{reason}")]
    #[serde(rename = "io.tenantd.Jobs.Cancelled")]
    Cancelled {
        /// By whom or why.
        reason: String,
    },
}

/// Tenants that a message names at most.
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
