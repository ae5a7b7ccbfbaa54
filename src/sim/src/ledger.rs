//! Charges of memory: pages of processes and cgroups, and their counters.
//!
//! A *charge* is a page that counts for the cgroup of its process at the first touch, and for every ancestor;
//! it stays when the process moves.

use super::account::{Kind, MemoryCounters, MemoryEvents, Pages};
use super::controller::Controller;
use super::population::Population;
use super::process::Process;
use super::processes::ByPid;
use super::rates::rounded_up;
use super::tree::CgroupId;

impl Population {
    #[inline]
    pub(super) fn memory_cgroup(&self, process: &Process) -> CgroupId {
        let hierarchy = self.tree.home_or_first(Controller::Memory);
        self.tree.effective(process.cgroups[hierarchy], Controller::Memory)
    }

    /// Adds to the counters of `id` and of every ancestor.
    #[inline]
    pub(super) fn count(&mut self, id: CgroupId, add: impl Fn(&mut MemoryCounters)) {
        add(&mut self.tree[id].memory_account.local_counters);
        self.tree.for_lineage(id, |cgroup| add(&mut cgroup.memory_account.counters));
    }

    /// Counts an event at `id` and at every ancestor.
    pub(super) fn raise(&mut self, id: CgroupId, event: impl Fn(&mut MemoryEvents)) {
        event(&mut self.tree[id].memory_account.local_events);
        self.tree.for_lineage(id, |cgroup| event(&mut cgroup.memory_account.events));
    }

    #[inline]
    pub(super) fn book(
        &mut self,
        pid: u32,
        id: CgroupId,
        kind: Kind,
        pages: u64,
        add: impl Fn(&mut MemoryCounters),
    ) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        *process.charges.of(id).of_mut(kind) += pages;
        let account = &mut self.tree[id].memory_account;
        if account.chargers != [pid]
            && let Err(place) = account.chargers.binary_search(&pid)
        {
            account.chargers.insert(place, pid);
        }
        *account.local.of_mut(kind) += pages;
        add(&mut account.local_counters);
        self.tree.for_lineage(id, |cgroup| {
            let account = &mut cgroup.memory_account;
            add(&mut account.counters);
            match kind {
                Kind::Swapped => account.swapped += pages,
                _ => account.usage += pages,
            }
            account.peak = account.peak.max(account.usage);
        });
    }

    /// Uncharges `pages` of `id`, which must have them.
    pub(super) fn unbook(&mut self, id: CgroupId, kind: Kind, pages: u64) {
        if pages == 0 {
            return;
        }
        *self.tree[id].memory_account.local.of_mut(kind) -= pages;
        self.tree.for_lineage(id, |cgroup| {
            let account = &mut cgroup.memory_account;
            match kind {
                Kind::Swapped => account.swapped -= pages,
                _ => account.usage -= pages,
            }
        });
    }

    pub(super) fn free(&mut self, pid: u32, kind: Kind, pages: u64) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let mut left = pages;
        let mut freed = Vec::new();
        for (id, charged) in process.charges.iter_mut().rev() {
            if left == 0 {
                break;
            }
            let part = left.min(charged.of(kind));
            *charged.of_mut(kind) -= part;
            left -= part;
            freed.push((*id, part));
        }
        freed.into_iter().for_each(|(id, part)| self.unbook(id, kind, part));
    }

    /// Takes `pages` of one kind off `id` and its processes, but not off the usage of `id` and its
    /// ancestors: ownerless pages first, then in proportion to each process's pages, because they share one
    /// list. Returns the number taken.
    #[inline]
    pub(super) fn take(&mut self, id: CgroupId, kind: Kind, pages: u64) -> u64 {
        let account = &mut self.tree[id].memory_account;
        if pages == 0 || account.local.of(kind) == 0 {
            return 0;
        }
        let orphans = account.orphans.of_mut(kind);
        let ownerless = pages.min(*orphans);
        *orphans -= ownerless;
        let chargers = account.chargers.as_slice();
        let taken =
            ownerless + take_owned(&mut self.processes, chargers, id, kind, pages - ownerless);
        *account.local.of_mut(kind) -= taken;
        taken
    }

    /// Frees the anonymous memory of a process that ends; file pages stay without an owner.
    pub(super) fn release(&mut self, pid: u32, process: &Process) {
        for &(id, pages) in process.charges.iter() {
            self.tree[id].memory_account.chargers.retain(|&other| other != pid);
            for kind in [Kind::Anon, Kind::Kernel, Kind::Locked, Kind::Swapped] {
                self.unbook(id, kind, pages.of(kind));
            }
            for kind in [Kind::ActiveFile, Kind::InactiveFile] {
                *self.tree[id].memory_account.orphans.of_mut(kind) += pages.of(kind);
            }
        }
    }

    /// Moves the charges of a removed cgroup to its parent.
    pub(super) fn reparent(&mut self, id: CgroupId) {
        let Some(parent) = self.tree[id].parent else { return };
        let parent = self.tree.effective(parent, Controller::Memory);
        let account = std::mem::take(&mut self.tree[id].memory_account);
        for &pid in &account.chargers {
            let Some(process) = self.processes.get_mut(&pid) else { continue };
            if let Some(pages) = process.charges.remove(id) {
                process.charges.of(parent).add(&pages);
            }
        }
        let heir = &mut self.tree[parent].memory_account;
        heir.local.add(&account.local);
        heir.orphans.add(&account.orphans);
        heir.chargers.extend(account.chargers);
        heir.chargers.sort_unstable();
        heir.chargers.dedup();
    }

    pub(super) fn pages_below(&self, id: CgroupId) -> Pages {
        let mut sum = Pages::default();
        self.tree.subtree(id).iter().for_each(|&id| sum.add(&self.tree[id].memory_account.local));
        sum
    }
}

/// Takes up to `wanted` pages of one kind, charged to `id`, off the processes `chargers`, in proportion.
/// Returns the number taken.
fn take_owned(
    processes: &mut ByPid<Process>,
    chargers: &[u32],
    id: CgroupId,
    kind: Kind,
    wanted: u64,
) -> u64 {
    if let [only] = chargers {
        let charged = processes.get_mut(only).and_then(|p| p.charges.get_mut(id));
        return charged.map_or(0, |charged| {
            let part = wanted.min(charged.of(kind));
            *charged.of_mut(kind) -= part;
            part
        });
    }
    let charged = |pid: &u32| processes.get(pid)?.charges.get(id);
    let mut owned: u64 = chargers.iter().filter_map(charged).map(|p| p.of(kind)).sum();
    let mut taken = 0;
    for pid in chargers {
        let charged = processes.get_mut(pid).and_then(|p| p.charges.get_mut(id));
        let Some(charged) = charged.filter(|charged| charged.of(kind) > 0) else {
            continue;
        };
        // The last one owns the whole remainder, so nothing is lost to rounding.
        let left = wanted - taken;
        let share = rounded_up(left as f64 * charged.of(kind) as f64 / owned as f64);
        let part = share.min(left).min(charged.of(kind));
        owned -= charged.of(kind);
        *charged.of_mut(kind) -= part;
        taken += part;
    }
    taken
}
