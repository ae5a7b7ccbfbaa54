//! The three interfaces: the table of their methods, and the types that go over the wire.
//!
//! The `.varlink` files beside this one are the documentation and are served to clients that introspect. A test
//! parses them and compares every type, method and error with the types here, in [`super::error`] and in
//! [`tenantd_control`] (`tests/varlink/idl.rs`).

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::declare::methods;
use super::error::CallError;
use super::jobs::{CancelParameters, CancelReply, ListReply, SubmitParameters, SubmitReply};
use super::wire::Call;
use tenantd_control::explanation::Explanation;
use tenantd_control::status::{ActionStatus, MoveStatus, Status};
use tenantd_policy::model::Mode;
use tenantd_policy::outline::{Change as Difference, Outline};
use tenantd_policy::report::Finding;

/// The interface that every Varlink service has.
pub const SERVICE: &str = "org.varlink.service";
/// The interface of the agent.
pub const MANAGER: &str = "io.tenantd.Manager";
/// The interface of the queue of jobs.
pub const JOBS: &str = "io.tenantd.Jobs";
/// The definition of [`SERVICE`].
pub const SERVICE_IDL: &str = include_str!("org.varlink.service.varlink");
/// The definition of [`MANAGER`].
pub const MANAGER_IDL: &str = include_str!("io.tenantd.Manager.varlink");
/// The definition of [`JOBS`].
pub const JOBS_IDL: &str = include_str!("io.tenantd.Jobs.varlink");

methods! {
    read {
        /// The name and version of the service.
        SERVICE.GetInfo(Nothing) -> InfoReply;
        /// The definition of an interface.
        SERVICE.GetInterfaceDescription(DescriptionParameters) -> DescriptionReply;
        /// The last tick.
        MANAGER.GetStatus(Nothing) -> StatusReply;
        /// Every tick, with `more`.
        MANAGER.Watch(Nothing) -> WatchReply;
        /// How the values of one tenant came about.
        MANAGER.Explain(ExplainParameters) -> ExplainReply;
        /// The actions of the last tick.
        MANAGER.GetPlan(Nothing) -> PlanReply;
        /// The policy in force.
        MANAGER.GetPolicy(Nothing) -> PolicyReply;
        /// The jobs that run and wait.
        JOBS.List(Nothing) -> ListReply;
        /// The same at each change, with `more`.
        JOBS.WatchJobs(Nothing) -> ListReply;
    }
    change {
        /// Load the policy again.
        MANAGER.Reload(Nothing) -> ReloadReply;
        /// Switch between observe and enforce.
        MANAGER.SetMode(SetModeParameters) -> ModeReply;
        /// Restore everything that was changed.
        MANAGER.Restore(Nothing) -> RestoreReply;
    }
    own {
        /// Hand running work to a tenant.
        MANAGER.Attach(AttachParameters) -> AttachReply;
        /// Take it back.
        MANAGER.Detach(DetachParameters) -> DetachReply;
        /// Submit the calling process as a job, with `more`.
        JOBS.Submit(SubmitParameters) -> SubmitReply;
        /// Take a job out of the queue.
        JOBS.Cancel(CancelParameters) -> CancelReply;
    }
}

/// What a caller has to be permitted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To connect: every client that can connect may read.
    Read,
    /// To change the agent: root and the `administrators` of the policy.
    Change,
    /// The same, or to do it with own work: every user that the policy allows.
    Own,
}

/// A call with its method and its parameters.
#[derive(Clone, Debug)]
pub enum Request {
    /// It reads.
    Read(Read),
    /// It changes.
    Change(Change),
}

/// A method as a type, with the types of its parameters and its reply.
pub trait Signature {
    /// The method.
    const METHOD: Method;
    /// The parameters on the wire.
    type Parameters: Serialize + DeserializeOwned;
    /// The parameters of the reply on the wire.
    type Reply: Serialize + DeserializeOwned;
}

/// Something that is done for each method: see [`Method::visit`].
pub trait Visitor {
    /// Called for each method.
    fn method<S: Signature>(&mut self);
}

impl Method {
    /// The name on the wire.
    pub fn full_name(self) -> String {
        let (interface, name) = self.names();
        format!("{interface}.{name}")
    }

    /// The method with this name on the wire.
    ///
    /// # Errors
    /// [`CallError::InterfaceNotFound`] and [`CallError::MethodNotFound`].
    pub fn find(full_name: &str) -> Result<Method, CallError> {
        let Some((interface, name)) = full_name.rsplit_once('.') else {
            return Err(CallError::InterfaceNotFound { interface: full_name.to_string() });
        };
        if definition(interface).is_none() {
            return Err(CallError::InterfaceNotFound { interface: interface.to_string() });
        }
        let mut methods = Method::ALL.iter().copied();
        let known = methods.find(|method| method.names() == (interface, name));
        known.ok_or_else(|| CallError::MethodNotFound { method: full_name.to_string() })
    }
}

/// The definition of an interface; `None` for an unknown one.
pub fn definition(interface: &str) -> Option<&'static str> {
    match interface {
        SERVICE => Some(SERVICE_IDL),
        MANAGER => Some(MANAGER_IDL),
        JOBS => Some(JOBS_IDL),
        _ => None,
    }
}

/// The parameters of a method without parameters.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// The parameters of `GetInterfaceDescription`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DescriptionParameters {
    /// The interface's name.
    pub interface: String,
}

/// The parameters of `Explain`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExplainParameters {
    /// The path of a tenant or group.
    pub tenant: String,
}

/// The parameters of `SetMode`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetModeParameters {
    /// The new mode.
    pub mode: Mode,
}

/// The parameters of `Attach`: a cgroup, or processes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttachParameters {
    /// The path of a tenant.
    pub tenant: String,
    /// A cgroup, from the mount or as a path of the file system.
    #[serde(default)]
    pub cgroup: Option<String>,
    /// Processes.
    #[serde(default)]
    pub pids: Option<Vec<u32>>,
    /// Whether processes leave their service or session.
    #[serde(default)]
    pub leave_unit: Option<bool>,
}

/// The parameters of `Detach`: a cgroup, or processes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DetachParameters {
    /// As in [`AttachParameters`].
    #[serde(default)]
    pub cgroup: Option<String>,
    /// Processes.
    #[serde(default)]
    pub pids: Option<Vec<u32>>,
}

/// The reply of `GetInfo`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InfoReply {
    /// The vendor.
    pub vendor: String,
    /// The product.
    pub product: String,
    /// The version.
    pub version: String,
    /// An address with more information.
    pub url: String,
    /// The interfaces of the service.
    pub interfaces: Vec<String>,
}

impl InfoReply {
    /// The description of this program.
    pub fn of_this_program() -> InfoReply {
        InfoReply {
            vendor: "tenantd".into(),
            product: "tenantd".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            url: "https://varlink.org".into(),
            interfaces: vec![SERVICE.into(), MANAGER.into(), JOBS.into()],
        }
    }
}

/// The reply of `GetInterfaceDescription`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DescriptionReply {
    /// The definition of the interface.
    pub description: String,
}

/// The reply of `GetStatus`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StatusReply {
    /// The last tick.
    pub status: Status,
}

/// One of the replies of `Watch`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WatchReply {
    /// The last tick.
    pub status: Status,
    /// Ticks that were skipped since the previous reply, because the client read too slowly.
    pub lost: u64,
}

/// The reply of `Explain`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ExplainReply {
    /// The last tick for this tenant.
    pub explanation: Explanation,
}

/// The reply of `GetPlan`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PlanReply {
    /// The tick of the plan.
    pub tick: u64,
    /// In mode enforce the actions were written.
    pub mode: Mode,
    /// The actions, in their order.
    pub actions: Vec<ActionStatus>,
    /// The processes that are moved.
    pub moves: Vec<MoveStatus>,
    /// The findings of the tick.
    pub findings: Vec<String>,
}

/// The reply of `GetPolicy`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PolicyReply {
    /// The file or directory of the policy; absent where a program made it.
    pub path: Option<String>,
    /// The policy, flattened.
    pub policy: Outline,
}

/// The reply of `Reload`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ReloadReply {
    /// The differences between the previous policy and the new one.
    pub changes: Vec<Difference>,
    /// Warnings and notes about the new policy.
    pub findings: Vec<Finding>,
}

/// The reply of `SetMode`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ModeReply {
    /// The previous mode.
    pub before: Mode,
    /// What could not be restored.
    pub failures: Vec<String>,
}

/// The reply of `Restore`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RestoreReply {
    /// Files whose earlier value was written back.
    pub files: u64,
    /// Processes that were moved back.
    pub processes: u64,
    /// Cgroups that were removed.
    pub cgroups: u64,
    /// Cgroups that stay, because processes are in cgroups that were made inside: no failure.
    #[serde(default)]
    pub left: Vec<String>,
    /// What could not be restored.
    pub failures: Vec<String>,
}

/// The reply of `Attach`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AttachReply {
    /// The cgroup that is a member now, or in which the processes are, from the mount.
    pub cgroup: String,
    /// The processes that were moved.
    pub pids: Vec<u32>,
    /// Those that were not, because they ended meanwhile.
    pub failures: Vec<String>,
}

/// The reply of `Detach`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DetachReply {
    /// What could not be restored.
    pub failures: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of the methods whose declaration is in these sections; everything else only reads.
    #[test]
    fn exactly_these_methods_change_something() {
        let names = |access: Access| -> Vec<&str> {
            let methods = Method::ALL.iter().filter(|method| method.access() == access);
            methods.map(|method| method.names().1).collect()
        };
        assert_eq!(names(Access::Change), ["Reload", "SetMode", "Restore"]);
        assert_eq!(names(Access::Own), ["Attach", "Detach", "Submit", "Cancel"]);
    }
}
