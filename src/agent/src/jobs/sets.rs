//! Sets of tasks, whose client starts the tasks.
//!
//! **Problem.** A user runs one command a thousand times. As a thousand jobs it fills the queue, and each job pays for a
//! process of `tenantctl`, a connection, and a cgroup in each tree. **Answer.** A set is one job. Its first process is
//! the client, which is moved into the cgroup of the set before the first task; every task is a child and is born there,
//! so nothing is moved for it. The daemon runs nothing: it counts turns ([`tenantd_admission::Set`]) and sends their sum,
//! and the client reports the sum of ended tasks.
//!
//! **Restart of this side.** The client connects again with the number of its set and reports its sums, which replace the
//! stored ones: it alone knows the tasks that it started. Until then the stored number of running tasks holds. A turn that
//! was sent and not received is granted anew.
//!
//! **End of the client.** The set ends with its first process. Tasks that it leaves behind linger, as the daemons of a job.

use tracing::debug;

use super::evict;
use super::listing;
use super::records::JobProcess;
use super::reply::JobAnswer;
use super::room::JobRoom;
use crate::backend::access::HostAccess;
use crate::tenants::state::Tenants;
use tenantd_admission::{JobId, Phase, Sums};
use tenantd_host::kernfs::KernFs;
use tenantd_varlink::bridge::{Submission, Ticket};
use tenantd_varlink::error::CallError;
use tenantd_varlink::jobs::{SubmitReply, TaskSums};

/// Continues a set for its client, which has lost the connection.
pub(super) fn continue_set<K: KernFs>(
    room: &mut JobRoom,
    host: &mut HostAccess<K>,
    ticket: Ticket,
    job: JobId,
    submission: &Submission,
) -> Result<(), CallError> {
    let proc = host.proc();
    let unknown = CallError::NoSuchJob { id: job.0 };
    let view = room.admission.job(job);
    let is_running = view
        .as_ref()
        .is_some_and(|view| view.set.is_some() && matches!(view.phase, Phase::Running { .. }));
    let Some(record) = room.records.get_mut(&job).filter(|_| is_running) else {
        return Err(unknown);
    };
    let JobProcess { pid, handle, .. } = &mut record.process;
    if *pid != submission.pid || view.is_none_or(|view| view.request.user != submission.uid) {
        return Err(CallError::PermissionDenied {});
    }
    if let (None, Some(new), Some(watch)) = (&handle, &submission.process, &room.watch) {
        // If this fails, the next refresh detects the end of the set.
        let _ = watch.add(new);
        *handle = Some(new.clone());
    }
    if !record.process.runs(&mut host.kernel, proc) {
        return Err(unknown);
    }
    if let Some(before) = room.records.replace_ticket(job, ticket) {
        let reason = "its client has connected again".to_string();
        let answer = JobAnswer::Submitted(Err(CallError::Cancelled { reason }));
        room.outbox.push((before, answer));
    }
    tell_granted(room, job);
    evict::send_again(room, job);
    Ok(())
}

/// Sends the turns of a set to its client, once its process is in its cgroup.
pub(super) fn tell_granted(room: &mut JobRoom, job: JobId) {
    let Some(view) = room.admission.job(job) else { return };
    let (Some(set), Phase::Running { dop, .. }) = (view.set, view.phase) else { return };
    if room.scopes.starting.contains_key(&job) {
        return;
    }
    let Some(record) = room.records.get(&job) else { return };
    let (Some(ticket), Some(home)) = (record.ticket, &record.home) else { return };
    let started = listing::started(room, &view, home, (dop / set.running().max(1)).max(1));
    let reply = SubmitReply {
        id: job.0,
        tenant: view.request.tenant.clone(),
        started: Some(started),
        granted: Some(set.granted()),
        ..SubmitReply::default()
    };
    room.outbox.push((ticket, JobAnswer::Waits(reply)));
}

/// Takes the sums that clients of sets have reported since the last batch of calls.
pub(super) fn take_reports<K: KernFs>(room: &mut JobRoom, tenants: &mut Tenants<K>, now: f64) {
    for job in std::mem::take(&mut room.reported) {
        room.progressed.insert(job);
        charge_tasks(room, &mut tenants.host, job, now);
        let Some(record) = room.records.get(&job) else { continue };
        let TaskSums { started, succeeded, failed, closed } = record.seen.tasks;
        let sums = Sums { started, ended: succeeded + failed, is_closed: closed };
        room.admission.use_indices(job, record.seen.in_use.clone());
        if !room.admission.report_tasks(job, sums, now) {
            debug!("the sums of set {job} are not taken: {sums:?}");
        }
        let tenant = room.admission.job(job).map(|view| view.request.tenant.clone());
        if let (Err(_), Some(tenant)) = (room.node_of(tenants, job), tenant) {
            room.admission.close(job, now);
            let error = CallError::NoSuchTenant { tenant, tenants: Vec::new(), awaited: None };
            room.answer(job, JobAnswer::Submitted(Err(error)));
        }
    }
}

/// Charges the tasks of a set for their use before some of them end.
fn charge_tasks<K: KernFs>(room: &mut JobRoom, host: &mut HostAccess<K>, job: JobId, now: f64) {
    let home = room.records.get(&job).and_then(|record| record.home.as_ref());
    let Some(home) = home else { return };
    let used = home.cgroup.usage_usec(&mut host.kernel, &host.layout);
    if let Some(usec) = used {
        room.admission.charge(job, usec as f64 / 1e6, None, now);
    }
}

/// Writes the sums of sets that have changed since the last tick.
pub(super) fn keep_progress(room: &mut JobRoom) {
    let progressed = std::mem::take(&mut room.progressed);
    if !progressed.is_empty() {
        room.unkept.extend(progressed);
        room.keep_changed();
    }
}
