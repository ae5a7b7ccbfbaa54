//! Load of simulated processes, and its changes over time.
//!
//! A [`Load`] is the demand of a process at one moment; a [`Trace`] is a load for every moment since its
//! process began. Traces are functions of time, including the noisy one: its values come from a hash of
//! seed and interval, so the same seed gives the same history however time is cut into steps.

use std::time::Duration;

/// Demand of a process at one moment.
///
/// A thread works, then sleeps, in cycles: with less CPU than its duty a cycle takes longer because of the
/// waits, and the thread does not catch up later (a closed loop).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Number of identical threads, at least 1.
    pub threads: u32,
    /// Part of a CPU that each thread wants, 0 ..= 1.
    pub duty: f64,
    /// Part of its CPU time spent in the kernel, 0 ..= 1.
    pub system_ratio: f64,
    /// Anonymous memory that it touches all the time; not reclaimable without swap.
    pub working_set_bytes: u64,
    /// Locked memory.
    pub locked_bytes: u64,
    /// File pages that it reads all the time: reclaimable, then refaulting.
    pub hot_file_bytes: u64,
    /// File pages that it reads once: reclaimable at no cost to it.
    pub cache_bytes: u64,
    /// Speed of touching new memory of each kind.
    pub touch_bytes_per_sec: u64,
}

impl Default for Load {
    /// One sleeping thread without memory.
    fn default() -> Self {
        Load {
            threads: 1,
            duty: 0.0,
            system_ratio: 0.05,
            working_set_bytes: 0,
            locked_bytes: 0,
            hot_file_bytes: 0,
            cache_bytes: 0,
            touch_bytes_per_sec: 256 << 20,
        }
    }
}

impl Load {
    /// A sleeping process.
    pub fn idle() -> Load {
        Load::default()
    }

    /// `threads` that each want a whole CPU.
    pub fn busy(threads: u32) -> Load {
        Load { threads, duty: 1.0, ..Load::default() }
    }

    /// Adds `bytes` of anonymous working set.
    pub fn with_working_set(self, bytes: u64) -> Load {
        Load { working_set_bytes: bytes, ..self }
    }

    /// Adds `bytes` of locked memory.
    pub fn with_locked(self, bytes: u64) -> Load {
        Load { locked_bytes: bytes, ..self }
    }

    /// Adds `bytes` of file pages that are read all the time.
    pub fn with_hot_file(self, bytes: u64) -> Load {
        Load { hot_file_bytes: bytes, ..self }
    }

    /// Adds `bytes` of file pages that are read once.
    pub fn with_cache(self, bytes: u64) -> Load {
        Load { cache_bytes: bytes, ..self }
    }

    pub(super) fn clamped(self) -> Load {
        let ratio = |value: f64| if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) };
        Load {
            threads: self.threads.max(1),
            duty: ratio(self.duty),
            system_ratio: ratio(self.system_ratio),
            ..self
        }
    }

    fn towards(&self, other: &Load, part: f64) -> Load {
        let mix = |from: f64, to: f64| from + (to - from) * part;
        let bytes = |from: u64, to: u64| mix(from as f64, to as f64) as u64;
        Load {
            threads: mix(f64::from(self.threads), f64::from(other.threads)).round() as u32,
            duty: mix(self.duty, other.duty),
            system_ratio: mix(self.system_ratio, other.system_ratio),
            working_set_bytes: bytes(self.working_set_bytes, other.working_set_bytes),
            locked_bytes: bytes(self.locked_bytes, other.locked_bytes),
            hot_file_bytes: bytes(self.hot_file_bytes, other.hot_file_bytes),
            cache_bytes: bytes(self.cache_bytes, other.cache_bytes),
            touch_bytes_per_sec: bytes(self.touch_bytes_per_sec, other.touch_bytes_per_sec),
        }
    }
}

/// Load for every moment of a process's life.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Trace {
    /// Constant load.
    Constant(Load),
    /// `awake` for the first part of every period, then `asleep`: a tenant that wakes between two ticks.
    Square {
        /// Load of the first part.
        awake: Load,
        /// Load of the rest.
        asleep: Load,
        /// Length of a cycle.
        period: Duration,
        /// Part of the cycle spent awake, 0 ..= 1.
        awake_ratio: f64,
    },
    /// Linear change from `from` to `to` by the end of `over`; constant from then on.
    Ramp {
        /// Load at the beginning.
        from: Load,
        /// Load at the end.
        to: Load,
        /// Duration of the change.
        over: Duration,
    },
    /// Linear change from `from` to `to` in every period.
    Sawtooth {
        /// Load at the beginning of a period.
        from: Load,
        /// Load at its end.
        to: Load,
        /// Length of a period.
        period: Duration,
    },
    /// Random duty in `base.duty ± amplitude`, uniform, new in every interval.
    Noisy {
        /// Load without noise.
        base: Load,
        /// Largest deviation of the duty, in CPUs.
        amplitude: f64,
        /// Duration of a duty.
        interval: Duration,
        /// Seed: traces with different seeds are independent.
        seed: u64,
    },
}

impl Trace {
    /// Load `age` after the beginning.
    pub fn at(&self, age: Duration) -> Load {
        match self {
            Trace::Constant(load) => *load,
            Trace::Square { awake, asleep, period, awake_ratio } => {
                let period_nsec = period.as_nanos().max(1);
                let phase = (age.as_nanos() % period_nsec) as f64 / period_nsec as f64;
                if phase < *awake_ratio { *awake } else { *asleep }
            }
            Trace::Ramp { from, to, over } => {
                let part = age.as_secs_f64() / over.as_secs_f64().max(1e-9);
                from.towards(to, part.min(1.0))
            }
            Trace::Sawtooth { from, to, period } => {
                let period_nsec = period.as_nanos().max(1);
                from.towards(to, (age.as_nanos() % period_nsec) as f64 / period_nsec as f64)
            }
            Trace::Noisy { base, amplitude, interval, seed } => {
                let index = (age.as_nanos() / interval.as_nanos().max(1)) as u64;
                let uniform = mix(seed ^ mix(index)) as f64 / u64::MAX as f64;
                let duty = base.duty + amplitude * (2.0 * uniform - 1.0);
                Load { duty: duty.clamp(0.0, 1.0), ..*base }
            }
        }
    }

    /// Nanoseconds after `age` for which the load surely stays the same; 0 if it may change at once.
    pub(super) fn steady_for(&self, age: Duration) -> u64 {
        let nsec = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let left_of = |period: Duration, edge: u64| {
            let phase = nsec(age) % nsec(period).max(1);
            if phase < edge { edge - phase } else { nsec(period).max(1) - phase }
        };
        match self {
            Trace::Constant(_) => u64::MAX,
            Trace::Square { period, awake_ratio, .. } => {
                left_of(*period, (nsec(*period) as f64 * awake_ratio.clamp(0.0, 1.0)) as u64)
            }
            Trace::Ramp { over, .. } if age >= *over => u64::MAX,
            Trace::Ramp { .. } | Trace::Sawtooth { .. } => 0,
            Trace::Noisy { interval, .. } => left_of(*interval, 0),
        }
    }
}

/// Finaliser of SplitMix64 (Steele, Lea and Flood 2014): spreads every bit of `value` over the result.
fn mix(value: u64) -> u64 {
    let z = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A process to start.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Command name, at most 15 bytes in the kernel's files.
    pub name: String,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its load over time.
    pub trace: Trace,
}

impl Workload {
    /// Creates a process of root with a constant `load`.
    pub fn constant(name: &str, load: Load) -> Workload {
        Workload { name: name.into(), uid: 0, gid: 0, trace: Trace::Constant(load) }
    }

    /// Changes the owner to another user, with a group of the same number.
    pub fn owned_by(self, uid: u32) -> Workload {
        Workload { uid, gid: uid, ..self }
    }
}

impl From<Load> for Workload {
    fn from(load: Load) -> Self {
        Workload::constant("load", load)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_square_wave_is_awake_for_its_part_of_every_period() {
        let trace = Trace::Square {
            awake: Load::busy(2),
            asleep: Load::idle(),
            period: SECOND * 10,
            awake_ratio: 0.3,
        };
        let awake: Vec<u32> = (0..20).filter(|&s| trace.at(SECOND * s).duty > 0.0).collect();
        assert_eq!(awake, [0, 1, 2, 10, 11, 12]);
    }

    #[test]
    fn a_ramp_ends_where_it_should_and_stays() {
        let trace = Trace::Ramp {
            from: Load::idle(),
            to: Load::busy(5).with_working_set(1000),
            over: SECOND * 4,
        };
        assert_eq!(trace.at(SECOND).duty, 0.25);
        assert_eq!(trace.at(SECOND * 2).threads, 3);
        assert_eq!(trace.at(SECOND * 3).working_set_bytes, 750);
        assert_eq!(trace.at(SECOND * 9), trace.at(SECOND * 4));
        let Trace::Ramp { from, to, over } = trace else { return };
        let teeth = Trace::Sawtooth { from, to, period: over };
        assert_eq!(teeth.at(SECOND * 7), trace.at(SECOND * 3));
        assert_eq!(teeth.at(SECOND * 8), teeth.at(Duration::ZERO));
    }

    #[test]
    fn noise_depends_on_seed_and_interval_only() {
        let noisy = |seed| Trace::Noisy {
            base: Load { duty: 0.5, ..Load::busy(1) },
            amplitude: 0.2,
            interval: SECOND,
            seed,
        };
        let duties =
            |seed| -> Vec<f64> { (0..200).map(|s| noisy(seed).at(SECOND * s).duty).collect() };
        assert_eq!(duties(1), duties(1));
        assert_ne!(duties(1), duties(2));
        assert_eq!(noisy(3).at(SECOND), noisy(3).at(SECOND * 3 / 2));
        let mean = duties(7).iter().sum::<f64>() / 200.0;
        assert!(duties(7).iter().all(|duty| (0.3..=0.7).contains(duty)));
        assert!((mean - 0.5).abs() < 0.03, "{mean}");
    }
}
