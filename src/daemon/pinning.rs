//! Widths and sets of CPUs on a living host: its topology, hotplug, and what it takes to join a cpuset.
//!
//! The rules stand in [`crate::control::width`]; here is what they need of the machine. The topology is read
//! once and again when the CPUs that are online or allowed change. On a legacy host a cpuset is a tree of its own: a new
//! cgroup there holds no CPU and no memory node until it is told, and a process that was put into its
//! tenant's other cgroups has to be taken along.

use std::path::Path;
use std::time::Duration;

use tracing::info;

use super::agent::Agent;
use super::enforce::EnforceError;
use crate::control::demand;
use crate::control::place;
use crate::control::plan::{Knob, Value};
use crate::control::target;
use crate::control::tree::CPU;
use crate::control::width::{self, Breadth, Leaf};
use crate::dop::{CpuSet, Topology, tenant};
use crate::host::cgroup::{Dialect, Facet};
use crate::host::kernfs::KernFs;
use crate::host::process;
use crate::host::topology;
use crate::policy::model::CpusPolicy;

/// The CPUs that were there when the topology was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ground {
    online: CpuSet,
    /// Those that the root of the tenants may use, where it is restricted.
    allowed: Option<CpuSet>,
}

/// Where the machine's topology is read.
const SYSFS: &str = "/sys";

impl<K: KernFs> Agent<K> {
    /// Reads the topology, where the CPUs that are online or allowed are not those that are known.
    pub(super) fn watch_topology(&mut self, findings: &mut Vec<String>) {
        let online = match topology::online(&mut self.kernel, Path::new(SYSFS)) {
            Ok(online) => online,
            Err(error) => return findings.push(format!("no CPU is pinned: {error}")),
        };
        let ground = Ground { online, allowed: self.allowed_in_root() };
        if self.ground.as_ref() == Some(&ground) {
            return;
        }
        let topology = match topology::read(&mut self.kernel, Path::new(SYSFS)) {
            Ok(topology) => topology,
            Err(error) => return findings.push(format!("no CPU is pinned: {error}")),
        };
        let restricted = ground.allowed.as_ref().map(|allowed| topology.restricted_to(allowed));
        let topology = restricted.and_then(Result::ok).unwrap_or(topology);
        match self.topology {
            Some(_) => info!(cpus = %topology.usable(), "the CPUs of the tenants changed"),
            None => self.take_up_placement(&topology),
        }
        self.topology = Some(topology);
        self.ground = Some(ground);
        // What CPUs came back to above a tenant is seen to anew.
        self.slots.iter_mut().for_each(|slot| slot.has_cpus = false);
    }

    /// The CPUs that the root of the tenants may use; `None` where it has nothing to restrict.
    fn allowed_in_root(&mut self) -> Option<CpuSet> {
        let root = &self.layout.trees[self.layout.tree(Facet::Cpuset)?].root;
        let dir = self.kernel.open_dir(root).ok()?;
        let file = self.layout.dialect.effective_cpus();
        let allowed = self
            .kernel
            .read_once(dir, file)
            .ok()
            .and_then(|text| std::str::from_utf8(text).ok()?.trim_end().parse::<CpuSet>().ok());
        self.kernel.close_dir(dir);
        allowed.filter(|allowed| !allowed.is_empty())
    }

    /// Begins where an earlier agent left the tenants.
    fn take_up_placement(&mut self, topology: &Topology) {
        let Some(store) = &self.placements else { return };
        let mut placed = store.load(topology.usable());
        for (node, slot) in self.nodes.iter().zip(&mut self.slots).filter(|(node, _)| node.is_leaf)
        {
            if let Some(cpus) = placed.remove(&node.path) {
                slot.breadth = Breadth::placed_on(cpus);
            }
        }
    }

    /// Keeps where the tenants are for the agent that comes after this one.
    pub(super) fn keep_placement(&mut self, findings: &mut Vec<String>) {
        let Some(store) = &mut self.placements else { return };
        let placed = self.nodes.iter().zip(&self.slots).filter_map(|(node, slot)| {
            let moves = matches!(node.cpus, CpusPolicy::Dop | CpusPolicy::Exclusive);
            Some((node.path.as_str(), slot.breadth.cpus().filter(|_| moves && node.is_leaf)?))
        });
        if let Err(error) = store.keep(placed) {
            findings.push(format!("cannot keep the placement for the next start: {error}"));
        }
    }

    /// CPUs that tenants can be as wide as together: the machine's less the reserve.
    ///
    /// What processes outside every tenant use is not taken off: it changes from second to second, and a
    /// width that followed it would too. Weights divide the time that is there.
    pub(super) fn nr_slots(&self, nr_cpus: u32) -> u32 {
        let usable = self.topology.as_ref().map_or(f64::from(nr_cpus), |t| t.usable().len() as f64);
        let allocatable = usable - self.policy.host.reserve.cpu.cores();
        tenant::slots(allocatable, self.policy.control.oversubscription)
    }

    /// Steps the widths of all tenants, and places those that are pinned.
    pub(super) fn widen(&mut self, nr_cpus: u32, now: Duration, findings: &mut Vec<String>) {
        let slots = self.nr_slots(nr_cpus);
        let fair = target::bursts(&self.nodes, f64::from(slots));
        let mut breadths: Vec<Breadth> = Vec::new();
        let mut leaves: Vec<Leaf<'_>> = Vec::new();
        let nodes = self.nodes.iter().zip(&mut self.slots).zip(fair);
        for ((node, slot), fair_slots) in nodes.filter(|((node, _), _)| node.is_leaf) {
            breadths.push(std::mem::take(&mut slot.breadth));
            leaves.push(Leaf {
                node,
                target: &slot.target,
                demand: slot.demand.as_ref(),
                usage: slot.usage.as_ref(),
                pressed: slot
                    .usage
                    .as_ref()
                    .is_some_and(|usage| demand::is_pressed(usage, slot.target.allocation[CPU])),
                fair_slots,
            });
        }
        width::widen(&leaves, &mut breadths, slots, now);
        if self.pins
            && let Some(topology) = &self.topology
        {
            findings.extend(place::place(&leaves, &mut breadths, topology, now));
        }
        let nodes = self.nodes.iter().zip(&mut self.slots).filter(|(node, _)| node.is_leaf);
        for ((_, slot), breadth) in nodes.zip(breadths) {
            slot.breadth = breadth;
        }
    }

    /// The desired set of CPUs of each pinned tenant, by node.
    pub(super) fn desired_cpus(&self) -> Vec<Option<(Knob, Value, String)>> {
        let desired = |slot: &super::agent::Slot| {
            let cpus = slot.breadth.cpus()?.clone();
            let reason = width::cpus_reason(slot.breadth.dop(), cpus.len());
            Some((Knob::Cpus, Value::CpuList(cpus), reason))
        };
        self.slots.iter().map(desired).collect()
    }

    /// Takes what lives in the other cgroups of a tenant that has CPUs along into its cpuset, on a legacy host.
    pub(super) fn follow(&mut self, findings: &mut Vec<String>) {
        if self.layout.dialect != Dialect::Legacy || !self.pins {
            return;
        }
        for index in 0..self.nodes.len() {
            if self.slots[index].breadth.cpus().is_none() {
                continue;
            }
            if let Err(error) = self.take_along(index)
                && !error.is_gone()
            {
                findings.push(format!("{}: {error}", self.nodes[index].path));
            }
        }
    }

    fn take_along(&mut self, index: usize) -> Result<(), EnforceError> {
        let Some(cgroup) = &self.slots[index].cgroup else { return Ok(()) };
        let Some(dir) = cgroup.dir(&self.layout, Facet::Cpuset) else { return Ok(()) };
        if !self.slots[index].has_cpus
            && let Some(tree) = self.layout.tree(Facet::Cpuset)
        {
            let path = self.layout.trees[tree].root.join(&self.nodes[index].path);
            let tree = self.layout.trees[tree].clone();
            self.enforcer().fill_legacy(&tree, &path)?;
            self.slots[index].has_cpus = true;
        }
        let Some(cgroup) = &self.slots[index].cgroup else { return Ok(()) };
        let there =
            String::from_utf8_lossy(self.kernel.read_once(dir, "cgroup.procs")?).into_owned();
        let there: Vec<&str> = there.lines().collect();
        let here = cgroup.processes(&mut self.kernel, &self.layout)?;
        let proc = self.machine.proc();
        for pid in here.into_iter().filter(|pid| !there.contains(&pid.to_string().as_str())) {
            let Some(start_ticks) = process::start_ticks(&mut self.kernel, proc, pid) else {
                continue;
            };
            let from =
                process::cgroup_dir(&mut self.kernel, proc, &self.layout, pid, Facet::Cpuset);
            let Some(from) = from else { continue };
            self.enforcer().join(pid, start_ticks, from, dir)?;
        }
        Ok(())
    }
}
