//! Forecasts of the starts of waiting jobs, from the run times of earlier jobs of their classes and of those before them.
//!
//! Each is a sample of [`FUTURES`] times by [`Admission::foresee`]: the ends of its interval are values of the sample, so that
//! of five starts to come four are within, if jobs run as before and none goes before that is submitted later. A draw depends
//! on the job and the future alone, so a list changes with what happens only.
//!
//! The work is bounded: of the first [`PLACES`] jobs to start, in a queue of at most [`JOBS_MAX`] jobs.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::finished::FinishedJobs;
use tenantd_admission::{Admission, JobId, JobView, PastRun};
use tenantd_varlink::class::{RUNS_MIN, interval};
use tenantd_varlink::jobs::Forecast;

/// Futures of a sample. Of so many values the second and the last but one are the outer tenths.
const FUTURES: u64 = 19;
const PLACES: usize = 16;
const JOBS_MAX: usize = 200;

/// Forecasts of the first waiting jobs; of those only whose start is known in every future.
pub(crate) fn forecasts(
    admission: &Admission,
    finished: &FinishedJobs,
    now: f64,
) -> HashMap<JobId, Forecast> {
    let mut samples: HashMap<JobId, Vec<f64>> = HashMap::new();
    if admission.nr_waiting() == 0 || admission.jobs().take(JOBS_MAX + 1).count() > JOBS_MAX {
        return HashMap::new();
    }
    let mut past = Past { finished, of_classes: HashMap::new(), fewest: usize::MAX };
    for future in 0..FUTURES {
        let starts = admission.foresee(PLACES, now, &mut |view, ran| past.draw(view, future, ran));
        if starts.is_empty() {
            return HashMap::new();
        }
        starts.into_iter().for_each(|(job, seconds)| samples.entry(job).or_default().push(seconds));
    }
    samples.retain(|_, starts| starts.len() as u64 == FUTURES);
    let forecast = |(job, starts)| Some((job, interval(starts, past.fewest as u64)?));
    samples.into_iter().filter_map(forecast).collect()
}

/// Runs of earlier jobs.
struct Past<'a> {
    finished: &'a FinishedJobs,
    /// By user and class, the shortest first.
    of_classes: HashMap<(u32, String), Vec<PastRun>>,
    /// Fewest runs of which one was drawn.
    fewest: usize,
}

impl Past<'_> {
    /// One of the runs of its class that are longer than it has run; `None` if these are too few.
    fn draw(&mut self, view: &JobView<'_>, future: u64, ran: f64) -> Option<PastRun> {
        let class = view.request.class.as_deref()?;
        let runs = match self.of_classes.entry((view.request.user, class.to_string())) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let mut runs: Vec<PastRun> = self.finished.runs(view.request.user, class).collect();
                runs.sort_unstable_by(|a, b| a.seconds.total_cmp(&b.seconds));
                new.insert(runs)
            }
        };
        let longer = runs.get(runs.partition_point(|run| run.seconds <= ran)..)?;
        if longer.len() < RUNS_MIN {
            return None;
        }
        self.fewest = self.fewest.min(longer.len());
        longer.get((mixed(view.job.0, future) % longer.len() as u64) as usize).copied()
    }
}

/// A number that looks random, of two others (the output function of SplitMix64: Steele, Lea and Flood, OOPSLA 2014, §4).
fn mixed(job: u64, future: u64) -> u64 {
    let mut state = (job * FUTURES + future + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenantd_admission::{Capacity, Measured, Request, Rules, Terms};
    use tenantd_varlink::jobs::{EndReason, FinishedJob};

    fn finished(nr: u64) -> FinishedJobs {
        let job = |id: u64| FinishedJob {
            id,
            class: Some("build".to_string()),
            reason: EndReason::Exited,
            ran_seconds: Some(10.0 * id as f64),
            ..FinishedJob::default()
        };
        FinishedJobs::from_kept((1..=nr).map(job).collect())
    }

    /// A queue of two workers with so many jobs of the class.
    fn queue(nr: u32, class: &str) -> Admission {
        let rules = Rules { max_running: Some(2), ..Rules::default() };
        let capacity = Capacity { slots: 2, ..Capacity::default() };
        let mut admission = Admission::new(rules, capacity);
        admission.policy(rules, vec![Terms::new("a", 1.0)], 0.0);
        for _ in 0..nr {
            let request = Request { class: Some(class.to_string()), ..Request::new("a", 0) };
            admission.submit(request, 0.0).unwrap();
        }
        admission.dispatch(Measured::default(), 0.0);
        admission
    }

    #[test]
    fn later_jobs_start_later_and_a_list_repeats_itself() {
        let (admission, finished) = (queue(6, "build"), finished(20));
        let starts = forecasts(&admission, &finished, 5.0);
        let of = |id| starts[&JobId(id)];
        assert_eq!(starts.len(), 4);
        assert!(of(3).likely_seconds < of(6).likely_seconds);
        for forecast in starts.values() {
            let Forecast { low_seconds, likely_seconds, high_seconds, nr_jobs } = *forecast;
            assert!(5.0 <= low_seconds && low_seconds < likely_seconds);
            assert!(likely_seconds < high_seconds && nr_jobs == 20);
        }
        assert_eq!(forecasts(&admission, &finished, 5.0), starts);
    }

    #[test]
    fn no_start_is_foreseen_without_a_history_or_in_a_long_queue() {
        assert!(forecasts(&queue(6, "build"), &finished(6), 0.0).is_empty(), "too few runs");
        assert!(forecasts(&queue(6, "other"), &finished(20), 0.0).is_empty());
        assert!(forecasts(&queue(6, "build"), &finished(20), 140.0).is_empty(), "few run as long");
        let long = forecasts(&queue(JOBS_MAX as u32, "build"), &finished(20), 0.0);
        assert!((PLACES..PLACES + 2).contains(&long.len()), "{}", long.len());
        assert!(forecasts(&queue(JOBS_MAX as u32 + 1, "build"), &finished(20), 0.0).is_empty());
    }
}
