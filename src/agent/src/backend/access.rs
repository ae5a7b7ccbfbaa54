//! The host as the agent holds it: the kernel, where its trees are, and the journal.

use std::sync::Arc;

use super::ancestry::GovernedAbove;
use crate::control::plan::Knob;
use crate::host::cgroup::Layout;
use crate::host::enforce::Enforcer;
use crate::host::journal::Journal;
use crate::host::kernfs::{DirId, KernFs};
use crate::host::machine::Machine;
use crate::host::notify::Notifier;

/// Everything that is needed to change the host, and to undo the change.
#[derive(Debug)]
pub(in crate::daemon) struct HostAccess<K> {
    pub(in crate::daemon) kernel: K,
    pub(in crate::daemon) layout: Layout,
    pub(in crate::daemon) machine: Machine,
    pub(in crate::daemon) journal: Journal,
    /// Whether any tenant is pinned to CPUs; cpusets are left alone otherwise.
    pub(in crate::daemon) pins: bool,
    /// What is weighed and protected above tenants as well.
    pub(in crate::daemon) governs_above: GovernedAbove,
    /// Whether the policy limits the processes of any tenant or group.
    pub(in crate::daemon) limits_pids: bool,
    /// Whether a value that changed since it was read is left alone.
    pub(in crate::daemon) leaves_drift: bool,
    /// The service manager, which gets watchdog notifications while a change takes long.
    pub(in crate::daemon) notifier: Arc<Notifier>,
}

impl<K: KernFs> HostAccess<K> {
    /// What changes the host, journal first.
    pub(in crate::daemon) fn enforcer(&mut self) -> Enforcer<'_, K> {
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
    pub(in crate::daemon) fn proc(&self) -> DirId {
        self.machine.proc()
    }

    /// The name of the file that holds `knob`.
    pub(in crate::daemon) fn file(&self, knob: Knob) -> &'static str {
        self.layout.dialect.file(knob)
    }
}
