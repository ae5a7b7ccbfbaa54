//! Memory touched by processes.
//!
//! **Algorithm.** In each step an awake process touches missing memory of its load at the load's speed.
//! *Anonymous* pages can be reclaimed only with swap. *File* pages can: the inactive ones (read once, not
//! missed) before the active ones (read all the time, so they refault). Stacks and locked pages cannot.
//!
//! **Throughput.** An awake process touches its anonymous memory and its hot files at the speed `v` of its
//! load. With a missing part `m` and a cost of `c` seconds per miss, one thread is awake `1 / (1 + v·m·c)`
//! of the time: its work is a function of its memory.

use super::account::Kind;
use super::memory::Memory;
use super::parse::PAGE_BYTES;
use super::population::{Changed, Population};
use super::process::Lack;

const DISK_PAGES_PER_SEC: f64 = (2_u64 << 30) as f64 / PAGE_BYTES as f64;

impl Memory {
    /// Touches memory for `dt_nsec` in every process. Returns true if that was quiet: no process touched
    /// missing memory or owes sleep, and nothing was reclaimed.
    pub(super) fn touch(&mut self, live: &mut Population, dt_nsec: u64) -> bool {
        let dt_sec = dt_nsec as f64 * 1e-9;
        let mut is_quiet = !self.reclaim_in_background(live);
        let mut place = 0;
        while let Some(pid) = live.processes.pid_at(place) {
            is_quiet &= self.touch_all_of(live, pid, dt_nsec, dt_sec);
            // Touching may kill processes, including this one.
            place = live.processes.place_after(pid, place);
        }
        is_quiet
    }

    /// Touches memory of one process. Returns true if it had all and waited for nothing.
    fn touch_all_of(&mut self, live: &mut Population, pid: u32, dt_nsec: u64, dt_sec: f64) -> bool {
        let Some(process) = live.processes.get_mut(&pid) else { return true };
        let ratios = |stall: &super::process::Stall| (stall.memory_ratio, stall.io_ratio);
        let before = ratios(&process.stall);
        process.stall.pay(dt_sec, process.load.threads);
        if before != ratios(&process.stall) {
            live.changed = live.changed.max(Changed::Stalls);
        }
        process.go_over(dt_nsec, 1);
        let (is_over, lack) = (process.stall.is_over(), process.lack());
        if lack == Lack::default() {
            return is_over;
        }
        if lack.locked {
            self.touch_to(live, pid, Kind::Locked, dt_sec);
        }
        // Pages that swap takes meanwhile count as present.
        if lack.anon {
            self.touch_to(live, pid, Kind::Anon, dt_sec);
        }
        self.swap_in(live, pid, dt_sec);
        self.touch_files(live, pid, dt_sec);
        false
    }

    /// Touches pages of one kind of which the process wants `target`, some of them in swap.
    fn touch_to(&mut self, live: &mut Population, pid: u32, kind: Kind, dt_sec: f64) {
        let Some(process) = live.processes.get_mut(&pid) else { return };
        let (load, pages) = (&process.load, process.pages());
        let (bytes, swapped) = match kind {
            Kind::Locked => (load.locked_bytes, 0),
            _ => (load.working_set_bytes, pages.of(Kind::Swapped)),
        };
        let (have, target) = (pages.of(kind) + swapped, bytes / PAGE_BYTES);
        if have > target {
            let of_swap = swapped.min(have - target);
            live.free(pid, Kind::Swapped, of_swap);
            live.free(pid, kind, have - target - of_swap);
        } else if have < target {
            let pages = process.touched(kind, dt_sec, 1.0).min(target - have);
            self.charge(live, pid, kind, pages);
        }
    }

    fn touch_files(&mut self, live: &mut Population, pid: u32, dt_sec: f64) {
        let Some(process) = live.processes.get_mut(&pid) else { return };
        let (hot, have) = (process.load.hot_file_bytes / PAGE_BYTES, process.pages());
        let seen = process.hot_pages_seen.min(hot);
        let missing = hot.saturating_sub(have.of(Kind::ActiveFile));
        if missing > 0 {
            // The first pass reads from end to end; later reads are random, and miss in proportion.
            let miss_ratio = if seen < hot { 1.0 } else { missing as f64 / hot as f64 };
            let pages = process.touched(Kind::ActiveFile, dt_sec, miss_ratio).min(missing);
            let read = self.read_files(live, pid, Kind::ActiveFile, pages, hot - seen);
            if let Some(process) = live.processes.get_mut(&pid) {
                process.hot_pages_seen = seen + read.min(hot - seen);
            }
        }
        let Some(process) = live.processes.get_mut(&pid) else { return };
        let cache = process.load.cache_bytes / PAGE_BYTES;
        // Pages read once are not missed.
        let seen = process.cold_pages_seen.min(cache);
        if seen < cache {
            let pages = process.touched(Kind::InactiveFile, dt_sec, 1.0).min(cache - seen);
            let read = self.read_files(live, pid, Kind::InactiveFile, pages, u64::MAX);
            if let Some(process) = live.processes.get_mut(&pid) {
                process.cold_pages_seen = seen + read;
                process.read_bytes += read * PAGE_BYTES;
            }
        }
    }

    /// Reads up to `wanted` pages of files, the first `unseen` for the first time; returns the number read.
    /// The process sleeps meanwhile; refaults count as memory stalls.
    fn read_files(
        &mut self,
        live: &mut Population,
        pid: u32,
        kind: Kind,
        wanted: u64,
        unseen: u64,
    ) -> u64 {
        let Some(process) = live.processes.get(&pid) else { return 0 };
        if wanted == 0 {
            return 0;
        }
        let id = live.memory_cgroup(process);
        let read = self.charge(live, pid, kind, wanted);
        // The charge may have killed the process.
        let Some(process) = live.processes.get_mut(&pid) else { return read };
        let refaults = read.saturating_sub(unseen);
        process.disk_read_bytes += read * PAGE_BYTES;
        process.refault_bytes += refaults * PAGE_BYTES;
        process.stall.io_sec += (read - refaults) as f64 / DISK_PAGES_PER_SEC;
        process.stall.memory_sec += refaults as f64 / DISK_PAGES_PER_SEC;
        live.count(id, |counters| {
            counters.refault_file += refaults;
            counters.major_fault += read;
        });
        read
    }

    /// Reads touched pages back: `miss` of the accesses meet one in swap.
    fn swap_in(&mut self, live: &mut Population, pid: u32, dt_sec: f64) {
        let Some(swap) = self.swap else { return };
        let Some(process) = live.processes.get_mut(&pid) else { return };
        let pages = process.pages();
        let swapped = pages.of(Kind::Swapped);
        if swapped == 0 {
            return;
        }
        let miss_ratio = swapped as f64 / (swapped + pages.of(Kind::Anon)) as f64;
        let touched = process.touched(Kind::Swapped, dt_sec, miss_ratio).min(swapped);
        let read = self.charge(live, pid, Kind::Anon, touched);
        live.free(pid, Kind::Swapped, read);
        // The charge may have killed the process.
        let Some(process) = live.processes.get_mut(&pid) else { return };
        process.refault_bytes += read * PAGE_BYTES;
        process.stall.memory_sec += swap.in_sec(read);
        let id = live.memory_cgroup(&live.processes[&pid]);
        live.count(id, |counters| {
            counters.refault_anon += read;
            counters.major_fault += read;
        });
    }
}
