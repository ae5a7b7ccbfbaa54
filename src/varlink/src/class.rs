//! Figures of the finished jobs of one class: percentiles, and the memory to declare.
//!
//! **Terms.** A job *exceeded* its declaration if it was killed at the memory limit that its `--memory` set. Its peak is then only a
//! lower bound of its need. A percentile p is the smallest value that is at least as large as p of all values.
//!
//! **Rule.** The amount to declare covers [`COVERED`] of the peaks, and [`MORE_MEMORY`] times the largest peak of a job that
//! exceeded its declaration.

use serde::{Deserialize, Serialize};

use super::jobs::{EndReason, FinishedJob, Forecast};
use tenantd_control::report::status::DeathCause;

/// Part of the peaks that the proposed declaration covers.
pub const COVERED: f64 = 0.95;
/// Proposed memory of a killed job, relative to its peak.
pub const MORE_MEMORY: f64 = 1.2;

/// Percentiles of a figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// 10 % of the values are at most this.
    pub p10: f64,
    /// The median.
    pub p50: f64,
    /// 90 % of the values are at most this.
    pub p90: f64,
    /// 95 % of the values are at most this.
    pub p95: f64,
    /// The largest value.
    pub max: f64,
}

impl Percentiles {
    /// Percentiles of values that are not NaN; `None` without a value.
    pub fn of(values: impl Iterator<Item = f64>) -> Option<Percentiles> {
        let mut values: Vec<f64> = values.filter(|value| !value.is_nan()).collect();
        values.sort_unstable_by(f64::total_cmp);
        let max = *values.last()?;
        let at = |part: f64| {
            let rank = (part * values.len() as f64 - 1e-9).ceil().max(1.0) as usize;
            values.get(rank - 1).copied().unwrap_or(max)
        };
        Some(Percentiles { p10: at(0.1), p50: at(0.5), p90: at(0.9), p95: at(COVERED), max })
    }
}

/// Figures of a class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassFigures {
    /// Its jobs that ran.
    pub nr_jobs: u64,
    /// Those that exceeded their declared memory.
    pub nr_exceeded: u64,
    /// Largest memory of each job in bytes; of those that exceeded their declaration a lower bound.
    pub peak_bytes: Option<Percentiles>,
    /// Time of each job from its start to its end.
    pub ran_seconds: Option<Percentiles>,
    /// CPU time of each job.
    pub cpu_seconds: Option<Percentiles>,
    /// Memory to declare.
    pub proposed_bytes: Option<u64>,
}

impl ClassFigures {
    /// Figures of the jobs that ran.
    pub fn of<'a>(jobs: impl Iterator<Item = &'a FinishedJob> + Clone) -> ClassFigures {
        let jobs = jobs.filter(|job| job.started_unix_seconds.is_some());
        let peaks = jobs.clone().filter_map(|job| job.peak_memory_bytes).map(|it| it as f64);
        let peak_bytes = Percentiles::of(peaks);
        let exceeding = jobs.clone().filter(|job| has_exceeded(job));
        let cut = exceeding.clone().filter_map(|job| job.peak_memory_bytes.max(job.memory_bytes));
        let needed = cut.max().map(|peak| peak as f64 * MORE_MEMORY);
        let proposed = peak_bytes.map(|peaks| peaks.p95.max(needed.unwrap_or(0.0)));
        ClassFigures {
            nr_jobs: jobs.clone().count() as u64,
            nr_exceeded: exceeding.count() as u64,
            peak_bytes,
            ran_seconds: Percentiles::of(jobs.clone().filter_map(|job| job.ran_seconds)),
            cpu_seconds: Percentiles::of(jobs.filter_map(|job| job.cpu_seconds)),
            proposed_bytes: proposed.map(|bytes| bytes.ceil() as u64),
        }
    }
}

/// Least number of jobs of a class with longer runs for an estimate: of six, the smallest and the largest have 71 % of the values to
/// come between them.
pub const RUNS_MIN: usize = 7;

/// Remaining time of a job that has run for `ran_seconds`, from the run times of earlier jobs of its class: of those that
/// ran longer. `None` if there are fewer than [`RUNS_MIN`] of them. Four of five jobs end between the first and the last figure.
pub fn remaining(runs: impl Iterator<Item = f64>, ran_seconds: f64) -> Option<Forecast> {
    let left: Vec<f64> = runs.map(|run| run - ran_seconds).filter(|left| *left > 0.0).collect();
    let nr_jobs = left.len();
    interval(left, nr_jobs as u64).filter(|_| nr_jobs >= RUNS_MIN)
}

/// The interval of four of five values to come that are drawn like these, and their median; `None` without a value.
///
/// A value to come is below the k-th smallest of n with probability k / (n + 1). Between two of them the quantile is
/// interpolated (definition 6 of Hyndman and Fan, "Sample Quantiles in Statistical Packages", The American Statistician 50(4), 1996).
pub fn interval(mut values: Vec<f64>, nr_jobs: u64) -> Option<Forecast> {
    values.retain(|value| !value.is_nan());
    values.sort_unstable_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    let at = |part: f64| {
        let place = (part * (values.len() + 1) as f64 - 1.0).clamp(0.0, last as f64);
        let (low, high) = (values[place.floor() as usize], values[place.ceil() as usize]);
        low + (high - low) * place.fract()
    };
    let (low_seconds, likely_seconds, high_seconds) = (at(0.1), at(0.5), at(0.9));
    Some(Forecast { low_seconds, likely_seconds, high_seconds, nr_jobs })
}

/// True if the run time of a job is one of its class: it was neither ended early nor killed.
pub fn is_typical(job: &FinishedJob) -> bool {
    // The time of an evicted job includes its waits between two runs.
    let is_single = job.tasks.is_none() && job.run.is_none_or(|run| run <= 1);
    matches!(job.reason, EndReason::Ended | EndReason::Exited) && is_single
}

/// True if a job was killed at its declared memory. Without the kernel's log its peak decides.
pub fn has_exceeded(job: &FinishedJob) -> bool {
    let Some(declared) = job.memory_bytes.filter(|_| job.reason == EndReason::Killed) else {
        return false;
    };
    match job.killer {
        Some(DeathCause::Declared) => true,
        None | Some(DeathCause::Unknown) => {
            job.peak_memory_bytes.is_some_and(|peak| peak >= declared / 100 * 99)
        }
        Some(_) => false,
    }
}

/// Text of an amount for `--memory`: a whole number of the largest unit with at least three of it.
pub fn declaration(bytes: u64) -> String {
    let wanted = bytes as f64;
    let (unit, name) = if wanted >= 3.0 * (1_u64 << 30) as f64 { (30, "GiB") } else { (20, "MiB") };
    format!("{:.0}{name}", (wanted / (1_u64 << unit) as f64 - 1e-9).ceil())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn job(peak: u64, killer: Option<DeathCause>) -> FinishedJob {
        FinishedJob {
            started_unix_seconds: Some(1.0),
            ran_seconds: Some(peak as f64),
            memory_bytes: Some(100 * MIB),
            peak_memory_bytes: Some(peak * MIB),
            reason: killer.map_or(EndReason::Exited, |_| EndReason::Killed),
            killer,
            ..FinishedJob::default()
        }
    }

    #[test]
    fn percentiles_are_values_of_the_jobs() {
        let of = |nr: u32| Percentiles::of((1..=nr).map(f64::from));
        assert_eq!(of(0), None);
        let all = |it: Percentiles| [it.p10, it.p50, it.p90, it.p95, it.max];
        assert_eq!(all(of(1).unwrap()), [1.0; 5]);
        assert_eq!(all(of(20).unwrap()), [2.0, 10.0, 18.0, 19.0, 20.0]);
        assert_eq!(all(of(100).unwrap()), [10.0, 50.0, 90.0, 95.0, 100.0]);
    }

    #[test]
    fn the_remaining_time_is_that_of_longer_runs() {
        let runs = || (1..=20).map(|minutes| f64::from(minutes) * 60.0);
        let fresh = remaining(runs(), 0.0).unwrap();
        let figures = |it: Forecast| {
            (it.low_seconds.round(), it.likely_seconds.round(), it.high_seconds.round(), it.nr_jobs)
        };
        assert_eq!(figures(fresh), (126.0, 630.0, 1134.0, 20));
        let later = remaining(runs(), 600.0).unwrap();
        assert_eq!(figures(later), (66.0, 330.0, 594.0, 10));
        assert_eq!(remaining(runs(), 780.0).map(|it| it.nr_jobs), Some(7));
        assert_eq!(remaining(runs(), 781.0).map(|it| it.nr_jobs), Some(7));
        assert_eq!(remaining(runs(), 841.0), None, "too few ran longer");
    }

    /// Of the jobs of a class, about four of five end within the interval that the others give.
    #[test]
    fn the_interval_covers_four_of_five_ends() {
        // Skewed, as run times are: a linear congruence through an exponential.
        let mut state = 1_u64;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let uniform = ((state >> 33) as f64 + 0.5) / (1_u64 << 31) as f64;
            -600.0 * uniform.ln()
        };
        for nr_past in [7, 9, 11, 14, 18, 25, 60] {
            let (mut covered, mut all) = (0_u32, 0_u32);
            for _ in 0..4_000 {
                let past: Vec<f64> = (0..nr_past).map(|_| draw()).collect();
                let run = draw();
                let it = remaining(past.into_iter(), 0.0).unwrap();
                all += 1;
                covered += u32::from((it.low_seconds..=it.high_seconds).contains(&run));
            }
            let coverage = f64::from(covered) / f64::from(all);
            assert!((0.73..0.83).contains(&coverage), "{coverage} with {nr_past} runs");
        }
    }

    #[test]
    fn the_proposal_covers_peaks_and_what_was_cut_off() {
        let calm: Vec<FinishedJob> = (1..=20).map(|peak| job(peak, None)).collect();
        let figures = ClassFigures::of(calm.iter());
        assert_eq!((figures.nr_jobs, figures.nr_exceeded), (20, 0));
        assert_eq!(figures.proposed_bytes, Some(19 * MIB));
        let cut = [job(100, Some(DeathCause::Declared)), job(50, Some(DeathCause::Limit))];
        let figures = ClassFigures::of(calm.iter().chain(&cut));
        assert_eq!((figures.nr_jobs, figures.nr_exceeded), (22, 1));
        assert_eq!(figures.proposed_bytes, Some(120 * MIB));
        // A job that never started has no figures.
        let waited = FinishedJob::default();
        assert_eq!(ClassFigures::of([&waited].into_iter()), ClassFigures::default());
    }

    #[test]
    fn a_kill_by_another_limit_is_not_an_exceeded_declaration() {
        assert!(has_exceeded(&job(100, Some(DeathCause::Unknown))));
        assert!(!has_exceeded(&job(50, Some(DeathCause::Unknown))));
        assert!(!has_exceeded(&job(100, Some(DeathCause::Host))));
        assert!(!has_exceeded(&job(100, None)), "it exited");
        let undeclared = FinishedJob { memory_bytes: None, ..job(100, Some(DeathCause::Unknown)) };
        assert!(!has_exceeded(&undeclared));
    }
}
