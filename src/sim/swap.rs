//! Swap: where anonymous pages go when reclaim takes them, and what it costs to bring them back.
//!
//! A page that is written out leaves the cgroup's `memory.current` for its `memory.swap.current` and is read
//! back when it is touched again, which is a refault. Both take time: of the process that has to reclaim, and
//! of the one that misses the page. Compressed memory is fast and takes part of the memory that it frees; a
//! disk is slow and takes none. `memory.swap.max` of the cgroup and of everything above bounds what goes out.

use super::account::Kind;
use super::kernel::SimKernel;
use super::parse::PAGE_BYTES;
use super::tree::CgroupId;

/// A place for anonymous pages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Swap {
    /// How much fits, as it was in memory.
    pub bytes: u64,
    /// How much can be written out in a second.
    pub out_bytes_per_sec: u64,
    /// How much can be read back in a second.
    pub in_bytes_per_sec: u64,
    /// What it takes of the memory of what is in it.
    pub memory_ratio: f64,
}

impl Swap {
    /// Compressed memory: a third of its size, at about the speed of lz4 and the faults around it.
    pub fn zram(bytes: u64) -> Swap {
        let memory_ratio = 1.0 / 3.0;
        Swap { bytes, out_bytes_per_sec: 1 << 30, in_bytes_per_sec: 1 << 30, memory_ratio }
    }

    /// A disk of a virtual machine.
    pub fn disk(bytes: u64) -> Swap {
        Swap { bytes, out_bytes_per_sec: 200 << 20, in_bytes_per_sec: 100 << 20, memory_ratio: 0.0 }
    }

    pub(super) fn out_sec(&self, pages: u64) -> f64 {
        (pages * PAGE_BYTES) as f64 / self.out_bytes_per_sec as f64
    }

    pub(super) fn in_sec(&self, pages: u64) -> f64 {
        (pages * PAGE_BYTES) as f64 / self.in_bytes_per_sec as f64
    }
}

impl SimKernel {
    /// Pages that fit into swap.
    pub(super) fn swap_slots(&self) -> u64 {
        self.host.swap.map_or(0, |swap| swap.bytes / PAGE_BYTES)
    }

    /// Pages in swap.
    pub(super) fn swapped_pages(&self) -> u64 {
        self.tree[self.memory_root()].memory_account.swapped
    }

    /// Pages of memory that hold what is in swap.
    pub(super) fn swap_memory_pages(&self) -> u64 {
        let ratio = self.host.swap.map_or(0.0, |swap| swap.memory_ratio);
        (self.swapped_pages() as f64 * ratio).ceil() as u64
    }

    /// How many pages of `id` could be written out now.
    pub(super) fn swap_room(&self, id: CgroupId) -> u64 {
        let free = self.swap_slots().saturating_sub(self.swapped_pages());
        let rooms = self.tree.lineage(id).map(|id| {
            self.tree[id].memory.swap_max.saturating_sub(self.tree[id].memory_account.swapped)
        });
        rooms.fold(free, u64::min)
    }

    /// Reads pages back that a process touches: `miss` of its accesses meet one that is in swap.
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
        // It may have been killed for them.
        let Some(process) = self.processes.get_mut(&pid) else { return };
        process.refault_bytes += read * PAGE_BYTES;
        process.stall.memory_sec += swap.in_sec(read);
        let id = self.memory_cgroup(&self.processes[&pid]);
        self.count(id, |counters| {
            counters.refault_anon += read;
            counters.major_fault += read;
        });
    }
}
