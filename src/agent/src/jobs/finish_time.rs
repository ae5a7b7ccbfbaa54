//! Counters for the finish-time fairness of jobs ([`tenantd_fair::finish_time`]).
//!
//! **Waits.** Cgroup v2 counts the time in which some thread of a job waited for a CPU (PSI). Cgroup v1 has no such counter:
//! there the waits of the threads are added (`/proc/TID/schedstat`), which is an upper bound. A thread that ends takes its
//! counters along. So an interval is unknown if the threads that are left used less than [`SEEN_MIN`] of the CPU time of
//! the job.
//!
//! **Cost.** An interval is at least [`APART_SECONDS`] long. On cgroup v1 at most [`THREADS_MAX`] threads are read for a job, and
//! [`ROUND_MAX`] in a round; a job beyond has no figure.
//!
//! **Restart.** The sums are in memory: a job that runs over a restart of tenantd has no figure, unless it runs ten times as
//! long after it.

use std::collections::{BTreeMap, HashMap};

use super::cgroup::JobCgroup;
use crate::backend::access::HostAccess;
use crate::tenants::state::Tenants;
use tenantd_admission::{JobView, Phase};
use tenantd_control::measure::sample::{TenantSample, ThreadSample};
use tenantd_core::resource::CPU;
use tenantd_fair::finish_time::{Alone, Interval};
use tenantd_fair::measure::jain_index;
use tenantd_host::cgroup::thread_samples;
use tenantd_host::kernfs::KernFs;

/// Least time between two readings.
const APART_SECONDS: f64 = 0.5;
/// Part of the CPU time of a job that its threads must account for.
const SEEN_MIN: f64 = 0.8;
/// CPU time that needs no explanation: that of an idle second.
const LITTLE_SECONDS: f64 = 0.01;
/// Most threads that are read for a job, and for all jobs in a round.
const THREADS_MAX: usize = 64;
const ROUND_MAX: usize = 256;
const USEC: f64 = 1e6;
const NSEC: f64 = 1e9;

/// Shares of the tenants in CPUs if all are busy, and the threads that may be read in this round.
#[derive(Debug, Default)]
pub(crate) struct Round {
    shares: HashMap<String, f64>,
    threads_left: usize,
}

impl Round {
    /// Begins a round of readings.
    pub(super) fn begin<K: KernFs>(&mut self, tenants: &Tenants<K>, is_tick: bool) {
        self.threads_left = ROUND_MAX;
        if is_tick {
            let states = tenants.control.states();
            let nodes = tenants.control.tree().policy_nodes();
            let share = |at: usize| states[at].target.burst[CPU];
            self.shares = nodes.map(|it| (it.name().to_string(), share(it.at()))).collect();
        }
    }
}

/// Counters of a job at its last reading, and its time alone so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct FinishTime {
    alone: Alone,
    last: Option<Reading>,
}

#[derive(Clone, Debug, Default)]
struct Reading {
    at: f64,
    usage_usec: u64,
    some_usec: Option<u64>,
    threads: BTreeMap<u32, ThreadSample>,
}

impl FinishTime {
    /// Adds the time since the last reading. `is_frozen`: tenantd has stopped its processes.
    pub(super) fn note<K: KernFs>(
        &mut self,
        round: &mut Round,
        host: &mut HostAccess<K>,
        (view, cgroup): (&JobView<'_>, &JobCgroup),
        (sample, is_frozen): (&TenantSample, bool),
        now: f64,
    ) {
        let (Phase::Running { since, dop }, None) = (view.phase, view.request.tasks) else {
            return;
        };
        let Some(usage_usec) = sample.usage_usec else { return };
        // All counters of its cgroup, and of processes that it starts, begin at 0.
        let last = self.last.get_or_insert_with(|| Reading { at: since, ..Reading::default() });
        let seconds = now - last.at;
        if seconds < APART_SECONDS {
            return;
        }
        let cpu_seconds = usage_usec.saturating_sub(last.usage_usec) as f64 / USEC;
        let mut reading =
            Reading { at: now, usage_usec, some_usec: sample.cpu_some_usec, ..Reading::default() };
        let (pressed_seconds, nr_threads) = match reading.some_usec {
            _ if is_frozen => (Some(seconds), None),
            Some(usec) => {
                let before = last.some_usec.unwrap_or(0);
                let nr_threads = cgroup.nr_threads(&mut host.kernel, &host.layout);
                (Some(usec.saturating_sub(before) as f64 / USEC), nr_threads)
            }
            None => {
                reading.threads = threads(round, host, cgroup);
                let waited = waited(&last.threads, &reading.threads, cpu_seconds);
                (waited, u32::try_from(reading.threads.len()).ok())
            }
        };
        let share = round.shares.get(&view.request.tenant).copied().unwrap_or(0.0);
        let width = nr_threads.map_or(dop, |threads| threads.clamp(1, dop.max(1)));
        let cpus = share.min(f64::from(width));
        self.alone.add(Interval { seconds, cpu_seconds, pressed_seconds, cpus });
        self.last = Some(reading);
    }

    /// Finish-time fairness of a job now, or the reason why there is none.
    pub(super) fn rho(&self, view: &JobView<'_>, now: f64) -> Result<f64, &'static str> {
        let Phase::Running { since, .. } = view.phase else { return Err("it does not run") };
        if view.request.tasks.is_some() {
            return Err("it has several runs, or is a set of tasks");
        }
        let (waited, ran) = (since - view.submitted, now - since);
        self.alone.rho(waited, ran).ok_or(
            "too little is known of its waits: it ran for less than a few seconds, its threads are too many or end too soon, \
             or tenantd did not run all the time",
        )
    }
}

/// Times of the threads of a job; none if they are too many.
fn threads<K: KernFs>(
    round: &mut Round,
    host: &mut HostAccess<K>,
    cgroup: &JobCgroup,
) -> BTreeMap<u32, ThreadSample> {
    let most = THREADS_MAX.min(round.threads_left);
    let found = cgroup.threads(&mut host.kernel, &host.layout, most);
    let Some(tids) = found.filter(|it| it.is_whole && it.tids.len() <= most).map(|it| it.tids)
    else {
        return BTreeMap::new();
    };
    round.threads_left -= tids.len();
    let proc = host.proc();
    let samples = thread_samples(&mut host.kernel, proc, &tids).into_iter();
    samples.map(|it| (it.tid, it)).collect()
}

/// Time that threads have waited for CPUs between two readings; `None` if too much of the CPU time is that of others.
fn waited(
    before: &BTreeMap<u32, ThreadSample>,
    now: &BTreeMap<u32, ThreadSample>,
    cpu_seconds: f64,
) -> Option<f64> {
    let (mut ran, mut waited) = (0, 0);
    for thread in now.values() {
        let first = ThreadSample { tid: thread.tid, run_nsec: 0, wait_nsec: 0 };
        let last = before.get(&thread.tid).unwrap_or(&first);
        ran += thread.run_nsec.saturating_sub(last.run_nsec);
        waited += thread.wait_nsec.saturating_sub(last.wait_nsec);
    }
    let is_seen = ran as f64 / NSEC + LITTLE_SECONDS >= SEEN_MIN * cpu_seconds;
    is_seen.then_some(waited as f64 / NSEC)
}

/// Jain's index over the tenants' means of the figures of jobs, with the number of these; `None` for fewer than two tenants.
pub(super) fn fairness<'a>(figures: impl Iterator<Item = (&'a str, f64)>) -> Option<(f64, u64)> {
    let mut of_tenants: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    let mut nr_jobs = 0;
    for (tenant, rho) in figures {
        nr_jobs += 1;
        let (sum, count) = of_tenants.entry(tenant).or_default();
        (*sum, *count) = (*sum + rho, *count + 1.0);
    }
    let means = of_tenants.values().map(|(sum, count)| sum / count);
    (of_tenants.len() >= 2).then(|| (jain_index(means), nr_jobs))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(tid: u32, run: f64, wait: f64) -> (u32, ThreadSample) {
        let nsec = |seconds: f64| (seconds * NSEC) as u64;
        (tid, ThreadSample { tid, run_nsec: nsec(run), wait_nsec: nsec(wait) })
    }

    #[test]
    fn waits_of_ended_threads_are_not_known() {
        let before = BTreeMap::from([thread(1, 5.0, 1.0), thread(2, 3.0, 0.0)]);
        let now = BTreeMap::from([thread(1, 5.5, 1.5), thread(3, 0.25, 0.25)]);
        assert_eq!(waited(&before, &now, 0.75), Some(0.75));
        assert_eq!(waited(&before, &now, 0.9), Some(0.75), "most of it is seen");
        assert_eq!(waited(&before, &now, 1.0), None);
        assert_eq!(waited(&before, &BTreeMap::new(), 0.005), Some(0.0), "it sleeps");
        assert_eq!(waited(&before, &BTreeMap::new(), 0.5), None);
    }

    #[test]
    fn tenants_count_once_each() {
        let of = |figures: &[(&'static str, f64)]| fairness(figures.iter().copied());
        assert_eq!(of(&[("a", 1.0), ("a", 3.0)]), None);
        assert_eq!(of(&[("a", 1.0), ("a", 3.0), ("b", 2.0)]), Some((1.0, 3)));
        assert_eq!(of(&[("a", 1.0), ("b", 3.0)]), Some((16.0 / 20.0, 2)));
    }
}
