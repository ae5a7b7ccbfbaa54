//! Jobs that end for others and wait again: orders, reports, the end by force, and a restart.

use std::fs;

use nix::errno::Errno;
use tenantd::agent::JobAnswer;
use tenantd_host::kernfs::Operation;
use tenantd_sim::{Fault, Load, SimKernel};
use tenantd_varlink::bridge::{Caller, Submission, Ticket};
use tenantd_varlink::jobs::{
    EndReason, Eviction, Job, JobState, ReportParameters, SubmitParameters, TaskSums, WaitKind,
};

use super::world::{MIB, World, legacy, submission};
use crate::util::wait_until;

const POLICY: &str = "
admission: { max_running: 1 }
tenants: { a: {}, b: {} }
";
const GRACE: u32 = 20;

fn begin(mut world: World) -> World {
    world.add_session();
    world.start().unwrap();
    world.ticks(8);
    // The jobs of an earlier agent are looked for before any is submitted.
    tend(&mut world, 0.0);
    world
}

fn asking(world: &World, tenant: &str, is_evictable: bool) -> Submission {
    let pid = world.client(1000, Load { working_set_bytes: MIB, ..Load::busy(1) });
    let parameters = SubmitParameters {
        tenant: Some(tenant.into()),
        requeue_grace_seconds: is_evictable.then_some(GRACE),
        ..SubmitParameters::default()
    };
    submission((1000, pid), parameters)
}

fn submit(world: &mut World, submission: &Submission, now: f64) {
    world.submit_all(std::slice::from_ref(submission), now);
}

fn tend(world: &mut World, now: f64) {
    world.agent.as_mut().unwrap().tend_jobs(true, now);
}

/// Answers since the last call, by the process: an order to end, or the number of turns.
fn told(world: &mut World) -> Vec<(u32, Option<Eviction>, Option<u32>)> {
    let answers = world.agent.as_mut().unwrap().take_job_answers().into_iter();
    let told = answers.filter_map(|(ticket, answer)| match answer {
        JobAnswer::Submitted(Ok(reply)) | JobAnswer::Waits(reply)
            if reply.started.is_some() || reply.eviction.is_some() =>
        {
            Some((ticket.0 as u32, reply.eviction, reply.granted))
        }
        _ => None,
    });
    told.collect()
}

fn report(world: &mut World, pid: u32, started: u32, failed: u32, closed: bool, now: f64) {
    let tasks = Some(TaskSums { started, succeeded: 0, failed, closed });
    let exit_code = closed.then_some(1);
    let report = ReportParameters { id: 1, tasks, exit_code, ..ReportParameters::default() };
    let agent = world.agent.as_mut().unwrap();
    agent.report_job(Ticket(u64::from(pid)), report, Caller { user: Some(1000), pid });
    agent.settle_job_calls(now);
}

fn job(world: &mut World, id: u64, now: f64) -> Option<Job> {
    tend(world, now);
    let list = world.agent.as_mut().unwrap().take_job_list(now).expect("a list");
    list.jobs.into_iter().find(|job| job.id == id)
}

/// An evictable job of a that runs, and one of b that waits for it.
fn contended(world: &mut World) -> [Submission; 2] {
    let jobs = [("a", true), ("b", false)]
        .map(|(tenant, is_evictable)| asking(world, tenant, is_evictable));
    submit(world, &jobs[0], 1.0);
    submit(world, &jobs[1], 2.0);
    tend(world, 10.0);
    assert_eq!(told(world), [(jobs[0].pid, None, Some(1))], "it has not run for a minute");
    // A job that uses no CPU lends its slot, and none has to end.
    world.ticks(3);
    jobs
}

#[test]
fn a_job_ends_for_another_one_and_runs_again() {
    let mut world = begin(World::new(POLICY));
    let [first, second] = contended(&mut world);
    tend(&mut world, 100.0);
    let orders = told(&mut world);
    let [(pid, Some(eviction), Some(1))] = &orders[..] else {
        panic!("{orders:?} {:?}", world.agent.as_mut().unwrap().take_job_list(100.5))
    };
    assert_eq!(*pid, first.pid);
    assert_eq!((eviction.job, &*eviction.tenant, eviction.ending), (Some(2), "b", true));
    assert_eq!(eviction.grace_seconds, GRACE);
    let ending = job(&mut world, 1, 101.0).unwrap();
    assert_eq!((ending.state, ending.run, ending.tasks), (JobState::Running, Some(1), None));
    assert!(ending.eviction.unwrap().text.contains("ends run 1 of this job for job 2 of b"));
    let reason = job(&mut world, 2, 102.0).unwrap().waiting.unwrap().reason;
    assert_eq!((reason.kind, reason.job), (WaitKind::Evicting, Some(1)));
    assert_eq!(told(&mut world), [], "one order");
    report(&mut world, first.pid, 1, 1, false, 103.0);
    assert_eq!(told(&mut world).iter().map(|it| it.0).collect::<Vec<_>>(), [second.pid]);
    let waits = job(&mut world, 1, 104.0).unwrap();
    assert_eq!((waits.state, waits.run), (JobState::Waiting, Some(2)));
    let text = waits.eviction.unwrap().text;
    assert_eq!(text, "tenantd ended this job for job 2 of b; it waits again, run 2");
    assert!(waits.waiting.is_some());
    world.host.with(|kernel| kernel.kill(second.pid)).unwrap();
    tend(&mut world, 110.0);
    assert_eq!(told(&mut world), [(first.pid, None, Some(2))], "its second run");
    report(&mut world, first.pid, 2, 2, true, 120.0);
    world.host.with(|kernel| kernel.kill(first.pid)).unwrap();
    tend(&mut world, 121.0);
    let finished = world.agent.as_mut().unwrap().take_finished_jobs().unwrap();
    let record = finished.iter().find(|it| it.id == 1).unwrap();
    assert_eq!((record.run, record.tasks, record.exit_code), (Some(2), None, Some(1)));
    assert_eq!(record.text, "exited with code 1; run 2");
}

/// A client that does nothing: the job is ended with it, where the kernel can do that, and else runs on.
#[test]
fn a_client_that_does_not_end_its_run_is_overruled() {
    let of_slice = POLICY.replace("a: {}", "a: { owner: systemd }");
    let hybrid = || World::with(SimKernel::new(legacy()), POLICY);
    let worlds = [
        (World::new(POLICY), false),
        (World::new(&of_slice), false),
        (hybrid(), false),
        (hybrid(), true),
    ];
    for (world, is_refused) in worlds {
        let mut world = begin(world);
        let [first, second] = contended(&mut world);
        tend(&mut world, 100.0);
        assert_eq!(told(&mut world).len(), 1);
        let late = 100.0 + f64::from(GRACE) + 6.0;
        tend(&mut world, late - 2.0);
        assert!(world.host.with(|kernel| kernel.process_cgroup(first.pid).is_some()));
        if is_refused {
            let refused = Fault::matching(Operation::Write, "cgroup.kill", Errno::EACCES);
            world.host.inject(refused);
        }
        tend(&mut world, late);
        if is_refused {
            assert!(world.host.with(|kernel| kernel.process_cgroup(first.pid).is_some()));
            let stays = job(&mut world, 1, late + 1.0).unwrap();
            let notes = stays.started.unwrap().ineffective;
            assert!(notes.iter().any(|it| it.contains("runs on: ")), "{notes:?}");
            let reason = job(&mut world, 2, late + 2.0).unwrap().waiting.unwrap().reason;
            assert!(reason.kind != WaitKind::Evicting, "no promise is left");
            continue;
        }
        assert!(world.host.with(|kernel| kernel.process_cgroup(first.pid).is_none()));
        tend(&mut world, late + 1.0);
        assert_eq!(told(&mut world).iter().map(|it| it.0).collect::<Vec<_>>(), [second.pid]);
        let finished = world.agent.as_mut().unwrap().take_finished_jobs().unwrap();
        assert_eq!((finished[0].id, finished[0].reason), (1, EndReason::Evicted));
    }
}

/// The order is lost with the daemon: the next one sends it again, and counts the end once.
#[test]
fn an_order_survives_a_kill_of_the_daemon() {
    let mut world = begin(World::new(POLICY));
    let [mut first, mut second] = contended(&mut world);
    tend(&mut world, 100.0);
    let stored = world.state_dir().join("queue.json");
    // A queue that was written a moment ago is written later.
    wait_until("the stored eviction", || {
        tend(&mut world, 100.5);
        fs::read_to_string(&stored).is_ok_and(|text| text.contains("until\\\":1"))
    });
    world.kill();
    world.start().unwrap();
    world.ticks(3);
    tend(&mut world, 101.0);
    second.parameters.id = Some(2);
    submit(&mut world, &second, 102.0);
    (first.parameters.id, first.parameters.begun) = (Some(1), Some(true));
    submit(&mut world, &first, 103.0);
    let orders = told(&mut world).into_iter().filter_map(|(pid, order, _)| Some((pid, order?.job)));
    assert_eq!(orders.collect::<Vec<_>>(), [(first.pid, Some(2))]);
    report(&mut world, first.pid, 1, 1, false, 104.0);
    let started: Vec<u32> = told(&mut world).into_iter().map(|it| it.0).collect();
    assert_eq!(started.len(), 1, "one of both starts");
    assert_eq!(job(&mut world, 1, 105.0).unwrap().run, Some(2));
}
