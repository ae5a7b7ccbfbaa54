//! Swap: where anonymous pages go when reclaim takes them, and what it costs to bring them back.
//!
//! A page that is written out leaves the cgroup's `memory.current` for its `memory.swap.current` and is read
//! back when it is touched again, which is a refault. Both take time: of the process that has to reclaim, and
//! of the one that misses the page. Compressed memory is fast and takes part of the memory that it frees; a
//! disk is slow and takes none. `memory.swap.max` of the cgroup and of everything above bounds what goes out.

use super::parse::PAGE_BYTES;

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
