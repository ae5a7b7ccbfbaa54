//! Records of finished jobs: their figures, their readers, and a restart.

use std::sync::Arc;

use tenantd::agent::JobAnswer;
use tenantd_sim::Load;
use tenantd_varlink::bridge::{Caller, PublishedFinished, Ticket, Viewer};
use tenantd_varlink::error::CallError;
use tenantd_varlink::jobs::{
    EndReason, FinishedJob, FinishedReply, ReportParameters, SubmitParameters,
};

use super::world::{MIB, World, submission};

const POLICY: &str = "tenants: { a: {}, b: {} }";

fn world() -> World {
    let mut world = World::new(POLICY);
    world.add_session();
    world.start().unwrap();
    world.ticks(3);
    world
}

fn submit(world: &mut World, uid: u32, supervised: bool, now: f64) -> u32 {
    let load = Load { working_set_bytes: 8 * MIB, ..Load::busy(1) };
    let pid = world.client(uid, load);
    let parameters = SubmitParameters {
        tenant: Some("a".into()),
        memory_bytes: Some(64 * MIB),
        dop: Some(1),
        command: Some("/usr/bin/train --token hunter2".into()),
        supervised: Some(supervised),
        ..SubmitParameters::default()
    };
    world.submit_all(&[submission((uid, pid), parameters)], now);
    pid
}

fn kill(world: &mut World, pid: u32, now: f64) {
    world.host.with(|kernel| kernel.kill(pid)).unwrap();
    world.agent.as_mut().unwrap().tend_jobs(true, now);
}

fn finished(world: &mut World) -> Vec<Arc<FinishedJob>> {
    world.agent.as_mut().unwrap().take_finished_jobs().expect("a change")
}

fn user(uid: u32) -> Caller {
    Caller { user: Some(uid), pid: 1 }
}

/// The answers to waits since the last call.
fn waited(world: &mut World) -> Vec<(u64, Result<FinishedJob, CallError>)> {
    let answers = world.agent.as_mut().unwrap().take_job_answers().into_iter();
    let ended = answers.filter_map(|(Ticket(ticket), answer)| match answer {
        JobAnswer::Ended(outcome) => Some((ticket, outcome.map(|reply| reply.job))),
        _ => None,
    });
    ended.collect()
}

#[test]
fn an_ended_job_leaves_its_figures() {
    let mut world = world();
    assert_eq!(finished(&mut world), []);
    let pid = submit(&mut world, 1000, false, 100.0);
    world.ticks(3);
    world.agent.as_mut().unwrap().tend_jobs(true, 103.0);
    kill(&mut world, pid, 105.0);
    let job = finished(&mut world).remove(0);
    assert_eq!((job.id, job.uid, &*job.tenant, job.dop), (1, 1000, "a", Some(1)));
    assert_eq!((job.ran_seconds, job.waited_seconds), (Some(5.0), 0.0));
    assert!(job.cpu_seconds.unwrap() > 2.0, "{job:?}");
    assert!(job.peak_memory_bytes.is_some_and(|bytes| bytes > 0), "{job:?}");
    assert_eq!(job.memory_bytes, Some(64 * MIB));
    // The daemon is not its parent, and nothing is guessed.
    assert_eq!((job.reason, job.has_status()), (EndReason::Ended, false));
    assert!(job.text.contains("exit status is not known"), "{}", job.text);
    let ran = job.ended_unix_seconds - job.started_unix_seconds.unwrap();
    assert!((ran - 5.0).abs() < 1e-3, "{ran}");
}

#[test]
fn a_job_that_never_ran_has_its_reason() {
    let mut world = world();
    let agent = world.agent.as_mut().unwrap();
    let nr_slots = agent.topology().unwrap().usable().len();
    let pids: Vec<u32> = (0..nr_slots + 2).map(|_| submit(&mut world, 1000, false, 1.0)).collect();
    let (cancelled, left) = (nr_slots as u64 + 1, pids[nr_slots + 1]);
    let agent = world.agent.as_mut().unwrap();
    agent.cancel_job(Ticket(9_000), cancelled, user(1000), 2.0);
    agent.job_client_left(Ticket(left.into()), 3.0);
    let told: Vec<_> = finished(&mut world).iter().map(|it| (it.reason, it.ran_seconds)).collect();
    assert_eq!(told, [(EndReason::Cancelled, None), (EndReason::Withdrawn, None)]);
    // A running job that was cancelled is cancelled, even if its status is not known.
    let agent = world.agent.as_mut().unwrap();
    agent.cancel_job(Ticket(9_001), 1, user(1000), 4.0);
    kill(&mut world, pids[0], 5.0);
    assert_eq!(finished(&mut world).last().unwrap().reason, EndReason::Cancelled);
}

#[test]
fn a_wait_ends_with_the_job_and_has_the_reported_status() {
    let mut world = world();
    let pid = submit(&mut world, 1000, true, 1.0);
    let agent = world.agent.as_mut().unwrap();
    agent.wait_for_job(Ticket(500), 1, user(1000));
    agent.wait_for_job(Ticket(501), 1, user(1001));
    agent.wait_for_job(Ticket(502), 99, user(1000));
    agent.wait_for_job(Ticket(503), 1, user(1000));
    agent.job_client_left(Ticket(503), 1.0);
    let told = waited(&mut world);
    assert_eq!(told[0], (501, Err(CallError::PermissionDenied {})));
    assert_eq!(told[1], (502, Err(CallError::NoSuchJob { id: 99 })));
    assert_eq!((told[2].0, told.len()), (503, 3));
    // The end alone is not enough: the supervisor is about to report.
    kill(&mut world, pid, 2.0);
    assert_eq!(waited(&mut world), []);
    let report = ReportParameters { id: 1, exit_code: Some(3), ..ReportParameters::default() };
    let agent = world.agent.as_mut().unwrap();
    agent.report_job(Ticket(504), report.clone(), user(1001));
    agent.report_job(Ticket(505), report.clone(), user(1000));
    // The first report stays.
    agent.report_job(Ticket(506), ReportParameters { exit_code: Some(0), ..report }, user(1000));
    let answers = agent.take_job_answers();
    let refused = JobAnswer::Reported(Err(CallError::PermissionDenied {}));
    assert!(answers.contains(&(Ticket(504), refused)), "{answers:?}");
    let job = answers.into_iter().find_map(|(ticket, answer)| match answer {
        JobAnswer::Ended(Ok(reply)) if ticket == Ticket(500) => Some(reply.job),
        _ => None,
    });
    let job = job.expect("an answer");
    assert_eq!((job.reason, job.exit_code), (EndReason::Exited, Some(3)));
    assert_eq!(finished(&mut world)[0].exit_code, Some(3));
}

#[test]
fn a_wait_without_a_report_ends_after_a_while_and_a_job_without_supervisor_takes_none() {
    let mut world = world();
    let (first, second) =
        (submit(&mut world, 1000, true, 1.0), submit(&mut world, 1000, false, 1.0));
    world.agent.as_mut().unwrap().wait_for_job(Ticket(500), 1, user(1000));
    kill(&mut world, first, 2.0);
    assert_eq!(waited(&mut world), []);
    world.agent.as_mut().unwrap().tend_jobs(true, 4.5);
    let told = waited(&mut world);
    assert_eq!(told[0].1.as_ref().unwrap().reason, EndReason::Ended, "{told:?}");
    kill(&mut world, second, 5.0);
    let agent = world.agent.as_mut().unwrap();
    let report = ReportParameters { id: 2, exit_code: Some(0), ..ReportParameters::default() };
    agent.report_job(Ticket(501), report, user(1000));
    let answer = agent.take_job_answers().pop();
    assert!(
        matches!(answer, Some((_, JobAnswer::Reported(Err(CallError::Failed { .. }))))),
        "{answer:?}"
    );
    assert!(!finished(&mut world)[1].has_status());
}

/// A burst passes, then one job each second; another user is not concerned.
#[test]
fn submissions_of_a_user_have_a_rate() {
    let mut world = World::new(
        "admission: { max_submissions_per_user: 60 }\n\
                                tenants: { a: {}, b: {} }",
    );
    world.add_session();
    world.start().unwrap();
    world.ticks(3);
    let refused = |world: &mut World| {
        let answers = world.agent.as_mut().unwrap().take_job_answers();
        let of = |(_, answer): (Ticket, JobAnswer)| match answer {
            JobAnswer::Submitted(Err(CallError::QueueFull { reason })) => Some(reason),
            _ => None,
        };
        answers.into_iter().filter_map(of).collect::<Vec<_>>()
    };
    for _ in 0..60 {
        submit(&mut world, 1000, false, 10.0);
    }
    assert_eq!(refused(&mut world), [""; 0]);
    submit(&mut world, 1000, false, 10.0);
    let reasons = refused(&mut world);
    assert!(
        reasons[0].contains("60 jobs within a minute") && reasons[0].contains("in 1 s"),
        "{reasons:?}"
    );
    submit(&mut world, 1001, false, 10.0);
    submit(&mut world, 1000, false, 11.1);
    assert_eq!(refused(&mut world), [""; 0]);
    submit(&mut world, 1000, false, 11.1);
    assert_eq!(refused(&mut world).len(), 1);
}

#[test]
fn records_survive_a_restart() {
    let mut world = world();
    let (first, second) =
        (submit(&mut world, 1000, true, 1.0), submit(&mut world, 1000, false, 1.0));
    kill(&mut world, first, 2.0);
    let before = finished(&mut world);
    world.stop();
    world.start().unwrap();
    assert_eq!(finished(&mut world), before);
    // A late report completes a record of the earlier agent.
    let agent = world.agent.as_mut().unwrap();
    let report = ReportParameters { id: 1, exit_signal: Some(15), ..ReportParameters::default() };
    agent.report_job(Ticket(501), report, user(1000));
    assert_eq!(finished(&mut world)[0].reason, EndReason::Signalled);
    // A job that ends while no agent runs is found by the next one.
    world.ticks(1);
    world.agent.as_mut().unwrap().tend_jobs(true, 3.0);
    world.kill();
    world.host.with(|kernel| kernel.kill(second)).unwrap();
    world.start().unwrap();
    world.ticks(1);
    world.agent.as_mut().unwrap().tend_jobs(true, 9.0);
    let last = finished(&mut world).pop().unwrap();
    assert_eq!((last.id, last.reason), (2, EndReason::Ended));
    assert!(last.text.contains("while tenantd did not run"), "{}", last.text);
}

#[test]
fn users_see_their_own_jobs_and_programs_of_others() {
    let job = |id, uid| {
        let command = Some("/usr/bin/train --token hunter2".to_string());
        Arc::new(FinishedJob { id, uid, command, ..FinishedJob::default() })
    };
    let published = PublishedFinished::new(vec![job(1, 1000), job(2, 1001)]);
    let seen = |viewer, id| {
        let json = published.json(viewer, id)?;
        let reply: FinishedReply = serde_json::from_str(&json).unwrap();
        let jobs = reply.jobs.into_iter();
        Some(jobs.map(|job| (job.id, job.command.unwrap())).collect::<Vec<_>>())
    };
    let whole = |id| (id, "/usr/bin/train --token hunter2".to_string());
    let program = |id| (id, "train".to_string());
    assert_eq!(seen(Viewer::User(1000), None), Some(vec![whole(1)]));
    assert_eq!(seen(Viewer::User(1000), Some(2)), Some(vec![program(2)]));
    assert_eq!(seen(Viewer::User(7), None), Some(vec![]));
    assert_eq!(seen(Viewer::All, None), Some(vec![whole(1), whole(2)]));
    assert_eq!(seen(Viewer::All, Some(3)), None);
}
