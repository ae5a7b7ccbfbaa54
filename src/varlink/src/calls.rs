//! Calls that only the agent can execute, with the credentials of the caller.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::jobs::{ReportParameters, SubmitParameters};
use tenantd_policy::model::Mode;
use tenantd_policy::pods::Pod;

/// A requested change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Reload of the policy.
    Reload,
    /// Change between observe and enforce.
    SetMode(Mode),
    /// Restore of all changes.
    Restore,
    /// Attachment of work to the tenant with this path; true if processes leave their units.
    Attach(String, Work, bool, Caller),
    /// Attachment of the cgroup of a pod to the tenant that the policy has for it.
    AttachPod(Box<Pod>, String, Caller),
    /// Detachment of work.
    Detach(Work, Caller),
}

/// A request about jobs.
#[derive(Debug)]
pub enum JobCall {
    /// Submission of a job.
    Submit(Box<Submission>),
    /// Removal of a job from the queue.
    Cancel(u64, Caller),
    /// Wait for the end of a job.
    Wait(u64, Caller),
    /// Exit status of a supervised job.
    Report(ReportParameters, Caller),
}

/// A submitted job, with the credentials of its connection from the kernel.
#[derive(Clone, Debug)]
pub struct Submission {
    /// Requested parameters.
    pub parameters: SubmitParameters,
    /// User of the job.
    pub uid: u32,
    /// Process of the job.
    pub pid: u32,
    /// Descriptor of the process, if the kernel has them: its number may belong to another process by now.
    pub process: Option<Arc<OwnedFd>>,
    /// Tenants open to the user, beside the user's own.
    pub allowed: Allowed,
}

/// Tenants open to a user for jobs, beside the user's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// Every tenant: the user may change the agent.
    All,
    /// These tenants, and those in these groups.
    These(Vec<String>),
}

/// Work to attach or detach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Cgroup, from the mount or as a path of the file system.
    Cgroup(String),
    /// Processes.
    Processes(Vec<u32>),
}

/// The origin of a request to attach or detach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// User, limited to own processes; `None` for an administrator.
    pub user: Option<u32>,
    /// Calling process; 0 if unknown.
    pub pid: u32,
}

/// Number of a command, unique for the life of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);
