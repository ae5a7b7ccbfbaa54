//! Work of the disks in the types of the wire.

use serde::{Deserialize, Serialize};

use crate::measure::disk::DiskFlow;
use crate::measure::disks::DiskUse;

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
    /// Explanation of these figures.
    pub reason: String,
}
