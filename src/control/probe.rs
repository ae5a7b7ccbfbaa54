//! The working set of a cgroup, found by a gentle squeeze.
//!
//! **Problem.** What a cgroup holds is not what it needs: file cache and pages that were touched once stay until somebody
//! else needs the memory. Only taking some of it shows whether it is missed.
//!
//! **Algorithm.** The law of senpai (facebookincubator, `senpai.py`). Tasks may wait for memory for a target time in each
//! interval. Where they waited for longer, the bound is raised at once, by the square of the excess. Where they waited for
//! less by the end of an interval, it is lowered by the square of what was left of the target, by a hundredth at most.
//!
//! Vectors: `tests/vectors/control_loops.yaml` (`tests/control/vectors.rs`).

use std::time::Duration;

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
