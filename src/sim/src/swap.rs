//! Swap: the target of reclaimed anonymous pages, and its costs.
//!
//! A page that is written out moves from the cgroup's `memory.current` to its `memory.swap.current`. It is read
//! back at the next touch, which is a refault. Both take time: of the process that reclaims, and of the one
//! that misses the page. Compressed memory is fast and uses part of the memory that it frees; a disk is slow
//! and uses none. `memory.swap.max` of the cgroup and of its ancestors bounds the pages written out.

use super::parse::PAGE_BYTES;

/// A swap device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Swap {
    /// Capacity, in bytes of uncompressed memory.
    pub bytes: u64,
    /// Writing speed.
    pub out_bytes_per_sec: u64,
    /// Reading speed.
    pub in_bytes_per_sec: u64,
    /// Memory used per byte of its contents.
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
