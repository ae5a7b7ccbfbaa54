//! Courses with figures.

use tenantd_admission::{
    Admission, Capacity, JobId, Measured, Phase, Reason, Refusal, Request, Rules, Start, Terms,
    weights,
};
use tenantd_dop::target::Width;
use tenantd_queue::discipline::Name;

use super::course::{GIB, all_disciplines};

fn queue(rules: Rules, capacity: Capacity, weights: &[(&str, f64)]) -> Admission {
    let mut admission = Admission::new(rules, capacity);
    let terms = weights.iter().map(|(path, weight)| Terms::new(*path, *weight)).collect();
    admission.policy(rules, terms, 0.0);
    admission
}

fn slots(slots: u32) -> Capacity {
    Capacity { slots, memory_bytes: Some(16 * GIB), units: vec![("gpu".into(), 2)] }
}

fn starts(admission: &mut Admission, now: f64) -> Vec<Start> {
    admission.dispatch(Measured::default(), now).starts
}

/// 200 jobs that are submitted at once and declare ten times the memory: at no time more is declared by those that run
/// than there is, although none of them has used any when the others are decided.
#[test]
fn declared_memory_is_never_exceeded() {
    for discipline in all_disciplines() {
        let rules = Rules { discipline, ..Rules::default() };
        let tenants = [("a", 1.0), ("b", 2.0), ("c", 3.0), ("d", 4.0), ("e", 5.0)];
        let mut admission = queue(rules, slots(64), &tenants);
        let mut running: Vec<JobId> = Vec::new();
        for number in 0_u64..200 {
            let memory_bytes = (1 + number % 3) * 2 * GIB / 5;
            let request = Request {
                memory_bytes,
                ..Request::new(tenants[number as usize % 5].0, number as u32)
            };
            admission.submit(request, 0.0).unwrap();
            running.extend(starts(&mut admission, 0.0).iter().map(|start| start.job));
        }
        let (mut nr_ended, mut now) = (0, 0.0);
        while nr_ended < 200 {
            let declared: u64 =
                running.iter().map(|job| admission.job(*job).unwrap().request.memory_bytes).sum();
            assert!(declared <= 16 * GIB, "{declared}");
            assert!(declared > 14 * GIB || admission.nr_waiting() == 0, "{declared}: memory idles");
            now += 1.0;
            let job = running.remove(0);
            admission.ended(job, now);
            nr_ended += 1;
            running.extend(starts(&mut admission, now).iter().map(|start| start.job));
        }
    }
}

/// A manual DOP of all slots starts beside a stream of narrow jobs that never ends, and they wait no longer than that.
#[test]
fn a_wide_job_is_not_starved() {
    for discipline in all_disciplines() {
        let rules = Rules { discipline, overtakes_max: 5, ..Rules::default() };
        let mut admission = queue(rules, slots(4), &[("narrow", 1.0), ("wide", 1.0)]);
        let mut running = Vec::new();
        let submit = |admission: &mut Admission, now: f64| {
            admission.submit(Request::new("narrow", 1), now).unwrap();
        };
        (0..8).for_each(|_| submit(&mut admission, 0.0));
        running.extend(starts(&mut admission, 0.0));
        let wide = Request { width: Width::Manual(4), ..Request::new("wide", 2) };
        let wide = admission.submit(wide, 0.0).unwrap();
        let mut nr_started = 0;
        for step in 1..200 {
            let now = f64::from(step);
            let Start { job, .. } = running.remove(0);
            admission.charge(job, 1.0, None, now);
            admission.ended(job, now);
            submit(&mut admission, now);
            let started = starts(&mut admission, now);
            if started.iter().any(|start| start.job == wide) {
                assert_eq!(started, [Start { job: wide, dop: 4 }], "{discipline:?}");
                break;
            }
            nr_started += started.len();
            running.extend(started);
        }
        assert!(admission.job(wide).is_some_and(|job| matches!(job.phase, Phase::Running { .. })));
        assert!(nr_started <= 5 + 8, "{discipline:?}: {nr_started} went before it");
    }
}

/// A job that waits for a GPU holds nobody up that needs none; those that need one wait once it was overtaken enough.
#[test]
fn only_who_takes_of_what_is_lacking_waits() {
    let rules = Rules { discipline: Name::Fifo, overtakes_max: 1, ..Rules::default() };
    let mut admission = queue(rules, slots(8), &[("a", 1.0), ("b", 1.0)]);
    let gpus = |tenant: &str, count: u32| Request {
        units: vec![("gpu".into(), count)],
        ..Request::new(tenant, 1)
    };
    let first = admission.submit(gpus("a", 1), 0.0).unwrap();
    let both = admission.submit(gpus("a", 2), 0.0).unwrap();
    let second = admission.submit(gpus("b", 1), 0.0).unwrap();
    let third = admission.submit(gpus("b", 1), 0.0).unwrap();
    let plain = admission.submit(Request::new("a", 1), 0.0).unwrap();
    let started: Vec<JobId> = starts(&mut admission, 0.0).iter().map(|start| start.job).collect();
    assert_eq!(started, [first, plain, second]);
    let reason = Reason::Units { name: "gpu".into(), wanted: 2, free: 0, total: 2 };
    assert_eq!(admission.why(both), Some(reason));
    admission.ended(first, 1.0);
    assert_eq!(starts(&mut admission, 1.0), []);
    assert_eq!(admission.why(third), Some(Reason::Overtaken { job: both, times: 1 }));
    admission.ended(second, 2.0);
    let started: Vec<JobId> = starts(&mut admission, 2.0).iter().map(|start| start.job).collect();
    assert_eq!(started, [both]);
    let more = Request { units: vec![("gpu".into(), 3)], ..Request::new("a", 1) };
    let reason = Reason::Units { name: "gpu".into(), wanted: 3, free: 2, total: 2 };
    assert_eq!(admission.submit(more, 3.0), Err(Refusal::NeverFits(reason)));
    let unknown = Request { units: vec![("tpu".into(), 1)], ..Request::new("a", 1) };
    let Err(Refusal::NeverFits(reason)) = admission.submit(unknown, 3.0) else { panic!() };
    assert!(reason.to_string().starts_with("the policy has no resource tpu"), "{reason}");
}

/// A senior lacks a GPU, and for the limit of its tenant memory as well once another job of the tenant has started. A job
/// that it keeps from starting waits for it before and after.
#[test]
fn a_senior_keeps_what_it_lacks_beside_the_limits_of_its_tenant() {
    let rules = Rules { discipline: Name::Priority, overtakes_max: 1, ..Rules::default() };
    let mut admission = queue(rules, slots(8), &[]);
    let limited = Terms { memory_max_bytes: Some(12 * GIB), ..Terms::new("c", 2.0) };
    admission.policy(rules, vec![Terms::new("b", 3.0), limited, Terms::new("a", 1.0)], 0.0);
    let job = |tenant: &str, gpus: u32, gib: u64| Request {
        units: vec![("gpu".into(), gpus)],
        memory_bytes: gib * GIB,
        ..Request::new(tenant, 1)
    };
    let first = admission.submit(job("a", 1, 0), 0.0).unwrap();
    starts(&mut admission, 0.0);
    let senior = admission.submit(job("c", 2, 8), 0.0).unwrap();
    let second = admission.submit(job("a", 1, 0), 0.0).unwrap();
    starts(&mut admission, 0.0);
    assert_eq!(admission.job(senior).unwrap().phase, Phase::Waiting { overtaken: 1 });
    let held = admission.submit(job("b", 1, 0), 0.0).unwrap();
    let plain = admission.submit(job("c", 0, 6), 0.0).unwrap();
    admission.ended(first, 0.0);
    let started = |admission: &mut Admission| -> Vec<JobId> {
        starts(admission, 0.0).iter().map(|start| start.job).collect()
    };
    assert_eq!(started(&mut admission), [plain]);
    let reason = Reason::TenantMemory { wanted: 8 * GIB, free: 6 * GIB, total: 12 * GIB };
    assert_eq!(admission.why(senior), Some(reason));
    assert_eq!(admission.why(held), Some(Reason::Overtaken { job: senior, times: 1 }));
    assert_eq!(started(&mut admission), []);
    admission.ended(plain, 0.0);
    admission.ended(second, 0.0);
    assert_eq!(started(&mut admission), [senior]);
    assert!(matches!(admission.why(held), Some(Reason::Units { .. })));
}

/// Slots that memory leaves idle go to those that run, and come back when others start.
#[test]
fn widths_follow_who_runs() {
    let mut admission = queue(Rules::default(), slots(8), &[("a", 3.0), ("b", 1.0)]);
    let large = |tenant: &str| Request { memory_bytes: 9 * GIB, ..Request::new(tenant, 1) };
    let first = admission.submit(large("a"), 0.0).unwrap();
    assert_eq!(starts(&mut admission, 0.0), [Start { job: first, dop: 8 }]);
    let second = admission.submit(large("b"), 0.0).unwrap();
    let reason = Reason::Memory { wanted: 9 * GIB, free: 7 * GIB, total: 16 * GIB };
    assert_eq!(admission.why(second), Some(reason));
    let small = admission.submit(Request::new("b", 1), 0.0).unwrap();
    let dispatch = admission.dispatch(Measured::default(), 0.0);
    assert_eq!(dispatch.starts, [Start { job: small, dop: 2 }]);
    assert_eq!(dispatch.widths, [(first, 6)]);
    admission.ended(small, 1.0);
    assert_eq!(admission.dispatch(Measured::default(), 1.0).widths, [(first, 8)]);
}

/// More workers than slots let more jobs run, and none wider than the machine.
#[test]
fn no_job_is_wider_than_the_slots() {
    let rules = Rules { max_running: Some(16), ..Rules::default() };
    for widest in [2, 3] {
        let mut admission = queue(rules, slots(widest), &[("a", 1.0)]);
        let first = admission.submit(Request::new("a", 1), 0.0).unwrap();
        assert_eq!(starts(&mut admission, 0.0), [Start { job: first, dop: widest }]);
        let most = Request { width: Width::AtMost(16), ..Request::new("a", 1) };
        let second = admission.submit(most, 0.0).unwrap();
        assert_eq!(starts(&mut admission, 0.0), [Start { job: second, dop: widest }]);
        let exact = |dop: u32| Request { width: Width::Manual(dop.into()), ..Request::new("a", 1) };
        let wide = u64::from(widest);
        let reason = Reason::Slots { wanted: wide + 1, free: wide, total: wide, left_to: None };
        let refused = admission.submit(exact(widest + 1), 0.0);
        assert_eq!(refused, Err(Refusal::NeverFits(reason)));
        let third = admission.submit(exact(widest), 0.0).unwrap();
        assert_eq!(starts(&mut admission, 0.0), [Start { job: third, dop: widest }]);
        // As many run as may.
        (0..20).for_each(|_| assert!(admission.submit(Request::new("a", 1), 0.0).is_ok()));
        let nr_more = starts(&mut admission, 0.0).len();
        let nr_running = admission.active().count();
        assert!(nr_running > 2 * widest as usize && nr_more > 0, "{nr_running}");
        for job in admission.active() {
            let Phase::Running { dop, .. } = job.phase else { continue };
            assert!(dop <= widest, "{job:?}");
        }
    }
}

/// One user cannot fill the queue of a tenant, nor one tenant that of others.
#[test]
fn queues_are_bounded() {
    let rules = Rules { max_waiting: 5, max_waiting_per_user: 3, ..Rules::default() };
    let mut admission = queue(rules, slots(1), &[("a", 1.0), ("b", 1.0)]);
    let mut submit = |tenant: &str, user| admission.submit(Request::new(tenant, user), 0.0);
    for _ in 0..3 {
        submit("a", 1).unwrap();
    }
    assert_eq!(submit("a", 1), Err(Refusal::UserQueueFull { max: 3 }));
    assert_eq!(submit("b", 1), Err(Refusal::UserQueueFull { max: 3 }));
    submit("a", 2).unwrap();
    submit("a", 2).unwrap();
    assert_eq!(submit("a", 3), Err(Refusal::TenantQueueFull { max: 5 }));
    submit("b", 3).unwrap();
    assert_eq!(submit("c", 3), Err(Refusal::NoSuchTenant));
}

/// Each level has half the weight of the one before, in equal parts to its jobs.
#[test]
fn long_jobs_weigh_less() {
    assert_eq!(weights(&[0.0, 5.0, 30.0, 100.0, 1e6]), [1600.0, 800.0, 400.0, 200.0, 100.0]);
    assert_eq!(weights(&[0.0, 0.5, 1.0]), [800.0, 800.0, 800.0]);
}

/// A tenant of small jobs beside one of large ones: under fair queueing its jobs do not wait for the others' backlog.
#[test]
fn small_jobs_do_not_wait_for_a_backlog() {
    let wait = |discipline: Name| {
        let rules = Rules { discipline, max_running: Some(1), ..Rules::default() };
        let mut admission = queue(rules, slots(1), &[("long", 1.0), ("short", 1.0)]);
        for _ in 0..20 {
            admission.submit(Request::new("long", 1), 0.0).unwrap();
        }
        let short: Vec<JobId> =
            (0..10).map(|_| admission.submit(Request::new("short", 2), 0.0).unwrap()).collect();
        let (mut now, mut waited) = (0.0, 0.0);
        while admission.nr_waiting() > 0 {
            let Start { job, .. } = starts(&mut admission, now)[0];
            let is_short = short.contains(&job);
            if is_short {
                waited += now;
            }
            let cost = if is_short { 0.1 } else { 10.0 };
            now += cost;
            admission.charge(job, cost, None, now);
            admission.ended(job, now);
        }
        waited / 10.0
    };
    let (fifo, fair) = (wait(Name::Fifo), wait(Name::TwoDfqE));
    assert!(fair < fifo / 10.0, "{fair} s, and {fifo} s under FIFO");
}
