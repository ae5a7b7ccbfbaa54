//! Reclaim under memory shortage, and the effect of `memory.min` and `memory.low`.
//!
//! **Algorithm.** Every cgroup below the target is scanned in proportion to its reclaimable pages, less the
//! protected part (mm/vmscan.c, `get_scan_count`: the scan shrinks by protection / usage), and never below
//! its protection. Inactive file pages go first, then active ones and, with room in swap, anonymous ones,
//! as at a `vm.swappiness` of 60. If that is not enough, a second pass ignores `memory.low` (counted in
//! `memory.events` as `low`); `memory.min` is never broken.
//!
//! With generations ([`super::SimHost::has_generations`]) only every other reclaim respects `memory.low`: a
//! cgroup within it moves to the end of the list and is taken when it is met again (mm/vmscan.c,
//! `shrink_one`, Linux 6.12).
//!
//! A page in use is scanned twice before it is taken. A failing reclaim scans the same pages again and
//! again: that counts in `pgscan` and not in `pgsteal`, and takes time.
//!
//! Protection depends on the ancestors: under overcommitment it is proportional to each child's usage
//! within its own protection; with `memory_recursiveprot` a parent's unclaimed protection goes to its
//! children in proportion to their unprotected usage (mm/page_counter.c, `effective_protection`).

use super::account::Kind;
use super::candidates::{Candidate, Candidates, Protection};
use super::controller::Controller;
use super::kernel::SimKernel;
use super::parse::PAGE_BYTES;
use super::process::Process;
use super::processes::ByPid;
use super::rates::rounded_up;
use super::tree::{CgroupId, Version};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Background,
    Direct,
}

/// Rounds of one pass; the rest after them is negligible.
const ROUNDS: u32 = 16;

/// Pages scanned by a futile reclaim: 32 pages (`SWAP_CLUSTER_MAX`) in each of 16 attempts
/// (`MAX_RECLAIM_RETRIES`).
const FUTILE_PAGES: u64 = 512;

/// Part of the scan for anonymous pages if both lists are in use: `vm.swappiness` of 60, of 200.
const ANON_SCAN_RATIO: f64 = 0.3;

impl SimKernel {
    /// Takes up to `wanted` pages from `target` and below; returns the number taken.
    pub(super) fn reclaim(&mut self, target: CgroupId, wanted: u64, reason: Reason) -> u64 {
        let mut left = wanted;
        if self.tree.version(target) == Version::V1 && self.tree[target].parent.is_none() {
            left -= self.reclaim_over_soft_limits(left, reason);
        }
        let meets_again = self.host.has_generations && self.has_passed_over;
        self.has_passed_over = !meets_again;
        let (only, all) = ([target], self.tree.below(target));
        let below = all.as_deref().unwrap_or(&only);
        let is_protected =
            |id: &CgroupId| self.tree[*id].memory.min > 0 || self.tree[*id].memory.low > 0;
        let is_protected = below.iter().any(is_protected);
        let Candidates { mut protections, mut candidates } = std::mem::take(&mut self.candidates);
        protections.clear();
        for respects_low in [!meets_again, false] {
            for _ in 0..ROUNDS {
                if left == 0 {
                    break;
                }
                if is_protected {
                    self.protections(below, &mut protections);
                }
                let how = (reason, respects_low);
                let taken = self.reclaim_round(below, &protections, left, how, &mut candidates);
                left -= taken;
                if taken == 0 {
                    break;
                }
            }
        }
        self.candidates = Candidates { protections, candidates };
        if left > 0 {
            self.count_scan(target, FUTILE_PAGES, 0, reason);
        }
        wanted - left
    }

    #[inline]
    fn count_scan(&mut self, id: CgroupId, scanned: u64, stolen: u64, reason: Reason) {
        self.count(id, |counters| match reason {
            Reason::Background => {
                counters.scan_background += scanned;
                counters.steal_background += stolen;
            }
            Reason::Direct => {
                counters.scan_direct += scanned;
                counters.steal_direct += stolen;
            }
        });
    }

    fn evictable(&self, id: CgroupId) -> u64 {
        let local = &self.tree[id].memory_account.local;
        local.file() + local.of(Kind::Anon).min(self.swap_room(id))
    }

    /// Keeps memory free ahead of need: from one reserve up to two. Returns true if it reclaimed.
    pub(super) fn reclaim_in_background(&mut self) -> bool {
        let (free, reserve) = (self.free_pages(), self.reserve_pages());
        let is_needed = free < reserve + reserve / 4;
        if is_needed {
            let root = self.memory_root();
            self.reclaim(root, 2 * reserve - free, Reason::Background);
        }
        is_needed
    }

    fn reclaim_round(
        &mut self,
        below: &[CgroupId],
        protections: &[Option<Protection>],
        wanted: u64,
        (reason, respects_low): (Reason, bool),
        candidates: &mut Vec<Candidate>,
    ) -> u64 {
        candidates.clear();
        for (place, &id) in below.iter().enumerate() {
            let account = &self.tree[id].memory_account;
            let protection = protections.get(place).copied().flatten().unwrap_or_default();
            let kept = match respects_low {
                true => protection.min.max(protection.low),
                false => protection.min,
            };
            let (evictable, spare) = (self.evictable(id), account.usage.saturating_sub(kept));
            if evictable == 0 || spare == 0 {
                continue;
            }
            let scanned = evictable as f64 * spare as f64 / account.usage as f64;
            let breaks_low = !respects_low && account.usage <= protection.low;
            candidates.push(Candidate { id, scanned, most: evictable.min(spare), breaks_low });
        }
        let sum: f64 = candidates.iter().map(|candidate| candidate.scanned).sum();
        let mut left = wanted;
        for &Candidate { id, scanned, most, breaks_low } in candidates.iter() {
            let share = rounded_up(wanted as f64 * scanned / sum);
            let pages = share.min(most).min(left);
            left -= pages;
            self.evict(id, pages, reason);
            if breaks_low && pages > 0 {
                self.raise(id, |events| events.low += 1);
            }
        }
        wanted - left
    }

    /// Effective protection of each of `below`: a target, which has none, and all below it. Cgroups without
    /// the controller have none.
    fn protections(&self, below: &[CgroupId], protections: &mut Vec<Option<Protection>>) {
        protections.clear();
        protections.push(Some(Protection::default()));
        // Children follow in the order of their parents, and every parent precedes its children.
        let mut above = 0;
        for &id in &below[1..] {
            let cgroup = &self.tree[id];
            while Some(below[above]) != cgroup.parent {
                above += 1;
            }
            if !cgroup.controllers.contains(Controller::Memory) {
                protections.push(None);
                continue;
            }
            let own = Protection { min: cgroup.memory.min, low: cgroup.memory.low };
            let effective = match protections[above] {
                Some(_) if above == 0 => own,
                Some(parent) => Protection {
                    min: self.effective_protection(id, parent.min, |knobs| knobs.min),
                    low: self.effective_protection(id, parent.low, |knobs| knobs.low),
                },
                None => Protection::default(),
            };
            protections.push(Some(effective));
        }
    }

    /// Effective part of `id`'s setting if its parent has `above`.
    fn effective_protection(
        &self,
        id: CgroupId,
        above: u64,
        setting: impl Fn(&super::tree::MemoryKnobs) -> u64,
    ) -> u64 {
        let cgroup = &self.tree[id];
        let claimed = |id: &CgroupId| {
            let cgroup = &self.tree[*id];
            cgroup.memory_account.usage.min(setting(&cgroup.memory))
        };
        let Some(parent) = cgroup.parent.map(|id| &self.tree[id]) else { return 0 };
        let siblings: u64 = parent.children.values().map(claimed).sum();
        let (own, usage) = (claimed(&id), cgroup.memory_account.usage);
        if siblings > above {
            return scale(own, above, siblings);
        }
        let unprotected = parent.memory_account.usage.saturating_sub(siblings);
        if self.host.memory_recursiveprot && unprotected > 0 {
            return own + scale(above - siblings, usage - own, unprotected);
        }
        own
    }

    /// Takes `pages` charged to `id` itself: inactive file pages first, then those in use of both kinds.
    fn evict(&mut self, id: CgroupId, pages: u64, reason: Reason) {
        if pages == 0 {
            return;
        }
        let inactive = self.take(id, Kind::InactiveFile, pages);
        let left = pages - inactive;
        let (mut swapped, mut active) = (0, 0);
        if left > 0 {
            swapped = self.swap_out(id, self.part_of_anon(id, left));
            active = self.take(id, Kind::ActiveFile, left - swapped);
        }
        let of_files = inactive + active;
        self.tree.for_lineage(id, |cgroup| cgroup.memory_account.usage -= of_files);
        self.count_scan(id, inactive + 2 * (swapped + active), of_files + swapped, reason);
    }

    /// Writes `pages` of the anonymous memory of `id` out; returns the number written.
    fn swap_out(&mut self, id: CgroupId, pages: u64) -> u64 {
        if pages == 0 {
            return 0;
        }
        let charged = |kernel: &Self, pid| {
            let process = kernel.processes.get(&pid);
            process.and_then(|p| p.charges.get(id)).map_or(0, |pages| pages.of(Kind::Anon))
        };
        let chargers = self.tree[id].memory_account.chargers.clone();
        let before: Vec<u64> = chargers.iter().map(|&pid| charged(self, pid)).collect();
        let taken = self.take(id, Kind::Anon, pages);
        self.tree.for_lineage(id, |cgroup| cgroup.memory_account.usage -= taken);
        for (pid, before) in chargers.into_iter().zip(before) {
            let part = before - charged(self, pid);
            if part > 0 {
                self.book(pid, id, Kind::Swapped, part, |_| {});
            }
        }
        if taken > 0 {
            self.count(id, |counters| counters.swap_out += taken);
        }
        taken
    }

    /// Number of the `pages` in use that come from the anonymous list.
    fn part_of_anon(&self, id: CgroupId, pages: u64) -> u64 {
        let local = &self.tree[id].memory_account.local;
        let anon = local.of(Kind::Anon).min(self.swap_room(id));
        if anon == 0 {
            return 0;
        }
        let weighed = anon as f64 * ANON_SCAN_RATIO;
        let active = local.of(Kind::ActiveFile) as f64 * (1.0 - ANON_SCAN_RATIO);
        let of_anon = (pages as f64 * weighed / (weighed + active).max(1.0)) as u64;
        // The other list supplies the rest.
        of_anon.max(pages.saturating_sub(local.of(Kind::ActiveFile))).min(anon)
    }

    /// Takes `pages` of one kind off `id` and its processes, but not off the usage of `id` and its
    /// ancestors: ownerless pages first, then in proportion to each process's pages, because they share one
    /// list. Returns the number taken.
    #[inline]
    fn take(&mut self, id: CgroupId, kind: Kind, pages: u64) -> u64 {
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

    pub(super) fn swap_slots(&self) -> u64 {
        self.host.swap.map_or(0, |swap| swap.bytes / PAGE_BYTES)
    }

    pub(super) fn swapped_pages(&self) -> u64 {
        self.tree[self.memory_root()].memory_account.swapped
    }

    /// Pages of memory that hold the contents of swap.
    pub(super) fn swap_memory_pages(&self) -> u64 {
        self.host.swap.map_or(0, |swap| rounded_up(self.swapped_pages() as f64 * swap.memory_ratio))
    }

    /// Pages of `id` that could be written out now.
    pub(super) fn swap_room(&self, id: CgroupId) -> u64 {
        if self.host.swap.is_none() {
            return 0;
        }
        let free = self.swap_slots().saturating_sub(self.swapped_pages());
        if free == 0 {
            return 0;
        }
        let rooms = self.tree.lineage(id).map(|id| {
            self.tree[id].memory.swap_max.saturating_sub(self.tree[id].memory_account.swapped)
        });
        rooms.fold(free, u64::min)
    }

    /// Reads touched pages back: `miss` of the accesses meet one in swap.
    pub(super) fn swap_in(&mut self, pid: u32, dt_sec: f64) {
        let Some(swap) = self.host.swap else { return };
        let Some(process) = self.processes.get(&pid) else { return };
        let pages = process.pages();
        let swapped = pages.of(Kind::Swapped);
        if swapped == 0 {
            return;
        }
        let miss_ratio = swapped as f64 / (swapped + pages.of(Kind::Anon)) as f64;
        let touched = self.touched(pid, Kind::Swapped, dt_sec, miss_ratio).min(swapped);
        let read = self.charge(pid, Kind::Anon, touched);
        self.free(pid, Kind::Swapped, read);
        // The charge may have killed the process.
        let Some(process) = self.processes.get_mut(&pid) else { return };
        process.refault_bytes += read * PAGE_BYTES;
        process.stall.memory_sec += swap.in_sec(read);
        let id = self.memory_cgroup(&self.processes[&pid]);
        self.count(id, |counters| {
            counters.refault_anon += read;
            counters.major_fault += read;
        });
    }

    /// First step of the legacy hierarchy: reclaims the cgroup furthest over its soft limit.
    fn reclaim_over_soft_limits(&mut self, wanted: u64, reason: Reason) -> u64 {
        let mut left = wanted;
        for _ in 0..ROUNDS {
            let root = self.memory_root();
            let excess = |id: CgroupId| {
                let cgroup = &self.tree[id];
                let over = cgroup.memory_account.usage.saturating_sub(cgroup.memory.soft_limit);
                over.min(cgroup.memory_account.local.file())
            };
            let worst = self.tree.subtree(root).iter().copied().max_by_key(|&id| excess(id));
            let Some((id, pages)) = worst.map(|id| (id, excess(id).min(left))) else { break };
            if pages == 0 {
                break;
            }
            self.evict(id, pages, reason);
            left -= pages;
        }
        wanted - left
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

fn scale(value: u64, numerator: u64, denominator: u64) -> u64 {
    if let Some(product) = value.checked_mul(numerator) {
        return product / denominator.max(1);
    }
    let product = u128::from(value) * u128::from(numerator) / u128::from(denominator.max(1));
    u64::try_from(product).unwrap_or(u64::MAX)
}
