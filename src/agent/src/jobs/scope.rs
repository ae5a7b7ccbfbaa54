//! Jobs as transient scopes, in the slice of a tenant that systemd owns.
//!
//! **Problem.** The cgroup of a job must be below that of its tenant, and below a slice only systemd may make
//! cgroups and move processes. The bus to systemd may be slow or away, and a positive reply only means that the
//! work is queued. Neither the tick nor other clients may wait for it.
//!
//! **Terms.** The *scope* of job N is `tenantd-job-N.scope`. One order *asks* for it with its process, memory
//! limit, CPUs and weight. It is *starting* until its process is in it, and *there* from then on.
//!
//! **Start.** The order goes to a separate thread with its own connection, because the orders of the tenants'
//! units may take long. The kernel shows the arrival: the cgroup of the process has the name of the scope.
//! Systemd sets limits and CPUs before it moves the process. If systemd refuses, the job gets a cgroup of the
//! agent's own and reports that. Without an answer within [`PATIENCE_SECONDS`] the job is given up, and an
//! order that is carried out later finds no process.
//!
//! **Values.** Later weights and CPUs are orders to set properties. The agent itself writes only
//! `cgroup.freeze`: systemd writes it only to freeze a unit, and the journal must be able to thaw the job.
//!
//! **End.** Systemd stops an empty scope and unloads it (`CollectMode`), so the agent removes nothing. A
//! restarted agent finds a scope by its cgroup, like any other job.
//!
//! **Properties** (`tests/agent/job_scopes.rs`): a job of a slice or of a user runs in a scope of that slice
//! with its declared limits; it outlives the agent; no state of the bus loses a job or leaves one waiting.

use std::collections::BTreeMap;
use std::time::Duration;

use tenantd_admission::JobId;
use tenantd_host::kernfs::KernFs;
use tenantd_host::systemd::{Answer, Order, Setting, UnitManager};

/// Longest start of a scope, in seconds.
pub(crate) const PATIENCE_SECONDS: f64 = 30.0;

/// Age in seconds of an order after which its scope is checked less often, as all running jobs are.
const NEW_SECONDS: f64 = 0.3;

const BEFORE: &str = "tenantd-job-";
const AFTER: &str = ".scope";

pub(crate) fn unit_of(job: JobId) -> String {
    format!("{BEFORE}{job}{AFTER}")
}

pub(crate) fn job_of(unit: &str) -> Option<JobId> {
    unit.strip_prefix(BEFORE)?.strip_suffix(AFTER)?.parse().ok().map(JobId)
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Starting {
    pub(crate) slice: String,
    pub(crate) settings: Vec<Setting>,
    pub(crate) devices: Option<Vec<String>>,
    pub(crate) asked: Option<f64>,
}

#[derive(Debug, Default)]
pub(crate) struct Scopes {
    pub(crate) starting: BTreeMap<JobId, Starting>,
    manager: Option<Box<dyn UnitManager>>,
}

impl Scopes {
    /// True if a scope was asked for a moment ago, so that it may arrive soon.
    pub(crate) fn is_any_new(&self, now: f64) -> bool {
        let is_new = |asked: f64| now - asked < NEW_SECONDS;
        self.starting.values().any(|starting| starting.asked.is_some_and(is_new))
    }

    pub(crate) fn ask(&mut self, kernel: &impl KernFs, order: Order) -> bool {
        if self.manager.is_none() {
            self.manager = kernel.unit_manager();
        }
        let Some(manager) = &mut self.manager else { return false };
        manager.submit(order);
        true
    }

    pub(crate) fn answers(&mut self) -> Vec<Answer> {
        let Some(manager) = &mut self.manager else { return Vec::new() };
        std::iter::from_fn(|| manager.answer(Duration::ZERO)).collect()
    }

    /// Sets a value of a job: with the start if that is not sent yet, else by an order of its own.
    pub(crate) fn set(&mut self, kernel: &impl KernFs, job: JobId, setting: Setting) {
        match self.starting.get_mut(&job).filter(|starting| starting.asked.is_none()) {
            Some(starting) => {
                starting.settings.retain(|other| other.property != setting.property);
                starting.settings.push(setting);
            }
            None => {
                let order = Order::Set { unit: unit_of(job), settings: vec![setting] };
                self.ask(kernel, order);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_told_by_its_name() {
        assert_eq!(unit_of(JobId(12)), "tenantd-job-12.scope");
        assert_eq!(job_of("tenantd-job-12.scope"), Some(JobId(12)));
        for other in
            ["tenantd-job-12.service", "job-12.scope", "tenantd-job-.scope", "tenantd-job-x.scope"]
        {
            assert_eq!(job_of(other), None, "{other}");
        }
    }
}
