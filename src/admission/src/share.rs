//! Shares of the running jobs of one tenant.
//!
//! # Rule
//! Multilevel feedback ([`multilevel`]): the level of a job follows from its CPU time, {0, 1, 10, 60, 300}
//! seconds. A level with running jobs has half the weight of the level before, in equal parts to its jobs.
//! So a new job is not slowed by those that run for hours, and these still get a part.

use tenantd_queue::discipline::multilevel::{self, LEVELS};

/// Weight of the last level; that of the first is 2⁴ times as much.
const LAST_WEIGHT: f64 = 100.0;

/// Weights of jobs with this CPU time, in seconds.
pub fn weights(cpu_seconds: &[f64]) -> Vec<f64> {
    // A float saturates when it becomes an integer.
    let level = |seconds: &f64| multilevel::level_of((seconds * 1e9) as u64);
    let mut nr_in = [0.0; LEVELS];
    cpu_seconds.iter().for_each(|seconds| nr_in[level(seconds)] += 1.0);
    let weight = |seconds: &f64| {
        let level = level(seconds);
        let halvings = (LEVELS - 1 - level) as i32;
        LAST_WEIGHT * multilevel::MULTIPLIER.powi(halvings) / nr_in[level]
    };
    cpu_seconds.iter().map(weight).collect()
}
