//! Disks of a simulated host: their schedulers, and seconds of work.

use tenantd_sim::{DiskWork, Divider};

pub(crate) const WEIGH: &str = "host: { disks: weigh }\n";
pub(crate) const BFQ: Divider =
    Divider { is_bfq: true, has_cost: false, is_strict: false, is_void: false, nr_choices: 0 };
pub(crate) const COST: Divider = Divider { has_cost: true, is_bfq: false, ..BFQ };
pub(crate) const DEADLINE: Divider = Divider { is_bfq: false, ..BFQ };

/// A second of a disk that does so many reads of 64 KiB, with this sum of waits in milliseconds.
pub(crate) const fn reads(count: u64, queued_msec: u64) -> DiskWork {
    DiskWork {
        reads: count,
        read_bytes: count * (64 << 10),
        busy_msec: 1000,
        queued_msec,
        written_bytes: 0,
        writes: 0,
    }
}
