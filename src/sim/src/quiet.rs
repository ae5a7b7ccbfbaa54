//! Time in which nothing changes but counters, passed at once.
//!
//! **Problem.** A step of 10 ms looks at every process, and mostly finds that it has all it touches and waits for nothing.
//! Then the next step is the same, and the one after it.
//!
//! **Terms.** A step is *quiet* when no process touched what it did not have, owes no sleep, and nothing was reclaimed.
//!
//! **Rule.** What a quiet step adds to the counters is added as often as steps follow until a load changes, the averages of
//! pressure are due, or the time is over. Each addition is rounded to a quarter of its unit
//! ([`super::rates::quarters`]), so that sums are exact and time may be cut anywhere (`determinism` and
//! `quiet_time_in_one_piece_is_the_same` in `tests/sim/cpu.rs`).

use super::kernel::{STEP_NSEC, SimKernel};
use super::pressure::AVERAGING_NSEC;

impl SimKernel {
    /// How many steps from now on are as quiet as this one, at least 1.
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
