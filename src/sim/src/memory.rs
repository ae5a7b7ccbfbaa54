//! Memory of the host: its size, its reserve and its swap.

use super::host::SimHost;
use super::parse::PAGE_BYTES;
use super::population::Population;
use super::rates::rounded_up;
use super::swap::Swap;
use super::tree::CgroupId;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Protection {
    pub(super) min: u64,
    pub(super) low: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) id: CgroupId,
    /// Scanned amount, relative to other cgroups.
    pub(super) scanned: f64,
    pub(super) most: u64,
    pub(super) breaks_low: bool,
}

/// Lists of one reclaim, reused by the next: with little memory, each step has several reclaims.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    /// Indexed like the cgroups below the target; empty if nothing is protected.
    pub(super) protections: Vec<Option<Protection>>,
    pub(super) candidates: Vec<Candidate>,
}

#[derive(Debug)]
pub(super) struct Memory {
    pub(super) total_pages: u64,
    pub(super) swap: Option<Swap>,
    pub(super) has_generations: bool,
    pub(super) memory_recursiveprot: bool,
    /// True if the last reclaim skipped cgroups within `memory.low`, with generations.
    pub(super) has_passed_over: bool,
    pub(super) candidates: Candidates,
}

impl Memory {
    pub(super) fn new(host: &SimHost) -> Memory {
        Memory {
            total_pages: host.memory_bytes / PAGE_BYTES,
            swap: host.swap,
            has_generations: host.has_generations,
            memory_recursiveprot: host.memory_recursiveprot,
            has_passed_over: false,
            candidates: Candidates::default(),
        }
    }

    pub(super) fn free_pages(&self, live: &Population) -> u64 {
        self.free_pages_beside(live, live.tree[live.memory_root()].memory_account.usage)
    }

    /// Free pages beside `usage` of all cgroups; the kernel itself has one page in 64.
    #[inline]
    pub(super) fn free_pages_beside(&self, live: &Population, usage: u64) -> u64 {
        let used = self.total_pages / 64 + usage + self.swap_memory_pages(live);
        self.total_pages.saturating_sub(used)
    }

    /// Free pages below which a charge must reclaim first: one page in 256.
    pub(super) fn reserve_pages(&self) -> u64 {
        self.total_pages / 256
    }

    pub(super) fn swap_slots(&self) -> u64 {
        self.swap.map_or(0, |swap| swap.bytes / PAGE_BYTES)
    }

    pub(super) fn swapped_pages(&self, live: &Population) -> u64 {
        live.tree[live.memory_root()].memory_account.swapped
    }

    /// Pages of memory that hold the contents of swap.
    pub(super) fn swap_memory_pages(&self, live: &Population) -> u64 {
        self.swap.map_or(0, |swap| rounded_up(self.swapped_pages(live) as f64 * swap.memory_ratio))
    }

    /// Pages of `id` that could be written out now.
    pub(super) fn swap_room(&self, live: &Population, id: CgroupId) -> u64 {
        if self.swap.is_none() {
            return 0;
        }
        let free = self.swap_slots().saturating_sub(self.swapped_pages(live));
        if free == 0 {
            return 0;
        }
        let rooms = live.tree.lineage(id).map(|id| {
            live.tree[id].memory.swap_max.saturating_sub(live.tree[id].memory_account.swapped)
        });
        rooms.fold(free, u64::min)
    }
}
