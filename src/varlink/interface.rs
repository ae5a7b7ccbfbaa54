//! The two interfaces, and the Rust types of what goes over the wire.
//!
//! The `.varlink` files beside this one are the documentation: they are served to whoever introspects, and a
//! test parses them and compares every type, method and error with the types here and in [`crate::control`]
//! (`tests/varlink/idl.rs`).

use serde::{Deserialize, Serialize};

use crate::control::explain::Explanation;
use crate::control::status::{ActionStatus, Status};
use crate::policy::model::Mode;
use crate::policy::outline::{Change, Outline};
use crate::policy::report::Finding;

/// The interface that every Varlink service has.
pub const SERVICE: &str = "org.varlink.service";
/// The interface of the agent.
pub const MANAGER: &str = "io.tenantd.Manager";
/// The definition of [`SERVICE`].
pub const SERVICE_IDL: &str = include_str!("org.varlink.service.varlink");
/// The definition of [`MANAGER`].
pub const MANAGER_IDL: &str = include_str!("io.tenantd.Manager.varlink");

/// A method of [`MANAGER`] or [`SERVICE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `org.varlink.service.GetInfo`
    GetInfo,
    /// `org.varlink.service.GetInterfaceDescription`
    GetInterfaceDescription,
    /// `io.tenantd.Manager.GetStatus`
    GetStatus,
    /// `io.tenantd.Manager.Watch`
    Watch,
    /// `io.tenantd.Manager.Explain`
    Explain,
    /// `io.tenantd.Manager.GetPlan`
    GetPlan,
    /// `io.tenantd.Manager.GetPolicy`
    GetPolicy,
    /// `io.tenantd.Manager.Reload`
    Reload,
    /// `io.tenantd.Manager.SetMode`
    SetMode,
    /// `io.tenantd.Manager.Restore`
    Restore,
}

impl Method {
    /// Every method.
    pub const ALL: [Method; 10] = [
        Method::GetInfo,
        Method::GetInterfaceDescription,
        Method::GetStatus,
        Method::Watch,
        Method::Explain,
        Method::GetPlan,
        Method::GetPolicy,
        Method::Reload,
        Method::SetMode,
        Method::Restore,
    ];

    /// The interface it belongs to, and its name there.
    pub fn names(self) -> (&'static str, &'static str) {
        match self {
            Method::GetInfo => (SERVICE, "GetInfo"),
            Method::GetInterfaceDescription => (SERVICE, "GetInterfaceDescription"),
            Method::GetStatus => (MANAGER, "GetStatus"),
            Method::Watch => (MANAGER, "Watch"),
            Method::Explain => (MANAGER, "Explain"),
            Method::GetPlan => (MANAGER, "GetPlan"),
            Method::GetPolicy => (MANAGER, "GetPolicy"),
            Method::Reload => (MANAGER, "Reload"),
            Method::SetMode => (MANAGER, "SetMode"),
            Method::Restore => (MANAGER, "Restore"),
        }
    }

    /// Its name on the wire.
    pub fn full_name(self) -> String {
        let (interface, name) = self.names();
        format!("{interface}.{name}")
    }

    /// The method that `full_name` stands for.
    ///
    /// # Errors
    /// The error that says what of it is not known.
    pub fn find(full_name: &str) -> Result<Method, CallError> {
        let Some((interface, name)) = full_name.rsplit_once('.') else {
            return Err(CallError::InterfaceNotFound { interface: full_name.to_string() });
        };
        if interface != SERVICE && interface != MANAGER {
            return Err(CallError::InterfaceNotFound { interface: interface.to_string() });
        }
        let known = Method::ALL.into_iter().find(|method| method.names() == (interface, name));
        known.ok_or_else(|| CallError::MethodNotFound { method: full_name.to_string() })
    }

    /// Whether it changes something, which not every reader may.
    pub fn changes(self) -> bool {
        matches!(self, Method::Reload | Method::SetMode | Method::Restore)
    }
}

/// The definition of an interface; `None` where it is not served here.
pub fn definition(interface: &str) -> Option<&'static str> {
    match interface {
        SERVICE => Some(SERVICE_IDL),
        MANAGER => Some(MANAGER_IDL),
        _ => None,
    }
}

/// What a method that takes nothing takes.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// What `GetInterfaceDescription` takes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DescriptionParameters {
    /// The interface's name.
    pub interface: String,
}

/// What `Explain` takes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExplainParameters {
    /// The path of a tenant or group.
    pub tenant: String,
}

/// What `SetMode` takes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetModeParameters {
    /// The mode from now on.
    pub mode: Mode,
}

/// What `GetInfo` answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InfoReply {
    /// Who makes it.
    pub vendor: String,
    /// What it is.
    pub product: String,
    /// Which version.
    pub version: String,
    /// Where there is more about it.
    pub url: String,
    /// The interfaces it serves.
    pub interfaces: Vec<String>,
}

impl InfoReply {
    /// What this program says of itself.
    pub fn of_this_program() -> InfoReply {
        InfoReply {
            vendor: "tenantd".into(),
            product: "tenantd".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            url: "https://varlink.org".into(),
            interfaces: vec![SERVICE.into(), MANAGER.into()],
        }
    }
}

/// What `GetInterfaceDescription` answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DescriptionReply {
    /// The interface's definition.
    pub description: String,
}

/// What `GetStatus` answers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StatusReply {
    /// The last tick.
    pub status: Status,
}

/// What `Watch` answers, again and again.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WatchReply {
    /// The last tick.
    pub status: Status,
    /// Ticks that were left out since the frame before, because it was read too slowly.
    pub lost: u64,
}

/// What `Explain` answers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ExplainReply {
    /// The last tick for the tenant.
    pub explanation: Explanation,
}

/// What `GetPlan` answers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PlanReply {
    /// The tick it was made in.
    pub tick: u64,
    /// Whether it was written.
    pub mode: Mode,
    /// The writes, in their order.
    pub actions: Vec<ActionStatus>,
    /// What stood in the way.
    pub findings: Vec<String>,
}

/// What `GetPolicy` answers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PolicyReply {
    /// Where it was read; absent where it was made up by a program.
    pub path: Option<String>,
    /// What it says.
    pub policy: Outline,
}

/// What `Reload` answers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ReloadReply {
    /// What is different from now on.
    pub changes: Vec<Change>,
    /// Warnings and notes about the new policy.
    pub findings: Vec<Finding>,
}

/// What `SetMode` answers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ModeReply {
    /// The mode until now.
    pub before: Mode,
    /// What could not be put back.
    pub failures: Vec<String>,
}

/// What `Restore` answers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RestoreReply {
    /// Files that hold again what they held before.
    pub files: u64,
    /// Processes that were moved back.
    pub processes: u64,
    /// Cgroups that were removed.
    pub cgroups: u64,
    /// What could not be put back.
    pub failures: Vec<String>,
}

/// Why a call was not answered.
#[derive(Clone, Debug, PartialEq, thiserror::Error, Serialize, Deserialize)]
#[serde(tag = "error", content = "parameters")]
pub enum CallError {
    /// There is no such interface here.
    #[error("no interface `{interface}` is served here")]
    #[serde(rename = "org.varlink.service.InterfaceNotFound")]
    InterfaceNotFound {
        /// What was asked for.
        interface: String,
    },
    /// The interface has no such method.
    #[error("there is no method `{method}`")]
    #[serde(rename = "org.varlink.service.MethodNotFound")]
    MethodNotFound {
        /// What was called.
        method: String,
    },
    /// The method cannot be called here.
    #[error("the method `{method}` cannot be called here")]
    #[serde(rename = "org.varlink.service.MethodNotImplemented")]
    MethodNotImplemented {
        /// What was called.
        method: String,
    },
    /// A parameter is missing, unknown or of the wrong type.
    #[error("the parameter `{parameter}` is missing, unknown or of the wrong type")]
    #[serde(rename = "org.varlink.service.InvalidParameter")]
    InvalidParameter {
        /// Which.
        parameter: String,
    },
    /// Whoever calls may not.
    #[error("not permitted")]
    #[serde(rename = "org.varlink.service.PermissionDenied")]
    PermissionDenied {},
    /// The method answers more than once, and was not called with `more`.
    #[error("the method answers more than once: call it with `more`")]
    #[serde(rename = "org.varlink.service.ExpectedMore")]
    ExpectedMore {},
    /// The policy has no such tenant.
    #[error("the policy has no tenant `{tenant}`")]
    #[serde(rename = "io.tenantd.Manager.NoSuchTenant")]
    NoSuchTenant {
        /// What was asked for.
        tenant: String,
        /// Those near it, the nearest first, or all where there are few.
        tenants: Vec<String>,
    },
    /// The policy is not valid, and the running one stays.
    #[error("the policy is not valid: the running one stays")]
    #[serde(rename = "io.tenantd.Manager.BadPolicy")]
    BadPolicy {
        /// The report for a person.
        report: String,
        /// The same as records.
        findings: Vec<Finding>,
    },
    /// It was tried and could not be done.
    #[error("{reason}")]
    #[serde(rename = "io.tenantd.Manager.Failed")]
    Failed {
        /// Why.
        reason: String,
    },
    /// Too many changes wait, or the agent is about to stop.
    #[error("too busy: try again")]
    #[serde(rename = "io.tenantd.Manager.Busy")]
    Busy {},
}
