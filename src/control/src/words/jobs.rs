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
    /// Origin of the number of slots, as a sentence.
    pub slots_reason: String,
    /// Number of waiting jobs per kind of reason.
    pub waiting_for: Vec<WaitCount>,
}

/// Origin of a number of slots (`tenantd_dop::tenant::slots`): `2 CPUs less 0.10 in reserve, rounded`. `cpus` are
/// the usable ones. More slots than those follow from `admission.max_running`.
pub fn reason_of_slots(slots: u32, cpus: f64, reserve: f64, oversubscription: f64) -> String {
    if slots > tenantd_dop::tenant::slots(cpus - reserve, oversubscription) {
        return "one for each job of admission.max_running".to_string();
    }
    let mut text = format!("{cpus} {}", if cpus == 1.0 { "CPU" } else { "CPUs" });
    if reserve > 0.0 {
        text += &format!(" less {reserve:.2} in reserve");
    }
    if oversubscription != 1.0 {
        text += &format!(", times an oversubscription of {oversubscription}");
    }
    if ((cpus - reserve) * oversubscription).fract() != 0.0 {
        text += ", rounded";
    }
    text
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

#[cfg(test)]
mod tests {
    use super::reason_of_slots;

    #[test]
    fn the_reason_of_slots_names_each_term() {
        assert_eq!(reason_of_slots(2, 2.0, 0.0, 1.0), "2 CPUs");
        assert_eq!(reason_of_slots(2, 2.0, 0.1, 1.0), "2 CPUs less 0.10 in reserve, rounded");
        assert_eq!(reason_of_slots(1, 1.0, 0.0, 1.0), "1 CPU");
        let oversubscribed = "2 CPUs less 0.50 in reserve, times an oversubscription of 2";
        assert_eq!(reason_of_slots(3, 2.0, 0.5, 2.0), oversubscribed);
        assert_eq!(reason_of_slots(8, 2.0, 0.1, 1.0), "one for each job of admission.max_running");
    }
}
