//! The working set of a cgroup, found by a gentle squeeze (`memory: { probe: true }`).
//!
//! **Problem.** What a cgroup holds is not what it needs: file cache and pages that were touched once stay until somebody
//! else needs the memory. Only taking some of it shows whether it is missed.
//!
//! **Algorithm.** The law of senpai (facebookincubator, `senpai.py`). Tasks may wait for memory for a target time in each
//! interval. Where they waited for longer, the bound is raised at once, by the square of the excess. Where they waited for
//! less by the end of an interval, it is lowered by the square of what was left of the target, by a hundredth at most.
//!
//! A probe begins with a bound at what is held, after a minute in which tasks waited no longer than the law allows. It is
//! lifted where it may not go on (no room in swap, memory is contended, something could not be measured), and where a raise
//! takes it clear of what is held: then the cgroup is left alone for a minute, two, four … an hour.
//!
//! **Properties** (tests below, and `tests/agent/probe.rs`): no bound is below the floor, falls by more than a hundredth in a
//! step or is more than two below what is held (`a_bound_stays_near_what_is_held`), a bound comes to rest near what is in
//! use (`it_finds_what_is_in_use`), and one that hurts is lifted within a tick (`a_wait_lifts_it_at_once`).
//!
//! **What it cannot see**: `memory.swap.max` of the cgroup. Where that leaves no room, tasks wait as soon as nothing but
//! anonymous memory is left, and the bound is lifted for that.
//!
//! Vectors: `tests/vectors/control_loops.yaml` (`tests/control/vectors.rs`).

use std::time::Duration;

use tenantd_core::codec::coded;
use tenantd_core::units::Bytes;

/// From one lowering to the next.
pub const INTERVAL: Duration = Duration::from_secs(6);
/// For how long tasks have to be calm before a probe begins.
pub const CALM: Duration = Duration::from_secs(60);
/// Kept above what is guaranteed and what cannot go anywhere, as senpai does.
const MARGIN: Bytes = Bytes::mib(100);
/// How far below what is held a bound is at most, in parts of that: two steps, as one is within the dead band of the file.
const BELOW_HELD_RATIO: f64 = 0.02;
/// A bound that was raised so far above what is held binds nothing.
const FREE_RATIO: f64 = 1.1;
/// How long a cgroup is left alone at first after a probe that hurt.
const LEFT_FIRST: Duration = Duration::from_secs(60);
/// ... and at most.
const LEFT_MOST: Duration = Duration::from_secs(3600);

/// The constants of the law.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Law {
    /// How long tasks may wait for memory in an interval.
    pub target: Duration,
    /// The largest part that a bound is lowered by.
    pub lower_max: f64,
    /// The largest part that it is raised by.
    pub raise_max: f64,
    /// Where tasks waited for the target over this or less, the bound is lowered by the largest part.
    pub lower_coefficient: f64,
    /// Where they waited for so many times the target or longer, it is raised by the largest part.
    pub raise_coefficient: f64,
}

impl Law {
    /// Senpai's own, for intervals of six seconds and swap on solid-state disks.
    pub const SENPAI: Law = Law {
        target: Duration::from_millis(10),
        lower_max: 0.01,
        raise_max: 1.0,
        lower_coefficient: 10.0,
        raise_coefficient: 20.0,
    };

    /// By what part of itself a bound changes after tasks have waited for so long in an interval.
    pub fn relative_change(&self, waited: Duration) -> f64 {
        // A microsecond is what the kernel counts in.
        let waited_sec = waited.max(Duration::from_micros(1)).as_secs_f64();
        let ratio = waited_sec / self.target.as_secs_f64();
        if waited > self.target {
            self.raise_max * (ratio / self.raise_coefficient).powi(2).min(1.0)
        } else {
            -self.lower_max * (1.0 / ratio / self.lower_coefficient).powi(2).min(1.0)
        }
    }
}

/// What one cgroup holds, and how it fared since the tick before.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Probed {
    /// All that is charged to it.
    pub charged_bytes: f64,
    /// What it was promised.
    pub guarantee_bytes: f64,
    /// What neither reclaim nor swap can take.
    pub pinned_bytes: f64,
    /// How long some task of it waited for memory.
    pub waited: Duration,
}

impl Probed {
    fn floor_bytes(&self) -> f64 {
        self.guarantee_bytes.max(self.pinned_bytes) + MARGIN.0 as f64
    }
}

/// One cgroup's probe between ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probe {
    /// What it is held to, in bytes; `None` while it is not squeezed.
    pub bound_bytes: Option<f64>,
    /// How long tasks waited since the bound was moved.
    waited: Duration,
    /// How long ago that was; without a bound, for how long tasks have been calm.
    since: Duration,
    /// What is left of the time in which it is left alone.
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
    /// One tick; `None` where the cgroup may not be squeezed now.
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

    /// Begins at what is held, once tasks are calm and there is something to take.
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
        // A bound that could not be written, or is not met yet, must not run ahead of what is held.
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

// --- recorded ---

coded!(struct Probe { bound_bytes, waited, since, left_alone, next_left_alone });

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MIB: f64 = (1_u64 << 20) as f64;

    fn holding(mib: f64) -> Probed {
        Probed { charged_bytes: mib * MIB, ..Probed::default() }
    }

    /// One whose tasks are calm for as long as it takes to begin.
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
            // What is in use and was taken is read back, at 100 MiB a second.
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
