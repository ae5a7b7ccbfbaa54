//! The limits above the tenants, as values.

use tenantd_core::codec::coded;
use tenantd_core::resource::{CPU, PerResource};

/// What the limits above the tenants leave of the machine: those of their root and of everything above it.
///
/// Absent where no limit binds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AncestorBounds {
    /// The least limit of each resource.
    pub limit: PerResource<Option<f64>>,
    /// CPUs that tenants may run on at all: those of the effective set that are online and not isolated.
    pub nr_cpus: Option<u32>,
}

impl AncestorBounds {
    /// These bounds and those of one more ancestor: whichever is less.
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

    /// What all tenants can have together at most: the limit, and no more than the CPUs that a quota can be
    /// used on; infinite where nothing binds.
    pub fn most(&self) -> PerResource<f64> {
        let mut most = self.limit.map(|limit| limit.unwrap_or(f64::INFINITY));
        most[CPU] = most[CPU].min(self.nr_cpus.map_or(f64::INFINITY, f64::from));
        most
    }
}

// --- recorded ---

coded!(struct AncestorBounds { limit, nr_cpus });
