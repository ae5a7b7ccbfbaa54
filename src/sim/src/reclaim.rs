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
use super::controller::Controller;
use super::memory::{Candidate, Candidates, Memory, Protection};
use super::population::Population;
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

impl Memory {
    /// Takes up to `wanted` pages from `target` and below; returns the number taken.
    pub(super) fn reclaim(
        &mut self,
        live: &mut Population,
        target: CgroupId,
        wanted: u64,
        reason: Reason,
    ) -> u64 {
        let mut left = wanted;
        if live.tree.version(target) == Version::V1 && live.tree[target].parent.is_none() {
            left -= self.reclaim_over_soft_limits(live, left, reason);
        }
        let meets_again = self.has_generations && self.has_passed_over;
        self.has_passed_over = !meets_again;
        let (only, all) = ([target], live.tree.below(target));
        let below = all.as_deref().unwrap_or(&only);
        let is_protected =
            |id: &CgroupId| live.tree[*id].memory.min > 0 || live.tree[*id].memory.low > 0;
        let is_protected = below.iter().any(is_protected);
        self.candidates.protections.clear();
        for respects_low in [!meets_again, false] {
            for _ in 0..ROUNDS {
                if left == 0 {
                    break;
                }
                if is_protected {
                    self.find_protections(live, below);
                }
                self.find_candidates(live, below, respects_low);
                let taken = self.reclaim_round(live, left, reason);
                left -= taken;
                if taken == 0 {
                    break;
                }
            }
        }
        if left > 0 {
            count_scan(live, target, FUTILE_PAGES, 0, reason);
        }
        wanted - left
    }

    fn evictable(&self, live: &Population, id: CgroupId) -> u64 {
        let local = &live.tree[id].memory_account.local;
        local.file() + local.of(Kind::Anon).min(self.swap_room(live, id))
    }

    /// Keeps memory free ahead of need: from one reserve up to two. Returns true if it reclaimed.
    pub(super) fn reclaim_in_background(&mut self, live: &mut Population) -> bool {
        let (free, reserve) = (self.free_pages(live), self.reserve_pages());
        let is_needed = free < reserve + reserve / 4;
        if is_needed {
            let root = live.memory_root();
            self.reclaim(live, root, 2 * reserve - free, Reason::Background);
        }
        is_needed
    }

    /// Finds the cgroups to take pages from, after their protections.
    fn find_candidates(&mut self, live: &Population, below: &[CgroupId], respects_low: bool) {
        let Candidates { protections, mut candidates } = std::mem::take(&mut self.candidates);
        candidates.clear();
        for (place, &id) in below.iter().enumerate() {
            let account = &live.tree[id].memory_account;
            let protection = protections.get(place).copied().flatten().unwrap_or_default();
            let low = if respects_low { protection.low } else { 0 };
            let spare = account.usage.saturating_sub(protection.min.max(low));
            let evictable = self.evictable(live, id);
            if evictable == 0 || spare == 0 {
                continue;
            }
            let scanned = evictable as f64 * spare as f64 / account.usage as f64;
            let breaks_low = !respects_low && account.usage <= protection.low;
            candidates.push(Candidate { id, scanned, most: evictable.min(spare), breaks_low });
        }
        self.candidates = Candidates { protections, candidates };
    }

    /// Takes up to `wanted` pages from the candidates; returns the number taken.
    fn reclaim_round(&mut self, live: &mut Population, wanted: u64, reason: Reason) -> u64 {
        let candidates = std::mem::take(&mut self.candidates.candidates);
        let sum: f64 = candidates.iter().map(|candidate| candidate.scanned).sum();
        let mut left = wanted;
        for &Candidate { id, scanned, most, breaks_low } in candidates.iter() {
            let share = rounded_up(wanted as f64 * scanned / sum);
            let pages = share.min(most).min(left);
            left -= pages;
            self.evict(live, id, pages, reason);
            if breaks_low && pages > 0 {
                live.raise(id, |events| events.low += 1);
            }
        }
        self.candidates.candidates = candidates;
        wanted - left
    }

    /// Effective protection of each of `below`: a target, which has none, and all below it. Cgroups without
    /// the controller have none.
    fn find_protections(&mut self, live: &Population, below: &[CgroupId]) {
        let mut protections = std::mem::take(&mut self.candidates.protections);
        protections.clear();
        protections.push(Some(Protection::default()));
        // Children follow in the order of their parents, and every parent precedes its children.
        let mut above = 0;
        for &id in &below[1..] {
            let cgroup = &live.tree[id];
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
                    min: self.effective_protection(live, id, parent.min, |knobs| knobs.min),
                    low: self.effective_protection(live, id, parent.low, |knobs| knobs.low),
                },
                None => Protection::default(),
            };
            protections.push(Some(effective));
        }
        self.candidates.protections = protections;
    }

    /// Effective part of `id`'s setting if its parent has `above`.
    fn effective_protection(
        &self,
        live: &Population,
        id: CgroupId,
        above: u64,
        setting: impl Fn(&super::tree::MemoryKnobs) -> u64,
    ) -> u64 {
        let cgroup = &live.tree[id];
        let claimed = |id: &CgroupId| {
            let cgroup = &live.tree[*id];
            cgroup.memory_account.usage.min(setting(&cgroup.memory))
        };
        let Some(parent) = cgroup.parent.map(|id| &live.tree[id]) else { return 0 };
        let siblings: u64 = parent.children.values().map(claimed).sum();
        let (own, usage) = (claimed(&id), cgroup.memory_account.usage);
        if siblings > above {
            return scale(own, above, siblings);
        }
        let unprotected = parent.memory_account.usage.saturating_sub(siblings);
        if self.memory_recursiveprot && unprotected > 0 {
            return own + scale(above - siblings, usage - own, unprotected);
        }
        own
    }

    /// Takes `pages` charged to `id` itself: inactive file pages first, then those in use of both kinds.
    fn evict(&mut self, live: &mut Population, id: CgroupId, pages: u64, reason: Reason) {
        if pages == 0 {
            return;
        }
        let inactive = live.take(id, Kind::InactiveFile, pages);
        let left = pages - inactive;
        let (mut swapped, mut active) = (0, 0);
        if left > 0 {
            swapped = self.swap_out(live, id, self.part_of_anon(live, id, left));
            active = live.take(id, Kind::ActiveFile, left - swapped);
        }
        let of_files = inactive + active;
        live.tree.for_lineage(id, |cgroup| cgroup.memory_account.usage -= of_files);
        count_scan(live, id, inactive + 2 * (swapped + active), of_files + swapped, reason);
    }

    /// Writes `pages` of the anonymous memory of `id` out; returns the number written.
    fn swap_out(&mut self, live: &mut Population, id: CgroupId, pages: u64) -> u64 {
        if pages == 0 {
            return 0;
        }
        let charged = |live: &Population, pid| {
            let process = live.processes.get(&pid);
            process.and_then(|p| p.charges.get(id)).map_or(0, |pages| pages.of(Kind::Anon))
        };
        let chargers = live.tree[id].memory_account.chargers.clone();
        let before: Vec<u64> = chargers.iter().map(|&pid| charged(live, pid)).collect();
        let taken = live.take(id, Kind::Anon, pages);
        live.tree.for_lineage(id, |cgroup| cgroup.memory_account.usage -= taken);
        for (pid, before) in chargers.into_iter().zip(before) {
            let part = before - charged(live, pid);
            if part > 0 {
                live.book(pid, id, Kind::Swapped, part, |_| {});
            }
        }
        if taken > 0 {
            live.count(id, |counters| counters.swap_out += taken);
        }
        taken
    }

    /// Number of the `pages` in use that come from the anonymous list.
    fn part_of_anon(&self, live: &Population, id: CgroupId, pages: u64) -> u64 {
        let local = &live.tree[id].memory_account.local;
        let anon = local.of(Kind::Anon).min(self.swap_room(live, id));
        if anon == 0 {
            return 0;
        }
        let weighed = anon as f64 * ANON_SCAN_RATIO;
        let active = local.of(Kind::ActiveFile) as f64 * (1.0 - ANON_SCAN_RATIO);
        let of_anon = (pages as f64 * weighed / (weighed + active).max(1.0)) as u64;
        // The other list supplies the rest.
        of_anon.max(pages.saturating_sub(local.of(Kind::ActiveFile))).min(anon)
    }

    /// First step of the legacy hierarchy: reclaims the cgroup furthest over its soft limit.
    fn reclaim_over_soft_limits(
        &mut self,
        live: &mut Population,
        wanted: u64,
        reason: Reason,
    ) -> u64 {
        let mut left = wanted;
        for _ in 0..ROUNDS {
            let root = live.memory_root();
            let excess = |id: CgroupId| {
                let cgroup = &live.tree[id];
                let over = cgroup.memory_account.usage.saturating_sub(cgroup.memory.soft_limit);
                over.min(cgroup.memory_account.local.file())
            };
            let worst = live.tree.subtree(root).iter().copied().max_by_key(|&id| excess(id));
            let Some((id, pages)) = worst.map(|id| (id, excess(id).min(left))) else { break };
            if pages == 0 {
                break;
            }
            self.evict(live, id, pages, reason);
            left -= pages;
        }
        wanted - left
    }
}

#[inline]
fn count_scan(live: &mut Population, id: CgroupId, scanned: u64, stolen: u64, reason: Reason) {
    live.count(id, |counters| match reason {
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

fn scale(value: u64, numerator: u64, denominator: u64) -> u64 {
    if let Some(product) = value.checked_mul(numerator) {
        return product / denominator.max(1);
    }
    let product = u128::from(value) * u128::from(numerator) / u128::from(denominator.max(1));
    u64::try_from(product).unwrap_or(u64::MAX)
}
