//! Times at which waiting jobs would start, in one possible future.
//!
//! **Problem.** A user asks for the start of a waiting job. It depends on the ends of running jobs and of those that go before, which
//! are known as a distribution at best: the run times of earlier jobs of their classes.
//!
//! **Algorithm.** The queue is a value: a copy of it is played forward. A run that is drawn from its class ends each job, the
//! copy dispatches as the queue does, and the starts are noted. Many futures with independent draws give a sample of the time of the
//! start, and its quantiles an interval.
//!
//! **Properties.** Where the jobs to come run as long as those that are drawn from, the interval of the start has its stated
//! part (`foresee::four_of_five_starts_are_within`). Jobs that are submitted later and go before are not in it.
//!
//! Left out: evictions and idle jobs. All jobs succeed, and memory outside of jobs stays as it is.

use std::collections::BTreeMap;

use super::state::Admission;
use super::types::{JobId, JobView, Phase};

/// A run of a job from its start to its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PastRun {
    /// Time from the start to the end.
    pub seconds: f64,
    /// CPU time.
    pub cpu_seconds: f64,
}

impl Admission {
    /// Seconds until the start of each of the first jobs to start, `count` at most, in a future in which `draw` gives the whole run
    /// of a job that has run for so many seconds, longer than these. Jobs that start after one whose run is unknown are left
    /// out, and so are all if that of a running job is unknown, or if sets take part.
    pub fn foresee(
        &self,
        count: usize,
        now: f64,
        draw: &mut dyn FnMut(&JobView<'_>, f64) -> Option<PastRun>,
    ) -> BTreeMap<JobId, f64> {
        let mut starts = BTreeMap::new();
        let running = self.active().filter_map(|view| match view.phase {
            Phase::Running { since, .. } => Some(ending(&view, since, now, draw)),
            Phase::Waiting { .. } | Phase::Lingering { .. } => None,
        });
        let Some(mut runs) = running.collect::<Option<Vec<_>>>() else { return starts };
        let (mut future, mut clock) = (self.clone(), now);
        loop {
            for start in future.dispatch(self.measured, clock).starts {
                let run = future.job(start.job).map(|view| ending(&view, clock, clock, draw));
                starts.insert(start.job, clock - now);
                let Some(Some(run)) = run else { return starts };
                runs.push(run);
            }
            let first = (0..runs.len()).min_by(|a, b| runs[*a].end.total_cmp(&runs[*b].end));
            let Some(first) = first.filter(|_| starts.len() < count) else { return starts };
            let Ending { job, end, cpu_seconds } = runs.swap_remove(first);
            clock = end.max(clock);
            future.charge(job, cpu_seconds, None, clock);
            future.ended(job, clock);
            future.requirement_ended(job, true, clock);
        }
    }
}

/// The end of a run.
struct Ending {
    job: JobId,
    end: f64,
    cpu_seconds: f64,
}

fn ending(
    view: &JobView<'_>,
    since: f64,
    now: f64,
    draw: &mut dyn FnMut(&JobView<'_>, f64) -> Option<PastRun>,
) -> Option<Ending> {
    // The tasks of a set are no runs of its class.
    let PastRun { seconds, cpu_seconds } =
        if view.set.is_none() { draw(view, now - since)? } else { return None };
    Some(Ending { job: view.job, end: since + seconds, cpu_seconds })
}
