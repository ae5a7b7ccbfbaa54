//! Jobs that wait for the end of others: requirements of a submission, and ends of jobs.
//!
//! **Requirement.** A job that runs, waits, or is among the finished ones. Its end is that of a wait
//! ([`outcome`]): with the report of its supervisor where that is awaited. Only a supervised job has a known result, so only
//! one can be required to succeed. A job without an end that this agent knows counts as not successful.
//!
//! **Restart.** Waiting jobs leave the queue with the agent, and their clients submit them again under their old numbers.
//! Until 15 seconds after the start such a number is *expected*: it may be required, and a client of the user
//! that had it, or of any if the stored queue is older than the number, may take it. After that it counts as ended.

use super::outcome;
use super::reply::JobAnswer;
use super::room::JobRoom;
use super::waits::{End, Expected};
use tenantd_admission::{JobId, Requirement};
use tenantd_varlink::bridge::{Allowed, Submission};
use tenantd_varlink::error::CallError;
use tenantd_varlink::jobs::{AFTER_MAX, EndReason};

/// The number for a job that had one before a restart; `None` for a new one.
pub(super) fn returning(room: &JobRoom, submission: &Submission) -> Option<JobId> {
    let job = JobId(submission.parameters.id?);
    let is_free = room.admission.job(job).is_none() && room.finished.get(job.0).is_none();
    if !is_free || !room.expected.has(job, Some(submission.uid)) {
        return None;
    }
    Some(job)
}

/// Requirements of a submission that have not ended.
pub(super) fn requirements(
    room: &JobRoom,
    submission: &Submission,
) -> Result<Vec<Requirement>, CallError> {
    let parameters = &submission.parameters;
    fn of(ids: &Option<Vec<u64>>, must_succeed: bool) -> impl Iterator<Item = Requirement> {
        let ids = ids.iter().flatten();
        ids.map(move |id| Requirement { job: JobId(*id), must_succeed })
    }
    let all = of(&parameters.after, false).chain(of(&parameters.after_ok, true));
    let all: Vec<Requirement> = all.collect();
    if all.len() > AFTER_MAX {
        return Err(CallError::InvalidParameter { parameter: "after".into() });
    }
    let user = match submission.allowed {
        Allowed::All => None,
        Allowed::These(_) => Some(submission.uid),
    };
    let mut open = Vec::new();
    for requirement in all {
        if is_open(room, requirement, user)? {
            open.push(requirement);
        }
    }
    Ok(open)
}

/// True if a requirement of this user has not ended, false if it is met.
fn is_open(room: &JobRoom, requirement: Requirement, user: Option<u32>) -> Result<bool, CallError> {
    let Requirement { job, must_succeed } = requirement;
    let is_of_other = |uid: u32| user.is_some_and(|user| user != uid);
    let never = |reason: String| Err(CallError::NeverFits { reason });
    let unsupervised = || {
        never(format!(
            "it could never start: the exit status of job {job} is not known, because it runs in the foreground; use \
             --after, or start job {job} with --background"
        ))
    };
    if let Some(finished) = room.finished.get(job.0) {
        if is_of_other(finished.uid) {
            return Err(CallError::PermissionDenied {});
        }
        if room.waits.unreported.contains_key(&job) {
            return Ok(true);
        }
        if !must_succeed || finished.exit_code == Some(0) {
            return Ok(false);
        }
        return Err(failed(job, &finished.text));
    }
    if let Some(view) = room.admission.job(job) {
        if is_of_other(view.request.user) {
            return Err(CallError::PermissionDenied {});
        }
        let record = room.records.get(&job);
        if must_succeed && !record.is_some_and(|record| record.seen.is_supervised) {
            return unsupervised();
        }
        return Ok(true);
    }
    if room.expected.has(job, user) {
        return Ok(true);
    }
    never(format!(
        "it could never start: tenantd has no job {job}; it never existed, or its record is gone (100 records of \
         a user are kept): leave it out if it has ended"
    ))
}

/// Lets jobs enter the queue whose requirements have ended, and ends those whose requirements have failed.
pub(super) fn settle_ends(room: &mut JobRoom, now: f64) {
    while let Some(End { job, has_succeeded, text }) = room.ends.pop_front() {
        for waiting in room.admission.requirement_ended(job, has_succeeded, now) {
            let error = failed(job, &text);
            let reason = EndReason::RequirementFailed;
            outcome::record_unstarted(room, waiting, reason, &error.to_string(), now);
            room.answer(waiting, JobAnswer::Submitted(Err(error)));
            room.withdraw(waiting, now);
        }
        room.has_changed = true;
    }
}

/// Ends the requirements whose clients have not come back after a restart.
pub(super) fn give_up_expected(room: &mut JobRoom, now: f64) {
    if room.expected.until.is_none_or(|until| now < until) {
        return;
    }
    room.expected = Expected::default();
    let required: Vec<JobId> = room.admission.required().collect();
    for job in required {
        if room.admission.job(job).is_none() && !room.waits.unreported.contains_key(&job) {
            outcome::note_end(room, job, false, "left the queue while tenantd restarted");
        }
    }
}

fn failed(job: JobId, text: &str) -> CallError {
    let reason = format!("did not start: job {job} had to succeed first, and {text}");
    CallError::RequirementFailed { id: job.0, reason }
}
