//! Memory of moved processes that is charged to their cgroups of origin.
//!
//! **Problem.** A moved process leaves its memory behind: the pages stay charged to the cgroup that allocated
//! them (kernel document `admin-guide/cgroup-v2.rst`, "Memory Ownership"). There the tenant's limit does not
//! bound them, and the tenant's protection does not cover them.
//!
//! **Algorithm.** Take the private memory of the processes that were moved into a tenant, and subtract the
//! anonymous memory charged to the tenant. At least the remainder is charged elsewhere; more if other processes
//! of the tenant hold some of the latter. Each tick reads a few processes, at most [`PROCESSES_MAX`] of a
//! tenant, which keeps the figure a lower bound.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::Path;

use crate::backend::access::HostAccess;
use crate::backend::backends::Backends;
use tenantd_control::tick::control_loop::ControlLoop;
use tenantd_control::tree::{Node, Tree};
use tenantd_control::words::finding::{Code, Finding};
use tenantd_core::node::{NodeId, NodeMap};
use tenantd_core::units::Bytes;
use tenantd_host::cgroup::Facet;
use tenantd_host::journal::Entry;
use tenantd_host::kernfs::KernFs;
use tenantd_host::process;

const LOOK_TICKS: u64 = 30;
/// Processes read in a tick, unless a single tenant has more.
const PROCESSES_A_TICK: usize = 64;
/// Most processes read of one tenant.
const PROCESSES_MAX: usize = 256;
/// Least amount in the status: less may be pages that the kernel has charged in advance.
const LEAST: Bytes = Bytes::mib(1);
/// Least amount in a finding, which also has at least a tenth of the processes' memory.
const NOTABLE: Bytes = Bytes::mib(16);

/// Pid and start time of a process.
type Known = (u32, u64);

/// Memory of a tenant that is charged elsewhere.
#[derive(Debug)]
struct Elsewhere {
    bytes: u64,
    finding: Option<Finding>,
}

#[derive(Debug, Default)]
pub(super) struct Charged {
    elsewhere: NodeMap<Elsewhere>,
    left: VecDeque<(NodeId, Vec<Known>)>,
    look_at: u64,
}

impl Charged {
    pub(super) fn look<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        backends: &Backends,
        control: &ControlLoop,
    ) {
        if self.left.is_empty() && control.tick() >= self.look_at {
            self.look_at = control.tick() + LOOK_TICKS;
            self.left = moved(host, backends, control);
            self.elsewhere.retain(|id| self.left.iter().any(|(moved, _)| *moved == id));
        }
        let mut nr_read = 0;
        while nr_read < PROCESSES_A_TICK
            && let Some((id, processes)) = self.left.pop_front()
        {
            nr_read += processes.len();
            let node = control.tree().find(id);
            match node.and_then(|node| judge(host, control, node, &processes)) {
                Some(elsewhere) => self.elsewhere.insert(id, elsewhere),
                None => self.elsewhere.remove(id),
            };
        }
    }

    /// Drops the tenants that are not in `tree`.
    pub(super) fn follow(&mut self, tree: &Tree) {
        self.left.retain(|(id, _)| tree.find(*id).is_some());
        self.elsewhere.retain(|id| tree.find(id).is_some());
    }

    pub(super) fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.elsewhere.values().filter_map(|it| it.finding.as_ref())
    }

    /// Memory of a tenant that is charged elsewhere, at least; `None` if nothing is known of any.
    pub(super) fn bytes_of(&self, id: NodeId) -> Option<u64> {
        self.elsewhere.get(id).map(|it| it.bytes)
    }
}

fn moved<K: KernFs>(
    host: &HostAccess<K>,
    backends: &Backends,
    control: &ControlLoop,
) -> VecDeque<(NodeId, Vec<Known>)> {
    let tree = control.tree();
    let dir = |node: Node<'_>| Some((backends.dir_of(host, node, Facet::Memory)?, node.id()));
    let mut by_dir = HashMap::new();
    let mut all: BTreeMap<NodeId, Vec<Known>> = BTreeMap::new();
    for entry in host.journal.entries() {
        let Entry::Moved { pid, start_ticks, to, .. } = entry else { continue };
        if by_dir.is_empty() {
            by_dir = tree.policy_nodes().filter_map(dir).collect();
        }
        let id = to.iter().find_map(|dir| by_dir.get(dir.as_path() as &Path));
        if let Some(id) = id {
            all.entry(*id).or_default().push((*pid, *start_ticks));
        }
    }
    all.into_iter().collect()
}

fn judge<K: KernFs>(
    host: &mut HostAccess<K>,
    control: &ControlLoop,
    node: Node<'_>,
    processes: &[Known],
) -> Option<Elsewhere> {
    let memory = control.state(node.id())?.sample.as_ref()?.memory?;
    let proc = host.proc();
    let (mut nr, mut held_bytes) = (0_u64, 0);
    for (pid, start_ticks) in processes.iter().take(PROCESSES_MAX) {
        let Some(resident) = process::resident(&mut host.kernel, proc, *pid) else { continue };
        if process::start_ticks(&mut host.kernel, proc, *pid) == Ok(Some(*start_ticks)) {
            (nr, held_bytes) = (nr + 1, held_bytes + resident.private_bytes);
        }
    }
    let bytes = held_bytes.saturating_sub(memory.anon_bytes?);
    if bytes < LEAST.0 {
        return None;
    }
    let is_notable = bytes >= NOTABLE.0.max(held_bytes / 10);
    let finding = || finding(node, nr, Bytes(held_bytes), Bytes(bytes));
    Some(Elsewhere { bytes, finding: is_notable.then(finding) })
}

fn finding(node: Node<'_>, nr: u64, held: Bytes, elsewhere: Bytes) -> Finding {
    let processes = if nr == 1 { "1 process".to_string() } else { format!("{nr} processes") };
    let what = format!(
        "of {held} that {processes} moved into it hold, at least {elsewhere} is charged to the cgroups that \
         they came from: there its limit does not bound it, and its protection does not keep it"
    );
    let remedy = "restart them, or match their unit or their cgroup, which is weighed where it is";
    Finding::of(node.name(), Code::Ineffective, what).with_remedy(remedy)
}
