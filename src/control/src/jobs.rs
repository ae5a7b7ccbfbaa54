//! The jobs in the status of a tick: how many wait and run, how wide, and why the others wait.
//!
//! Sums only: the jobs themselves are in `io.tenantd.Jobs`. What is here has as many entries as there are tenants and
//! kinds of reasons, however many jobs there are.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// The jobs of all tenants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobsStatus {
    /// Jobs that wait.
    pub nr_waiting: u64,
    /// Jobs whose first process runs.
    pub nr_running: u64,
    /// Jobs whose first process has ended, and that left others behind.
    pub nr_lingering: u64,
    /// Slots that running jobs are as wide as together, at most.
    pub slots: u32,
    /// Slots that no running job needs.
    pub free_slots: u32,
    /// Why jobs wait: the kinds of reasons that there are now, each with its number of jobs.
    pub waiting_for: Vec<WaitCount>,
}

/// Jobs that wait for one kind of reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WaitCount {
    /// The name of the kind, as in `io.tenantd.Jobs`.
    pub kind: Cow<'static, str>,
    /// Jobs.
    pub nr_jobs: u64,
}

/// The jobs of one tenant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TenantJobs {
    /// Jobs that wait.
    pub nr_waiting: u64,
    /// Jobs whose first process runs.
    pub nr_running: u64,
    /// Jobs whose first process has ended, and that left others behind.
    pub nr_lingering: u64,
    /// The widths that its running jobs were told, together, in CPUs.
    pub dop: u64,
    /// How long the job that has waited longest has waited, in seconds; absent where none waits.
    pub longest_wait_seconds: Option<f64>,
    /// Why that job waits, with the figures; absent where none waits.
    pub reason: Option<String>,
    /// Jobs that started since the agent did.
    pub nr_started: u64,
    /// How long these had waited, together, in seconds.
    pub waited_seconds: f64,
}

impl TenantJobs {
    /// What it comes to in words: `2 run 6 wide, 3 wait`; empty where there are none.
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
