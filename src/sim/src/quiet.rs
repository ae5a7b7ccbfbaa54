//! Quiet time, in which only counters change, passed at once.
//!
//! **Problem.** A step of 10 ms visits every process, and mostly finds that all have their memory and none
//! waits. Then the following steps are the same.
//!
//! **Terms.** A step is *quiet* if no process touched missing memory or owes sleep, and nothing was reclaimed.
//!
//! **Rule.** The additions of a quiet step are repeated for all steps until a load changes, the averages of
//! pressure are due, or the time is over. Each addition is rounded to a quarter of its unit
//! ([`super::rates::quarters`]), so sums are exact and time may be cut anywhere (`determinism` and
//! `quiet_time_in_one_piece_is_the_same` in `tests/sim/cpu.rs`).

use super::kernel::{STEP_NSEC, SimKernel};
use super::pressure::AVERAGING_NSEC;

impl SimKernel {
    /// Number of steps, including this one, that are quiet like it.
    pub(super) fn nr_quiet_steps(&self, end_nsec: u64) -> u64 {
        let now = self.now_nsec;
        let averages = AVERAGING_NSEC - now % AVERAGING_NSEC;
        let steady = self.steady_until_nsec.saturating_sub(now);
        let nsec = steady.min(averages).min(end_nsec - now);
        (nsec / STEP_NSEC).max(1)
    }

    /// Touches memory as in `nr_steps` more quiet steps.
    pub(super) fn touch_quietly(&mut self, nr_steps: u64) {
        for process in self.processes.values_mut() {
            process.go_over(STEP_NSEC, nr_steps);
        }
    }
}
