//! Requests to disks: counters, rates, and the devices that have them.
//!
//! **Problem.** A stack of block devices (a partition, LVM, RAID, a loop) counts the same request at each of its levels, and a
//! machine may have a hundred disks.
//!
//! **Rules.** Only leaves count: the devices to which the kernel sends requests. Of these the [`DISKS_MAX`] busiest are
//! sampled (`tenantd_host::disks`). A tenant is charged for its reads, with readahead; for its writes where the kernel knows
//! their cgroup, which is the case for direct writes, and for buffered ones in cgroup v2 on file systems with cgroup
//! writeback. All other writes and the journal belong to no tenant.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use tenantd_core::disk_rate::DiskRate;
use tenantd_core::kernel_text::text_of;

/// Most devices of a sample.
pub const DISKS_MAX: usize = 4;

/// Number of a block device.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Device {
    /// Number of its driver.
    pub major: u32,
    /// Number among the devices of that driver.
    pub minor: u32,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// One value for each of a few devices, in the order of their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PerDisk<T>([Option<(Device, T)>; DISKS_MAX]);

impl<T: Copy> Default for PerDisk<T> {
    fn default() -> Self {
        PerDisk([None; DISKS_MAX])
    }
}

impl<T: Copy> PerDisk<T> {
    /// The first [`DISKS_MAX`] of `all`.
    pub fn of(all: impl IntoIterator<Item = (Device, T)>) -> PerDisk<T> {
        let mut disks = PerDisk::default();
        for (place, one) in disks.0.iter_mut().zip(all) {
            *place = Some(one);
        }
        disks.0.sort_unstable_by_key(|it| it.map_or((true, Device::default()), |it| (false, it.0)));
        disks
    }

    /// Value of a device.
    pub fn get(&self, device: Device) -> Option<T> {
        self.iter().find(|(it, _)| *it == device).map(|(_, value)| value)
    }

    /// Value of a device, to be changed.
    pub fn get_mut(&mut self, device: Device) -> Option<&mut T> {
        self.0.iter_mut().flatten().find(|(it, _)| *it == device).map(|(_, value)| value)
    }

    /// Each device with its value.
    pub fn iter(&self) -> impl Iterator<Item = (Device, T)> {
        self.0.iter().flatten().copied()
    }

    /// True without a device.
    pub fn is_empty(&self) -> bool {
        self.0[0].is_none()
    }

    /// Each value as `of` converts it; a device without a result is left out.
    pub fn filter_map<U: Copy>(&self, of: impl Fn(Device, T) -> Option<U>) -> PerDisk<U> {
        PerDisk::of(self.iter().filter_map(|(device, value)| Some((device, of(device, value)?))))
    }
}

impl PerDisk<DiskFlow> {
    /// Sums of both for each device.
    pub fn and(&self, other: &PerDisk<DiskFlow>) -> PerDisk<DiskFlow> {
        let own = self.iter().map(|(device, flow)| {
            (device, other.get(device).map_or(flow, |other| flow.and(other)))
        });
        let more = other.iter().filter(|(device, _)| self.get(*device).is_none());
        PerDisk::of(own.chain(more))
    }

    /// Requests to all devices within `elapsed`.
    pub fn counts(&self, elapsed: Duration) -> DiskCounts {
        let all = self.iter().map(|(_, flow)| flow).fold(DiskFlow::default(), DiskFlow::and);
        let count = |rate: f64| (rate * elapsed.as_secs_f64()).round() as u64;
        DiskCounts {
            read_bytes: count(all.read_bytes),
            written_bytes: count(all.written_bytes),
            reads: count(all.reads),
            writes: count(all.writes),
        }
    }
}

/// Requests to a device since its counters began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskCounts {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Read operations.
    pub reads: u64,
    /// Write operations.
    pub writes: u64,
}

impl DiskCounts {
    /// Adds the counts of `other`.
    pub fn add(&mut self, other: DiskCounts) {
        self.read_bytes = self.read_bytes.saturating_add(other.read_bytes);
        self.written_bytes = self.written_bytes.saturating_add(other.written_bytes);
        self.reads = self.reads.saturating_add(other.reads);
        self.writes = self.writes.saturating_add(other.writes);
    }

    /// Rates since `before`; `None` if a counter went backwards.
    pub fn flow(&self, before: &DiskCounts, elapsed: Duration) -> Option<DiskFlow> {
        let rate = |before: u64, now: u64| {
            Some(now.checked_sub(before)? as f64 / elapsed.as_secs_f64())
                .filter(|it| it.is_finite())
        };
        Some(DiskFlow {
            read_bytes: rate(before.read_bytes, self.read_bytes)?,
            written_bytes: rate(before.written_bytes, self.written_bytes)?,
            reads: rate(before.reads, self.reads)?,
            writes: rate(before.writes, self.writes)?,
        })
    }
}

/// Requests to a device per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskFlow {
    /// Bytes read.
    pub read_bytes: f64,
    /// Bytes written.
    pub written_bytes: f64,
    /// Read operations.
    pub reads: f64,
    /// Write operations.
    pub writes: f64,
}

impl DiskFlow {
    /// Sum of two flows.
    pub fn and(self, other: DiskFlow) -> DiskFlow {
        DiskFlow {
            read_bytes: self.read_bytes + other.read_bytes,
            written_bytes: self.written_bytes + other.written_bytes,
            reads: self.reads + other.reads,
            writes: self.writes + other.writes,
        }
    }

    /// The rate that a limit of this kind bounds.
    pub fn rate(&self, rate: DiskRate) -> f64 {
        match rate {
            DiskRate::Read => self.read_bytes,
            DiskRate::Write => self.written_bytes,
            DiskRate::ReadIops => self.reads,
            DiskRate::WriteIops => self.writes,
        }
    }

    /// Bytes per second in both directions.
    pub fn bytes(&self) -> f64 {
        self.read_bytes + self.written_bytes
    }

    /// Operations per second in both directions.
    pub fn operations(&self) -> f64 {
        self.reads + self.writes
    }

    /// Part of the work of `all`, 0 ..= 1, if operations cost half and bytes the other half.
    pub fn part_of(&self, all: &DiskFlow) -> f64 {
        let ratio = |part: f64, all: f64| if all > 0.0 { (part / all).min(1.0) } else { 0.0 };
        let parts = [(self.bytes(), all.bytes()), (self.operations(), all.operations())];
        parts.map(|(part, all)| ratio(part, all)).iter().sum::<f64>() / 2.0
    }
}

/// Requests per second to each device between two samples.
pub fn flows(
    before: Option<&PerDisk<DiskCounts>>,
    now: Option<&PerDisk<DiskCounts>>,
    elapsed: Duration,
) -> PerDisk<DiskFlow> {
    let Some((before, now)) = before.zip(now) else { return PerDisk::default() };
    now.filter_map(|device, counts| counts.flow(&before.get(device)?, elapsed))
}

/// Name of a device, as the kernel has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskName([u8; DiskName::MAX]);

impl DiskName {
    /// Most bytes of a name (`DISK_NAME_LEN` of the kernel).
    const MAX: usize = 32;

    /// The first bytes of `name`.
    pub fn of(name: &[u8]) -> DiskName {
        let mut bytes = [0; Self::MAX];
        bytes.iter_mut().zip(name).for_each(|(byte, of)| *byte = *of);
        DiskName(bytes)
    }
}

impl fmt::Display for DiskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = self.0.iter().position(|byte| *byte == 0).unwrap_or(Self::MAX);
        f.write_str(&text_of(&self.0[..length]))
    }
}

/// Counters of a device of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskSample {
    /// Its name.
    pub name: DiskName,
    /// Requests of all programs.
    pub counts: DiskCounts,
    /// Time with a request, in ms.
    pub busy_msec: u64,
    /// Sum of the times of all requests in the queue and in the device, in ms.
    pub queued_msec: u64,
}
