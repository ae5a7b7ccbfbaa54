//! Submission of jobs: tenant, process and request.

use std::time::Duration;

use super::after;
use super::credit;
use super::finished::FinishedJobs;
use super::nested::submit_inside;
use super::records::{JobProcess, Record, Seen};
use super::reply::{self, JobAnswer, refusal};
use super::room::{JobRoom, Submitted};
use super::sets;
use super::watch::is_alive;
use crate::backend::access::HostAccess;
use crate::tenants::state::Tenants;
use tenantd_admission::{JobId, Outlook, RUNS_MAX, Reason, Request, Requeue, Tasks, is_in_group};
use tenantd_core::units::Bytes;
use tenantd_dop::target::Width;
use tenantd_host::kernfs::{KernError, KernFs};
use tenantd_host::process;
use tenantd_policy::expand::may_make;
use tenantd_policy::model::Mode;
use tenantd_varlink::bridge::{Allowed, Submission, Ticket};
use tenantd_varlink::class::remaining;
use tenantd_varlink::error::CallError;
use tenantd_varlink::jobs::{GRACE_MAX_SECONDS, MEMORY_MIN_BYTES, SubmitParameters, TASKS_MAX};

/// Longest class or resource name, and longest shown part of a command, in characters.
const NAME_MAX: usize = 64;
const COMMAND_MAX: usize = 256;
const UNITS_MAX: usize = 16;
/// If more jobs wait, a new job learns its exact queue place only at the next tick.
const PLACES_MAX: usize = 64;

impl JobRoom {
    /// Submits the calling client as a job. `now` is in seconds of a clock that keeps running between two
    /// agents. The job may start at [`JobRoom::settle_calls`]; its outbox has the answers.
    pub(crate) fn submit<K: KernFs>(
        &mut self,
        tenants: &mut Tenants<K>,
        ticket: Ticket,
        submission: &Submission,
        now: f64,
    ) {
        match self.try_submit(tenants, ticket, submission, now) {
            Ok(None) => {}
            Ok(Some(job)) => {
                let no_wait = submission.parameters.no_wait == Some(true);
                self.submitted.push(Submitted { job, no_wait });
            }
            Err(error) => self.outbox.push((ticket, JobAnswer::Submitted(Err(error)))),
        }
    }

    /// Starts the jobs that may start after a batch of calls, and answers the waiting jobs of that batch.
    pub(crate) fn settle_calls<K: KernFs>(&mut self, tenants: &mut Tenants<K>, now: f64) {
        sets::take_reports(self, tenants, now);
        self.start(tenants, now);
        let submitted = std::mem::take(&mut self.submitted);
        let (impatient, patient): (Vec<Submitted>, Vec<Submitted>) =
            submitted.into_iter().partition(|it| it.no_wait);
        let mut has_refused = false;
        for Submitted { job, .. } in impatient {
            let Some(reason) = self.admission.why(job) else { continue };
            let reason = reply::reason(&reason);
            self.answer(job, JobAnswer::Submitted(Err(CallError::WouldWait { reason })));
            self.withdraw(job, now);
            has_refused = true;
        }
        if patient.is_empty() {
            return;
        }
        if has_refused {
            // The refused jobs may have held others back.
            self.start(tenants, now);
        }
        if self.admission.nr_waiting() <= PLACES_MAX {
            self.tell_waiting(now);
        } else {
            self.tell_last(&patient);
        }
    }

    fn try_submit<K: KernFs>(
        &mut self,
        tenants: &mut Tenants<K>,
        ticket: Ticket,
        submission: &Submission,
        now: f64,
    ) -> Result<Option<JobId>, CallError> {
        if tenants.mode() != Mode::Enforce {
            return Err(CallError::OnlyObserves {});
        }
        self.renew_terms(tenants, now);
        if let (Some(id), Some(true)) = (submission.parameters.id, submission.parameters.begun) {
            sets::continue_set(self, &mut tenants.host, ticket, JobId(id), submission)?;
            return Ok(None);
        }
        if let Some(inside) = submit_inside(self, &mut tenants.host, submission) {
            let reply = inside?;
            self.outbox.push((ticket, JobAnswer::Submitted(Ok(reply))));
            return Ok(None);
        }
        // A refusal that may be repeated until the tenant is there takes nothing of the pace.
        let tenant = tenant_of(tenants, submission)?;
        let returning = after::returning(self, submission);
        let most = tenants.base.written.admission.max_submissions_per_user;
        if let Some(most) = most.filter(|_| returning.is_none())
            && let Err(seconds) = self.pace.take(submission.uid, most, now)
        {
            let reason = format!(
                "you have submitted {most} jobs within a minute, as many as may (admission.max_submissions_per_user): try \
                 again in {} s",
                seconds.ceil()
            );
            return Err(CallError::QueueFull { reason });
        }
        let after = after::requirements(self, submission)?;
        let request = request(&submission.parameters, &tenant, submission.uid)?;
        let expected = expected(&self.finished, &request);
        let request = Request { after, expected, ..request };
        let process = self.process_of(&mut tenants.host, submission)?;
        if self.records.is_empty() {
            self.measure(tenants, now);
        }
        credit::lend(&mut self.admission, tenants, &tenant);
        let job = match returning {
            Some(job) => self.admission.submit_as(job, request, now).map(|()| job),
            None => self.admission.submit(request, now),
        };
        let job = job.map_err(|why| refusal(&why, &tenant))?;
        self.store.keep_numbers(self.admission.next_number());
        let command = submission.parameters.command.as_deref();
        let command = command.map(|text| text.chars().take(COMMAND_MAX).collect());
        let SubmitParameters { supervised, tasks, requeue_grace_seconds: grace, .. } =
            submission.parameters;
        let is_supervised = supervised == Some(true) || tasks.is_some() || grace.is_some();
        let seen = Seen { is_supervised, ..Seen::default() };
        let record =
            Record { ticket: Some(ticket), process, command, told: None, home: None, seen };
        self.records.insert(job, record);
        self.has_changed = true;
        Ok(Some(job))
    }

    fn process_of<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        submission: &Submission,
    ) -> Result<JobProcess, CallError> {
        let (proc, pid) = (host.proc(), submission.pid);
        let kernel = &mut host.kernel;
        let unread = |error: KernError| CallError::Failed { reason: error.to_string() };
        let start_ticks = process::start_ticks(kernel, proc, pid).map_err(unread)?;
        let user = process::user(kernel, proc, pid).map_err(unread)?;
        let handle = submission.process.clone();
        if start_ticks.is_some_and(|ticks| self.records.has_process(pid, ticks)) {
            return Err(CallError::Failed { reason: format!("process {pid} is a job already") });
        }
        let is_there = pid > 1 && handle.as_ref().is_none_or(|handle| is_alive(handle));
        match (start_ticks.filter(|_| is_there), user) {
            (Some(start_ticks), Some(user)) if user == submission.uid => {
                Ok(JobProcess { pid, start_ticks, handle })
            }
            (Some(_), Some(_)) => Err(CallError::PermissionDenied {}),
            _ => Err(CallError::Failed { reason: format!("process {pid} has ended") }),
        }
    }

    fn tell_last(&mut self, submitted: &[Submitted]) {
        let nr_waiting = self.admission.nr_waiting();
        let reasons = submitted.iter().map(|it| (it.job, self.admission.why(it.job)));
        let waiting: Vec<(JobId, Reason)> =
            reasons.filter_map(|(job, reason)| Some((job, reason?))).collect();
        let nr_before = nr_waiting.saturating_sub(waiting.len());
        for (index, (job, reason)) in waiting.into_iter().enumerate() {
            let position = (nr_before + index + 1) as u64;
            let (estimate_seconds, beside_cores) = (None, 0.0);
            let outlook = Outlook { job, position, reason, estimate_seconds, beside_cores };
            self.tell(&outlook, nr_waiting);
        }
    }
}

/// Time that nine of ten earlier jobs of its class took; `None` for a class with too few of them.
fn expected(finished: &FinishedJobs, request: &Request) -> Option<Duration> {
    let runs = finished.runs(request.user, request.class.as_deref()?).map(|run| run.seconds);
    Duration::try_from_secs_f64(remaining(runs, 0.0)?.high_seconds).ok()
}

fn tenant_of<K: KernFs>(
    tenants: &mut Tenants<K>,
    submission: &Submission,
) -> Result<String, CallError> {
    let own = tenants.base.tenant_of_user(submission.uid).map(str::to_string);
    let is_allowed = |path: &str| match &submission.allowed {
        Allowed::All => true,
        Allowed::These(allowed) => allowed.iter().any(|it| is_in_group(path, it)),
    };
    let Some(named) = &submission.parameters.tenant else {
        let leaves = tenants.nodes().iter().filter(|node| node.is_leaf && is_allowed(&node.path));
        let named: Vec<String> = leaves.map(|node| node.path.to_string()).collect();
        return match (own, &named[..], &submission.allowed) {
            (Some(own), ..) => Ok(own),
            // Not for administrators (`All`): they may use every tenant, so a single leaf says nothing.
            (None, [only], Allowed::These(_)) => Ok(only.clone()),
            (None, ..) => {
                let (host, uid, pid) = (&mut tenants.host, submission.uid, submission.pid);
                let awaited = tenants.backends.awaits_user(host, uid, pid).then_some(true);
                Err(CallError::NoOwnTenant { tenants: named, awaited })
            }
        };
    };
    let node = tenants.nodes().iter().find(|node| node.path == *named);
    match node {
        _ if !is_allowed(named) && own.as_ref() != Some(named) => {
            Err(CallError::PermissionDenied {})
        }
        None => {
            let awaited = may_make(&tenants.base.written, named).then_some(true);
            let tenant = named.clone();
            Err(CallError::NoSuchTenant { tenant, tenants: Vec::new(), awaited })
        }
        Some(node) if !node.is_leaf => {
            let reason = format!("{named} is a group: name one of the tenants in it");
            Err(CallError::Failed { reason })
        }
        Some(_) => Ok(named.clone()),
    }
}

fn request(parameters: &SubmitParameters, tenant: &str, user: u32) -> Result<Request, CallError> {
    let wrong = |parameter: &str| CallError::InvalidParameter { parameter: parameter.to_string() };
    let width = match (parameters.dop, parameters.max_dop) {
        (Some(0), _) | (Some(_), Some(_)) => return Err(wrong("dop")),
        (_, Some(0)) => return Err(wrong("max_dop")),
        (Some(dop), None) => Width::Manual(dop.into()),
        (None, Some(max)) => Width::AtMost(max.into()),
        (None, None) => Width::Auto,
    };
    let is_name = |name: &str| {
        !name.is_empty() && name.len() <= NAME_MAX && !name.chars().any(char::is_control)
    };
    if parameters.class.as_ref().is_some_and(|class| !is_name(class)) {
        return Err(wrong("class"));
    }
    if parameters.tasks.is_some_and(|count| !(1..=TASKS_MAX).contains(&count)) {
        return Err(wrong("tasks"));
    }
    if parameters.tasks_at_once.is_some_and(|most| most == 0 || parameters.tasks.is_none()) {
        return Err(wrong("tasks_at_once"));
    }
    let grace = parameters.requeue_grace_seconds;
    if grace.is_some_and(|grace| grace > GRACE_MAX_SECONDS || parameters.tasks.is_some()) {
        return Err(wrong("requeue_grace_seconds"));
    }
    let requeue = grace.map(|grace_seconds| Requeue { grace_seconds });
    // Each run is a task.
    let runs = requeue.map(|_| Tasks { count: RUNS_MAX, at_once: Some(1) });
    let at_once = parameters.tasks_at_once;
    let units = parameters.units.as_deref().unwrap_or_default();
    if units.len() > UNITS_MAX || !units.iter().all(|it| is_name(&it.name)) {
        return Err(wrong("units"));
    }
    let memory_bytes = parameters.memory_bytes.unwrap_or(0);
    if (1..MEMORY_MIN_BYTES).contains(&memory_bytes) {
        let reason = format!(
            "it could never start: {memory_bytes} bytes of memory are too little for any process; ask for at least {}",
            Bytes(MEMORY_MIN_BYTES)
        );
        return Err(CallError::NeverFits { reason });
    }
    Ok(Request {
        tenant: tenant.to_string(),
        user,
        class: parameters.class.clone(),
        memory_bytes,
        width,
        units: units.iter().map(|it| (it.name.clone(), it.count)).collect(),
        tasks: parameters.tasks.map(|count| Tasks { count, at_once }).or(runs),
        after: Vec::new(),
        requeue,
        expected: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_without_room_for_a_process_is_refused() {
        let of = |bytes: Option<u64>| {
            let parameters = SubmitParameters { memory_bytes: bytes, ..Default::default() };
            request(&parameters, "a", 1000).map(|request| request.memory_bytes)
        };
        let Err(CallError::NeverFits { reason }) = of(Some(5)) else { panic!() };
        assert!(reason.contains("5 bytes") && reason.contains("at least 1MiB"), "{reason}");
        assert!(of(Some(MEMORY_MIN_BYTES - 1)).is_err());
        assert_eq!(of(Some(MEMORY_MIN_BYTES)), Ok(MEMORY_MIN_BYTES));
        assert_eq!([of(None), of(Some(0))], [Ok(0), Ok(0)]);
    }
}
