//! Finish-time fairness of one job: the time that it took, over the time that it takes alone at its tenant's share.
//!
//! # Problem
//! A user asks if a job was slow because of others. Its time alone was never run, so it has to follow from counters of the
//! job while others ran too.
//!
//! # Definition
//! `rho = (waited + ran) / alone` (Themis, NSDI 2020, section 3: ρ = T_shared / T_independent; there the independent time is that
//! on 1/n of the cluster, here that on the tenant's share if busy). 1 is as if alone; 2 is twice as long. A job that used CPUs
//! that others left is below 1.
//!
//! # Time alone
//! An interval of `t` seconds with `c` CPU seconds, in which some thread waited for a CPU during `p` seconds, takes alone
//!
//! ```text
//! max(t − p, c / a),   a = min(width, share of the tenant in CPUs, threads)
//! ```
//!
//! In `t − p` the job had all CPUs that it wanted; it would sleep, or compute, as long alone. And `a` CPUs do not do its work
//! faster than `c / a`. Both are lower bounds, so `rho` is an upper bound. It is exact for a job that never waits, for one
//! thread, and for one that always wants `a` CPUs.
//!
//! # Unknown
//! Intervals without a counter of waits are unknown. With more than a tenth of the time unknown there is no figure
//! ([`Alone::rho`]): a guess would look like a measurement.
//!
//! # Properties (tests below)
//! 1 for a job alone; at least `1 + waited / ran` for a job within its share; equal for equal jobs that share CPUs equally;
//! never less with more waits.

/// Largest part of the time that may be unknown.
const UNKNOWN_MAX: f64 = 0.1;
/// Least CPUs of a share, against a division by 0.
const CPUS_MIN: f64 = 1e-3;

/// Counters of a job over one interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Its length.
    pub seconds: f64,
    /// CPU time used.
    pub cpu_seconds: f64,
    /// Time in which a thread waited for a CPU; `None` if unknown.
    pub pressed_seconds: Option<f64>,
    /// CPUs that it could have used alone: at most its width, its tenant's share, and its threads.
    pub cpus: f64,
}

/// Time that a job takes alone, summed over its intervals.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Alone {
    alone_seconds: f64,
    known_seconds: f64,
}

impl Alone {
    /// Adds an interval.
    pub fn add(&mut self, interval: Interval) {
        let Interval { seconds, cpu_seconds, pressed_seconds, cpus } = interval;
        let Some(pressed) = pressed_seconds.filter(|_| cpus > 0.0 && seconds > 0.0) else { return };
        let own = seconds - pressed.clamp(0.0, seconds);
        self.alone_seconds += own.max(cpu_seconds.max(0.0) / cpus.max(CPUS_MIN));
        self.known_seconds += seconds;
    }

    /// Finish-time fairness after these times in the queue and of the run; `None` if too little of the run is known.
    pub fn rho(&self, waited_seconds: f64, ran_seconds: f64) -> Option<f64> {
        let unknown = (ran_seconds - self.known_seconds).max(0.0);
        if unknown > UNKNOWN_MAX * ran_seconds || self.known_seconds <= 0.0 {
            return None;
        }
        // The unknown rest is like the known part.
        let alone = self.alone_seconds * ran_seconds / self.known_seconds;
        (alone > 0.0).then(|| (waited_seconds.max(0.0) + ran_seconds) / alone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn interval(seconds: f64, cpu_seconds: f64, pressed: f64, cpus: f64) -> Interval {
        Interval { seconds, cpu_seconds, pressed_seconds: Some(pressed), cpus }
    }

    fn rho(waited: f64, intervals: &[Interval]) -> Option<f64> {
        let mut alone = Alone::default();
        intervals.iter().for_each(|it| alone.add(*it));
        alone.rho(waited, intervals.iter().map(|it| it.seconds).sum())
    }

    #[test]
    fn known_courses_have_their_figures() {
        // One thread that ran half of the time and waited the rest; the same with half of the time asleep.
        assert_eq!(rho(0.0, &[interval(10.0, 5.0, 5.0, 1.0)]), Some(2.0));
        assert_eq!(rho(0.0, &[interval(8.0, 2.0, 2.0, 1.0)]), Some(8.0 / 6.0));
        // Half of one CPU is its share: it is as if alone.
        assert_eq!(rho(0.0, &[interval(10.0, 5.0, 5.0, 0.5)]), Some(1.0));
        // Four threads on two CPUs, that are its width or its share.
        assert_eq!(rho(0.0, &[interval(10.0, 20.0, 10.0, 2.0)]), Some(1.0));
        // CPUs that others left: half of the time.
        assert_eq!(rho(0.0, &[interval(10.0, 40.0, 0.0, 2.0)]), Some(0.5));
        // Ten seconds in the queue, and a starved time.
        assert_eq!(rho(10.0, &[interval(10.0, 10.0, 0.0, 1.0)]), Some(2.0));
        assert_eq!(
            rho(0.0, &[interval(5.0, 0.0, 5.0, 1.0), interval(5.0, 5.0, 0.0, 1.0)]),
            Some(2.0)
        );
    }

    #[test]
    fn too_little_knowledge_gives_no_figure() {
        let unknown = Interval { pressed_seconds: None, ..interval(1.0, 1.0, 0.0, 1.0) };
        let known = interval(9.0, 9.0, 0.0, 1.0);
        assert_eq!(rho(0.0, &[known, unknown]), Some(1.0));
        assert_eq!(rho(0.0, &[known, unknown, unknown]), None);
        assert_eq!(rho(0.0, &[Interval { cpus: 0.0, ..known }]), None);
        assert_eq!(rho(0.0, &[]), None);
        // It never got a CPU: its time alone is not known.
        assert_eq!(rho(5.0, &[interval(10.0, 0.0, 10.0, 1.0)]), None);
    }

    fn courses() -> impl Strategy<Value = Vec<(f64, f64, f64)>> {
        // Length, part of the CPUs used, part of the time pressed.
        prop::collection::vec((0.1..20.0, 0.0..1.0, 0.0..1.0), 1..30)
    }

    proptest! {
        #[test]
        fn a_job_alone_has_one(course in courses(), cpus in 0.1..64.0) {
            let all: Vec<Interval> = course.iter().map(|(t, used, _)| interval(*t, used * cpus * t, 0.0, cpus)).collect();
            let rho = rho(0.0, &all).unwrap();
            prop_assert!((rho - 1.0).abs() < 1e-9, "{rho}");
        }

        #[test]
        fn waits_count_in_full(course in courses(), cpus in 0.1..64.0, waited in 0.0..1000.0) {
            let all: Vec<Interval> =
                course.iter().map(|(t, used, pressed)| interval(*t, used * cpus * t, pressed * t, cpus)).collect();
            let ran: f64 = course.iter().map(|it| it.0).sum();
            if let Some(rho) = rho(waited, &all) {
                prop_assert!(rho >= (1.0 + waited / ran) * (1.0 - 1e-9), "{rho}");
            }
        }

        #[test]
        fn more_waits_are_never_less(course in courses(), cpus in 0.1..64.0, more in 0.0..1.0) {
            let of = |more: f64| {
                let of_one = |(t, used, pressed): &(f64, f64, f64)| {
                    interval(*t, used * cpus * t, (pressed + more).min(1.0) * t, cpus)
                };
                rho(1.0, &course.iter().map(of_one).collect::<Vec<_>>())
            };
            if let (Some(less), Some(rho)) = (of(0.0), of(more)) {
                prop_assert!(rho >= less * (1.0 - 1e-9), "{rho} {less}");
            }
        }

        /// Equal tenants of which each always wants its share: each has the number of those that share it, however long
        /// the intervals are.
        #[test]
        fn equal_tenants_have_equal_figures(tenants in 1_usize..20, cuts in prop::collection::vec(0.01..1.0, 1..20)) {
            // One CPU for all; the share is 1/n, and the pressure that of the others.
            let n = tenants as f64;
            let rhos: Vec<f64> = (0..tenants)
                .map(|_| {
                    let all: Vec<Interval> =
                        cuts.iter().map(|t| interval(*t, t / n, t * (1.0 - 1.0 / n), 1.0 / n)).collect();
                    rho(0.0, &all).unwrap()
                })
                .collect();
            prop_assert!(rhos.iter().all(|rho| (rho - 1.0).abs() < 1e-9), "{rhos:?}");
            prop_assert!((crate::measure::jain_index(rhos) - 1.0).abs() < 1e-9);
        }
    }
}
