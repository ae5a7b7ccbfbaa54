//! Kernel rules for making and removing cgroups, moving processes and enabling controllers.
//!
//! Source: kernel/cgroup/cgroup.c (`cgroup_mkdir`, `cgroup_destroy_locked`, `cgroup_migrate_vet_dst`,
//! `cgroup_subtree_control_write`, `cgroup_vet_subtree_control_enable`); cgroup-v2.rst, "No Internal
//! Process Constraint" and "Threads". Threaded cgroups cannot be made here, but their precondition is
//! modelled: with a process in it, a cgroup that enables `cpu` makes its children unfit for processes.

use nix::errno::Errno;

use super::controller::{Controller, ControllerSet};
use super::population::{Changed, Population};
use super::tree::{CgroupId, CpuKnobs, CpusetKnobs, MemoryKnobs, Tree, Version};

impl Tree {
    pub(super) fn vet_attach(&self, id: CgroupId) -> Result<(), Errno> {
        let cgroup = &self[id];
        if self.version(id) == Version::V1 {
            let is_child = cgroup.parent.is_some();
            let needs_sets = is_child && cgroup.controllers.contains(Controller::Cpuset);
            let lacks_sets = cgroup.cpuset.cpus.is_empty() || cgroup.cpuset.mems.is_empty();
            return if needs_sets && lacks_sets { Err(Errno::ENOSPC) } else { Ok(()) };
        }
        if !self.is_valid_domain(id) {
            return Err(Errno::EOPNOTSUPP);
        }
        let is_allowed = self.can_be_thread_root(id) || cgroup.subtree_control.is_empty();
        if is_allowed { Ok(()) } else { Err(Errno::EBUSY) }
    }

    /// True if `id` has processes and also enables threaded controllers for its children, which then can
    /// hold only its threads (`cgroup_is_thread_root`).
    pub(super) fn is_thread_root(&self, id: CgroupId) -> bool {
        let cgroup = &self[id];
        let passes_on = cgroup.subtree_control.without(ControllerSet::THREADED);
        !cgroup.processes.is_empty() && passes_on != cgroup.subtree_control
    }

    /// True if `id` can have processes of its own; no cgroup below a thread root can. The root of the
    /// hierarchy may be both.
    pub(super) fn is_valid_domain(&self, id: CgroupId) -> bool {
        let below_root = |&above: &CgroupId| self[above].parent.is_some();
        !self.lineage(id).skip(1).filter(below_root).any(|above| self.is_thread_root(above))
    }

    /// Checks that one more process fits under every `pids.max` above `id`. The unified hierarchy counts a
    /// refusal at the full cgroup and its ancestors, the legacy one in `id` (`pids_event`, Linux 6.11).
    pub(super) fn vet_fork(&mut self, id: CgroupId) -> Result<(), Errno> {
        let full = |above: &CgroupId| match self[*above].pids_max {
            Some(max) => self.nr_processes(*above) >= max,
            None => false,
        };
        let Some(full) = self.lineage(id).find(full) else { return Ok(()) };
        let counting: Vec<CgroupId> = match self.version(id) {
            Version::V1 => vec![id],
            Version::V2 => self.lineage(full).collect(),
        };
        counting.into_iter().for_each(|id| self[id].nr_refused_forks += 1);
        Err(Errno::EAGAIN)
    }

    pub(super) fn nr_processes(&self, id: CgroupId) -> u64 {
        self.subtree(id).iter().map(|&id| self[id].processes.len() as u64).sum()
    }

    /// True if `id` may hold processes beside children: the root, and a cgroup that enables only threaded
    /// controllers and has no populated child (`cgroup_can_be_thread_root`).
    fn can_be_thread_root(&self, id: CgroupId) -> bool {
        let cgroup = &self[id];
        cgroup.parent.is_none()
            || (cgroup.subtree_control.without(ControllerSet::THREADED).is_empty()
                && !cgroup.children.values().any(|&child| self.is_populated(child)))
    }

    /// Checks that `id` may enable these controllers (`cgroup_vet_subtree_control_enable`).
    fn vet_enable(&self, id: CgroupId, enable: ControllerSet) -> Result<(), Errno> {
        let cgroup = &self[id];
        if !self.is_valid_domain(id) {
            return Err(Errno::EOPNOTSUPP);
        }
        if cgroup.parent.is_none() {
            return Ok(());
        }
        let threaded_only = enable.without(ControllerSet::THREADED).is_empty();
        if !threaded_only && self.is_thread_root(id) {
            return Err(Errno::EOPNOTSUPP);
        }
        let is_allowed =
            cgroup.processes.is_empty() || (threaded_only && self.can_be_thread_root(id));
        if is_allowed { Ok(()) } else { Err(Errno::EBUSY) }
    }
}

impl Population {
    /// `mkdir`. The caller has checked that `name` is free.
    pub(super) fn add_cgroup(&mut self, parent: CgroupId, name: &str) -> Result<CgroupId, Errno> {
        // Such a name would break the line in /proc/PID/cgroup.
        if name.contains('\n') {
            return Err(Errno::EINVAL);
        }
        for (depth, above) in (1_u64..).zip(self.tree.lineage(parent)) {
            let cgroup = &self.tree[above];
            let descendants = self.tree.subtree(above).len() as u64 - 1;
            let full = cgroup.max_descendants.is_some_and(|max| descendants >= max);
            let deep = cgroup.max_depth.is_some_and(|max| depth > max);
            if full || deep {
                return Err(Errno::EAGAIN);
            }
        }
        self.changed = Changed::Everything;
        Ok(self.tree.add_child(parent, name))
    }

    /// `rmdir`.
    pub(super) fn remove_cgroup(&mut self, id: CgroupId) -> Result<(), Errno> {
        let cgroup = &self.tree[id];
        if cgroup.parent.is_none() || !cgroup.children.is_empty() || !cgroup.processes.is_empty() {
            return Err(Errno::EBUSY);
        }
        self.reparent(id);
        self.tree.remove(id);
        self.changed = Changed::Everything;
        Ok(())
    }

    pub(super) fn attach(&mut self, id: CgroupId, pid: u32) -> Result<(), Errno> {
        let hierarchy = self.tree[id].hierarchy;
        let from = self.processes.get(&pid).ok_or(Errno::ESRCH)?.cgroups[hierarchy];
        self.tree.vet_attach(id)?;
        self.tree[from].processes.remove(&pid);
        self.tree[id].processes.insert(pid);
        if let Some(process) = self.processes.get_mut(&pid) {
            process.cgroups[hierarchy] = id;
        }
        self.changed = Changed::Everything;
        Ok(())
    }

    /// `cgroup.subtree_control`: `+name` and `-name` between blanks.
    pub(super) fn write_subtree_control(&mut self, id: CgroupId, text: &str) -> Result<(), Errno> {
        let (mut enable, mut disable) = (ControllerSet::default(), ControllerSet::default());
        for word in text.trim().split(' ').filter(|word| !word.is_empty()) {
            let mut letters = word.chars();
            let sign = letters.next();
            let known = |controller: &Controller| controller.name() == letters.as_str();
            let controller = Controller::ALL
                .into_iter()
                .filter(|&controller| controller != Controller::Cpuacct)
                .find(known)
                .ok_or(Errno::EINVAL)?;
            let (into, out_of) = match sign {
                Some('+') => (&mut enable, &mut disable),
                Some('-') => (&mut disable, &mut enable),
                _ => return Err(Errno::EINVAL),
            };
            into.insert(controller);
            out_of.remove(controller);
        }
        self.enable(id, enable, disable)
    }

    pub(super) fn enable(
        &mut self,
        id: CgroupId,
        enable: ControllerSet,
        disable: ControllerSet,
    ) -> Result<(), Errno> {
        let cgroup = &self.tree[id];
        let enable = enable.without(cgroup.subtree_control);
        if !enable.without(cgroup.controllers).is_empty() {
            return Err(Errno::ENOENT);
        }
        for controller in disable.iter() {
            let uses = |child: &CgroupId| self.tree[*child].subtree_control.contains(controller);
            if cgroup.subtree_control.contains(controller) && cgroup.children.values().any(uses) {
                return Err(Errno::EBUSY);
            }
        }
        if !enable.is_empty() {
            self.tree.vet_enable(id, enable)?;
        }
        let after = cgroup.subtree_control.union(enable).without(disable);
        let children: Vec<CgroupId> = cgroup.children.values().copied().collect();
        self.tree[id].subtree_control = after;
        for child in children {
            let lost = self.tree[child].controllers.without(after);
            lost.iter().for_each(|controller| self.forget(child, controller));
            self.tree[child].controllers = after;
        }
        self.changed = Changed::Everything;
        Ok(())
    }

    /// Discards the settings of a disabled controller; its memory is charged to the parent.
    fn forget(&mut self, id: CgroupId, controller: Controller) {
        self.tree[id].epochs[controller as usize] += 1;
        match controller {
            Controller::Cpu => {
                let cgroup = &mut self.tree[id];
                cgroup.cpu = CpuKnobs::default();
                cgroup.cpu_account.nr_periods = 0;
                cgroup.cpu_account.nr_throttled = 0;
                cgroup.cpu_account.throttled_nsec = 0.0;
            }
            Controller::Cpuset => self.tree[id].cpuset = CpusetKnobs::default(),
            Controller::Pids => {
                self.tree[id].pids_max = None;
                self.tree[id].nr_refused_forks = 0;
            }
            Controller::Memory => {
                self.reparent(id);
                self.tree[id].memory = MemoryKnobs::default();
            }
            Controller::Cpuacct | Controller::Io => {}
        }
    }
}
