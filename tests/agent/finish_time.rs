//! Finish-time fairness of jobs, and workers that are kept for short ones.

use tenantd_sim::{Load, Workload};
use tenantd_varlink::jobs::{Job, JobState, SubmitParameters, WaitKind};

use super::world::{SESSION, World};

fn begin(policy: &str) -> World {
    let mut world = World::new(policy);
    world.add_session();
    world.start().unwrap();
    world.ticks(3);
    world
}

/// Submits a busy thread as a job; its pid.
fn submit(world: &mut World, tenant: &str, class: Option<&str>, now: f64) -> u32 {
    let parameters = SubmitParameters {
        tenant: Some(tenant.into()),
        class: class.map(str::to_string),
        dop: Some(1),
        ..SubmitParameters::default()
    };
    world.submit(Load::busy(1), parameters, now)
}

/// Seconds of the machine with a tick each, in steps with the clock of the jobs.
fn pass(world: &mut World, from: f64, seconds: u32) -> f64 {
    for second in 1..=seconds {
        world.ticks(1);
        world.agent.as_mut().unwrap().tend_jobs(true, from + f64::from(second));
    }
    from + f64::from(seconds)
}

fn jobs(world: &mut World, now: f64) -> Vec<Job> {
    let agent = world.agent.as_mut().unwrap();
    agent.tend_jobs(true, now);
    agent.take_job_list(now).unwrap().jobs
}

fn end(world: &mut World, pid: u32, now: f64) {
    world.host.with(|kernel| kernel.kill(pid)).unwrap();
    world.agent.as_mut().unwrap().tend_jobs(true, now);
}

#[test]
fn a_job_that_waits_for_no_cpu_is_as_if_alone() {
    let mut world = begin("tenants: { a: {}, b: {} }");
    let pid = submit(&mut world, "a", None, 100.0);
    let now = pass(&mut world, 100.0, 20);
    let running = jobs(&mut world, now).remove(0);
    let rho = running.rho.unwrap();
    assert!((rho - 1.0).abs() < 0.05, "{rho}");
    end(&mut world, pid, now + 0.5);
    let finished = world.agent.as_mut().unwrap().take_finished_jobs().unwrap().remove(0);
    let rho = finished.rho.unwrap();
    assert!((rho - 1.0).abs() < 0.1, "{rho}");
    assert_eq!(finished.rho_unknown, None);
}

/// A thread that has to wait for CPUs takes as much longer as it got less of one.
#[test]
fn a_job_that_waits_for_cpus_takes_longer_than_alone() {
    let mut world = begin("tenants: { a: {}, b: {} }");
    let outside = Workload::constant("make", Load::busy(16));
    world.host.with(|kernel| kernel.spawn(SESSION, outside)).unwrap();
    // Of equal cgroups that of the job has one thread, and wants no more.
    for _ in 0..4 {
        submit(&mut world, "a", None, 100.0);
    }
    let now = pass(&mut world, 100.0, 30);
    for job in jobs(&mut world, now) {
        let expected = job.ran_seconds.unwrap() / job.cpu_seconds.unwrap();
        let rho = job.rho.unwrap();
        assert!(rho > 1.2 && (rho / expected - 1.0).abs() < 0.1, "{job:?}: {expected}");
    }
}

/// The wait in the queue counts: 20 s of it before a run of 10 s without a wait.
#[test]
fn the_wait_in_the_queue_counts() {
    let mut world = begin("admission: { max_running: 1 }\ntenants: { a: {}, b: {} }");
    let first = submit(&mut world, "a", None, 100.0);
    submit(&mut world, "b", None, 100.0);
    let now = pass(&mut world, 100.0, 20);
    end(&mut world, first, now);
    let now = pass(&mut world, now, 10);
    let second = jobs(&mut world, now).remove(0);
    assert_eq!((&*second.tenant, second.waited_seconds), ("b", 20.0));
    let rho = second.rho.unwrap();
    assert!((rho - 3.0).abs() < 0.3, "{rho}");
}

#[test]
fn tenants_with_ended_jobs_are_compared() {
    let mut world = begin("tenants: { a: {}, b: {} }");
    let (first, second) =
        (submit(&mut world, "a", None, 100.0), submit(&mut world, "b", None, 100.0));
    let now = pass(&mut world, 100.0, 30);
    let running = jobs(&mut world, now);
    assert!(running.iter().all(|job| job.rho.is_some()), "{running:?}");
    let told = |world: &mut World, now: f64| {
        let agent = world.agent.as_mut().unwrap();
        agent.note_jobs(now);
        agent.status().jobs.clone().unwrap()
    };
    assert_eq!(told(&mut world, now).finish_time_jain, None, "no tenant has ended jobs");
    end(&mut world, first, now);
    end(&mut world, second, now);
    let now = pass(&mut world, now, 1);
    let told = told(&mut world, now);
    assert_eq!(told.nr_finish_times, 2);
    assert!(told.finish_time_jain.unwrap() > 0.9, "{told:?}");
}

#[test]
fn a_job_that_ran_too_short_has_a_reason_instead() {
    let mut world = begin("tenants: { a: {} }");
    let pid = submit(&mut world, "a", None, 100.0);
    end(&mut world, pid, 100.2);
    let finished = world.agent.as_mut().unwrap().take_finished_jobs().unwrap().remove(0);
    assert_eq!(finished.rho, None);
    assert!(
        finished.rho_unknown.as_ref().unwrap().contains("less than a few seconds"),
        "{finished:?}"
    );
}

/// A class is short once five of its jobs were, and starts beside long jobs that wait.
#[test]
fn a_short_class_gets_the_worker_that_is_kept() {
    let mut world =
        begin("admission: { short_jobs: { workers: 1, below: 30s } }\ntenants: { a: {}, b: {} }");
    let mut now = 100.0;
    for _ in 0..7 {
        let pid = submit(&mut world, "b", Some("lint"), now);
        now = pass(&mut world, now, 1);
        end(&mut world, pid, now);
    }
    let agent = world.agent.as_mut().unwrap();
    agent.note_jobs(now);
    let slots = agent.status().jobs.as_ref().unwrap().slots;
    for _ in 0..slots {
        submit(&mut world, "a", None, now);
    }
    let waiting: Vec<Job> =
        jobs(&mut world, now).into_iter().filter(|job| job.state == JobState::Waiting).collect();
    assert_eq!(waiting.len(), 1, "one worker of {slots} is kept");
    let reason = &waiting[0].waiting.as_ref().unwrap().reason;
    assert_eq!(reason.kind, WaitKind::Reserve);
    assert!(reason.text.contains("kept for short jobs"), "{reason:?}");
    submit(&mut world, "b", Some("lint"), now);
    let lint = jobs(&mut world, now).into_iter().find(|job| job.class.is_some()).unwrap();
    assert_eq!(lint.state, JobState::Running);
}
