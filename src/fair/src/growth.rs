//! The growth of a leaf: the three numbers into which the sweeps cast its demand, weights and bounds.

use super::problem::Problem;

/// The growth of a leaf. It runs `x = clamp(level / rho, lo, hi)` tasks when the common level is `level`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Growth {
    /// The weighted dominant share of one task: `max_r task_r / (capacity_r · weight_r)`.
    ///
    /// Zero for a leaf that does not grow: it demands nothing, or only resources of capacity zero.
    pub(super) rho: f64,
    /// The tasks its guarantees pay for in full: 0 unless everything it demands is guaranteed.
    pub(super) lo: f64,
    /// The tasks that it can use within its limits, up to `f64::INFINITY`.
    pub(super) hi: f64,
}

impl Growth {
    pub(super) fn at(self, level: f64) -> f64 {
        (level / self.rho).max(self.lo).min(self.hi)
    }
}

/// The growth of a leaf of `problem`. O(m).
pub(super) fn of(problem: &Problem, leaf: usize) -> Growth {
    let (task, weight) = (problem.task(leaf), problem.weight(leaf));
    let (guarantee, limit) = (problem.guarantee(leaf), problem.limit(leaf));
    let mut growth = Growth { rho: 0.0, lo: f64::INFINITY, hi: problem.tasks(leaf) };
    for (r, &task) in task.iter().enumerate().filter(|(_, task)| **task > 0.0) {
        let capacity = problem.capacity[r];
        if capacity > 0.0 {
            growth.rho = growth.rho.max(task / (capacity * weight[r]));
        }
        growth.lo = growth.lo.min(guarantee[r] / task);
        growth.hi = growth.hi.min(limit[r] / task);
    }
    growth.lo = growth.lo.min(growth.hi);
    growth
}
