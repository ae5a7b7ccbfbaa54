//! Answers to clients: the queue's types converted to those of the wire.

use tenantd_admission::{Outlook, Reason, Refusal};
use tenantd_varlink::error::CallError;
use tenantd_varlink::jobs::{
    CancelReply, ReportReply, SubmitReply, WaitKind, WaitReason, WaitReply, Waiting,
};

/// Least use beside waiting jobs that is told.
const BESIDE_MIN_CORES: f64 = 0.05;

/// An answer to a client.
#[derive(Clone, Debug, PartialEq)]
pub enum JobAnswer {
    /// The job waits; more answers follow.
    Waits(SubmitReply),
    /// The job has started, or was refused.
    Submitted(Result<SubmitReply, CallError>),
    /// The job is cancelled, or runs.
    Cancelled(Result<CancelReply, CallError>),
    /// The job has ended.
    Ended(Result<WaitReply, CallError>),
    /// The exit status of the job is recorded.
    Reported(Result<ReportReply, CallError>),
}

pub(crate) fn waiting(outlook: &Outlook, total: usize) -> Waiting {
    let mut reason = reason(&outlook.reason);
    if outlook.beside_cores >= BESIDE_MIN_CORES {
        let beside = outlook.beside_cores;
        reason.text += &format!("; what its tenant uses beside its jobs counts, {beside:.1} CPUs");
    }
    Waiting {
        position: outlook.position,
        total: total as u64,
        reason,
        estimate_seconds: outlook.estimate_seconds,
        starts: None,
    }
}

pub(crate) fn reason(reason: &Reason) -> WaitReason {
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
        Reason::Reserve { kept, total, .. } => {
            of(WaitKind::Reserve, 1, (*kept).into(), (*total).into())
        }
        Reason::Slots { wanted, free, total, left_to } => WaitReason {
            name: left_to.as_ref().map(|(tenant, _)| tenant.clone()),
            ..of(WaitKind::Slots, *wanted, *free, *total)
        },
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
        Reason::After { job, count, .. } => {
            let total = Some((*count).into());
            WaitReason { kind: WaitKind::After, job: Some(job.0), total, ..WaitReason::default() }
        }
        Reason::Evicting { job, .. } => {
            WaitReason { kind: WaitKind::Evicting, job: Some(job.0), ..WaitReason::default() }
        }
        Reason::Overtaken { job, .. } => {
            WaitReason { kind: WaitKind::Overtaken, job: Some(job.0), ..WaitReason::default() }
        }
    };
    WaitReason { text, ..told }
}

pub(crate) fn refusal(refusal: &Refusal, tenant: &str) -> CallError {
    match refusal {
        Refusal::NoSuchTenant => CallError::NoSuchTenant {
            tenant: tenant.to_string(),
            tenants: Vec::new(),
            awaited: None,
        },
        Refusal::TenantQueueFull { max } => CallError::QueueFull {
            reason: format!("{max} jobs of {tenant} wait, as many as may: try again later"),
        },
        Refusal::UserQueueFull { max } => CallError::QueueFull {
            reason: format!("{max} jobs of yours wait, as many as may: try again later"),
        },
        Refusal::TooManyLinger { max, is_of_tenant } => CallError::QueueFull {
            reason: format!(
                "{max} jobs of {} have ended and left processes behind, as many as may: end these processes",
                if *is_of_tenant { tenant } else { "yours" }
            ),
        },
        Refusal::NotOlder(job) => CallError::NeverFits {
            reason: format!(
                "it could never start: job {job} is not older, and a job waits for older ones only"
            ),
        },
        Refusal::NeverFits(reason) => {
            CallError::NeverFits { reason: format!("it could never start: {reason}") }
        }
    }
}
