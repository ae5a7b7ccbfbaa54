//! Jobs in the status of a tick: counts, widths and reasons to wait.
//!
//! Sums, and the holders of counted resources; `io.tenantd.Jobs` lists the jobs. The size depends on the number of
//! tenants, kinds of reasons and units, not on the number of jobs.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Jobs of all tenants.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// Counted resources.
    pub units: Vec<UnitsStatus>,
    /// Jain's index over the tenants' mean finish-time fairness of jobs that ended within an hour; absent for fewer than two
    /// tenants.
    pub finish_time_jain: Option<f64>,
    /// Number of these jobs.
    pub nr_finish_times: u64,
}

/// A counted resource, with the jobs that hold its units.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UnitsStatus {
    /// Name of the resource.
    pub name: String,
    /// Number of units.
    pub count: u32,
    /// Units that no job holds.
    pub free: u32,
    /// Jobs that hold units, in the order of their numbers.
    pub held: Vec<HeldUnits>,
}

/// Units that a job holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeldUnits {
    /// Number of the job.
    pub job: u64,
    /// Path of its tenant.
    pub tenant: String,
    /// Its user.
    pub uid: u32,
    /// Indices of the units, ascending.
    pub indices: Vec<u32>,
}

impl UnitsStatus {
    /// Holders in words: `0, 1 in job 12 of ana; 2 of 4 free`, with the name of an owner for each job.
    pub fn in_words(&self, owner: impl Fn(&HeldUnits) -> String) -> String {
        let mut parts: Vec<String> = Vec::new();
        for held in &self.held {
            let indices: Vec<String> = held.indices.iter().map(u32::to_string).collect();
            parts.push(format!("{} in job {} of {}", indices.join(", "), held.job, owner(held)));
        }
        parts.push(format!("{} of {} free", self.free, self.count));
        parts.join("; ")
    }
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
    use super::*;

    #[test]
    fn holders_are_named_with_their_indices() {
        let held = HeldUnits { job: 12, tenant: "ci".into(), uid: 7, indices: vec![0, 2] };
        let units = UnitsStatus { name: "gpu".into(), count: 4, free: 2, held: vec![held] };
        assert_eq!(units.in_words(|it| it.tenant.clone()), "0, 2 in job 12 of ci; 2 of 4 free");
    }

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
