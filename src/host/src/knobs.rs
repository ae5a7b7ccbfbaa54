//! The table of knobs on a machine: the tree, the files and the property of each.
//!
//! [`TABLE`] has one [`Row`] for each row of [`tenantd_control::words::knob::TABLE`]. The files of a cgroup, the
//! properties of a unit, the writes of the agent and the simulated systemd use these columns; the simulated
//! kernel has a list of its own, so that a wrong name here fails in a test.
//!
//! A row has the value in one file of each hierarchy. In cgroup v1 others may have to be written before it: the
//! last one has the value. The texts follow from the unit of the knob (`crate::cgroup::dialect` and
//! [`crate::systemd::property`]).

use serde::{Deserialize, Serialize};

use crate::cgroup::mount::Facet;
use tenantd_control::words::knob::Knob;

/// The v1 file with the period of a quota.
pub const LEGACY_PERIOD: &str = "cpu.cfs_period_us";
/// The v1 file with a quota.
pub const LEGACY_QUOTA: &str = "cpu.cfs_quota_us";

/// A property of a unit, under its name on the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are systemd's own: systemd.resource-control(5)")]
pub enum Property {
    #[serde(rename = "CPUWeight")]
    CpuWeight,
    #[serde(rename = "CPUQuotaPerSecUSec")]
    CpuQuotaPerSecUsec,
    #[serde(rename = "MemoryMin")]
    MemoryMin,
    #[serde(rename = "MemoryLow")]
    MemoryLow,
    #[serde(rename = "MemoryHigh")]
    MemoryHigh,
    #[serde(rename = "MemoryMax")]
    MemoryMax,
    #[serde(rename = "TasksMax")]
    TasksMax,
    #[serde(rename = "AllowedCPUs")]
    AllowedCpus,
    #[serde(rename = "IOWeight")]
    IoWeight,
    #[serde(rename = "IOReadBandwidthMax")]
    IoReadBandwidthMax,
    #[serde(rename = "IOWriteBandwidthMax")]
    IoWriteBandwidthMax,
    #[serde(rename = "IOReadIOPSMax")]
    IoReadIopsMax,
    #[serde(rename = "IOWriteIOPSMax")]
    IoWriteIopsMax,
}

/// Danger of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hazard {
    /// None.
    None,
    /// Below the memory that cannot be reclaimed the kernel kills: checked before each write.
    Kills,
    /// The write lasts until the kernel has reclaimed: another thread waits for it, and systemd is bypassed.
    Blocks,
    /// Systemd writes another value than its property says ([`crate::systemd::Setting::for_bfq`]): the file of a unit is written after it.
    Compressed,
}

/// Place of a knob on a machine.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    knob: Knob,
    /// Tree with its files.
    pub facet: Facet,
    /// File in cgroup v2.
    pub unified: &'static str,
    /// Files in cgroup v1, in the order of writing; empty if it has none.
    pub legacy: &'static [&'static str],
    /// Property of a unit.
    pub property: Property,
    /// Name of the property on the bus, and in files.
    pub(crate) names: [&'static str; 2],
    /// Danger of writing it.
    pub hazard: Hazard,
}

const fn row(
    knob: Knob,
    facet: Facet,
    unified: &'static str,
    legacy: &'static [&'static str],
    property: (Property, &'static str),
) -> Row {
    let (property, name) = property;
    Row { knob, facet, unified, legacy, property, names: [name; 2], hazard: Hazard::None }
}

impl Row {
    const fn key(self, key: &'static str) -> Row {
        Row { names: [self.names[0], key], ..self }
    }

    const fn hazard(self, hazard: Hazard) -> Row {
        Row { hazard, ..self }
    }

    /// True if `file` has its value in one of the hierarchies.
    pub fn is_in(&self, file: &str) -> bool {
        [Some(&self.unified), self.legacy.last()].into_iter().flatten().any(|name| *name == file)
    }
}

/// Number of properties.
const PROPERTIES: usize = Property::IoWriteIopsMax as usize + 1;

/// True if a file has a value in each line, which the kernel takes one at a time.
pub fn is_by_line(file: &str) -> bool {
    TABLE.iter().any(|row| row.facet == Facet::Io && row.unified == file)
}

/// File with the limits of all rates, in cgroup v2.
const IO_MAX: &str = "io.max";

/// One row for each knob, in the order of [`Knob::ALL`].
const TABLE: [Row; Knob::ALL.len()] = {
    use Facet::{Cpu, Cpuset, Io, Memory, Pids};
    use Property::*;
    let table = [
        row(Knob::CpuWeight, Cpu, "cpu.weight", &["cpu.shares"], (CpuWeight, "CPUWeight")),
        row(
            Knob::CpuMax,
            Cpu,
            "cpu.max",
            &[LEGACY_PERIOD, LEGACY_QUOTA],
            (CpuQuotaPerSecUsec, "CPUQuotaPerSecUSec"),
        )
        .key("CPUQuota"),
        row(Knob::MemoryMin, Memory, "memory.min", &[], (MemoryMin, "MemoryMin")),
        row(
            Knob::MemoryLow,
            Memory,
            "memory.low",
            &["memory.soft_limit_in_bytes"],
            (MemoryLow, "MemoryLow"),
        ),
        row(Knob::MemoryHigh, Memory, "memory.high", &[], (MemoryHigh, "MemoryHigh"))
            .hazard(Hazard::Blocks),
        row(
            Knob::MemoryMax,
            Memory,
            "memory.max",
            &["memory.limit_in_bytes"],
            (MemoryMax, "MemoryMax"),
        )
        .hazard(Hazard::Kills),
        row(Knob::PidsMax, Pids, "pids.max", &["pids.max"], (TasksMax, "TasksMax")),
        row(Knob::Cpus, Cpuset, "cpuset.cpus", &["cpuset.cpus"], (AllowedCpus, "AllowedCPUs")),
        row(Knob::DiskWeight, Io, "io.weight", &[], (IoWeight, "IOWeight")),
        row(
            Knob::DiskReadMax,
            Io,
            IO_MAX,
            &["blkio.throttle.read_bps_device"],
            (IoReadBandwidthMax, "IOReadBandwidthMax"),
        ),
        row(
            Knob::DiskWriteMax,
            Io,
            IO_MAX,
            &["blkio.throttle.write_bps_device"],
            (IoWriteBandwidthMax, "IOWriteBandwidthMax"),
        ),
        row(
            Knob::DiskReadIopsMax,
            Io,
            IO_MAX,
            &["blkio.throttle.read_iops_device"],
            (IoReadIopsMax, "IOReadIOPSMax"),
        ),
        row(
            Knob::DiskWriteIopsMax,
            Io,
            IO_MAX,
            &["blkio.throttle.write_iops_device"],
            (IoWriteIopsMax, "IOWriteIOPSMax"),
        ),
        row(Knob::BfqWeight, Io, "io.bfq.weight", &["blkio.bfq.weight"], (IoWeight, "IOWeight"))
            .hazard(Hazard::Compressed),
    ];
    let mut index = 0;
    while index < table.len() {
        let Row { knob, property, .. } = table[index];
        assert!(knob as usize == index, "the table has the order of the variants");
        // Knobs after the last property follow one that has it.
        assert!(property as usize == index || index >= PROPERTIES, "both have this order");
        index += 1;
    }
    table
};

/// The row of `knob`.
pub fn row_of(knob: Knob) -> &'static Row {
    &TABLE[knob as usize]
}

/// True if a low value in this file of cgroup v2 kills processes. In v1 the kernel refuses it.
pub fn kills(file: &str) -> bool {
    TABLE.iter().any(|row| row.hazard == Hazard::Kills && row.unified == file)
}

impl Property {
    /// All properties, in the order of the first knobs.
    pub const ALL: [Property; PROPERTIES] = {
        let mut all = [Property::CpuWeight; PROPERTIES];
        let mut index = 0;
        while index < all.len() {
            all[index] = TABLE[index].property;
            index += 1;
        }
        all
    };

    /// The property that sets `knob`.
    pub fn of(knob: Knob) -> Property {
        row_of(knob).property
    }

    /// The knob that this property sets.
    pub fn knob(self) -> Knob {
        TABLE[self as usize].knob
    }

    /// Name on the bus.
    pub fn name(self) -> &'static str {
        TABLE[self as usize].names[0]
    }

    /// Name in the files of a unit.
    pub(crate) fn key(self) -> &'static str {
        TABLE[self as usize].names[1]
    }
}
