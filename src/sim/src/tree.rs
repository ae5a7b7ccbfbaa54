//! Cgroups: hierarchies, nodes, and inheritance.
//!
//! A unified host has one hierarchy with every controller; a legacy host has one per controller and a
//! unified one without any. Every process is in exactly one cgroup of each. Neither ids nor inodes are
//! reused, so a handle that outlives its cgroup never refers to another one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use super::account::{CpuAccount, MemoryAccount};
use super::controller::{Controller, ControllerSet};
use super::disk::{DiskKnobs, DiskWork};
use super::parse::{Bandwidth, CpuSet, PAGES_MAX};
use super::pressure::{Pressure, kept};
use super::spec::Bound;

/// Id of a cgroup; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct CgroupId(pub(super) usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V1,
    V2,
}

#[derive(Clone, Debug)]
pub(super) struct Hierarchy {
    pub(super) mount: String,
    pub(super) version: Version,
    pub(super) controllers: ControllerSet,
    pub(super) root: CgroupId,
    /// The root and everything below it, until a cgroup comes or goes.
    all: OnceLock<Arc<[CgroupId]>>,
}

/// `cpu.*` as written.
#[derive(Clone, Copy, Debug)]
pub(super) struct CpuKnobs {
    /// `cpu.weight`, 1 ..= 10000; unused in the legacy hierarchy.
    pub(super) weight: u64,
    /// Scheduler's weight: 1024 for weight 100.
    pub(super) shares: u64,
    pub(super) bandwidth: Bandwidth,
    /// `cpu.idle`: it gets only time that no other cgroup wants.
    pub(super) is_idle: bool,
    /// Scheduler's deviation from the weight, as a factor: 1 if it is exact.
    pub(super) bias: f64,
}

impl Default for CpuKnobs {
    fn default() -> Self {
        let bandwidth = Bandwidth::default();
        CpuKnobs { weight: 100, shares: 1024, bandwidth, is_idle: false, bias: 1.0 }
    }
}

/// `memory.*` as written, in pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryKnobs {
    pub(super) min: u64,
    pub(super) low: u64,
    pub(super) high: u64,
    pub(super) max: u64,
    pub(super) swap_max: u64,
    pub(super) soft_limit: u64,
    pub(super) oom_group: bool,
}

impl Default for MemoryKnobs {
    fn default() -> Self {
        MemoryKnobs {
            min: 0,
            low: 0,
            high: PAGES_MAX,
            max: PAGES_MAX,
            swap_max: PAGES_MAX,
            soft_limit: PAGES_MAX,
            oom_group: false,
        }
    }
}

impl MemoryKnobs {
    pub(super) fn bound(&self, bound: Bound) -> u64 {
        let mut knobs = *self;
        *knobs.bound_mut(bound)
    }

    pub(super) fn bound_mut(&mut self, bound: Bound) -> &mut u64 {
        match bound {
            Bound::Min => &mut self.min,
            Bound::Low => &mut self.low,
            Bound::High => &mut self.high,
            Bound::Max => &mut self.max,
            Bound::SwapMax => &mut self.swap_max,
        }
    }
}

/// `cpuset.*` as written; empty means inherited in the unified hierarchy.
#[derive(Clone, Debug, Default)]
pub(super) struct CpusetKnobs {
    pub(super) cpus: CpuSet,
    pub(super) mems: CpuSet,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Cgroup {
    pub(super) hierarchy: usize,
    pub(super) parent: Option<CgroupId>,
    pub(super) name: String,
    pub(super) children: BTreeMap<String, CgroupId>,
    pub(super) processes: BTreeSet<u32>,
    pub(super) controllers: ControllerSet,
    pub(super) subtree_control: ControllerSet,
    /// Number of disablings per controller: an enabled controller has new files each time.
    pub(super) epochs: [u32; Controller::ALL.len()],
    pub(super) max_descendants: Option<u64>,
    pub(super) max_depth: Option<u64>,
    pub(super) pids_max: Option<u64>,
    pub(super) nr_refused_forks: u64,
    pub(super) frozen: bool,
    /// `cgroup.pressure`: true if the pressure files are shown.
    pub(super) shows_pressure: bool,
    pub(super) cpu: CpuKnobs,
    pub(super) cpuset: CpusetKnobs,
    pub(super) memory: MemoryKnobs,
    pub(super) cpu_account: CpuAccount,
    pub(super) memory_account: MemoryAccount,
    pub(super) disk: DiskWork,
    pub(super) disk_knobs: DiskKnobs,
    pub(super) pressure: Pressure,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    pub(super) hierarchies: Vec<Hierarchy>,
    homes: [Option<usize>; Controller::ALL.len()],
    pub(super) has_frozen: bool,
    /// True if bfq is loaded, and makes its files.
    pub(super) has_bfq: bool,
    /// By id. No id is reused, so that a kept handle refers to its own cgroup.
    cgroups: Vec<Option<Box<Cgroup>>>,
    /// Inodes of all cgroups that ever existed: a handle of a removed one still has its number.
    inodes: Vec<u64>,
    next_inode: u64,
}

impl Tree {
    /// Mounts an empty hierarchy, whose root has inode 1.
    pub(super) fn mount(&mut self, mount: &str, version: Version, controllers: ControllerSet) {
        let hierarchy = self.hierarchies.len();
        let root = self.place(hierarchy, None, String::new(), 1, controllers);
        self.next_inode = self.next_inode.max(1);
        for controller in controllers.iter() {
            self.homes[controller as usize].get_or_insert(hierarchy);
        }
        let (mount, all) = (mount.into(), OnceLock::new());
        self.hierarchies.push(Hierarchy { mount, version, controllers, root, all });
    }

    fn place(
        &mut self,
        hierarchy: usize,
        parent: Option<CgroupId>,
        name: String,
        inode: u64,
        controllers: ControllerSet,
    ) -> CgroupId {
        let id = CgroupId(self.cgroups.len());
        self.inodes.push(inode);
        let shows_pressure = true;
        let cgroup =
            Cgroup { hierarchy, parent, name, controllers, shows_pressure, ..Cgroup::default() };
        self.cgroups.push(Some(Box::new(cgroup)));
        id
    }

    /// Adds a child. In the unified hierarchy it gets the controllers of the parent's `cgroup.subtree_control`.
    pub(super) fn add_child(&mut self, parent: CgroupId, name: &str) -> CgroupId {
        self.next_inode += 1;
        let above = &self[parent];
        let (hierarchy, inode) = (above.hierarchy, self.next_inode);
        let controllers = match self.version(parent) {
            Version::V1 => self.hierarchies[hierarchy].controllers,
            Version::V2 => above.subtree_control,
        };
        let id = self.place(hierarchy, Some(parent), name.to_string(), inode, controllers);
        self[parent].children.insert(name.to_string(), id);
        self.hierarchies[hierarchy].all = OnceLock::new();
        id
    }

    pub(super) fn remove(&mut self, id: CgroupId) -> Option<Cgroup> {
        let removed = self.cgroups.get_mut(id.0)?.take()?;
        if let Some(parent) = removed.parent {
            self[parent].children.remove(&removed.name);
        }
        self.hierarchies[removed.hierarchy].all = OnceLock::new();
        Some(*removed)
    }

    /// Index of each of `ids` among them, by id; `usize::MAX` for all others.
    pub(super) fn places(&self, ids: impl Iterator<Item = CgroupId>) -> Vec<usize> {
        let mut places = vec![usize::MAX; self.cgroups.len()];
        ids.enumerate().for_each(|(place, id)| places[id.0] = place);
        places
    }

    /// Changes `id` and every ancestor, upward.
    #[inline]
    pub(super) fn for_lineage(&mut self, id: CgroupId, mut change: impl FnMut(&mut Cgroup)) {
        let mut next = Some(id);
        while let Some(id) = next {
            let cgroup = &mut self[id];
            change(cgroup);
            next = cgroup.parent;
        }
    }

    pub(super) fn get(&self, id: CgroupId) -> Option<&Cgroup> {
        self.cgroups.get(id.0)?.as_deref()
    }

    /// Inode number of a cgroup, even a removed one.
    pub(super) fn inode(&self, id: CgroupId) -> u64 {
        self.inodes[id.0]
    }

    pub(super) fn ids(&self) -> impl DoubleEndedIterator<Item = CgroupId> {
        let living = |(index, cgroup): (usize, &Option<Box<Cgroup>>)| {
            cgroup.as_ref().map(|_| CgroupId(index))
        };
        self.cgroups.iter().enumerate().filter_map(living)
    }

    pub(super) fn version(&self, id: CgroupId) -> Version {
        self.hierarchies[self[id].hierarchy].version
    }

    pub(super) fn home(&self, controller: Controller) -> Option<usize> {
        self.homes[controller as usize]
    }

    pub(super) fn home_or_first(&self, controller: Controller) -> usize {
        self.home(controller).unwrap_or(0)
    }

    pub(super) fn root_of(&self, controller: Controller) -> CgroupId {
        self.hierarchies[self.home_or_first(controller)].root
    }

    pub(super) fn roots(&self) -> impl Iterator<Item = CgroupId> {
        self.hierarchies.iter().map(|hierarchy| hierarchy.root)
    }

    pub(super) fn mounts(&self) -> impl Iterator<Item = &str> {
        self.hierarchies.iter().map(|hierarchy| hierarchy.mount.as_str())
    }

    pub(super) fn find(&self, root: CgroupId, path: &str) -> Option<CgroupId> {
        let mut names = path.split('/').filter(|name| !name.is_empty());
        names.try_fold(root, |id, name| self[id].children.get(name).copied())
    }

    pub(super) fn find_of(&self, controller: Controller, path: &str) -> Option<CgroupId> {
        self.find(self.root_of(controller), path)
    }

    pub(super) fn average_pressure(&mut self) {
        let kept = kept();
        self.cgroups.iter_mut().flatten().for_each(|cgroup| cgroup.pressure.average(&kept));
    }

    pub(super) fn lineage(&self, id: CgroupId) -> impl Iterator<Item = CgroupId> {
        std::iter::successors(Some(id), |&id| self[id].parent)
    }

    pub(super) fn subtree(&self, id: CgroupId) -> Arc<[CgroupId]> {
        self.below(id).unwrap_or_else(|| Arc::new([id]))
    }

    /// Result of [`Self::subtree`]; `None` if nothing is below it.
    pub(super) fn below(&self, id: CgroupId) -> Option<Arc<[CgroupId]>> {
        let cgroup = &self[id];
        if cgroup.children.is_empty() {
            return None;
        }
        Some(match cgroup.parent {
            Some(_) => self.walk(id).into(),
            None => {
                let known = &self.hierarchies[cgroup.hierarchy].all;
                Arc::clone(known.get_or_init(|| self.walk(id).into()))
            }
        })
    }

    fn walk(&self, id: CgroupId) -> Vec<CgroupId> {
        let mut found = vec![id];
        let mut next = 0;
        while let Some(&id) = found.get(next) {
            found.extend(self[id].children.values());
            next += 1;
        }
        found
    }

    /// Nearest cgroup upward with `controller` enabled, which does its accounting.
    #[inline]
    pub(super) fn effective(&self, id: CgroupId, controller: Controller) -> CgroupId {
        // The usual case, in every step for every process.
        if self[id].controllers.contains(controller) {
            return id;
        }
        let enabled = |id: &CgroupId| self[*id].controllers.contains(controller);
        self.lineage(id).find(enabled).unwrap_or(self.hierarchies[self[id].hierarchy].root)
    }

    /// `/a/b` within the hierarchy, `/` for its root.
    pub(super) fn path(&self, id: CgroupId) -> String {
        let mut names: Vec<&str> = self.lineage(id).map(|id| self[id].name.as_str()).collect();
        names.pop();
        names.reverse();
        format!("/{}", names.join("/"))
    }

    pub(super) fn is_populated(&self, id: CgroupId) -> bool {
        let cgroup = &self[id];
        !cgroup.processes.is_empty() || cgroup.children.values().any(|&c| self.is_populated(c))
    }

    pub(super) fn set_frozen(&mut self, id: CgroupId, frozen: bool) {
        self[id].frozen = frozen;
        self.has_frozen |= frozen;
    }

    #[inline]
    pub(super) fn is_frozen(&self, id: CgroupId) -> bool {
        self.has_frozen && self.lineage(id).any(|id| self[id].frozen)
    }

    /// CPUs of `online` that `id` may use; never empty.
    ///
    /// In the unified hierarchy an unset or unusable list falls back to the parent's
    /// (Documentation/admin-guide/cgroup-v2.rst, "Cpuset Interface Files").
    pub(super) fn effective_cpus(&self, id: CgroupId, online: &CpuSet) -> CpuSet {
        let mut effective = online.clone();
        let downward: Vec<CgroupId> = self.lineage(id).collect();
        for id in downward.into_iter().rev() {
            let own = &self[id].cpuset.cpus;
            if !own.is_empty() && !effective.is_disjoint(own) {
                effective = &effective & own;
            }
        }
        effective
    }
}

impl std::ops::Index<CgroupId> for Tree {
    type Output = Cgroup;

    #[inline]
    fn index(&self, id: CgroupId) -> &Cgroup {
        match &self.cgroups[id.0] {
            Some(cgroup) => cgroup,
            None => unreachable!("a removed cgroup is reached through `get` only"),
        }
    }
}

impl std::ops::IndexMut<CgroupId> for Tree {
    #[inline]
    fn index_mut(&mut self, id: CgroupId) -> &mut Cgroup {
        match &mut self.cgroups[id.0] {
            Some(cgroup) => cgroup,
            None => unreachable!("a removed cgroup is reached through `get` only"),
        }
    }
}
