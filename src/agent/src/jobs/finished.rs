//! Finished jobs: one record for each, within bounds, and its end as a sentence.
//!
//! **Problem.** A user asks the next morning why a job ended, and a script waits for the end of one. The daemon
//! is not the parent of a job's process, so the kernel gives it no exit status; and users who submit a million
//! jobs must not fill memory or push out the records of others.
//!
//! **Record.** [`FinishedJob`] is the record in memory, in the state directory and on the wire. It is made when
//! the first process of a job ends, or a job leaves the queue without a start. Processes left behind add CPU time
//! and memory to it until they end.
//!
//! **Exit status.** Known only if the supervisor of `tenantctl run --background` reports it, and then from that
//! process of the job's own user. It is never derived from other values: a job without a report has
//! [`EndReason::Ended`]. A report that arrives late completes the record.
//!
//! **Kills.** The `oom_kill` counter of the job's cgroup is read before the cgroup is removed, and the kernel's log before that
//! (`agent/deaths.rs`). A job of which a process was killed counts as killed, unless its command exited with 0.
//!
//! **Bounds.** [`PER_USER_MAX`] records for each user and [`ALL_MAX`] in all. The oldest record of the user with
//! the most goes first, so one user's jobs push out only that user's.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use nix::sys::signal::Signal;

use tenantd_admission::PastRun;
use tenantd_control::report::status::DeathCause;
use tenantd_core::units::Bytes;
use tenantd_varlink::class::{ClassFigures, MORE_MEMORY, declaration, has_exceeded, is_typical};
use tenantd_varlink::jobs::{EndReason, FinishedJob, Tasks};

/// Most records of one user.
const PER_USER_MAX: usize = 100;
/// Most records of all users.
const ALL_MAX: usize = 2000;
/// Jobs of a class that exceed their declared memory before its user gets a hint.
const EXCEEDED_MIN: u64 = 3;

/// The records, in the order of their ends.
#[derive(Debug, Default)]
pub(crate) struct FinishedJobs {
    /// By position in that order.
    all: BTreeMap<u64, Arc<FinishedJob>>,
    positions: HashMap<u64, u64>,
    of_users: BTreeMap<u32, VecDeque<u64>>,
    next: u64,
    nr_changes: u64,
}

impl FinishedJobs {
    /// Returns the records of an earlier agent, within the bounds.
    pub(crate) fn from_kept(kept: Vec<FinishedJob>) -> FinishedJobs {
        let mut finished = FinishedJobs::default();
        kept.into_iter().for_each(|job| finished.insert(job));
        finished.nr_changes = 0;
        finished
    }

    pub(crate) fn insert(&mut self, job: FinishedJob) {
        if let Some(position) = self.positions.get(&job.id).copied() {
            self.remove(position);
        }
        let (position, uid) = (self.next, job.uid);
        self.next += 1;
        self.nr_changes += 1;
        self.positions.insert(job.id, position);
        self.of_users.entry(uid).or_default().push_back(position);
        let id = job.id;
        self.all.insert(position, Arc::new(job));
        self.advise(id);
        let oldest = |of: &VecDeque<u64>| of.front().copied();
        let of_user = self.of_users.get(&uid).filter(|of| of.len() > PER_USER_MAX);
        if let Some(oldest) = of_user.and_then(oldest) {
            self.remove(oldest);
        }
        if self.all.len() > ALL_MAX {
            // Of users with equally many, the one with the oldest record.
            let most = self.of_users.values().max_by_key(|of| (of.len(), Reverse(oldest(of))));
            if let Some(oldest) = most.and_then(oldest) {
                self.remove(oldest);
            }
        }
    }

    fn remove(&mut self, position: u64) {
        let Some(job) = self.all.remove(&position) else { return };
        self.positions.remove(&job.id);
        if let Some(of_user) = self.of_users.get_mut(&job.uid) {
            of_user.retain(|it| *it != position);
            if of_user.is_empty() {
                self.of_users.remove(&job.uid);
            }
        }
    }

    pub(crate) fn get(&self, id: u64) -> Option<&FinishedJob> {
        self.all.get(self.positions.get(&id)?).map(|job| &**job)
    }

    /// Changes the record of a job, if there is one.
    pub(crate) fn update(&mut self, id: u64, change: impl FnOnce(&mut FinishedJob)) {
        let position = self.positions.get(&id);
        if let Some(job) = position.and_then(|position| self.all.get_mut(position)) {
            change(Arc::make_mut(job));
            self.nr_changes += 1;
            self.advise(id);
        }
    }

    /// Adds a hint to the record of a job that exceeded its declared memory, if its class does so again and again.
    fn advise(&mut self, id: u64) {
        let Some(position) = self.positions.get(&id).copied() else { return };
        let hint = self.all.get(&position).and_then(|job| self.hint(job));
        if let Some(job) = self.all.get_mut(&position).filter(|job| job.hint != hint) {
            Arc::make_mut(job).hint = hint;
        }
    }

    fn hint(&self, job: &FinishedJob) -> Option<String> {
        let class = job.class.as_deref().filter(|_| has_exceeded(job))?;
        let of_user = self.of_users.get(&job.uid)?.iter().filter_map(|at| self.all.get(at));
        let of_class = of_user.filter(|other| other.class.as_deref() == Some(class));
        let figures = ClassFigures::of(of_class.map(|job| &**job));
        let (peaks, proposed) = (figures.peak_bytes?, figures.proposed_bytes?);
        (figures.nr_exceeded >= EXCEEDED_MIN).then(|| {
            format!(
                "{} of the last {} jobs of class {class} exceeded their memory, 95 % used at most {}: run with --memory {}; \
                 see tenantctl jobs --class {class}",
                figures.nr_exceeded,
                figures.nr_jobs,
                Bytes(peaks.p95 as u64).rounded(),
                declaration(proposed)
            )
        })
    }

    /// Runs of the finished jobs of a class, unless these ended early.
    pub(crate) fn runs(&self, uid: u32, class: &str) -> impl Iterator<Item = PastRun> {
        let of_user = self.of_users.get(&uid).into_iter().flatten();
        let jobs = of_user.filter_map(|position| self.all.get(position));
        let of_class = jobs.filter(move |job| job.class.as_deref() == Some(class));
        let run = |job: &Arc<FinishedJob>| {
            let cpu_seconds = job.cpu_seconds.unwrap_or_default();
            Some(PastRun { seconds: job.ran_seconds?, cpu_seconds })
        };
        of_class.filter(|job| is_typical(job)).filter_map(run)
    }

    /// Tenant and finish-time fairness of the jobs that ended since a time in seconds since 1970.
    pub(crate) fn rhos(&self, since: f64) -> impl Iterator<Item = (&str, f64)> {
        let recent = self.all.values().filter(move |job| job.ended_unix_seconds >= since);
        recent.filter_map(|job| Some((job.tenant.as_str(), job.rho?)))
    }

    pub(crate) fn list(&self) -> Vec<Arc<FinishedJob>> {
        self.all.values().map(Arc::clone).collect()
    }

    /// Counter of changes since the start of this agent.
    pub(crate) fn nr_changes(&self) -> u64 {
        self.nr_changes
    }
}

/// Sets kind and sentence of the end of a job whose process ran, from its figures. A cancelled job stays cancelled
/// unless it exited with 0.
pub(crate) fn describe(job: &mut FinishedJob) {
    let (kills, has_succeeded) = (job.nr_oom_kills.unwrap_or(0), job.exit_code == Some(0));
    let is_cancelled = job.reason == EndReason::Cancelled && !has_succeeded;
    let is_evicted = job.reason == EndReason::Evicted && !has_succeeded;
    let status = match (job.exit_code, job.exit_signal) {
        (Some(code), _) => format!("exited with code {code}"),
        (_, Some(signal)) => format!("ended by {}", signal_name(signal)),
        _ => "ended; its exit status is not known: only `tenantctl run --background` reports it"
            .to_string(),
    };
    (job.reason, job.text) = match (job.exit_code, job.exit_signal) {
        _ if kills > 0 && !has_succeeded => (EndReason::Killed, killed(job, kills)),
        _ if is_evicted => {
            let text = "ended by tenantd for another job: its client had not ended its run in time";
            (EndReason::Evicted, text.into())
        }
        (None, None) if is_cancelled => (EndReason::Cancelled, "cancelled while it ran".into()),
        _ if is_cancelled => (EndReason::Cancelled, format!("cancelled while it ran: {status}")),
        (Some(_), _) if kills > 0 => {
            let text = format!(
                "{status}, although the kernel killed {} for lack of memory",
                processes(kills)
            );
            (EndReason::Exited, text)
        }
        (Some(_), _) => (EndReason::Exited, status),
        (_, Some(_)) => (EndReason::Signalled, status),
        _ => (EndReason::Ended, status),
    };
    job.text.extend(job.tasks.map(|tasks| format!("; {}", figures(&tasks))));
    job.text.extend(job.run.filter(|run| *run > 1).map(|run| format!("; run {run}")));
}

/// Sums over the tasks of a set as text.
pub(crate) fn figures(tasks: &Tasks) -> String {
    let Tasks { count, succeeded, failed, running, .. } = tasks;
    let rest = tasks.waiting();
    let left = if *running > 0 { format!(", {running} left behind") } else { String::new() };
    format!("{count} tasks: {succeeded} succeeded, {failed} failed{left}, {rest} not started")
}

fn killed(job: &FinishedJob, kills: u64) -> String {
    let rounded = |bytes: u64| Bytes(bytes).rounded();
    let peak = job.peak_memory_bytes;
    let needed = peak.unwrap_or(0).max(job.memory_bytes.unwrap_or(0));
    let remedy = match needed {
        0 => "run with --memory AMOUNT, which is reserved for the job".to_string(),
        needed => {
            let proposed = (needed as f64 * MORE_MEMORY).ceil() as u64;
            format!("run with --memory {}", declaration(proposed))
        }
    };
    let used = peak.map_or_else(|| processes(kills), |peak| format!("used {}", rounded(peak)));
    let of = job.memory_bytes.map(|declared| format!(" of its {}", rounded(declared)));
    let used = used + &of.unwrap_or_default();
    match (job.memory_bytes, peak) {
        _ if job.killer == Some(DeathCause::Host) => format!(
            "killed: {used} when the machine had no memory left; start it when less runs, or {remedy}, which is kept free for it"
        ),
        _ if job.killer == Some(DeathCause::Limit) => format!(
            "killed: {used} when {} reached its memory limit; raise that limit, or start it when less runs",
            job.killer_limit.as_deref().unwrap_or("its tenant")
        ),
        (Some(declared), Some(peak))
            if job.killer == Some(DeathCause::Declared) || peak >= declared / 100 * 99 =>
        {
            format!("killed: used {} of its {}; {remedy}", rounded(peak), rounded(declared))
        }
        (Some(declared), Some(peak)) => format!(
            "killed: used {} of its {}, and its tenant or the machine had no memory left; start it when less runs, or \
             raise limit.memory of its tenant",
            rounded(peak),
            rounded(declared)
        ),
        (None, Some(peak)) => format!(
            "killed: used {}, and its tenant or the machine had no memory left; {remedy}, which waits until as much is free",
            rounded(peak)
        ),
        (_, None) => {
            format!("killed: the kernel ended {} for lack of memory; {remedy}", processes(kills))
        }
    }
}

fn processes(count: u64) -> String {
    if count == 1 { "1 process".to_string() } else { format!("{count} processes") }
}

fn signal_name(signal: u8) -> String {
    let known = Signal::try_from(i32::from(signal)).ok();
    known.map_or_else(|| format!("signal {signal}"), |it| format!("signal {signal} ({it})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(id: u64, uid: u32) -> FinishedJob {
        FinishedJob { id, uid, ..FinishedJob::default() }
    }

    #[test]
    fn each_user_keeps_the_last_hundred() {
        let mut finished = FinishedJobs::default();
        finished.insert(job(1, 8));
        (2..1002).for_each(|id| finished.insert(job(id, 7)));
        assert_eq!((finished.all.len(), finished.get(902).is_some()), (101, true));
        assert!(finished.get(901).is_none() && finished.get(1).is_some());
        // A record that is written again is the newest.
        finished.insert(job(902, 7));
        finished.insert(job(2000, 7));
        assert!(finished.get(902).is_some() && finished.get(903).is_none());
        assert_eq!((finished.positions.len(), finished.of_users[&7].len()), (101, 100));
    }

    #[test]
    fn the_oldest_of_the_user_with_the_most_goes_first() {
        let mut finished = FinishedJobs::default();
        // One user with ten records, and so many others that all together reach the bound.
        (0..10).for_each(|id| finished.insert(job(id, 1)));
        (10..ALL_MAX as u64).for_each(|id| finished.insert(job(id, 100 + id as u32)));
        (5000..5004).for_each(|id| finished.insert(job(id, id as u32)));
        assert_eq!(finished.all.len(), ALL_MAX);
        let left: Vec<u64> = (0..12).filter(|id| finished.get(*id).is_some()).collect();
        assert_eq!(left, [4, 5, 6, 7, 8, 9, 10, 11]);
        // Users with one record each: the oldest record goes, not the new one.
        let mut finished = FinishedJobs::default();
        (0..=ALL_MAX as u64).for_each(|id| finished.insert(job(id, id as u32)));
        assert!(finished.get(0).is_none() && finished.get(ALL_MAX as u64).is_some());
    }

    #[test]
    fn an_end_has_its_figures_and_a_remedy() {
        let of =
            |exit: Option<u8>, signal: Option<u8>, kills: u64, memory: Option<u64>, peak: u64| {
                let mut job = FinishedJob {
                    exit_code: exit,
                    exit_signal: signal,
                    nr_oom_kills: Some(kills),
                    memory_bytes: memory,
                    peak_memory_bytes: Some(peak),
                    ..FinishedJob::default()
                };
                describe(&mut job);
                (job.reason, job.text)
            };
        let gib = 1 << 30;
        let (reason, text) = of(None, Some(9), 1, Some(5 * gib), 5 * gib + gib / 10);
        assert_eq!(reason, EndReason::Killed);
        assert_eq!(text, "killed: used 5.1GiB of its 5.0GiB; run with --memory 7GiB");
        assert_eq!(
            of(None, None, 1, Some(64 << 20), 64 << 20).1,
            "killed: used 64MiB of its 64MiB; run with --memory 77MiB"
        );
        assert!(of(Some(1), None, 1, Some(gib), gib / 2).1.contains("limit.memory of its tenant"));
        assert!(of(Some(1), None, 2, None, gib).1.contains("run with --memory 1229MiB"));
        assert_eq!(of(Some(3), None, 0, None, 1), (EndReason::Exited, "exited with code 3".into()));
        let (reason, text) = of(Some(0), None, 2, None, 1);
        assert!(reason == EndReason::Exited && text.contains("killed 2 processes"), "{text}");
        assert_eq!(of(None, Some(15), 0, None, 1).1, "ended by signal 15 (SIGTERM)");
        assert_eq!(of(None, Some(35), 0, None, 1).1, "ended by signal 35");
        assert_eq!(of(None, None, 0, None, 1).0, EndReason::Ended);
    }

    #[test]
    fn a_class_that_exceeds_its_memory_again_and_again_gets_a_hint() {
        let mut finished = FinishedJobs::default();
        let mut end = |id: u64, class: Option<&str>, uid: u32, killer: Option<DeathCause>| {
            let mut ended = FinishedJob {
                class: class.map(str::to_string),
                started_unix_seconds: Some(1.0),
                memory_bytes: Some(1 << 30),
                peak_memory_bytes: Some(1 << 30),
                nr_oom_kills: Some(killer.map_or(0, |_| 1)),
                killer,
                ..job(id, uid)
            };
            describe(&mut ended);
            finished.insert(ended);
            finished.get(id).unwrap().hint.clone()
        };
        let declared = Some(DeathCause::Declared);
        assert_eq!([end(1, Some("a"), 7, declared), end(2, Some("a"), 7, declared)], [None, None]);
        assert_eq!(end(3, Some("b"), 7, declared), None, "another class");
        assert_eq!(end(4, Some("a"), 8, declared), None, "another user");
        assert_eq!(end(5, None, 7, declared), None, "no class");
        assert_eq!(end(6, Some("a"), 7, Some(DeathCause::Host)), None, "another limit");
        assert_eq!(end(7, Some("a"), 7, None), None, "it succeeded");
        let hint = end(8, Some("a"), 7, declared).unwrap();
        let expected = "3 of the last 5 jobs of class a exceeded their memory, 95 % used at most 1.0GiB: run with --memory \
                        1229MiB; see tenantctl jobs --class a";
        assert_eq!(hint, expected);
    }

    #[test]
    fn a_kill_by_another_limit_is_not_blamed_on_the_declaration() {
        let text = |killer, limit: Option<&str>| {
            let mut job = FinishedJob {
                nr_oom_kills: Some(1),
                memory_bytes: Some(1 << 30),
                peak_memory_bytes: Some(1 << 30),
                killer: Some(killer),
                killer_limit: limit.map(str::to_string),
                ..FinishedJob::default()
            };
            describe(&mut job);
            job.text
        };
        assert!(text(DeathCause::Declared, None).contains("run with --memory"));
        let of_group = text(DeathCause::Limit, Some("teams/a"));
        assert!(of_group.contains("used 1.0GiB of its 1.0GiB when teams/a reached"), "{of_group}");
        assert!(text(DeathCause::Host, None).contains("the machine had no memory left"));
    }

    #[test]
    fn a_cancelled_job_stays_cancelled_unless_it_succeeded() {
        for (exit_code, exit_signal, reason) in [
            (None, None, EndReason::Cancelled),
            (None, Some(15), EndReason::Cancelled),
            (Some(1), None, EndReason::Cancelled),
            (Some(0), None, EndReason::Exited),
        ] {
            let reason_before = EndReason::Cancelled;
            let mut job = FinishedJob {
                exit_code,
                exit_signal,
                reason: reason_before,
                ..FinishedJob::default()
            };
            describe(&mut job);
            assert_eq!(job.reason, reason, "{}", job.text);
        }
    }
}
