//! The inputs and outputs of the admission.

use std::fmt;

use serde::{Deserialize, Serialize};

use tenantd_dop::target::Width;
use tenantd_queue::discipline::Name;

/// A job, by a number that is not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId(pub u64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The part of the policy that is the same for all tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// Which tenant goes next.
    pub discipline: Name,
    /// Jobs that run at once; `None` for as many as slots.
    pub max_running: Option<u32>,
    /// How often a job that lacks something is overtaken.
    pub overtakes_max: u32,
    /// Jobs of one tenant that wait.
    pub max_waiting: u32,
    /// Jobs of one user that wait, in all tenants together.
    pub max_waiting_per_user: u32,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            discipline: Name::default(),
            max_running: None,
            overtakes_max: 16,
            max_waiting: 1000,
            max_waiting_per_user: 250,
        }
    }
}

/// The policy of one tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// Its path in the policy.
    pub path: String,
    /// Its weight among all tenants, positive.
    pub weight: f64,
    /// Jobs of it that run at once.
    pub max_running: Option<u32>,
    /// Jobs of one user in it that run at once.
    pub max_running_per_user: Option<u32>,
    /// Memory that its jobs may reserve together.
    pub memory_max_bytes: Option<u64>,
    /// The widest that one of its jobs runs.
    pub dop_max: Option<u32>,
}

impl Terms {
    /// A tenant without bounds.
    pub fn new(path: impl Into<String>, weight: f64) -> Terms {
        Terms {
            path: path.into(),
            weight,
            max_running: None,
            max_running_per_user: None,
            memory_max_bytes: None,
            dop_max: None,
        }
    }
}

/// What all jobs share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    /// Units of parallelism; 0 counts as 1. No job is wider, however many workers there are.
    pub slots: u32,
    /// Memory of jobs and of everything outside together; `None` where it is not known.
    pub memory_bytes: Option<u64>,
    /// Counted resources: name and number.
    pub units: Vec<(String, u32)>,
}

/// What is measured when jobs are to start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Memory that is used by everything that is no job, and cannot be taken from it.
    pub outside_bytes: u64,
}

/// A job that is submitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The path of its tenant.
    pub tenant: String,
    /// Its user.
    pub user: u32,
    /// Jobs of one class of one tenant are expected to cost alike.
    pub class: Option<String>,
    /// What it declares to use; 0 for nothing declared.
    pub memory_bytes: u64,
    /// How wide it may run.
    pub width: Width,
    /// Units of counted resources, by name.
    pub units: Vec<(String, u32)>,
}

impl Request {
    /// A job that declares nothing.
    pub fn new(tenant: impl Into<String>, user: u32) -> Request {
        Request {
            tenant: tenant.into(),
            user,
            class: None,
            memory_bytes: 0,
            width: Width::Auto,
            units: Vec::new(),
        }
    }
}

/// A job that starts now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Which.
    pub job: JobId,
    /// Its width.
    pub dop: u32,
}

/// What follows from a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dispatch {
    /// Jobs that start, in this order.
    pub starts: Vec<Start>,
    /// Running jobs whose width changes, narrower ones first.
    pub widths: Vec<(JobId, u32)>,
}

/// What a job is doing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Phase {
    /// It is in the queue.
    Waiting {
        /// How often others have overtaken it.
        overtaken: u32,
    },
    /// It has a worker.
    Running {
        /// Since when.
        since: f64,
        /// How wide.
        dop: u32,
    },
    /// Its first process has ended, and others that it started have not.
    Lingering {
        /// When it started.
        since: f64,
    },
}

/// A job as it is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JobView<'a> {
    /// Which.
    pub job: JobId,
    /// What was submitted.
    pub request: &'a Request,
    /// When.
    pub submitted: f64,
    /// What it is doing.
    pub phase: Phase,
    /// CPU time that it has used, in seconds.
    pub cpu_seconds: f64,
    /// Memory that it uses; `None` where it was not measured.
    pub used_bytes: Option<u64>,
}
