//! The calls that only the agent can carry out, with the credentials of the caller.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::jobs::SubmitParameters;
use tenantd_policy::model::Mode;

/// A change that a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Load the policy again.
    Reload,
    /// Switch between observe and enforce.
    SetMode(Mode),
    /// Restore everything that was changed.
    Restore,
    /// Hand work to the tenant with this path; whether processes leave their units.
    Attach(String, Work, bool, Caller),
    /// Take it back.
    Detach(Work, Caller),
}

/// What a client asks for a job, or of jobs.
#[derive(Debug)]
pub enum JobCall {
    /// It is to wait for its turn.
    Submit(Box<Submission>),
    /// It is to leave the queue.
    Cancel(u64, Caller),
}

/// A job that is submitted, with the credentials of its connection as the kernel gives them.
#[derive(Clone, Debug)]
pub struct Submission {
    /// What was asked for.
    pub parameters: SubmitParameters,
    /// The user.
    pub uid: u32,
    /// The process, which is the job.
    pub pid: u32,
    /// The same as a descriptor, where the kernel has them: its number may be another process's by now.
    pub process: Option<Arc<OwnedFd>>,
    /// The tenants that it may be submitted to, beside that of the user.
    pub allowed: Allowed,
}

/// Tenants that a user may submit jobs to, beside the user's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// Every tenant: the user may change the agent.
    All,
    /// These tenants, and those in these groups.
    These(Vec<String>),
}

/// What is handed to a tenant, or taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// A cgroup, from the mount or as a path of the file system.
    Cgroup(String),
    /// Processes.
    Processes(Vec<u32>),
}

/// The origin of a request to attach or detach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The user, limited to own processes; `None` for an administrator.
    pub user: Option<u32>,
    /// The process that asks; 0 where it is not known.
    pub pid: u32,
}

/// The number of a command, unique for the life of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);
