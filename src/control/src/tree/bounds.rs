//! The limits above the tenants, as values.

use serde::{Deserialize, Serialize};
use tenantd_core::resource::{CPU, PerResource};

/// Least limits of the tenants' root and of every cgroup above it. A field is `None` if no limit binds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AncestorBounds {
    /// Smallest limit of each resource.
    pub limit: PerResource<Option<f64>>,
    /// CPUs that tenants may use: effective, online and not isolated.
    pub nr_cpus: Option<u32>,
}

impl AncestorBounds {
    /// Combines two bounds; the smaller limit applies.
    pub fn and(self, other: AncestorBounds) -> AncestorBounds {
        fn less<T: PartialOrd>(one: Option<T>, other: Option<T>) -> Option<T> {
            match (one, other) {
                (Some(one), Some(other)) => Some(if other < one { other } else { one }),
                (one, other) => one.or(other),
            }
        }
        AncestorBounds {
            limit: PerResource::from_fn(|r| less(self.limit[r], other.limit[r])),
            nr_cpus: less(self.nr_cpus, other.nr_cpus),
        }
    }

    /// Upper limit of all tenants together, including the number of usable CPUs. Infinite if nothing binds.
    pub fn most(&self) -> PerResource<f64> {
        let mut most = self.limit.map(|limit| limit.unwrap_or(f64::INFINITY));
        most[CPU] = most[CPU].min(self.nr_cpus.map_or(f64::INFINITY, f64::from));
        most
    }
}
