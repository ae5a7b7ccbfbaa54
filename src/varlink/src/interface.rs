//! The three interfaces: the table of their methods, and the types on the wire.
//!
//! The `.varlink` files beside this one are the documentation, and are served to clients. A test parses
//! them and compares every type, method and error with the types here, in [`super::error`] and in
//! [`tenantd_control`] (`tests/idl.rs`).

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::declare::methods;
use super::error::CallError;
use super::jobs::{
    CancelParameters, CancelReply, FinishedParameters, FinishedReply, ListReply, ReportParameters,
    ReportReply, SubmitParameters, SubmitReply, WaitParameters, WaitReply,
};
use super::own_view::OwnView;
use super::wire::Call;
use tenantd_control::report::explanation::Explanation;
use tenantd_control::report::status::{ActionStatus, MoveStatus, Status};
use tenantd_policy::model::Mode;
use tenantd_policy::outline::{Change as Difference, Outline};
pub use tenantd_policy::pods::{FACTS_MAX, LABELS_MAX, Pod};
use tenantd_policy::report::Finding;

/// Interface of every Varlink service.
pub const SERVICE: &str = "org.varlink.service";
/// Interface of the agent.
pub const MANAGER: &str = "io.tenantd.Manager";
/// Interface of the queue of jobs.
pub const JOBS: &str = "io.tenantd.Jobs";
/// Definition of [`SERVICE`].
pub const SERVICE_IDL: &str = include_str!("org.varlink.service.varlink");
/// Definition of [`MANAGER`].
pub const MANAGER_IDL: &str = include_str!("io.tenantd.Manager.varlink");
/// Definition of [`JOBS`].
pub const JOBS_IDL: &str = include_str!("io.tenantd.Jobs.varlink");

methods! {
    open {
        /// The name and version of the service.
        SERVICE.GetInfo(Nothing) -> InfoReply;
        /// The definition of an interface.
        SERVICE.GetInterfaceDescription(DescriptionParameters) -> DescriptionReply;
        /// The caller's own tenants.
        MANAGER.GetOwnView(Nothing) -> OwnViewReply;
        /// The jobs that run and wait; the caller's own for users who may not read.
        JOBS.List(Nothing) -> ListReply;
        /// Running and waiting jobs at each change, with `more`; likewise.
        JOBS.WatchJobs(Nothing) -> ListReply;
        /// The finished jobs.
        JOBS.Finished(FinishedParameters) -> FinishedReply;
    }
    read {
        /// The last tick.
        MANAGER.GetStatus(Nothing) -> StatusReply;
        /// Every tick, with `more`.
        MANAGER.Watch(Nothing) -> WatchReply;
        /// Explanation of the values of one tenant.
        MANAGER.Explain(ExplainParameters) -> ExplainReply;
        /// The actions of the last tick.
        MANAGER.GetPlan(Nothing) -> PlanReply;
        /// The policy in force.
        MANAGER.GetPolicy(Nothing) -> PolicyReply;
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
        /// Wait for the end of a job.
        JOBS.Wait(WaitParameters) -> WaitReply;
        /// Report the exit status of a supervised job.
        JOBS.Report(ReportParameters) -> ReportReply;
    }
}

/// Required permission of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// No permission: every client that can connect, about itself.
    Open,
    /// Permission to read everything: root, the `administrators` of the policy, and the group of the socket.
    Read,
    /// Permission to change the agent: root and the `administrators` of the policy.
    Change,
    /// Permission to change the agent, or own work only: every user that the policy allows.
    Own,
}

/// A call with its method and its parameters.
#[derive(Clone, Debug)]
pub enum Request {
    /// A reading request.
    Read(Read),
    /// A changing request.
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

/// Visitor of all methods: see [`Method::visit`].
pub trait Visitor {
    /// Visits one method.
    fn method<S: Signature>(&mut self);
}

impl Method {
    /// Name on the wire.
    pub fn full_name(self) -> String {
        let (interface, name) = self.names();
        format!("{interface}.{name}")
    }

    /// Finds the method with this name on the wire.
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

/// Definition of an interface; `None` for an unknown one.
pub fn definition(interface: &str) -> Option<&'static str> {
    match interface {
        SERVICE => Some(SERVICE_IDL),
        MANAGER => Some(MANAGER_IDL),
        JOBS => Some(JOBS_IDL),
        _ => None,
    }
}

/// Parameters of a method without parameters.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// Parameters of `GetInterfaceDescription`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DescriptionParameters {
    /// Name of the interface.
    pub interface: String,
}

/// Parameters of `Explain`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExplainParameters {
    /// Path of a tenant or group.
    pub tenant: String,
}

/// Parameters of `SetMode`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetModeParameters {
    /// New mode.
    pub mode: Mode,
}

/// Parameters of `Attach`: a cgroup, or processes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttachParameters {
    /// Path of a tenant. It may be absent with a pod: the policy chooses.
    #[serde(default)]
    pub tenant: Option<String>,
    /// Cgroup, from the mount or as a path of the file system.
    #[serde(default)]
    pub cgroup: Option<String>,
    /// Processes.
    #[serde(default)]
    pub pids: Option<Vec<u32>>,
    /// True if processes leave their service or session.
    #[serde(default)]
    pub leave_unit: Option<bool>,
    /// Pod of the cgroup.
    #[serde(default)]
    pub pod: Option<Pod>,
}

/// Parameters of `Detach`: a cgroup, or processes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DetachParameters {
    /// Cgroup, as in [`AttachParameters`].
    #[serde(default)]
    pub cgroup: Option<String>,
    /// Processes.
    #[serde(default)]
    pub pids: Option<Vec<u32>>,
}

/// Reply of `GetInfo`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InfoReply {
    /// The vendor.
    pub vendor: String,
    /// The product.
    pub product: String,
    /// The version.
    pub version: String,
    /// Address with more information.
    pub url: String,
    /// Interfaces of the service.
    pub interfaces: Vec<String>,
}

impl InfoReply {
    /// Returns the description of this program.
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

/// Reply of `GetInterfaceDescription`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DescriptionReply {
    /// Definition of the interface.
    pub description: String,
}

/// Reply of `GetStatus`.
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
    /// Ticks skipped since the previous reply, because the client read too slowly.
    pub lost: u64,
}

/// Reply of `Explain`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ExplainReply {
    /// Last tick for this tenant.
    pub explanation: Explanation,
}

/// Reply of `GetOwnView`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct OwnViewReply {
    /// Last tick for the caller.
    pub view: OwnView,
}

/// Reply of `GetPlan`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PlanReply {
    /// The tick of the plan.
    pub tick: u64,
    /// Mode; in mode enforce the actions were written.
    pub mode: Mode,
    /// Actions, in their order.
    pub actions: Vec<ActionStatus>,
    /// Moved processes.
    pub moves: Vec<MoveStatus>,
    /// Findings of the tick.
    pub findings: Vec<String>,
}

/// Reply of `GetPolicy`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PolicyReply {
    /// File or directory of the policy; absent if a program made it.
    pub path: Option<String>,
    /// Flattened policy.
    pub policy: Outline,
    /// Directory of the recording; absent if nothing is recorded.
    pub history: Option<String>,
}

/// Reply of `Reload`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ReloadReply {
    /// Differences between the previous policy and the new one.
    pub changes: Vec<Difference>,
    /// Warnings and notes about the new policy.
    pub findings: Vec<Finding>,
}

/// Reply of `SetMode`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ModeReply {
    /// The previous mode.
    pub before: Mode,
    /// Values that could not be restored.
    pub failures: Vec<String>,
    /// Mode in the policy, which the next start takes.
    #[serde(default)]
    pub policy_mode: Option<Mode>,
    /// Path of the policy.
    #[serde(default)]
    pub policy: Option<String>,
}

/// Reply of `Restore`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RestoreReply {
    /// Number of files with restored values.
    pub files: u64,
    /// Number of processes that were moved back.
    pub processes: u64,
    /// Number of removed cgroups.
    pub cgroups: u64,
    /// Cgroups that stay because of processes in nested cgroups: not a failure.
    #[serde(default)]
    pub left: Vec<String>,
    /// Values that could not be restored.
    pub failures: Vec<String>,
}

/// Reply of `Attach`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AttachReply {
    /// Attached cgroup, or cgroup of the processes, from the mount.
    pub cgroup: String,
    /// Moved processes.
    pub pids: Vec<u32>,
    /// Processes that ended meanwhile.
    pub failures: Vec<String>,
}

/// Reply of `Detach`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DetachReply {
    /// Values that could not be restored.
    pub failures: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of the methods declared in these sections.
    #[test]
    fn exactly_these_methods_change_something() {
        let names = |access: Access| -> Vec<&str> {
            let methods = Method::ALL.iter().filter(|method| method.access() == access);
            methods.map(|method| method.names().1).collect()
        };
        let open =
            ["GetInfo", "GetInterfaceDescription", "GetOwnView", "List", "WatchJobs", "Finished"];
        assert_eq!(names(Access::Open), open, "everyone may call these, about their own work");
        assert_eq!(names(Access::Change), ["Reload", "SetMode", "Restore"]);
        assert_eq!(names(Access::Own), ["Attach", "Detach", "Submit", "Cancel", "Wait", "Report"]);
    }
}
