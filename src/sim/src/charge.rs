//! Charges of memory, and shortage.
//!
//! **Algorithm.** A charge beyond a `memory.max` on the way up reclaims below that cgroup first; if that is
//! not enough, its largest process is killed. A charge beyond `memory.high` succeeds, reclaims, and may put
//! the process to sleep: 64 s × overage² for each 64 pages, at most 2 s at a time, nothing below 10 ms
//! (mm/memcontrol.c, `calculate_high_delay`, `mem_cgroup_handle_over_high`). A host without free memory
//! reclaims everywhere and finally kills the largest process of all.
//!
//! **Properties.** `memory.current` never exceeds `memory.max` after a step; the host's pages sum to its
//! memory; anonymous pages are freed only with their process (`tests/sim/memory.rs`).

use super::account::Kind;
use super::memory::Memory;
use super::parse::PAGE_BYTES;
use super::population::Population;
use super::reclaim::Reason;
use super::tree::{Cgroup, CgroupId};
use super::workload::Load;

/// Pages charged in one go: `MEMCG_CHARGE_BATCH`.
const CHARGE_BATCH_PAGES: f64 = 64.0;

/// Sleep for each batch at an overage of 1: HZ × 2^20 × 2^20 >> 20 >> 14, in seconds.
const HIGH_DELAY_SEC: f64 = 64.0;

/// Longest single sleep, and the shortest that is applied.
const HIGH_DELAY_MAX_SEC: f64 = 2.0;
const HIGH_DELAY_MIN_SEC: f64 = 0.01;

/// Scanning speed of a process that must reclaim: 4 GiB/s.
const RECLAIM_PAGES_PER_SEC: f64 = (4_u64 << 30) as f64 / PAGE_BYTES as f64;

/// Kernel memory of a thread: its stack of 16 KiB.
const KERNEL_PAGES_PER_THREAD: u64 = 4;

impl Memory {
    /// Applies a load: its number of threads, and their kernel memory.
    pub(super) fn apply_load(&mut self, live: &mut Population, pid: u32, load: Load) {
        live.set_load(pid, load);
        self.charge_threads(live, pid);
    }

    /// Charges up to `wanted` pages for a process; returns the number charged.
    ///
    /// Reclaims, throttles and kills by the limits on the way up.
    pub(super) fn charge(
        &mut self,
        live: &mut Population,
        pid: u32,
        kind: Kind,
        wanted: u64,
    ) -> u64 {
        let Some(process) = live.processes.get(&pid) else { return 0 };
        if wanted == 0 {
            return 0;
        }
        let id = live.memory_cgroup(process);
        if self.fits(live, id, wanted) {
            live.book(pid, id, kind, wanted, |counters| counters.fault += wanted);
            return wanted;
        }
        self.charge_scarce(live, pid, id, kind, wanted)
    }

    /// Charges up to `wanted` pages of `id` that do not fit without a reclaim.
    fn charge_scarce(
        &mut self,
        live: &mut Population,
        pid: u32,
        id: CgroupId,
        kind: Kind,
        wanted: u64,
    ) -> u64 {
        let (mut granted, mut refusing) = (wanted, None);
        let mut next = Some(id);
        while let Some(above) = next {
            let room = self.room_below_max(live, pid, above, granted);
            if room < granted {
                (granted, refusing) = (room, Some(above));
            }
            next = live.tree[above].parent;
        }
        let host_room = self.room_on_host(live, pid, granted);
        if host_room < granted {
            (granted, refusing) = (host_room, Some(live.memory_root()));
        }
        live.book(pid, id, kind, granted, |counters| counters.fault += granted);
        if let Some(limit) = refusing {
            live.out_of_memory(limit, self.total_pages + self.swap_slots());
        } else {
            self.hold_to_high(live, pid, id, granted);
        }
        granted
    }

    /// True if `wanted` more pages of `id` fit without a reclaim: on the host, and below each limit on the
    /// way up.
    fn fits(&self, live: &Population, id: CgroupId, wanted: u64) -> bool {
        let mut next = Some(id);
        let mut usage = 0;
        while let Some(id) = next {
            let Cgroup { memory, memory_account, parent, .. } = &live.tree[id];
            (usage, next) = (memory_account.usage, *parent);
            if usage + wanted > memory.max.min(memory.high) {
                return false;
            }
        }
        wanted + self.reserve_pages() <= self.free_pages_beside(live, usage)
    }

    /// Number of `wanted` pages that fit under the `memory.max` of `id`, after reclaim.
    fn room_below_max(
        &mut self,
        live: &mut Population,
        pid: u32,
        id: CgroupId,
        wanted: u64,
    ) -> u64 {
        let (max, usage) = (live.tree[id].memory.max, live.tree[id].memory_account.usage);
        // The whole excess: threads charge their stacks even without room.
        let excess = (usage + wanted).saturating_sub(max);
        if excess > 0 {
            live.raise(id, |events| events.max += batches(excess));
            live.tree[id].memory_account.failcnt += batches(excess);
            self.reclaim_for(live, pid, id, excess);
        }
        max.saturating_sub(live.tree[id].memory_account.usage)
    }

    /// Number of `wanted` pages that fit on the host, after reclaim.
    fn room_on_host(&mut self, live: &mut Population, pid: u32, wanted: u64) -> u64 {
        let missing = (wanted + self.reserve_pages()).saturating_sub(self.free_pages(live));
        if missing > 0 {
            self.reclaim_for(live, pid, live.memory_root(), missing);
        }
        self.free_pages(live)
    }

    /// Reclaims on behalf of a process, which sleeps meanwhile.
    fn reclaim_for(&mut self, live: &mut Population, pid: u32, id: CgroupId, wanted: u64) {
        let before = live.tree[id].memory_account.counters;
        self.reclaim(live, id, wanted, Reason::Direct);
        let after = &live.tree[id].memory_account.counters;
        let written = after.swap_out - before.swap_out;
        let scanned = after.scan_direct - before.scan_direct;
        let out_sec = self.swap.map_or(0.0, |swap| swap.out_sec(written));
        if let Some(process) = live.processes.get_mut(&pid) {
            process.stall.memory_sec += scanned as f64 / RECLAIM_PAGES_PER_SEC + out_sec;
        }
    }

    /// Reclaims down to each `memory.high` on the way up, and puts a process that still exceeds one to sleep.
    fn hold_to_high(&mut self, live: &mut Population, pid: u32, id: CgroupId, granted: u64) {
        let mut delay_sec: f64 = 0.0;
        let mut next = Some(id);
        while let Some(id) = next {
            next = live.tree[id].parent;
            let (high, usage) = (live.tree[id].memory.high, live.tree[id].memory_account.usage);
            if usage <= high {
                continue;
            }
            live.raise(id, |events| events.high += batches(granted.min(usage - high)));
            self.reclaim_for(live, pid, id, usage - high);
            let over = live.tree[id].memory_account.usage.saturating_sub(high);
            let overage = over as f64 / high.max(1) as f64;
            let batches = granted as f64 / CHARGE_BATCH_PAGES;
            delay_sec = delay_sec.max(overage * overage * HIGH_DELAY_SEC * batches);
        }
        if delay_sec > HIGH_DELAY_MIN_SEC
            && let Some(process) = live.processes.get_mut(&pid)
        {
            let owed = process.stall.memory_sec + delay_sec.min(HIGH_DELAY_MAX_SEC);
            process.stall.memory_sec = owed.min(HIGH_DELAY_MAX_SEC);
        }
    }

    /// Sets the kernel memory of a process by its number of threads.
    ///
    /// It reclaims like any charge. If that is not enough, a real kernel refuses the thread; here the limit
    /// is exceeded until the next charge.
    fn charge_threads(&mut self, live: &mut Population, pid: u32) {
        let Some(process) = live.processes.get(&pid) else { return };
        let target = u64::from(process.load.threads) * KERNEL_PAGES_PER_THREAD;
        let have = process.pages().of(Kind::Kernel);
        if have > target {
            live.free(pid, Kind::Kernel, have - target);
        } else if have < target {
            let id = live.memory_cgroup(&live.processes[&pid]);
            let mut next = Some(id);
            while let Some(above) = next {
                self.room_below_max(live, pid, above, target - have);
                next = live.tree[above].parent;
            }
            live.book(pid, id, Kind::Kernel, target - have, |_| {});
        }
    }
}

/// Number of charge batches for `pages`.
fn batches(pages: u64) -> u64 {
    pages.div_ceil(CHARGE_BATCH_PAGES as u64)
}
