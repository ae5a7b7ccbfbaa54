//! What clients are told: the queue's own types as those of the wire.

use super::record::{Home, Jobs, Record};
use crate::admission::{JobId, JobView, Outlook, Phase, Reason, Refusal};
use crate::varlink::error::CallError;
use crate::varlink::jobs::{
    CancelReply, Job, JobState, ListReply, Pool, Started, SubmitReply, Units, Valve, WaitKind,
    WaitReason, Waiting,
};

/// An answer to a client.
#[derive(Clone, Debug, PartialEq)]
pub enum JobAnswer {
    /// The job waits: others follow.
    Waits(SubmitReply),
    /// The job has started, or will not.
    Submitted(Result<SubmitReply, CallError>),
    /// It is cancelled, or it runs.
    Cancelled(Result<CancelReply, CallError>),
}

/// What a waiting job is told; `total` wait.
pub(in crate::daemon) fn waiting(outlook: &Outlook, total: usize) -> Waiting {
    Waiting {
        position: outlook.position,
        total: total as u64,
        reason: reason(&outlook.reason),
        estimate_seconds: outlook.estimate_seconds,
    }
}

/// What a started job is told.
pub(in crate::daemon) fn started(home: &Home, dop: u32) -> Started {
    Started {
        dop,
        cpus: home.cpus.as_ref().map(ToString::to_string),
        cgroup: home.path.clone(),
        valve: home.valve.as_ref().map(|valve| Valve {
            fifo: valve.fifo().display().to_string(),
            tokens: valve.target(),
        }),
        ineffective: home.ineffective.clone(),
    }
}

/// Why a job waits.
pub(in crate::daemon) fn reason(reason: &Reason) -> WaitReason {
    let text = reason.to_string();
    let of = |kind, wanted: u64, free: u64, total: u64| WaitReason {
        kind,
        wanted: Some(wanted as f64),
        free: Some(free as f64),
        total: Some(total as f64),
        ..WaitReason::default()
    };
    let told = match reason {
        Reason::Turn => WaitReason::default(),
        Reason::Running { max } => of(WaitKind::Running, 1, 0, u64::from(*max)),
        Reason::Slots { wanted, free, total } => of(WaitKind::Slots, *wanted, *free, *total),
        Reason::Memory { wanted, free, total } => of(WaitKind::Memory, *wanted, *free, *total),
        Reason::TenantMemory { wanted, free, total } => {
            of(WaitKind::TenantMemory, *wanted, *free, *total)
        }
        Reason::Units { name, wanted, free, total } => {
            let counted = of(WaitKind::Counted, (*wanted).into(), (*free).into(), (*total).into());
            WaitReason { name: Some(name.clone()), ..counted }
        }
        Reason::TenantRunning { max } => of(WaitKind::TenantRunning, 1, 0, u64::from(*max)),
        Reason::UserRunning { max } => of(WaitKind::UserRunning, 1, 0, u64::from(*max)),
        Reason::Overtaken { job, .. } => {
            WaitReason { kind: WaitKind::Overtaken, job: Some(job.0), ..WaitReason::default() }
        }
    };
    WaitReason { text, ..told }
}

/// Why a job is not taken.
pub(in crate::daemon) fn refusal(refusal: &Refusal, tenant: &str) -> CallError {
    match refusal {
        Refusal::NoSuchTenant => {
            CallError::NoSuchTenant { tenant: tenant.to_string(), tenants: Vec::new() }
        }
        Refusal::TenantQueueFull { max } => CallError::QueueFull {
            reason: format!("{max} jobs of {tenant} wait, as many as may: try again later"),
        },
        Refusal::UserQueueFull { max } => CallError::QueueFull {
            reason: format!("{max} jobs of yours wait, as many as may: try again later"),
        },
        Refusal::NeverFits(reason) => {
            CallError::NeverFits { reason: format!("it could never start: {reason}") }
        }
    }
}

/// All jobs, those that run first.
pub(in crate::daemon) fn list(jobs: &Jobs, now: f64) -> ListReply {
    let admission = &jobs.admission;
    let mut listed = Vec::new();
    for view in admission.jobs().filter(|view| !matches!(view.phase, Phase::Waiting { .. })) {
        listed.extend(jobs.records.get(&view.job).map(|record| job(&view, record, now)));
    }
    let outlooks = admission.outlooks(now);
    for outlook in &outlooks {
        let (view, record) = (admission.job(outlook.job), jobs.records.get(&outlook.job));
        if let (Some(view), Some(record)) = (view, record) {
            let waiting = Some(waiting(outlook, outlooks.len()));
            listed.push(Job { waiting, ..job(&view, record, now) });
        }
    }
    let (all, free) = (admission.resources(), admission.free());
    let pool = Pool {
        max_running: admission.workers(),
        slots: admission.slots(),
        free_slots: free.slots,
        memory_bytes: all.memory_bytes,
        free_memory_bytes: free.memory_bytes,
        units: units(&all.units),
        free_units: units(&free.units),
    };
    ListReply { jobs: listed, pool }
}

fn job(view: &JobView<'_>, record: &Record, now: f64) -> Job {
    let (state, since, dop) = match view.phase {
        Phase::Waiting { .. } => (JobState::Waiting, None, 0),
        Phase::Running { since, dop } => (JobState::Running, Some(since), dop),
        Phase::Lingering { since } => (JobState::Lingering, Some(since), 0),
    };
    let JobId(id) = view.job;
    Job {
        id,
        tenant: view.request.tenant.clone(),
        uid: view.request.user,
        pid: record.process.pid,
        class: view.request.class.clone(),
        command: record.command.clone(),
        state,
        waited_seconds: (since.unwrap_or(now) - view.submitted).max(0.0),
        ran_seconds: since.map(|since| (now - since).max(0.0)),
        cpu_seconds: since.map(|_| view.cpu_seconds),
        memory_bytes: (view.request.memory_bytes > 0).then_some(view.request.memory_bytes),
        used_memory_bytes: view.used_bytes,
        units: units(&view.request.units),
        waiting: None,
        started: record.home.as_ref().map(|home| started(home, dop)),
    }
}

fn units(units: &[(String, u32)]) -> Vec<Units> {
    units.iter().map(|(name, count)| Units { name: name.clone(), count: *count }).collect()
}
