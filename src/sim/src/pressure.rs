//! Pressure stall information: totals, running averages, and stalls of a fluid state.
//!
//! **Terms.** A fluid model has no instants, only mean numbers of threads: `running` on a CPU, `waiting`
//! for one, `stalled` on memory, `blocked` on IO. *some* is the part of time with at least one stalled
//! thread, *full* the part of it in which no thread does useful work (Documentation/accounting/psi.rst).
//!
//! **Formula.** Stalls overlap as little as possible. With `some(x) = min(1, x)`: CPU some = some(waiting);
//! CPU full = some(running + waiting) − some(running), but at least the part of time that a quota throttles
//! the group; memory some = some(stalled); memory full = some(active + stalled) − some(active) with active
//! = running + waiting; IO likewise. These are exact for one thread, and the upper bound of *some* for
//! many. The host has no CPU full, as in the kernel.
//!
//! **Properties.** `full <= some <= 1`, and a parent's *some* is never below a child's (tests below).

use super::digits::{hundredths, number};

/// Update interval of the averages, as in `psi_avgs_work`.
pub(super) const AVERAGING_NSEC: u64 = 2_000_000_000;

const WINDOWS_SEC: [f64; 3] = [10.0, 60.0, 300.0];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resource {
    Cpu,
    Memory,
    Io,
}

/// Parts of time, 0 ..= 1, by [`Resource`], each with *some* and *full*.
pub(super) type Stalls = [f64; 6];

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Activity {
    pub(super) running: f64,
    pub(super) system: f64,
    pub(super) waiting: f64,
    pub(super) stalled: f64,
    pub(super) blocked: f64,
    /// Part of time in which a quota stops the whole group, 0 ..= 1.
    pub(super) throttled_ratio: f64,
}

impl Activity {
    pub(super) fn add(&mut self, other: &Activity) {
        self.running += other.running;
        self.system += other.system;
        self.waiting += other.waiting;
        self.stalled += other.stalled;
        self.blocked += other.blocked;
    }

    pub(super) fn stalls(&self) -> Stalls {
        let part = |threads: f64| threads.clamp(0.0, 1.0);
        let beyond = |busy: f64, stalled: f64| part(busy + stalled) - part(busy);
        let active = self.running + self.waiting;
        let cpu = beyond(self.running, self.waiting).max(self.throttled_ratio);
        let (waiting, stalled, blocked) =
            (part(self.waiting), part(self.stalled), part(self.blocked));
        [
            waiting,
            cpu.min(waiting),
            stalled,
            beyond(active, self.stalled).min(stalled),
            blocked,
            beyond(active, self.blocked).min(blocked),
        ]
    }

    #[inline]
    pub(super) fn is_none(&self) -> bool {
        // No term is negative, and `system` is a part of `running`.
        self.running + self.waiting + self.stalled + self.blocked + self.throttled_ratio == 0.0
    }
}

/// Remainder of each average after an averaging interval.
pub(super) fn kept() -> [f64; 3] {
    WINDOWS_SEC.map(|window| (-(AVERAGING_NSEC as f64) * 1e-9 / window).exp())
}

#[derive(Clone, Debug, Default)]
pub(super) struct Pressure {
    totals_nsec: Stalls,
    totals_at_last_average: Stalls,
    averages: [[f64; 3]; 6],
}

impl Pressure {
    /// Advances time with these `stalls`; `passed` converts a part of it to nanoseconds. `is_host` leaves
    /// CPU full at zero.
    pub(super) fn advance(&mut self, stalls: &Stalls, passed: impl Fn(f64) -> f64, is_host: bool) {
        for (total, ratio) in self.totals_nsec.iter_mut().zip(stalls) {
            *total += passed(*ratio);
        }
        if is_host {
            self.totals_nsec[2 * Resource::Cpu as usize + 1] = 0.0;
        }
    }

    /// Adds a time in which some task waited for a disk.
    pub(super) fn wait_for_disk(&mut self, nsec: f64) {
        self.totals_nsec[2 * Resource::Io as usize] += nsec;
    }

    /// Closes an averaging interval of [`AVERAGING_NSEC`]; `kept` is the result of [`kept`].
    pub(super) fn average(&mut self, kept: &[f64; 3]) {
        for line in 0..6 {
            let passed = self.totals_nsec[line] - self.totals_at_last_average[line];
            let percent = 100.0 * passed / AVERAGING_NSEC as f64;
            self.totals_at_last_average[line] = self.totals_nsec[line];
            for (average, keep) in self.averages[line].iter_mut().zip(kept) {
                *average = *average * keep + percent * (1.0 - keep);
            }
        }
    }

    pub(super) fn text(&self, resource: Resource) -> String {
        let mut text = String::with_capacity(128);
        for (nr, name) in ["some", "full"].into_iter().enumerate() {
            let line = 2 * resource as usize + nr;
            text += name;
            for (name, average) in
                [" avg10=", " avg60=", " avg300="].iter().zip(self.averages[line])
            {
                text += name;
                hundredths(&mut text, average);
            }
            text += " total=";
            number(&mut text, (self.totals_nsec[line] / 1000.0) as u64);
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activity(running: f64, waiting: f64) -> Activity {
        Activity { running, waiting, ..Activity::default() }
    }

    #[test]
    fn one_thread_on_half_a_cpu_waits_half_the_time_and_fully() {
        assert_eq!(activity(0.5, 0.5).stalls()[..2], [0.5, 0.5]);
    }

    #[test]
    fn two_threads_on_one_cpu_always_have_one_waiting_and_one_running() {
        assert_eq!(activity(1.0, 1.0).stalls()[..2], [1.0, 0.0]);
    }

    #[test]
    fn full_never_exceeds_some() {
        for running in [0.0, 0.3, 1.0, 4.0] {
            for waiting in [0.0, 0.2, 0.9, 7.0] {
                for throttled_ratio in [0.0, 0.5, 1.0] {
                    let mut activity = activity(running, waiting);
                    activity.throttled_ratio = throttled_ratio;
                    activity.stalled = waiting;
                    activity.blocked = running;
                    for pair in activity.stalls().chunks(2) {
                        let (some, full) = (pair[0], pair[1]);
                        assert!((0.0..=1.0).contains(&some) && full <= some && full >= 0.0);
                    }
                }
            }
        }
    }

    #[test]
    fn averages_approach_the_ratio_and_the_text_is_the_kernels() {
        let mut pressure = Pressure::default();
        for _ in 0..5 {
            let passed = |ratio| ratio * AVERAGING_NSEC as f64;
            pressure.advance(&activity(1.0, 0.5).stalls(), passed, false);
            pressure.average(&kept());
        }
        let text = pressure.text(Resource::Cpu);
        assert_eq!(
            text,
            "some avg10=31.61 avg60=7.68 avg300=1.64 total=5000000\n\
             full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
        );
        assert!(pressure.text(Resource::Memory).starts_with("some avg10=0.00 avg60=0.00"));
    }
}
