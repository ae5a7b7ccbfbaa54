//! Jobs that end for others and wait again: orders to their clients, and the end by force.
//!
//! [`Admission::evict`](tenantd_admission::Admission::evict) decides. The service has no permission to signal processes of
//! users, so the client of the job ends the run: it gets the order on the connection of its job, and reports the end as that
//! of a task ([`super::sets`]). The job keeps its cgroup, in which only its client is left.
//!
//! **A client that does not.** After the grace and [`FORCE_SECONDS`](tenantd_admission::FORCE_SECONDS) the job is ended with
//! its client: by `cgroup.kill`, where its cgroup is in cgroup v2, or a stop of its scope. It does not wait again then. On a
//! host without both it runs on, and a warning and its line in `jobs` report that.
//!
//! **Restart.** The client ends the run and waits for the daemon. The stored queue has the eviction; an order that the client
//! did not get is sent again with its next connection.

use tracing::{info, warn};

use super::reply::JobAnswer;
use super::room::JobRoom;
use super::scope::unit_of;
use crate::backend::access::HostAccess;
use tenantd_admission::{Cause, JobId, JobView};
use tenantd_host::kernfs::KernFs;
use tenantd_host::systemd::Order;
use tenantd_varlink::jobs::{Eviction, SubmitReply, beneficiary};

/// Ends overdue jobs, and evicts others for a waiting one.
pub(super) fn step<K: KernFs>(room: &mut JobRoom, host: &mut HostAccess<K>, now: f64) {
    for job in room.admission.overdue(now) {
        force(room, host, job, now);
    }
    for eviction in room.admission.evict(now) {
        send(room, eviction);
    }
}

/// Orders the client of a job to end its run.
pub(super) fn send(room: &mut JobRoom, eviction: tenantd_admission::Eviction) {
    let job = eviction.job;
    let Some(view) = room.admission.job(job) else { return };
    let tenant = view.request.tenant.clone();
    info!(tenant, action = "job", "job {job} of {tenant} ends for {}", whom(&eviction.cause));
    room.has_changed = true;
    send_again(room, job);
}

/// Sends the order of an eviction under way, if there is one.
pub(super) fn send_again(room: &mut JobRoom, job: JobId) {
    let (Some(_), Some(view)) = (room.admission.eviction(job), room.admission.job(job)) else {
        return;
    };
    let Some(ticket) = room.records.get(&job).and_then(|record| record.ticket) else { return };
    let reply = SubmitReply {
        id: job.0,
        tenant: view.request.tenant.clone(),
        eviction: shown(&view),
        granted: view.set.map(|set| set.granted()),
        ..SubmitReply::default()
    };
    room.outbox.push((ticket, JobAnswer::Waits(reply)));
}

/// Ends a job whose client has not done so.
fn force<K: KernFs>(room: &mut JobRoom, host: &mut HostAccess<K>, job: JobId, now: f64) {
    room.has_changed = true;
    if room.records.get(&job).is_none_or(|record| record.seen.is_evicted) {
        warn!("job {job} still has processes after its end by force");
        return room.admission.eviction_failed(job, now);
    }
    let unit = room.records.get(&job).and_then(|it| it.home.as_ref()?.cgroup.unit.clone());
    let outcome = match unit {
        Some(_) => {
            let order = Order::Stop { unit: unit_of(job) };
            let is_sent = room.scopes.ask(&host.kernel, order);
            is_sent.then_some(()).ok_or_else(|| "this host is not run by systemd".to_string())
        }
        None => kill(room, host, job),
    };
    let Some(record) = room.records.get_mut(&job) else { return };
    match outcome {
        Ok(()) => {
            record.seen.is_evicted = true;
            room.admission.eviction_forced(job, now);
            warn!("job {job} is ended: its client has not ended its run in time");
        }
        Err(why) => {
            warn!("job {job} runs on: its client has not ended its run in time, and {why}");
            let note = format!("it was to end for another job and runs on: {why}");
            if let Some(home) = &mut record.home {
                home.add_note(note);
            }
            room.admission.eviction_failed(job, now);
        }
    }
}

fn kill<K: KernFs>(room: &JobRoom, host: &mut HostAccess<K>, job: JobId) -> Result<(), String> {
    let home = room.records.get(&job).and_then(|record| record.home.as_ref());
    let cgroup = &home.ok_or("it has no cgroup")?.cgroup;
    let dir = cgroup.freeze_dir(&host.layout);
    let dir =
        dir.ok_or("this host has no cgroup.kill (cgroup v2): end it with tenantctl cancel")?;
    host.kernel.write(dir, "cgroup.kill", "1").map_err(|error| error.to_string())
}

/// Number of the present or next run of a job that may be evicted.
pub(super) fn run_of(view: &JobView<'_>) -> Option<u32> {
    let set = view.set.filter(|_| view.request.requeue.is_some())?;
    Some(set.granted().max(1) + u32::from(is_between(view)))
}

/// True for a job that was evicted and has not started again.
pub(super) fn is_between(view: &JobView<'_>) -> bool {
    let has_ended = |set: tenantd_admission::Set| set.granted() > 0 && set.running() == 0;
    view.request.requeue.is_some() && view.set.is_some_and(|set| has_ended(set) && !set.is_closed())
}

/// The present or last eviction of a job.
pub(super) fn shown(view: &JobView<'_>) -> Option<Eviction> {
    let (cause, requeue) = (view.eviction?, view.request.requeue?);
    let run = run_of(view).unwrap_or(1);
    let whom = whom(cause);
    let text = match (view.is_leaving, is_between(view)) {
        (true, _) => {
            format!("tenantd ends run {run} of this job for {whom}; it waits again after that")
        }
        (_, true) => format!("tenantd ended this job for {whom}; it waits again, run {run}"),
        _ => format!("tenantd ended this job before for {whom}; this is run {run}"),
    };
    Some(Eviction {
        job: cause.job.map(|job| job.0),
        tenant: cause.tenant.clone(),
        grace_seconds: requeue.grace_seconds,
        ending: view.is_leaving,
        text,
    })
}

fn whom(cause: &Cause) -> String {
    beneficiary(cause.job.map(|job| job.0), &cause.tenant)
}
