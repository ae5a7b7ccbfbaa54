//! Inputs and outputs of the admission.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use tenantd_dop::target::Width;
use tenantd_queue::discipline::Name;
use tenantd_queue::indices::Indices;
use tenantd_queue::sets::{Set, Tasks};

/// Number of a job, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId(pub u64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Policy for all tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// Discipline that chooses the next tenant.
    pub discipline: Name,
    /// Most jobs that run at once; `None` for as many as slots.
    pub max_running: Option<u32>,
    /// Most times that a job with a lack is overtaken.
    pub overtakes_max: u32,
    /// Most waiting jobs of one tenant.
    pub max_waiting: u32,
    /// Most waiting jobs of one user, in all tenants together.
    pub max_waiting_per_user: u32,
    /// Workers that only short jobs get.
    #[serde(default)]
    pub reserve: Option<Reserve>,
}

/// Workers, and as many slots, that only short jobs get. Without a backlog no order of starts helps a short job that arrives
/// while long ones run everywhere; an idle worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reserve {
    /// Workers kept; one long job may always run.
    pub workers: u32,
    /// Upper bound, exclusive, of [`Request::expected`] of a short job.
    pub below: Duration,
}

impl Reserve {
    /// True if a job is short. One without an estimate is not.
    pub fn is_short(&self, request: &Request) -> bool {
        request.expected.is_some_and(|expected| expected < self.below)
    }
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            discipline: Name::default(),
            max_running: None,
            overtakes_max: 16,
            max_waiting: 1000,
            max_waiting_per_user: 250,
            reserve: None,
        }
    }
}

/// Policy of one tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// Path in the policy.
    pub path: String,
    /// Weight among all tenants, positive.
    pub weight: f64,
    /// Most of its jobs that run at once.
    pub max_running: Option<u32>,
    /// Most of its jobs of one user that run at once.
    pub max_running_per_user: Option<u32>,
    /// Memory that its jobs may reserve together.
    pub memory_max_bytes: Option<u64>,
    /// Largest width of one of its jobs.
    pub dop_max: Option<u32>,
    /// Its guarantee; a job within it may have others evicted.
    #[serde(default)]
    pub guarantee: Guarantee,
}

/// Guarantee of a tenant; 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Guarantee {
    /// CPUs, each of which counts as a slot.
    pub cores: f64,
    /// Memory.
    pub memory_bytes: u64,
}

impl Terms {
    /// Creates a tenant without bounds.
    pub fn new(path: impl Into<String>, weight: f64) -> Terms {
        Terms {
            path: path.into(),
            weight,
            max_running: None,
            max_running_per_user: None,
            memory_max_bytes: None,
            dop_max: None,
            guarantee: Guarantee::default(),
        }
    }
}

/// Resources shared by all jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    /// Slots; 0 counts as 1. No job is wider, however many workers there are.
    pub slots: u32,
    /// Memory for jobs and outside usage together; `None` if unknown.
    pub memory_bytes: Option<u64>,
    /// Counted resources: name and number.
    pub units: Vec<(String, u32)>,
}

/// Measurements before jobs start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Memory that is used outside jobs and cannot be reclaimed.
    pub outside_bytes: u64,
}

/// A submitted job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Path of its tenant.
    pub tenant: String,
    /// Its user.
    pub user: u32,
    /// Class of jobs of its tenant with similar expected costs.
    pub class: Option<String>,
    /// Declared memory; 0 without a declaration.
    pub memory_bytes: u64,
    /// Allowed width.
    pub width: Width,
    /// Units of counted resources, by name.
    pub units: Vec<(String, u32)>,
    /// Tasks of a set, each with the other values of this request; `None` for a single command.
    #[serde(default)]
    pub tasks: Option<Tasks>,
    /// Jobs that have to end first.
    #[serde(default)]
    pub after: Vec<Requirement>,
    /// Consent to be ended for another job and to wait again. Such a job is a set: each run is a task.
    #[serde(default)]
    pub requeue: Option<Requeue>,
    /// Time that nine of ten jobs of its class took at the submission.
    #[serde(default)]
    pub expected: Option<Duration>,
}

/// Consent of a job to be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requeue {
    /// Time between SIGTERM and SIGKILL.
    pub grace_seconds: u32,
}

/// A job that has to end before another one starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requirement {
    /// The job; older than the one that waits.
    pub job: JobId,
    /// True if it has to succeed, false for any end.
    pub must_succeed: bool,
}

impl Request {
    /// Creates a job without declarations.
    pub fn new(tenant: impl Into<String>, user: u32) -> Request {
        Request {
            tenant: tenant.into(),
            user,
            class: None,
            memory_bytes: 0,
            width: Width::Auto,
            units: Vec::new(),
            tasks: None,
            after: Vec::new(),
            requeue: None,
            expected: None,
        }
    }
}

/// A job that starts now, or a task of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The job; a set once for each task.
    pub job: JobId,
    /// Its width, or that of the task.
    pub dop: u32,
}

/// Result of a dispatch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dispatch {
    /// Starting jobs, in this order.
    pub starts: Vec<Start>,
    /// Running jobs with changed widths, narrower ones first; a set with the new width of a task.
    pub widths: Vec<(JobId, u32)>,
}

/// State of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Phase {
    /// The job is in the queue.
    Waiting {
        /// Number of times others have overtaken it.
        overtaken: u32,
    },
    /// The job has a worker, or is a set of which a task has started.
    Running {
        /// Time of its start.
        since: f64,
        /// Width in CPUs, of all running tasks together.
        dop: u32,
    },
    /// Its first process has ended, and others that it started have not.
    Lingering {
        /// Time of its start.
        since: f64,
    },
}

/// View of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JobView<'a> {
    /// The job.
    pub job: JobId,
    /// Submitted request.
    pub request: &'a Request,
    /// Time of the submission.
    pub submitted: f64,
    /// State of the job.
    pub phase: Phase,
    /// Indices of counted resources that it holds.
    pub indices: &'a Indices,
    /// CPU time used, in seconds.
    pub cpu_seconds: f64,
    /// Memory used; `None` if it was not measured.
    pub used_bytes: Option<u64>,
    /// True if it lends its slots because it has used no CPU for a minute.
    pub is_idle: bool,
    /// CPU use before the last charge; 0 before the second one.
    pub used_cores: f64,
    /// Progress of a set.
    pub set: Option<Set>,
    /// Reason of the eviction under way, or of the last one.
    pub eviction: Option<&'a Cause>,
    /// True while it ends for another job.
    pub is_leaving: bool,
}

/// Beneficiary of an eviction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// Waiting job that starts in its place; `None` if a guarantee is due to the tenant or group.
    pub job: Option<JobId>,
    /// Path of the tenant or group.
    pub tenant: String,
}

/// A claim whose slots the jobs of others leave free.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Owed {
    /// Guaranteed CPUs that the tenant wants.
    pub due_cores: f64,
    /// CPUs of these that jobs of others use.
    pub lacking_cores: f64,
}
