//! Jobs as transient scopes, in the slice of a tenant that systemd owns.
//!
//! **Problem.** A job belongs below its tenant, and below a slice systemd alone makes cgroups and moves processes. It is
//! asked over a bus that may be slow or away, and that it agreed does not say that it is done. Neither the
//! tick nor the other clients may wait for it.
//!
//! **Terms.** The *scope* of the job N is `tenantd-job-N.scope`. It is *asked* for with its process, its memory limit, its
//! CPUs and its weight in one order, *starting* until its process is in it, and *there* from then on.
//!
//! **Start.** The order goes to a thread of the jobs' own, with a connection of its own: those of the tenants' units may
//! have a thousand looks or a reload before it. Whether the process has arrived, the kernel says: its cgroup has the scope's
//! name, and it is the process that was asked for (as in the head of the room). Systemd sets limits and CPUs before it moves
//! the process, so they are in force when the client is told. Where systemd refuses, the job gets a cgroup of tenantd's own,
//! as on a host without systemd, and says so. Where nothing is heard for [`PATIENCE_SECONDS`], it is given up: its
//! client ends, and an order that is carried out later finds no process.
//!
//! **Values.** Weights and CPUs that change later are requests to set properties. Only `cgroup.freeze` is written by the
//! agent: systemd writes it when it is told to freeze a unit, and the journal has to know how to thaw.
//!
//! **End.** Systemd ends a scope that is empty, and unloads it (`CollectMode`), so nothing is removed here. A restarted
//! agent finds a scope by its cgroup, as any other job.
//!
//! **Properties** (`tests/agent/job_scopes.rs`): a job of a slice or of a user runs in a scope of that slice with what it
//! declared; it outlives the agent; no state of the bus loses a job or leaves one waiting.

use std::collections::BTreeMap;
use std::time::Duration;

use tenantd_admission::JobId;
use tenantd_host::kernfs::KernFs;
use tenantd_host::systemd::{Answer, Order, Setting, UnitManager};

/// How long the start of a scope may take, in seconds.
pub(crate) const PATIENCE_SECONDS: f64 = 30.0;

/// A scope that takes longer than this is looked for as often as jobs are looked at.
const NEW_SECONDS: f64 = 0.3;

const BEFORE: &str = "tenantd-job-";
const AFTER: &str = ".scope";

/// The scope of a job.
pub(crate) fn unit_of(job: JobId) -> String {
    format!("{BEFORE}{job}{AFTER}")
}

/// The job whose scope this is.
pub(crate) fn job_of(unit: &str) -> Option<JobId> {
    unit.strip_prefix(BEFORE)?.strip_suffix(AFTER)?.parse().ok().map(JobId)
}

/// A scope on its way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Starting {
    pub(crate) slice: String,
    /// What it begins with.
    pub(crate) settings: Vec<Setting>,
    /// When systemd was asked for it.
    pub(crate) asked: Option<f64>,
}

/// The scopes that are on their way, and the connection that starts them.
#[derive(Debug, Default)]
pub(crate) struct Scopes {
    pub(crate) starting: BTreeMap<JobId, Starting>,
    manager: Option<Box<dyn UnitManager>>,
}

impl Scopes {
    /// Whether any may arrive in the next moment: systemd was asked for it just now.
    pub(crate) fn is_any_new(&self, now: f64) -> bool {
        let is_new = |asked: f64| now - asked < NEW_SECONDS;
        self.starting.values().any(|starting| starting.asked.is_some_and(is_new))
    }

    /// Asks systemd; says whether there is one.
    pub(crate) fn ask(&mut self, kernel: &impl KernFs, order: Order) -> bool {
        if self.manager.is_none() {
            self.manager = kernel.unit_manager();
        }
        let Some(manager) = &mut self.manager else { return false };
        manager.submit(order);
        true
    }

    /// What systemd has answered.
    pub(crate) fn answers(&mut self) -> Vec<Answer> {
        let Some(manager) = &mut self.manager else { return Vec::new() };
        std::iter::from_fn(|| manager.answer(Duration::ZERO)).collect()
    }

    /// Values of a job: with its start where that is not asked for yet, else by an order of their own.
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
