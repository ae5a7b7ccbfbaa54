//! Jobs in the status of a tick: counts, widths and reasons to wait.
//!
//! Sums only; `io.tenantd.Jobs` lists the jobs. The size depends on the number of tenants and kinds of
//! reasons, not on the number of jobs.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Jobs of all tenants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobsStatus {
    /// Waiting jobs.
    pub nr_waiting: u64,
    /// Jobs whose first process runs.
    pub nr_running: u64,
    /// Jobs whose first process has ended while other processes remain.
    pub nr_lingering: u64,
    /// Upper limit of the sum of the running jobs' widths, in slots.
    pub slots: u32,
    /// Slots that no running job needs.
    pub free_slots: u32,
    /// Number of waiting jobs per kind of reason.
    pub waiting_for: Vec<WaitCount>,
}

/// Number of jobs that wait for one kind of reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WaitCount {
    /// Name of the kind, as in `io.tenantd.Jobs`.
    pub kind: Cow<'static, str>,
    /// Number of jobs.
    pub nr_jobs: u64,
}

/// Jobs of one tenant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TenantJobs {
    /// Waiting jobs.
    pub nr_waiting: u64,
    /// Jobs whose first process runs.
    pub nr_running: u64,
    /// Jobs whose first process has ended while other processes remain.
    pub nr_lingering: u64,
    /// Sum of the widths of its running jobs, in CPUs.
    pub dop: u64,
    /// Longest current wait, in seconds; absent if no job waits.
    pub longest_wait_seconds: Option<f64>,
    /// Reason for that wait, with figures; absent if no job waits.
    pub reason: Option<String>,
    /// Jobs started since the agent started.
    pub nr_started: u64,
    /// Sum of their waits, in seconds.
    pub waited_seconds: f64,
}

impl TenantJobs {
    /// Summary in words: `2 run 6 wide, 3 wait`; empty without jobs.
    pub fn in_words(&self) -> String {
        let mut parts = Vec::new();
        if self.nr_running > 0 {
            let verb = if self.nr_running == 1 { "runs" } else { "run" };
            parts.push(format!("{} {verb} {} wide", self.nr_running, self.dop));
        }
        if self.nr_waiting > 0 {
            let verb = if self.nr_waiting == 1 { "waits" } else { "wait" };
            parts.push(format!("{} {verb}", self.nr_waiting));
        }
        if self.nr_lingering > 0 {
            parts.push(format!("{} left daemons", self.nr_lingering));
        }
        parts.join(", ")
    }
}
