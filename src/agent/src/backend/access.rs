//! Access of the agent to the host: kernel, cgroup trees and journal.

use std::sync::Arc;

use super::ancestry::GovernedAbove;
use tenantd_control::words::knob::Knob;
use tenantd_host::cgroup::Layout;
use tenantd_host::enforce::Enforcer;
use tenantd_host::journal::Journal;
use tenantd_host::kernfs::{DirId, KernFs};
use tenantd_host::machine::Machine;
use tenantd_host::notify::Notifier;

#[derive(Debug)]
pub(crate) struct HostAccess<K> {
    pub(crate) kernel: K,
    pub(crate) layout: Layout,
    pub(crate) machine: Machine,
    pub(crate) journal: Journal,
    /// True if any tenant is pinned to CPUs; otherwise cpusets stay untouched.
    pub(crate) pins: bool,
    /// Cgroups above tenants that get weights and protection.
    pub(crate) governs_above: GovernedAbove,
    pub(crate) limits_pids: bool,
    /// True if a limit of disks has to hold inside the cgroup that has it.
    pub(crate) limits_disks_inside: bool,
    /// True if a value that others changed since it was read is left alone.
    pub(crate) leaves_drift: bool,
    pub(crate) notifier: Arc<Notifier>,
}

impl<K: KernFs> HostAccess<K> {
    pub(crate) fn enforcer(&mut self) -> Enforcer<'_, K> {
        Enforcer {
            kernel: &mut self.kernel,
            journal: &mut self.journal,
            layout: &self.layout,
            pins: self.pins,
            leaves_drift: self.leaves_drift,
        }
    }
}

impl<K> HostAccess<K> {
    pub(crate) fn proc(&self) -> DirId {
        self.machine.proc()
    }

    pub(crate) fn file(&self, knob: Knob) -> &'static str {
        self.layout.file(knob)
    }
}
