//! Work of the disks in the types of the wire.

use serde::{Deserialize, Serialize};

use crate::measure::disk::DiskFlow;
use crate::measure::disks::DiskUse;
use tenantd_core::disk_rate::{DiskRate, PerRate};
use tenantd_policy::model::DiskLimits;

/// One disk in one tick, and its learned speed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DiskStatus {
    /// Name of the device.
    pub name: String,
    /// Requests of all programs.
    #[serde(flatten)]
    pub rates: DiskRates,
    /// Part of the interval with a request; a disk that serves several at a time may do more.
    pub busy_ratio: f64,
    /// Part of the device's time in use; absent until its speed is learned.
    pub time_ratio: Option<f64>,
    /// Part of the work that belongs to no tenant; absent if that of the tenants is not counted.
    pub outside_ratio: Option<f64>,
    /// Way in which it divides its time by weights, as in `bfq` or `io.cost`; absent if it does not, or the policy weighs no disk.
    pub divided_by: Option<String>,
    /// Bytes per second if operations cost nothing; absent until learned, or if bytes cost nothing.
    pub most_bytes_per_second: Option<f64>,
    /// Operations per second if bytes cost nothing; absent likewise.
    pub most_operations_per_second: Option<f64>,
}

/// Work of a tenant on one disk in one tick.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DiskUseStatus {
    /// Name of the device.
    pub disk: String,
    /// Its requests.
    #[serde(flatten)]
    pub rates: DiskRates,
    /// Part of the device's time; absent until its speed is learned.
    pub time_ratio: Option<f64>,
    /// Part of the work of all programs on the device.
    pub work_ratio: f64,
}

impl DiskUseStatus {
    /// Part of the device's time, or of its work until the speed is learned.
    pub fn ratio(&self) -> f64 {
        self.time_ratio.unwrap_or(self.work_ratio)
    }
}

/// Share of a tenant in the time of disks, where the policy weighs them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DiskShareStatus {
    /// Full disk for which tenants wait most, kept for a minute; absent without one.
    pub disk: Option<String>,
    /// Part of its time that the tenant could use now; absent without such a disk.
    pub demand_ratio: Option<f64>,
    /// Part of that disk that it gets now if it wants it, or without one of any disk.
    pub share_now_ratio: f64,
    /// Part of each disk while all tenants want all of it.
    pub share_if_busy_ratio: f64,
    /// Guaranteed part of each disk; absent without a guarantee.
    pub guarantee_ratio: Option<f64>,
    /// Way in which that disk or, without one, the most used disk divides its time; absent if it does not.
    pub divided_by: Option<String>,
    /// True if that disk counts for its CPU and memory.
    pub is_coupled: bool,
    /// True if weights have no effect on that disk or, without one, on the disk that it uses most.
    pub is_void: bool,
}

impl DiskShareStatus {
    /// The share for a sentence, as in `share now 75 % of sda, 60 % if busy, 20 % guaranteed`.
    pub fn shown(&self) -> String {
        let percent = |ratio: f64| format!("{:.0} %", ratio * 100.0);
        let of = self.disk.as_ref().map(|disk| format!(" of {disk}")).unwrap_or_default();
        let guarantee = self.guarantee_ratio.map(|part| format!(", {} guaranteed", percent(part)));
        let by = self.divided_by.as_ref().map(|way| format!(", divided by {way}"));
        let coupled = if self.is_coupled { ", divided with CPU and memory" } else { "" };
        let void = if self.is_void { "; void: weights are ineffective there" } else { "" };
        format!(
            "share now {}{of}, {} if busy{}{}{coupled}{void}",
            percent(self.share_now_ratio),
            percent(self.share_if_busy_ratio),
            guarantee.unwrap_or_default(),
            by.unwrap_or_default(),
        )
    }
}

/// Limits of requests to each disk; absent ones are not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DiskLimitStatus {
    /// Bytes read.
    pub read_bytes_per_second: Option<u64>,
    /// Bytes written.
    pub written_bytes_per_second: Option<u64>,
    /// Read operations.
    pub reads_per_second: Option<u64>,
    /// Write operations.
    pub writes_per_second: Option<u64>,
}

impl DiskLimitStatus {
    /// Limits of the policy; `None` without one.
    pub fn of(limits: &DiskLimits) -> Option<DiskLimitStatus> {
        limits.limits().next()?;
        Some(DiskLimitStatus {
            read_bytes_per_second: limits[DiskRate::Read],
            written_bytes_per_second: limits[DiskRate::Write],
            reads_per_second: limits[DiskRate::ReadIops],
            writes_per_second: limits[DiskRate::WriteIops],
        })
    }

    /// All limits for a sentence, as in `reads 100MiB/s, writes 50 operations/s`.
    pub fn shown(&self) -> String {
        self.limits().shown()
    }

    fn limits(&self) -> DiskLimits {
        PerRate([
            self.read_bytes_per_second,
            self.written_bytes_per_second,
            self.reads_per_second,
            self.writes_per_second,
        ])
    }

    /// Limits that `rates` of one disk have reached, for a sentence; `None` if there is none.
    pub fn reached(&self, rates: &DiskRates) -> Option<String> {
        let at = rates.each();
        let is_reached = |rate: DiskRate, limit: u64| at[rate] >= REACHED_RATIO * limit as f64;
        let limits = self.limits();
        let reached = PerRate::from_fn(|r| limits[r].filter(|limit| is_reached(r, *limit)));
        Some(reached.shown()).filter(|shown| !shown.is_empty())
    }
}

/// Part of a limit from which it is the bound.
const REACHED_RATIO: f64 = 0.9;

/// Requests per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DiskRates {
    /// Bytes read.
    pub read_bytes_per_second: f64,
    /// Bytes written.
    pub written_bytes_per_second: f64,
    /// Read operations.
    pub reads_per_second: f64,
    /// Write operations.
    pub writes_per_second: f64,
}

impl DiskRates {
    fn each(&self) -> PerRate<f64> {
        PerRate([
            self.read_bytes_per_second,
            self.written_bytes_per_second,
            self.reads_per_second,
            self.writes_per_second,
        ])
    }

    /// Sum of both.
    pub fn and(&self, other: &DiskRates) -> DiskRates {
        let (a, b) = (self.each(), other.each());
        let [read, written, reads, writes] = PerRate::from_fn(|r| a[r] + b[r]).0;
        DiskRates {
            read_bytes_per_second: read,
            written_bytes_per_second: written,
            reads_per_second: reads,
            writes_per_second: writes,
        }
    }
}

impl From<DiskFlow> for DiskRates {
    fn from(flow: DiskFlow) -> DiskRates {
        DiskRates {
            read_bytes_per_second: flow.read_bytes,
            written_bytes_per_second: flow.written_bytes,
            reads_per_second: flow.reads,
            writes_per_second: flow.writes,
        }
    }
}

impl From<DiskUse> for DiskUseStatus {
    fn from(of: DiskUse) -> DiskUseStatus {
        DiskUseStatus {
            disk: of.name.to_string(),
            rates: of.flow.into(),
            time_ratio: of.time_ratio,
            work_ratio: of.part_ratio,
        }
    }
}

/// Disks of a tenant: its work, its waits, and the reason for these.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DiskStep {
    /// PSI `some` for IO; absent without PSI.
    pub pressure_ratio: Option<f64>,
    /// Its work on each disk, the largest part first.
    pub uses: Vec<DiskUseStatus>,
    /// Its share of the time of disks; absent if the policy weighs none.
    pub share: Option<DiskShareStatus>,
    /// Explanation of these figures.
    pub reason: String,
}
