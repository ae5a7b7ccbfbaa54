//! Pressure stall information: totals, running averages, and how a fluid state becomes stalls.
//!
//! **Terms.** In a fluid model there are no instants, only mean numbers of threads: `running` on a CPU,
//! `waiting` for one, `stalled` on memory, `blocked` on IO. *some* is the part of time in which at least
//! one thread is stalled, *full* that in which one is and none does useful work
//! (Documentation/accounting/psi.rst).
//!
//! **Formula.** Stalls are taken to overlap as little as possible, so that with `some(x) = min(1, x)`:
//! CPU some = some(waiting); CPU full = some(running + waiting) − some(running), but at least the part of
//! time that a quota throttles the group; memory some = some(stalled); memory full =
//! some(active + stalled) − some(active) where active = running + waiting; IO likewise. For one thread
//! these are exact; for many they are the upper bound of *some*. The host has no CPU full, as in the kernel.
//!
//! **Properties.** `full <= some <= 1`, and a parent's *some* is never below a child's (tests below).

use std::fmt::Write;

/// The averages are brought up to date every two seconds, as `psi_avgs_work` does.
pub(super) const AVERAGING_NSEC: u64 = 2_000_000_000;

/// The windows of avg10, avg60 and avg300, seconds.
const WINDOWS_SEC: [f64; 3] = [10.0, 60.0, 300.0];

/// A resource that threads stall on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resource {
    Cpu,
    Memory,
    Io,
}

/// Mean numbers of threads of a group in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Activity {
    pub(super) running: f64,
    /// The part of `running` that runs in the kernel.
    pub(super) system: f64,
    pub(super) waiting: f64,
    pub(super) stalled: f64,
    pub(super) blocked: f64,
    /// The part of time in which a quota stops the whole group, 0 ..= 1.
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

    /// The stalls of each resource, by [`Resource`].
    pub(super) fn all_stalls(&self) -> [[f64; 2]; 3] {
        [Resource::Cpu, Resource::Memory, Resource::Io].map(|resource| self.stalls(resource))
    }

    /// `[some, full]` of a resource, each 0 ..= 1.
    fn stalls(&self, resource: Resource) -> [f64; 2] {
        let part = |threads: f64| threads.clamp(0.0, 1.0);
        let beyond = |busy: f64, stalled: f64| part(busy + stalled) - part(busy);
        let active = self.running + self.waiting;
        let (some, full) = match resource {
            Resource::Cpu => {
                (self.waiting, beyond(self.running, self.waiting).max(self.throttled_ratio))
            }
            Resource::Memory => (self.stalled, beyond(active, self.stalled)),
            Resource::Io => (self.blocked, beyond(active, self.blocked)),
        };
        [part(some), full.min(part(some))]
    }
}

/// One line of a pressure file.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    total_nsec: f64,
    total_at_last_average: f64,
    /// Percent.
    averages: [f64; 3],
}

impl Line {
    fn average(&mut self) {
        let percent =
            100.0 * (self.total_nsec - self.total_at_last_average) / AVERAGING_NSEC as f64;
        self.total_at_last_average = self.total_nsec;
        for (average, window) in self.averages.iter_mut().zip(WINDOWS_SEC) {
            let keep = (-(AVERAGING_NSEC as f64) * 1e-9 / window).exp();
            *average = *average * keep + percent * (1.0 - keep);
        }
    }
}

/// The three pressure files of one cgroup or of the host.
#[derive(Clone, Debug, Default)]
pub(super) struct Pressure {
    /// By [`Resource`], then some and full.
    lines: [[Line; 2]; 3],
}

impl Pressure {
    /// Lets time pass in which tasks stall so much; `passed` makes nanoseconds of a part of it. `is_host` leaves CPU full at
    /// zero.
    pub(super) fn advance(
        &mut self,
        stalls: &[[f64; 2]; 3],
        passed: impl Fn(f64) -> f64,
        is_host: bool,
    ) {
        for (lines, ratios) in self.lines.iter_mut().zip(stalls) {
            for (line, ratio) in lines.iter_mut().zip(ratios) {
                line.total_nsec += passed(*ratio);
            }
        }
        if is_host {
            self.lines[Resource::Cpu as usize][1].total_nsec = 0.0;
        }
    }

    /// Closes an averaging interval of [`AVERAGING_NSEC`].
    pub(super) fn average(&mut self) {
        self.lines.iter_mut().flatten().for_each(Line::average);
    }

    /// The text of the file.
    pub(super) fn text(&self, resource: Resource) -> String {
        let mut text = String::new();
        for (name, line) in ["some", "full"].iter().zip(&self.lines[resource as usize]) {
            let [avg10, avg60, avg300] = line.averages;
            let total_usec = (line.total_nsec / 1000.0) as u64;
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "{name} avg10={avg10:.2} avg60={avg60:.2} avg300={avg300:.2} total={total_usec}"
            );
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
        assert_eq!(activity(0.5, 0.5).stalls(Resource::Cpu), [0.5, 0.5]);
    }

    #[test]
    fn two_threads_on_one_cpu_always_have_one_waiting_and_one_running() {
        assert_eq!(activity(1.0, 1.0).stalls(Resource::Cpu), [1.0, 0.0]);
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
                    for resource in [Resource::Cpu, Resource::Memory, Resource::Io] {
                        let [some, full] = activity.stalls(resource);
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
            pressure.advance(&activity(1.0, 0.5).all_stalls(), passed, false);
            pressure.average();
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
