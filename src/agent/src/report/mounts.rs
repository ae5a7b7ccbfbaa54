//! Findings on options of mounts that a container or an administrator may change while the agent runs.
//!
//! **Problem.** The options of cgroup2 are those of the whole host: a container that mounts it in the host's cgroup namespace
//! without `memory_recursiveprot` switches that off until the next boot, and then memory protection of a cgroup protects nothing in
//! cgroups below it. A mount of `/proc` with `hidepid=` hides the processes of others, which then look as if they had ended.
//! **Answer.** The mounts are read once in [`PERIOD_TICKS`]. Guarantees of tenants with cgroups inside do not count as kept then.
//! The agent writes no protection into those cgroups: they belong to systemd or to a container runtime, and with protection of
//! their own they would be protected from reclaim at the limit of their own tenant as well, where the kernel then breaks the
//! protection (`memory.low`) or kills (`memory.min`). One remount mends all of them at once.

use std::path::Path;

use tenantd_control::memory::squeeze::FUTILE_RATIO;
use tenantd_control::state::NodeState;
use tenantd_control::tick::control_loop::ControlLoop;
use tenantd_control::words::finding::{Code, Finding};
use tenantd_core::kernel_text::hidden::hidden;
use tenantd_core::kernel_text::mountinfo::cgroup_mounts;
use tenantd_host::cgroup::Facet;
use tenantd_host::kernfs::KernFs;

use crate::backend::access::HostAccess;

/// Ticks from one look to the next.
const PERIOD_TICKS: u64 = 10;
const RECURSIVE: &str = "memory_recursiveprot";
/// Directory that systemd-oomd has while it runs.
const OOMD: &str = "/run/systemd/oom";

/// The options that were found.
#[derive(Debug, Default)]
pub(super) struct Mounts {
    findings: Vec<Finding>,
}

impl Mounts {
    /// Reads the mounts where it is time. Mounts that cannot be read are as they were.
    pub(super) fn refresh<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        control: &ControlLoop,
        tick: u64,
    ) {
        if tick % PERIOD_TICKS != 1 {
            return;
        }
        let proc = host.proc();
        let Ok(text) = host.kernel.read_once(proc, "self/mountinfo") else { return };
        let mountinfo = text.to_vec();
        self.findings = unprotected(host, &mountinfo).into_iter().collect();
        if let Ok(status) = host.kernel.read_once(proc, "self/status") {
            self.findings.extend(hidden_processes(&mountinfo, status));
        }
        self.findings.extend(killer(host, control));
    }

    pub(super) fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// The obstacle to protection of cgroups inside a tenant's, if there is one.
    pub(super) fn unprotected(&self) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.code == Code::Ineffective)
    }
}

/// The finding on a host whose memory protection ends at the cgroup that it is written to.
fn unprotected<K: KernFs>(host: &HostAccess<K>, mountinfo: &[u8]) -> Option<Finding> {
    if !host.layout.is_unified() {
        return None;
    }
    let mount = &host.layout.trees[host.layout.tree(Facet::Memory)?].mount;
    let mounts = cgroup_mounts(mountinfo);
    let used = mounts.iter().find(|it| it.is_unified && it.mount_point == *mount)?;
    if used.has(RECURSIVE) {
        return None;
    }
    let mount = mount.display();
    let what = format!(
        "{mount} is mounted without {RECURSIVE}: guarantees and other memory protection of a tenant are not kept for processes in \
         cgroups below its own, as in slices, jobs and containers"
    );
    let remedy = format!(
        "mount -o remount,nsdelegate,{RECURSIVE} {mount}; a privileged container or one with --cgroupns=host may have dropped the \
         option"
    );
    Some(Finding::of_host(Code::Ineffective, what).with_remedy(remedy))
}

/// The finding on systemd-oomd beside a memory bound in force: the bound makes pressure, and the agent lifts it above a
/// pressure that oomd may have been told to end by a kill. The agent cannot read the limits of oomd, which are settings of
/// units above and below a tenant's.
fn killer<K: KernFs>(host: &mut HostAccess<K>, control: &ControlLoop) -> Option<Finding> {
    let bounded = |state: &NodeState| state.squeeze.as_ref()?.lowest_bytes();
    control.states().iter().find_map(bounded)?;
    let dir = host.kernel.open_dir(Path::new(OOMD)).ok()?;
    host.kernel.close_dir(dir);
    let what = format!(
        "systemd-oomd runs beside tenants with a lowered memory.high: it may kill in one whose memory pressure stays at \
         ManagedOOMMemoryPressureLimit= of its units, if that is below {:.0} %, from which tenantd lifts the bound",
        FUTILE_RATIO * 100.0
    );
    let remedy = "set ManagedOOMMemoryPressure=auto, or a limit of 60% and more, for the units of tenants (oomctl lists them)";
    Some(Finding::of_host(Code::Contested, what).with_remedy(remedy))
}

fn hidden_processes(mountinfo: &[u8], status: &[u8]) -> Option<Finding> {
    let hidden = hidden(mountinfo, status)?;
    let what = format!(
        "/proc is mounted with {}, so the processes of other users are hidden from tenantd: they are not claimed by owner, attached or \
         counted",
        hidden.option
    );
    let remedy = match hidden.group {
        Some(group) => format!(
            "add SupplementaryGroups={group} in a drop-in of tenantd.service (docs/sandbox.md), or mount /proc without gid="
        ),
        None => "add CAP_SYS_PTRACE to CapabilityBoundingSet= in a drop-in of tenantd.service (docs/sandbox.md), or mount /proc \
                 with hidepid=invisible and gid="
            .to_string(),
    };
    Some(Finding::of_host(Code::Unreadable, what).as_error().with_remedy(remedy))
}
