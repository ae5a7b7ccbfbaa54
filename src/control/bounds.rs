//! The limits above the tenants, as values.

/// What the limits above the tenants leave of the machine: those of their root and of everything above it.
///
/// Absent where no limit binds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AncestorBounds {
    /// CPU quota, in cores.
    pub cpu_cores: Option<f64>,
    /// Memory limit, in bytes.
    pub memory_bytes: Option<f64>,
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
            cpu_cores: less(self.cpu_cores, other.cpu_cores),
            memory_bytes: less(self.memory_bytes, other.memory_bytes),
            nr_cpus: less(self.nr_cpus, other.nr_cpus),
        }
    }

    /// What all tenants can have together at most, in cores and bytes: the quota, or the CPUs that
    /// it can be used on; infinite where nothing binds.
    pub fn most(&self) -> [f64; 2] {
        let nr_cpus = self.nr_cpus.map_or(f64::INFINITY, f64::from);
        let cores = self.cpu_cores.unwrap_or(f64::INFINITY).min(nr_cpus);
        [cores, self.memory_bytes.unwrap_or(f64::INFINITY)]
    }
}
