//! The host as the agent holds it: the kernel, where its trees are, and the journal.

use std::sync::Arc;

use super::ancestry::GovernedAbove;
use tenantd_control::plan::Knob;
use tenantd_host::cgroup::Layout;
use tenantd_host::enforce::Enforcer;
use tenantd_host::journal::Journal;
use tenantd_host::kernfs::{DirId, KernFs};
use tenantd_host::machine::Machine;
use tenantd_host::notify::Notifier;

/// Everything that is needed to change the host, and to undo the change.
#[derive(Debug)]
pub(crate) struct HostAccess<K> {
    pub(crate) kernel: K,
    pub(crate) layout: Layout,
    pub(crate) machine: Machine,
    pub(crate) journal: Journal,
    /// Whether any tenant is pinned to CPUs; cpusets are left alone otherwise.
    pub(crate) pins: bool,
    /// What is weighed and protected above tenants as well.
    pub(crate) governs_above: GovernedAbove,
    /// Whether the policy limits the processes of any tenant or group.
    pub(crate) limits_pids: bool,
    /// Whether a value that changed since it was read is left alone.
    pub(crate) leaves_drift: bool,
    /// The service manager, which gets watchdog notifications while a change takes long.
    pub(crate) notifier: Arc<Notifier>,
}

impl<K: KernFs> HostAccess<K> {
    /// What changes the host, journal first.
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
    /// The kept directory of `/proc`.
    pub(crate) fn proc(&self) -> DirId {
        self.machine.proc()
    }

    /// The name of the file that holds `knob`.
    pub(crate) fn file(&self, knob: Knob) -> &'static str {
        self.layout.dialect.file(knob)
    }
}
