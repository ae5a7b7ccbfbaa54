//! CPUs of the machine, and moves into cpusets.
//!
//! The topology is read once, and again when the set of online or allowed CPUs changes. In cgroup v1 the
//! cpusets are a tree of their own: a new cpuset has no CPU and no memory node until they are written, and a
//! process in its tenant's other cgroups must be moved into the cpuset as well.

use std::collections::HashSet;
use std::path::Path;

use super::access::HostAccess;
use super::place::Place;
use tenantd_core::kernel_text::proc_files::process_numbers;
use tenantd_dop::{CpuSet, Topology};
use tenantd_host::cgroup::Facet;
use tenantd_host::enforce::{EnforceError, cpus_of};
use tenantd_host::kernfs::KernFs;
use tenantd_host::process;
use tenantd_host::topology::{self, ReadTopologyError};

const SYSFS: &str = "/sys";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CpuInventory {
    online: Option<CpuSet>,
    /// CPUs allowed in the root of the tenants, if restricted.
    allowed: Option<CpuSet>,
}

impl CpuInventory {
    /// Reads the topology if the set of online or allowed CPUs has changed.
    pub(super) fn refresh<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
    ) -> Result<Option<Topology>, ReadTopologyError> {
        let online = Some(topology::online(&mut host.kernel, Path::new(SYSFS))?);
        let now = CpuInventory { online, allowed: allowed_in_root(host) };
        if *self == now {
            return Ok(None);
        }
        let topology = topology::read(&mut host.kernel, Path::new(SYSFS))?;
        let restricted = now.allowed.as_ref().map(|allowed| topology.restricted_to(allowed));
        *self = now;
        Ok(Some(restricted.and_then(Result::ok).unwrap_or(topology)))
    }
}

/// CPUs allowed in the root of the tenants; `None` if it cannot restrict any.
fn allowed_in_root<K: KernFs>(host: &mut HostAccess<K>) -> Option<CpuSet> {
    let root = &host.layout.trees[host.layout.tree(Facet::Cpuset)?].root;
    let dir = host.kernel.open_dir(root).ok()?;
    let allowed = cpus_of(&mut host.kernel, dir, host.layout.effective_cpus());
    host.kernel.close_dir(dir);
    allowed.ok().flatten().filter(|allowed| !allowed.is_empty())
}

pub(super) fn needs_joining<K: KernFs>(host: &HostAccess<K>) -> bool {
    !host.layout.is_unified() && host.pins
}

/// In cgroup v1, moves the processes in the other cgroups of tenant `name` into its cpuset; returns their
/// number.
pub(super) fn join<K: KernFs>(
    host: &mut HostAccess<K>,
    place: &mut Place,
    name: &str,
) -> Result<usize, EnforceError> {
    let Some(cgroup) = &place.cgroup else { return Ok(0) };
    let Some(below) = place.location.below_root(name) else { return Ok(0) };
    let Some(dir) = cgroup.dir(&host.layout, Facet::Cpuset) else { return Ok(0) };
    if !place.has_cpus
        && let Some(tree) = host.layout.tree(Facet::Cpuset)
    {
        let tree = host.layout.trees[tree].clone();
        host.enforcer().fill_legacy(&tree, &tree.root.join(below))?;
        place.has_cpus = true;
    }
    let there = host.kernel.read_once(dir, "cgroup.procs")?;
    let there: HashSet<u32> = process_numbers(there).collect();
    let here = cgroup.processes(&mut host.kernel, &host.layout)?;
    let (proc, mut nr_moved) = (host.proc(), 0);
    for pid in here.into_iter().filter(|pid| !there.contains(pid)) {
        let start_ticks = process::start_ticks(&mut host.kernel, proc, pid);
        let Some(start_ticks) = start_ticks.ok().flatten() else { continue };
        let from = process::cgroup_dir(&mut host.kernel, proc, &host.layout, pid, Facet::Cpuset);
        let Some(from) = from else { continue };
        host.enforcer().join(pid, start_ticks, from, dir)?;
        nr_moved += 1;
    }
    place.is_joined = true;
    Ok(nr_moved)
}
