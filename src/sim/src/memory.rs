//! Memory: touching, charging, and shortage.
//!
//! **Terms.** A *charge* is a page that counts for the cgroup of its process at the first touch, and for
//! every ancestor; it stays when the process moves. *Anonymous* pages can be reclaimed only with swap.
//! *File* pages can: the inactive ones (read once, not missed) before the active ones (read all the time,
//! so they refault). Stacks and locked pages cannot.
//!
//! **Algorithm.** In each step an awake process touches missing memory of its load at the load's speed. A
//! charge beyond a `memory.max` on the way up reclaims below that cgroup first; if that is not enough, its
//! largest process is killed. A charge beyond `memory.high` succeeds, reclaims, and may put the process to
//! sleep: 64 s × overage² for each 64 pages, at most 2 s at a time, nothing below 10 ms (mm/memcontrol.c,
//! `calculate_high_delay`, `mem_cgroup_handle_over_high`). A host without free memory reclaims everywhere
//! and finally kills the largest process of all.
//!
//! **Throughput.** An awake process touches its anonymous memory and its hot files at the speed `v` of its
//! load. With a missing part `m` and a cost of `c` seconds per miss, one thread is awake `1 / (1 + v·m·c)`
//! of the time: its work is a function of its memory.
//!
//! **Properties.** `memory.current` never exceeds `memory.max` after a step; the host's pages sum to its
//! memory; anonymous pages are freed only with their process (`tests/sim/memory.rs`).

use super::account::{Kind, MemoryCounters, MemoryEvents, Pages};
use super::controller::Controller;
use super::kernel::SimKernel;
use super::parse::PAGE_BYTES;
use super::process::{Lack, Process};
use super::rates::whole_and_rest;
use super::tree::{Cgroup, CgroupId};

/// Pages charged in one go: `MEMCG_CHARGE_BATCH`.
const CHARGE_BATCH_PAGES: f64 = 64.0;

/// Sleep for each batch at an overage of 1: HZ × 2^20 × 2^20 >> 20 >> 14, in seconds.
const HIGH_DELAY_SEC: f64 = 64.0;

/// Longest single sleep, and the shortest that is applied.
const HIGH_DELAY_MAX_SEC: f64 = 2.0;
const HIGH_DELAY_MIN_SEC: f64 = 0.01;

const DISK_PAGES_PER_SEC: f64 = (2_u64 << 30) as f64 / PAGE_BYTES as f64;

/// Scanning speed of a process that must reclaim: 4 GiB/s.
const RECLAIM_PAGES_PER_SEC: f64 = (4_u64 << 30) as f64 / PAGE_BYTES as f64;

/// Kernel memory of a thread: its stack of 16 KiB.
const KERNEL_PAGES_PER_THREAD: u64 = 4;

impl SimKernel {
    pub(super) fn memory_hierarchy(&self) -> usize {
        self.tree.home(Controller::Memory).unwrap_or(0)
    }

    pub(super) fn memory_root(&self) -> CgroupId {
        self.tree.hierarchies[self.memory_hierarchy()].root
    }

    #[inline]
    pub(super) fn memory_cgroup(&self, process: &Process) -> CgroupId {
        self.tree.effective(process.cgroups[self.memory_hierarchy()], Controller::Memory)
    }

    /// File cache of the cgroup `path` and below that was read once and is not missed, in bytes.
    pub fn cold_cache_bytes(&self, path: &str) -> Option<u64> {
        let id = self.find(self.memory_root(), path)?;
        Some(self.pages_below(id).of(Kind::InactiveFile) * PAGE_BYTES)
    }

    pub(super) fn free_pages(&self) -> u64 {
        self.free_pages_beside(self.tree[self.memory_root()].memory_account.usage)
    }

    #[inline]
    fn free_pages_beside(&self, usage: u64) -> u64 {
        let used = self.kernel_pages() + usage + self.swap_memory_pages();
        self.total_pages().saturating_sub(used)
    }

    pub(super) fn total_pages(&self) -> u64 {
        self.host.memory_bytes / PAGE_BYTES
    }

    /// Memory of the kernel itself: one page in 64.
    fn kernel_pages(&self) -> u64 {
        self.total_pages() / 64
    }

    /// Free pages below which a charge must reclaim first: one page in 256.
    pub(super) fn reserve_pages(&self) -> u64 {
        self.total_pages() / 256
    }

    /// Touches memory for `dt_nsec` in every process. Returns true if that was quiet ([`super::quiet`]).
    pub(super) fn touch_memory(&mut self, dt_nsec: u64) -> bool {
        let dt_sec = dt_nsec as f64 * 1e-9;
        let mut is_quiet = !self.reclaim_in_background();
        let mut place = 0;
        while let Some(pid) = self.processes.pid_at(place) {
            is_quiet &= self.touch_all_of(pid, dt_nsec, dt_sec);
            // Touching may kill processes, including this one.
            place = self.processes.place_after(pid, place);
        }
        is_quiet
    }

    /// Touches memory of one process. Returns true if it had all and waited for nothing.
    fn touch_all_of(&mut self, pid: u32, dt_nsec: u64, dt_sec: f64) -> bool {
        let Some(process) = self.processes.get_mut(&pid) else { return true };
        let ratios = |stall: &super::process::Stall| (stall.memory_ratio, stall.io_ratio);
        let before = ratios(&process.stall);
        process.stall.pay(dt_sec, process.load.threads);
        self.has_rates &= before == ratios(&process.stall);
        process.go_over(dt_nsec, 1);
        let (is_over, lack) = (process.stall.is_over(), process.lack());
        if lack == Lack::default() {
            return is_over;
        }
        if lack.locked {
            self.touch_locked(pid, dt_sec);
        }
        // Pages that swap takes meanwhile count as present.
        if lack.anon {
            self.touch_anon(pid, dt_sec);
        }
        self.swap_in(pid, dt_sec);
        self.touch_files(pid, dt_sec);
        false
    }

    fn touch_anon(&mut self, pid: u32, dt_sec: f64) {
        let Some(process) = self.processes.get(&pid) else { return };
        let (pages, target) = (process.pages(), process.load.working_set_bytes / PAGE_BYTES);
        let have = pages.of(Kind::Anon) + pages.of(Kind::Swapped);
        if have > target {
            let of_swap = pages.of(Kind::Swapped).min(have - target);
            self.free(pid, Kind::Swapped, of_swap);
            self.free(pid, Kind::Anon, have - target - of_swap);
        } else if have < target {
            let pages = self.touched(pid, Kind::Anon, dt_sec, 1.0).min(target - have);
            self.charge(pid, Kind::Anon, pages);
        }
    }

    fn touch_locked(&mut self, pid: u32, dt_sec: f64) {
        let Some(process) = self.processes.get(&pid) else { return };
        let have = process.pages().of(Kind::Locked);
        let target = process.load.locked_bytes / PAGE_BYTES;
        if have > target {
            self.free(pid, Kind::Locked, have - target);
        } else if have < target {
            let pages = self.touched(pid, Kind::Locked, dt_sec, 1.0).min(target - have);
            self.charge(pid, Kind::Locked, pages);
        }
    }

    fn touch_files(&mut self, pid: u32, dt_sec: f64) {
        let Some(process) = self.processes.get(&pid) else { return };
        let (hot, have) = (process.load.hot_file_bytes / PAGE_BYTES, process.pages());
        let seen = process.hot_pages_seen.min(hot);
        let missing = hot.saturating_sub(have.of(Kind::ActiveFile));
        if missing > 0 {
            // The first pass reads from end to end; later reads are random, and miss in proportion.
            let miss_ratio = if seen < hot { 1.0 } else { missing as f64 / hot as f64 };
            let pages = self.touched(pid, Kind::ActiveFile, dt_sec, miss_ratio).min(missing);
            let read = self.read_files(pid, Kind::ActiveFile, pages, hot - seen);
            if let Some(process) = self.processes.get_mut(&pid) {
                process.hot_pages_seen = seen + read.min(hot - seen);
            }
        }
        let Some(process) = self.processes.get(&pid) else { return };
        let cache = process.load.cache_bytes / PAGE_BYTES;
        // Pages read once are not missed.
        let seen = process.cold_pages_seen.min(cache);
        if seen < cache {
            let pages = self.touched(pid, Kind::InactiveFile, dt_sec, 1.0).min(cache - seen);
            let read = self.read_files(pid, Kind::InactiveFile, pages, u64::MAX);
            if let Some(process) = self.processes.get_mut(&pid) {
                process.cold_pages_seen = seen + read;
                process.read_bytes += read * PAGE_BYTES;
            }
        }
    }

    pub(super) fn touched(&mut self, pid: u32, kind: Kind, dt_sec: f64, ratio: f64) -> u64 {
        let Some(process) = self.processes.get_mut(&pid) else { return 0 };
        let speed = process.load.touch_bytes_per_sec as f64 / PAGE_BYTES as f64;
        let remainder = &mut process.touch_remainder[kind as usize];
        let pages = speed * dt_sec * ratio * process.stall.awake_ratio() + *remainder;
        let (whole, rest) = whole_and_rest(pages);
        *remainder = rest;
        whole
    }

    /// Reads up to `wanted` pages of files, the first `unseen` for the first time; returns the number read.
    /// The process sleeps meanwhile; refaults count as memory stalls.
    fn read_files(&mut self, pid: u32, kind: Kind, wanted: u64, unseen: u64) -> u64 {
        let Some(process) = self.processes.get(&pid) else { return 0 };
        if wanted == 0 {
            return 0;
        }
        let id = self.memory_cgroup(process);
        let count = |counters: &mut MemoryCounters, read: u64| {
            counters.refault_file += read.saturating_sub(unseen);
            counters.major_fault += read;
        };
        let is_scarce = !self.fits(id, wanted);
        let read = if is_scarce {
            self.charge_scarce(pid, id, kind, wanted)
        } else {
            self.book(pid, id, kind, wanted, |counters| {
                counters.fault += wanted;
                count(counters, wanted);
            });
            wanted
        };
        // The charge may have killed the process.
        let Some(process) = self.processes.get_mut(&pid) else { return read };
        let refaults = read.saturating_sub(unseen);
        process.disk_read_bytes += read * PAGE_BYTES;
        process.refault_bytes += refaults * PAGE_BYTES;
        process.stall.io_sec += (read - refaults) as f64 / DISK_PAGES_PER_SEC;
        process.stall.memory_sec += refaults as f64 / DISK_PAGES_PER_SEC;
        if is_scarce {
            self.count(id, |counters| count(counters, read));
        }
        read
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

    /// Charges up to `wanted` pages for a process; returns the number charged.
    ///
    /// Reclaims, throttles and kills by the limits on the way up.
    pub(super) fn charge(&mut self, pid: u32, kind: Kind, wanted: u64) -> u64 {
        let Some(process) = self.processes.get(&pid) else { return 0 };
        if wanted == 0 {
            return 0;
        }
        let id = self.memory_cgroup(process);
        if self.fits(id, wanted) {
            self.book(pid, id, kind, wanted, |counters| counters.fault += wanted);
            return wanted;
        }
        self.charge_scarce(pid, id, kind, wanted)
    }

    /// Charges up to `wanted` pages of `id` that do not fit without a reclaim.
    fn charge_scarce(&mut self, pid: u32, id: CgroupId, kind: Kind, wanted: u64) -> u64 {
        let (mut granted, mut refusing) = (wanted, None);
        let mut next = Some(id);
        while let Some(above) = next {
            let room = self.room_below_max(pid, above, granted);
            if room < granted {
                (granted, refusing) = (room, Some(above));
            }
            next = self.tree[above].parent;
        }
        let host_room = self.room_on_host(pid, granted);
        if host_room < granted {
            (granted, refusing) = (host_room, Some(self.memory_root()));
        }
        self.book(pid, id, kind, granted, |counters| counters.fault += granted);
        if let Some(limit) = refusing {
            self.out_of_memory(limit);
        } else {
            self.hold_to_high(pid, id, granted);
        }
        granted
    }

    /// True if `wanted` more pages of `id` fit without a reclaim: on the host, and below each limit on the
    /// way up.
    fn fits(&self, id: CgroupId, wanted: u64) -> bool {
        let mut next = Some(id);
        let mut usage = 0;
        while let Some(id) = next {
            let Cgroup { memory, memory_account, parent, .. } = &self.tree[id];
            (usage, next) = (memory_account.usage, *parent);
            if usage + wanted > memory.max.min(memory.high) {
                return false;
            }
        }
        wanted + self.reserve_pages() <= self.free_pages_beside(usage)
    }

    /// Number of `wanted` pages that fit under the `memory.max` of `id`, after reclaim.
    fn room_below_max(&mut self, pid: u32, id: CgroupId, wanted: u64) -> u64 {
        let (max, usage) = (self.tree[id].memory.max, self.tree[id].memory_account.usage);
        // The whole excess: threads charge their stacks even without room.
        let excess = (usage + wanted).saturating_sub(max);
        if excess > 0 {
            self.raise(id, |events| events.max += batches(excess));
            self.tree[id].memory_account.failcnt += batches(excess);
            self.reclaim_for(pid, id, excess);
        }
        max.saturating_sub(self.tree[id].memory_account.usage)
    }

    /// Number of `wanted` pages that fit on the host, after reclaim.
    fn room_on_host(&mut self, pid: u32, wanted: u64) -> u64 {
        let missing = (wanted + self.reserve_pages()).saturating_sub(self.free_pages());
        if missing > 0 {
            self.reclaim_for(pid, self.memory_root(), missing);
        }
        self.free_pages()
    }

    /// Reclaims on behalf of a process, which sleeps meanwhile.
    fn reclaim_for(&mut self, pid: u32, id: CgroupId, wanted: u64) {
        let written = |kernel: &Self| kernel.tree[id].memory_account.counters.swap_out;
        let scanned = |kernel: &Self| kernel.tree[id].memory_account.counters.scan_direct;
        let before = (written(self), scanned(self));
        self.reclaim(id, wanted, super::reclaim::Reason::Direct);
        let (written, scanned) = (written(self) - before.0, scanned(self) - before.1);
        let out_sec = self.host.swap.map_or(0.0, |swap| swap.out_sec(written));
        if let Some(process) = self.processes.get_mut(&pid) {
            process.stall.memory_sec += scanned as f64 / RECLAIM_PAGES_PER_SEC + out_sec;
        }
    }

    /// Reclaims down to each `memory.high` on the way up, and puts a process that still exceeds one to sleep.
    fn hold_to_high(&mut self, pid: u32, id: CgroupId, granted: u64) {
        let mut delay_sec: f64 = 0.0;
        let mut next = Some(id);
        while let Some(id) = next {
            next = self.tree[id].parent;
            let (high, usage) = (self.tree[id].memory.high, self.tree[id].memory_account.usage);
            if usage <= high {
                continue;
            }
            self.raise(id, |events| events.high += batches(granted.min(usage - high)));
            self.reclaim_for(pid, id, usage - high);
            let over = self.tree[id].memory_account.usage.saturating_sub(high);
            let overage = over as f64 / high.max(1) as f64;
            let batches = granted as f64 / CHARGE_BATCH_PAGES;
            delay_sec = delay_sec.max(overage * overage * HIGH_DELAY_SEC * batches);
        }
        if delay_sec > HIGH_DELAY_MIN_SEC
            && let Some(process) = self.processes.get_mut(&pid)
        {
            let owed = process.stall.memory_sec + delay_sec.min(HIGH_DELAY_MAX_SEC);
            process.stall.memory_sec = owed.min(HIGH_DELAY_MAX_SEC);
        }
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

    /// Sets the kernel memory of a process by its number of threads.
    ///
    /// It reclaims like any charge. If that is not enough, a real kernel refuses the thread; here the limit
    /// is exceeded until the next charge.
    pub(super) fn charge_threads(&mut self, pid: u32) {
        let Some(process) = self.processes.get(&pid) else { return };
        let target = u64::from(process.load.threads) * KERNEL_PAGES_PER_THREAD;
        let have = process.pages().of(Kind::Kernel);
        if have > target {
            self.free(pid, Kind::Kernel, have - target);
        } else if have < target {
            let id = self.memory_cgroup(&self.processes[&pid]);
            let mut next = Some(id);
            while let Some(above) = next {
                self.room_below_max(pid, above, target - have);
                next = self.tree[above].parent;
            }
            self.book(pid, id, Kind::Kernel, target - have, |_| {});
        }
    }

    /// Frees the anonymous memory of a process that ends; file pages stay without an owner.
    pub(super) fn release_memory(&mut self, pid: u32, process: &Process) {
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
    pub(super) fn reparent_memory(&mut self, id: CgroupId) {
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

/// Number of charge batches for `pages`.
fn batches(pages: u64) -> u64 {
    pages.div_ceil(CHARGE_BATCH_PAGES as u64)
}
