//! Rows of the division: the divided amounts, and what counts beside the demands for them.

use super::turns::Turns;
use tenantd_core::resource::PerResource;

/// Part of a disk below which smoothing noise is not a demand.
const DISK_NOISE: f64 = 1e-6;

/// The divided amounts: those of the machine, and a disk if one is divided with them.
#[derive(Clone, Debug)]
pub struct Rows {
    /// Amount of each resource.
    pub host: PerResource<f64>,
    /// The contended disk, if it counts for the division of the resources.
    pub disk: Option<DiskRow>,
    /// True for nodes that [slept](super::target) in the last interval, in the order of the nodes. Missing ones did not.
    pub asleep: Vec<bool>,
    /// Turns of jobs.
    pub turns: Turns,
}

/// The contended disk as a row of the division, in parts of its time.
#[derive(Clone, Debug)]
pub struct DiskRow {
    /// Part that tenants can get, above 0 and at most 1.
    pub capacity: f64,
    /// Demand of each node in the order of the nodes; groups are ignored.
    pub demands: Vec<DiskDemand>,
}

/// Demand of a node for the contended disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiskDemand {
    /// Part of its time.
    pub part: f64,
    /// Demand over present use, at least 1; above 1 for a tenant that waits for the disk.
    pub growth: f64,
    /// The same of CPUs.
    pub cpu_growth: f64,
}

impl DiskDemand {
    pub(crate) const NONE: DiskDemand = DiskDemand { part: 0.0, growth: 1.0, cpu_growth: 1.0 };

    pub(crate) fn waits(&self) -> bool {
        self.growth > 1.0
    }

    /// Part that it would use with all the CPUs that it wants, if those hold it back more.
    pub(crate) fn at_full_speed(&self) -> f64 {
        (self.part * (self.cpu_growth / self.growth).max(1.0)).min(1.0)
    }
}

impl From<PerResource<f64>> for Rows {
    fn from(host: PerResource<f64>) -> Self {
        Rows { host, disk: None, asleep: Vec::new(), turns: Turns::default() }
    }
}

impl Rows {
    /// Demand of a node for the disk; a part below [`DISK_NOISE`] is none.
    pub(crate) fn of_disk(&self, index: usize) -> DiskDemand {
        let demand = self.disk.as_ref().and_then(|disk| disk.demands.get(index).copied());
        demand.filter(|demand| demand.part > DISK_NOISE).unwrap_or(DiskDemand::NONE)
    }
}
