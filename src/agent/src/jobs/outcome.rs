//! Records of ended jobs, the clients that wait for an end, and the reports of supervisors.
//! [`super::finished`] describes the record.
//!
//! **Waits.** A wait is answered when the first process of its job has ended. If a supervisor is about to report
//! the exit status, the answer waits for the report, at most [`REPORT_SECONDS`]. Waits cost nothing while no job
//! ends: they are indexed by job. Each holds a connection of its user, which bounds them together with
//! [`WAITS_MAX`](super::waits::WAITS_MAX).

use std::sync::Arc;

use super::cgroup::JobCgroup;
use super::evict;
use super::finished::{describe, figures};
use super::listing::tasks;
use super::reply::JobAnswer;
use super::room::JobRoom;
use super::store::KeptJob;
use super::waits::End;
use crate::backend::access::HostAccess;
use crate::recovery::credit_store::unix_seconds;
use tenantd_admission::{Indices, JobId, Phase, Request};
use tenantd_control::measure::death::Killer;
use tenantd_control::why::death::cause;
use tenantd_host::kernfs::KernFs;
use tenantd_varlink::bridge::{Caller, Ticket};
use tenantd_varlink::error::CallError;
use tenantd_varlink::jobs::{
    EndReason, FinishedJob, ReportParameters, ReportReply, TaskSums, Tasks, Units, WaitReply,
};

/// Longest time for which a wait is held for the report of a supervisor.
const REPORT_SECONDS: f64 = 2.0;

/// Records a job that leaves the queue, or whose turn came in vain.
pub(super) fn record_unstarted(
    room: &mut JobRoom,
    job: JobId,
    reason: EndReason,
    text: &str,
    now: f64,
) {
    let Some(mut finished) = draft(room, job, now) else { return };
    finished.started_unix_seconds = None;
    (finished.ran_seconds, finished.cpu_seconds, finished.dop) = (None, None, None);
    (finished.rho, finished.rho_unknown) = (None, None);
    (finished.reason, finished.text) = (reason, text.to_string());
    finish(room, job, finished, now);
}

/// Records the end of a job's first process. Its cgroup still exists, unless systemd has removed it.
pub(super) fn record_ended<K: KernFs>(
    room: &mut JobRoom,
    host: &mut HostAccess<K>,
    job: JobId,
    now: f64,
) {
    let Some(mut finished) = draft(room, job, now) else { return };
    read_last(room, host, job, &mut finished);
    if let Some(record) = room.records.get(&job) {
        (finished.exit_code, finished.exit_signal) = record.seen.reported.unwrap_or_default();
        if record.seen.is_cancelled {
            finished.reason = EndReason::Cancelled;
        } else if record.seen.is_evicted {
            finished.reason = EndReason::Evicted;
        }
    }
    describe(&mut finished);
    finish(room, job, finished, now);
}

/// Records a job of an earlier agent that ended while no agent ran. The time of its end is not known: the record has
/// the present time.
pub(super) fn record_missed<K: KernFs>(
    room: &mut JobRoom,
    host: &mut HostAccess<K>,
    kept: &KeptJob,
    cgroup: &JobCgroup,
    now: f64,
) {
    let job = kept.job();
    if room.finished.get(job.0).is_some() {
        return;
    }
    let Some(request) = &kept.request else { return };
    let (kernel, layout) = (&mut host.kernel, &host.layout);
    let usage = cgroup.sample(kernel, layout).ok().and_then(|sample| sample.usage_usec);
    let times = Times { submitted: kept.submitted, since: Some(kept.since), now };
    let mut finished = FinishedJob {
        command: kept.command.clone(),
        cpu_seconds: usage.map(|usec| usec as f64 / 1e6),
        peak_memory_bytes: cgroup.peak_bytes(kernel, layout),
        nr_oom_kills: cgroup.oom_kills(kernel, layout),
        supervised: kept.supervised,
        run: request.requeue.map(|_| kept.tasks.started.max(1)),
        tasks: request.tasks.filter(|_| request.requeue.is_none()).map(|tasks| {
            let tenantd_admission::Tasks { count, at_once } = tasks;
            let TaskSums { started, succeeded, failed, .. } = kept.tasks;
            let running = started.saturating_sub(succeeded + failed);
            Tasks { count, at_once, running, succeeded, failed }
        }),
        ..times.record(job, request)
    };
    describe(&mut finished);
    if finished.reason == EndReason::Ended {
        finished.text = "ended while tenantd did not run; its exit status is not known".to_string();
        finished.text.extend(
            finished.tasks.map(|tasks| format!("; at the last report: {}", figures(&tasks))),
        );
    }
    finish(room, job, finished, now);
}

/// Completes the record of a job that had left processes behind, after the last of them.
pub(super) fn record_cleared<K: KernFs>(room: &mut JobRoom, host: &mut HostAccess<K>, job: JobId) {
    let Some(mut last) = room.finished.get(job.0).cloned() else { return };
    read_last(room, host, job, &mut last);
    if let Some(view) = room.admission.job(job) {
        last.cpu_seconds = Some(view.cpu_seconds);
    }
    if last.nr_oom_kills.is_some_and(|kills| kills > 0) {
        describe(&mut last);
    }
    room.finished.update(job.0, |record| *record = last);
}

/// Peak and kills of the job's cgroup. Values that cannot be read any more keep those of earlier readings.
fn read_last<K: KernFs>(
    room: &JobRoom,
    host: &mut HostAccess<K>,
    job: JobId,
    finished: &mut FinishedJob,
) {
    let Some(record) = room.records.get(&job) else { return };
    let (kernel, layout) = (&mut host.kernel, &host.layout);
    let home = record.home.as_ref().filter(|home| home.cgroup.is_there());
    let peak = home.and_then(|home| home.cgroup.peak_bytes(kernel, layout));
    let sampled = record.seen.peak_bytes.max(finished.peak_memory_bytes);
    finished.peak_memory_bytes = peak.max(sampled);
    let kills = home.and_then(|home| home.cgroup.oom_kills(kernel, layout));
    finished.nr_oom_kills = kills.max(record.seen.nr_oom_kills).max(finished.nr_oom_kills);
    if let Some(killer) = &record.seen.killer {
        let logged = Some(record.seen.nr_logged_kills);
        finished.nr_oom_kills = finished.nr_oom_kills.max(logged);
        finished.killer = Some(cause(killer));
        finished.killer_limit = match killer {
            Killer::Limit { cgroup, .. } => Some(cgroup.clone()),
            _ => None,
        };
    }
}

fn draft(room: &JobRoom, job: JobId, now: f64) -> Option<FinishedJob> {
    let view = room.admission.job(job)?;
    let record = room.records.get(&job);
    let (since, dop) = match view.phase {
        Phase::Waiting { .. } => (None, None),
        Phase::Running { since, dop } => (Some(since), Some(dop)),
        Phase::Lingering { since } => (Some(since), None),
    };
    let times = Times { submitted: view.submitted, since, now };
    let rho = record.map(|record| record.seen.finish_time.rho(&view, now));
    Some(FinishedJob {
        rho: rho.and_then(Result::ok),
        rho_unknown: rho.and_then(Result::err).map(str::to_string),
        command: record.and_then(|record| record.command.clone()),
        cpu_seconds: since.map(|_| view.cpu_seconds),
        // No task of an ended set runs.
        dop: dop.filter(|dop| *dop > 0),
        supervised: record.is_some_and(|record| record.seen.is_supervised),
        tasks: record.and_then(|record| tasks(&view, record.seen.tasks)),
        run: evict::run_of(&view),
        ..times.record(job, view.request)
    })
}

fn finish(room: &mut JobRoom, job: JobId, finished: FinishedJob, now: f64) {
    let is_awaited =
        finished.supervised && finished.started_unix_seconds.is_some() && !finished.has_status();
    room.finished.insert(finished);
    if is_awaited {
        room.waits.unreported.insert(job, now + REPORT_SECONDS);
    } else {
        answer_waits(room, job);
    }
}

fn answer_waits(room: &mut JobRoom, job: JobId) {
    room.waits.unreported.remove(&job);
    let Some(finished) = room.finished.get(job.0) else {
        return note_end(room, job, false, "its record is gone");
    };
    let reply = WaitReply { job: finished.clone() };
    note_end(room, job, reply.job.exit_code == Some(0), &reply.job.text);
    for ticket in room.waits.take(job) {
        room.outbox.push((ticket, JobAnswer::Ended(Ok(reply.clone()))));
    }
}

/// Refuses waits for a job that has left the queue without a record.
pub(super) fn refuse_waits(room: &mut JobRoom, job: JobId) {
    note_end(room, job, false, "left the queue");
    for ticket in room.waits.take(job) {
        let error = CallError::NoSuchJob { id: job.0 };
        room.outbox.push((ticket, JobAnswer::Ended(Err(error))));
    }
}

/// Answers waits whose supervisors have not reported in time.
pub(super) fn answer_unreported(room: &mut JobRoom, now: f64) {
    let late = room.waits.unreported.iter().filter(|(_, until)| now >= **until);
    let late: Vec<JobId> = late.map(|(job, _)| *job).collect();
    late.into_iter().for_each(|job| answer_waits(room, job));
}

/// Answers at the end of a job, at once if it has ended.
pub(crate) fn wait(room: &mut JobRoom, ticket: Ticket, id: u64, caller: Caller) {
    let job = JobId(id);
    let owner = match (room.finished.get(id), room.admission.job(job)) {
        (Some(finished), _) => Some(finished.uid),
        (None, view) => view.map(|view| view.request.user),
    };
    let refused = match owner {
        None => Some(CallError::NoSuchJob { id }),
        Some(uid) if caller.user.is_some_and(|user| user != uid) => {
            Some(CallError::PermissionDenied {})
        }
        Some(_) => (!room.waits.add(job, ticket)).then_some(CallError::Busy {}),
    };
    if let Some(error) = refused {
        room.outbox.push((ticket, JobAnswer::Ended(Err(error))));
    } else if room.finished.get(id).is_some() && !room.waits.unreported.contains_key(&job) {
        // Without a record the job runs or waits.
        answer_waits(room, job);
    }
}

/// Removes the wait of a client that has left. Returns true if the ticket was one.
pub(super) fn leave_wait(room: &mut JobRoom, ticket: Ticket) -> bool {
    let is_wait = room.waits.remove(ticket);
    if is_wait {
        // No client reads this answer, but the call counts as in flight until it is answered.
        let reason = "its client has left".to_string();
        room.outbox.push((ticket, JobAnswer::Ended(Err(CallError::Cancelled { reason }))));
    }
    is_wait
}

/// Takes the exit status of a supervised job.
pub(crate) fn report(room: &mut JobRoom, ticket: Ticket, report: ReportParameters, caller: Caller) {
    let answer = try_report(room, report, caller);
    room.outbox.push((ticket, JobAnswer::Reported(answer)));
}

fn try_report(
    room: &mut JobRoom,
    report: ReportParameters,
    caller: Caller,
) -> Result<ReportReply, CallError> {
    let ReportParameters { id, exit_code, exit_signal, tasks, in_use } = report;
    let job = JobId(id);
    let is_of_other = |uid: u32| caller.user.is_some_and(|user| user != uid);
    let unsupervised = || {
        let reason =
            format!("job {id} was not submitted with a supervisor: its exit status is not taken");
        Err(CallError::Failed { reason })
    };
    if let Some(finished) = room.finished.get(id) {
        if is_of_other(finished.uid) {
            return Err(CallError::PermissionDenied {});
        }
        if !finished.supervised || finished.started_unix_seconds.is_none() {
            return unsupervised();
        }
        // The first report stays.
        if !finished.has_status() {
            room.finished.update(id, |record| {
                (record.exit_code, record.exit_signal) = (exit_code, exit_signal);
                describe(record);
            });
            answer_waits(room, job);
        }
        return Ok(ReportReply {});
    }
    let Some(view) = room.admission.job(job) else { return Err(CallError::NoSuchJob { id }) };
    let (user, count) = (view.request.user, view.request.tasks.map_or(0, |tasks| tasks.count));
    if is_of_other(user) {
        return Err(CallError::PermissionDenied {});
    }
    match room.records.get_mut(&job) {
        Some(record) if record.seen.is_supervised => {
            if exit_code.is_some() || exit_signal.is_some() {
                record.seen.reported.get_or_insert((exit_code, exit_signal));
            }
            if let Some(sums) = tasks {
                if !is_possible(sums, record.seen.tasks, count) {
                    return Err(CallError::InvalidParameter { parameter: "tasks".into() });
                }
                record.seen.tasks = sums;
                record.seen.in_use = Indices::default();
                for it in in_use.iter().flatten() {
                    record.seen.in_use.extend(&it.name, it.indices.iter().copied());
                }
                room.reported.insert(job);
            }
            Ok(ReportReply {})
        }
        _ => unsupervised(),
    }
}

/// True if a set of so many tasks can have these sums after the earlier ones.
fn is_possible(sums: TaskSums, before: TaskSums, count: u32) -> bool {
    let TaskSums { started, succeeded, failed, .. } = sums;
    let has_grown = succeeded >= before.succeeded && failed >= before.failed;
    has_grown && started <= count && succeeded.checked_add(failed).is_some_and(|it| it <= started)
}

/// Finished jobs if they have changed since the last call.
pub(crate) fn take_finished(room: &mut JobRoom) -> Option<Vec<Arc<FinishedJob>>> {
    let changes = Some(room.finished.nr_changes());
    (std::mem::replace(&mut room.finished_published, changes) != changes)
        .then(|| room.finished.list())
}

/// Times of a job, in seconds of the clock that keeps running between two agents.
#[derive(Clone, Copy, Debug)]
struct Times {
    submitted: f64,
    since: Option<f64>,
    now: f64,
}

impl Times {
    /// Returns a record that ends now, with these times and the values of the request.
    fn record(self, job: JobId, request: &Request) -> FinishedJob {
        let Times { submitted, since, now } = self;
        let ended = unix_seconds();
        let unix = |at: f64| ended - (now - at).max(0.0);
        let units = request.units.iter();
        FinishedJob {
            id: job.0,
            tenant: request.tenant.clone(),
            uid: request.user,
            class: request.class.clone(),
            submitted_unix_seconds: unix(submitted),
            started_unix_seconds: since.map(unix),
            ended_unix_seconds: ended,
            waited_seconds: (since.unwrap_or(now) - submitted).max(0.0),
            ran_seconds: since.map(|since| (now - since).max(0.0)),
            memory_bytes: (request.memory_bytes > 0).then_some(request.memory_bytes),
            units: units.map(|(name, count)| Units { name: name.clone(), count: *count }).collect(),
            ..FinishedJob::default()
        }
    }
}

/// Notes the end of a job for those that wait for it.
pub(super) fn note_end(room: &mut JobRoom, job: JobId, has_succeeded: bool, text: &str) {
    if room.admission.is_required(job) {
        room.ends.push_back(End { job, has_succeeded, text: text.to_string() });
    }
}
