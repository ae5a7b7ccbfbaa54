//! The working set of a cgroup, found by a gentle squeeze (`memory: { probe: true }`).
//!
//! **Problem.** A cgroup holds more memory than it needs: file cache and pages touched once stay until
//! another cgroup needs the memory. Only reclaim shows whether pages are missed.
//!
//! **Algorithm.** The law of senpai (facebookincubator, `senpai.py`). Tasks may stall for a target time per
//! interval. After a longer stall, the bound rises at once by the square of the excess. After a shorter
//! one, it falls at the end of the interval by the square of the remainder, by a hundredth at most.
//!
//! A probe begins with a bound at the held memory, after a calm minute. It is lifted if it may not go on
//! (full swap, contended memory, a missing measurement), or if a raise takes it clear of the held memory.
//! Then the cgroup is left alone for 1, 2, 4 … 60 minutes.
//!
//! **Properties** (tests below, and `tests/agent/probe.rs`): no bound is below the floor, falls by more
//! than a hundredth per step, or is more than two hundredths below the held memory
//! (`a_bound_stays_near_what_is_held`); a bound rests near the working set (`it_finds_what_is_in_use`); a
//! harmful bound is lifted within a tick (`a_wait_lifts_it_at_once`).
//!
//! **Limitation**: `memory.swap.max` of the cgroup is not read. If it leaves no room, tasks stall once only
//! anonymous memory is left, and this lifts the bound.
//!
//! Vectors: `tests/vectors/control_loops.yaml` (`tests/control/vectors.rs`).

use serde::{Deserialize, Serialize};
use std::time::Duration;

use tenantd_core::units::Bytes;

/// Time from one lowering to the next.
pub const INTERVAL: Duration = Duration::from_secs(6);
/// Calm time before a probe begins.
pub const CALM: Duration = Duration::from_secs(60);
/// Margin above guaranteed and pinned memory, as in senpai.
const MARGIN: Bytes = Bytes::mib(100);
/// Largest distance of a bound below the held memory: two steps, because one is within the dead band of the
/// file.
const BELOW_HELD_RATIO: f64 = 0.02;
/// Ratio to the held memory above which a raised bound binds nothing.
const FREE_RATIO: f64 = 1.1;
const LEFT_FIRST: Duration = Duration::from_secs(60);
const LEFT_MOST: Duration = Duration::from_secs(3600);

/// Constants of the law.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Law {
    /// Allowed stall time per interval.
    pub target: Duration,
    /// Largest relative lowering.
    pub lower_max: f64,
    /// Largest relative raise.
    pub raise_max: f64,
    /// Divisor of the target for the stall time at which the lowering is largest.
    pub lower_coefficient: f64,
    /// Multiple of the target at which the raise is largest.
    pub raise_coefficient: f64,
}

impl Law {
    /// Constants of senpai, for intervals of 6 s and swap on solid-state disks.
    pub const SENPAI: Law = Law {
        target: Duration::from_millis(10),
        lower_max: 0.01,
        raise_max: 1.0,
        lower_coefficient: 10.0,
        raise_coefficient: 20.0,
    };

    /// Relative change of a bound after a stall of `waited` in an interval.
    pub fn relative_change(&self, waited: Duration) -> f64 {
        // The kernel counts in microseconds.
        let waited_sec = waited.max(Duration::from_micros(1)).as_secs_f64();
        let ratio = waited_sec / self.target.as_secs_f64();
        if waited > self.target {
            self.raise_max * (ratio / self.raise_coefficient).powi(2).min(1.0)
        } else {
            -self.lower_max * (1.0 / ratio / self.lower_coefficient).powi(2).min(1.0)
        }
    }
}

/// Memory of one cgroup, and its stall since the last tick.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Probed {
    /// Charged memory.
    pub charged_bytes: f64,
    /// Guaranteed memory.
    pub guarantee_bytes: f64,
    /// Memory that neither reclaim nor swap can take.
    pub pinned_bytes: f64,
    /// Time in which a task stalled on memory.
    pub waited: Duration,
}

impl Probed {
    fn floor_bytes(&self) -> f64 {
        self.guarantee_bytes.max(self.pinned_bytes) + MARGIN.0 as f64
    }
}

/// State of one cgroup's probe between ticks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// Bound in bytes; `None` while it is not squeezed.
    pub bound_bytes: Option<f64>,
    waited: Duration,
    /// Time since the bound was moved; without a bound, calm time.
    since: Duration,
    left_alone: Duration,
    next_left_alone: Duration,
}

impl Default for Probe {
    fn default() -> Self {
        Probe {
            bound_bytes: None,
            waited: Duration::ZERO,
            since: Duration::ZERO,
            left_alone: Duration::ZERO,
            next_left_alone: LEFT_FIRST,
        }
    }
}

impl Probe {
    /// Steps the probe; `None` if the cgroup may not be squeezed now.
    pub fn step(&mut self, probed: Option<&Probed>, elapsed: Duration) {
        self.left_alone = self.left_alone.saturating_sub(elapsed);
        let Some(probed) = probed else { return self.lift() };
        self.since += elapsed;
        self.waited += probed.waited;
        match self.bound_bytes {
            Some(bound) => self.move_bound(bound, probed),
            None => self.begin(probed, elapsed),
        }
    }

    fn lift(&mut self) {
        (self.bound_bytes, self.waited, self.since) = (None, Duration::ZERO, Duration::ZERO);
    }

    /// Begins at the held memory once tasks are calm and something can be taken.
    fn begin(&mut self, probed: &Probed, elapsed: Duration) {
        let target = Law::SENPAI.target;
        let allowed = target.mul_f64(elapsed.as_secs_f64() / INTERVAL.as_secs_f64());
        self.waited = self.waited.saturating_sub(allowed);
        if self.waited > target {
            self.lift();
        }
        let has_excess = probed.charged_bytes > probed.floor_bytes();
        if self.since >= CALM && self.left_alone.is_zero() && has_excess {
            self.set(probed.charged_bytes);
        }
    }

    fn set(&mut self, bytes: f64) {
        (self.bound_bytes, self.waited, self.since) = (Some(bytes), Duration::ZERO, Duration::ZERO);
    }

    fn move_bound(&mut self, bound: f64, probed: &Probed) {
        let law = Law::SENPAI;
        let change = law.relative_change(self.waited);
        // A bound that could not be written or is not met yet must not run ahead of the held memory.
        let least = (1.0 - BELOW_HELD_RATIO) * probed.charged_bytes;
        let least = least.max(probed.floor_bytes());
        if self.waited > law.target {
            let raised = (bound * (1.0 + change)).max(least);
            self.set(raised);
            if raised > FREE_RATIO * probed.charged_bytes {
                self.lift();
                self.left_alone = self.next_left_alone;
                self.next_left_alone = (2 * self.next_left_alone).min(LEFT_MOST);
            }
        } else if self.since >= INTERVAL {
            self.next_left_alone = self.next_left_alone.saturating_sub(self.since).max(LEFT_FIRST);
            self.set((bound * (1.0 + change)).max(least));
        } else {
            self.bound_bytes = Some(bound.max(least));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MIB: f64 = (1_u64 << 20) as f64;

    fn holding(mib: f64) -> Probed {
        Probed { charged_bytes: mib * MIB, ..Probed::default() }
    }

    fn begun(mib: f64) -> Probe {
        let mut probe = Probe::default();
        (0..60).for_each(|_| probe.step(Some(&holding(mib)), SECOND));
        assert_eq!(probe.bound_bytes, Some(mib * MIB));
        probe
    }

    #[test]
    fn it_finds_what_is_in_use() {
        let (mut probe, mut held, mut waited_sec) = (begun(1000.0), 1000.0_f64, 0.0);
        let mut least = held;
        for second in 0..3600 {
            held = held.min(probe.bound_bytes.map_or(1000.0, |bytes| bytes / MIB));
            // Pages in use refault at 100 MiB/s.
            let waited = Duration::from_secs_f64((600.0 - held).max(0.0) / 100.0);
            let probed = Probed { waited, ..holding(held.max(600.0)) };
            probe.step(Some(&probed), SECOND);
            held = held.max(600.0);
            least = least.min(held);
            waited_sec += waited.as_secs_f64();
            assert!(second < 600 || probe.bound_bytes.is_none_or(|bytes| bytes < 680.0 * MIB));
        }
        assert!(least < 606.0, "{least}");
        assert!(waited_sec < 3600.0 * 0.01, "{waited_sec}");
    }

    #[test]
    fn a_wait_lifts_it_at_once() {
        let mut probe = begun(1000.0);
        for nr in 0..8 {
            let waited = Duration::from_millis(300);
            probe.step(Some(&Probed { waited, ..holding(1000.0) }), SECOND);
            assert_eq!(probe.bound_bytes, None);
            let alone = (1_u64 << nr).min(60) * 60;
            for _ in 1..alone {
                probe.step(Some(&holding(1000.0)), SECOND);
                assert_eq!(probe.bound_bytes, None, "left alone for {alone} s");
            }
            probe.step(Some(&holding(1000.0)), SECOND);
            assert!(probe.bound_bytes.is_some());
        }
    }

    #[test]
    fn nothing_is_taken_where_it_may_not_be() {
        let mut probe = begun(1000.0);
        probe.step(None, SECOND);
        assert_eq!(probe.bound_bytes, None);
        for probed in [
            holding(90.0),
            Probed { guarantee_bytes: 950.0 * MIB, ..holding(1000.0) },
            Probed { pinned_bytes: 950.0 * MIB, ..holding(1000.0) },
            Probed { waited: Duration::from_millis(11), ..holding(1000.0) },
        ] {
            let mut probe = Probe::default();
            (0..300).for_each(|_| probe.step(Some(&probed), SECOND));
            assert_eq!(probe.bound_bytes, None, "{probed:?}");
        }
    }

    fn waits() -> impl Strategy<Value = u64> {
        prop_oneof![19 => Just(0), 1 => 0..40_000_u64]
    }

    proptest! {
        #[test]
        fn a_bound_stays_near_what_is_held(
            ticks in prop::collection::vec((100.0..2000.0_f64, 0.0..500.0_f64, waits()), 1..300),
            ratio in 0.1..1.0_f64,
        ) {
            let mut probe = Probe::default();
            let elapsed = Duration::from_secs_f64(ratio * 4.0);
            for (charged, guaranteed, waited_usec) in ticks {
                let probed = Probed {
                    guarantee_bytes: guaranteed * MIB,
                    waited: Duration::from_micros(waited_usec),
                    ..holding(charged)
                };
                let before = probe.bound_bytes;
                probe.step(Some(&probed), elapsed);
                if let Some(bytes) = probe.bound_bytes {
                    prop_assert!(bytes >= 0.98 * probed.charged_bytes - 1.0);
                    prop_assert!(before.is_none() || bytes >= probed.floor_bytes());
                    prop_assert!(before.is_none_or(|before| bytes >= 0.99 * before - 1.0));
                }
            }
        }
    }
}
