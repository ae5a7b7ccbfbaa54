//! Jobs that wait for others, and donated turns.

use proptest::prelude::*;
use tenantd_admission::{
    Admission, Capacity, JobId, Measured, Phase, Reason, Refusal, Request, Requirement, Rules,
    Tasks, Terms,
};
use tenantd_dop::target::Width;
use tenantd_queue::discipline::Name;

use super::course::all_disciplines;

/// Tenants with these weights on one slot.
fn queue(discipline: Name, weights: &[(&str, f64)]) -> Admission {
    let rules = Rules { discipline, ..Rules::default() };
    let mut admission = Admission::new(rules, Capacity { slots: 1, ..Capacity::default() });
    let terms = weights.iter().map(|(path, weight)| Terms::new(*path, *weight)).collect();
    admission.policy(rules, terms, 0.0);
    admission
}

fn after(tenant: &str, jobs: &[JobId], must_succeed: bool) -> Request {
    let requirement = |job: &JobId| Requirement { job: *job, must_succeed };
    Request { after: jobs.iter().map(requirement).collect(), ..Request::new(tenant, 7) }
}

fn start(admission: &mut Admission, now: f64) -> Option<JobId> {
    let starts = admission.dispatch(Measured::default(), now).starts;
    starts.first().map(|start| start.job)
}

/// Ends a job after a second of CPU time. Returns the jobs whose requirement has failed.
fn end(admission: &mut Admission, job: JobId, has_succeeded: bool, now: f64) -> Vec<JobId> {
    admission.charge(job, 1.0, None, now);
    admission.ended(job, now);
    admission.requirement_ended(job, has_succeeded, now)
}

/// Runs everything to its end, one job after the other, each for a second. Returns the order of the starts.
fn play(admission: &mut Admission) -> Vec<JobId> {
    let mut order = Vec::new();
    let mut now = 1.0;
    while let Some(job) = start(admission, now) {
        order.push(job);
        now += 1.0;
        assert_eq!(end(admission, job, true, now), []);
        assert!(order.len() < 10_000);
    }
    order
}

#[test]
fn a_job_waits_for_older_ones() {
    let mut admission = queue(Name::default(), &[("a", 1.0)]);
    let first = admission.submit(Request::new("a", 7), 0.0).unwrap();
    let late = JobId(first.0 + 1);
    assert_eq!(admission.submit(after("a", &[late], false), 0.0), Err(Refusal::NotOlder(late)));
    let second = admission.submit(after("a", &[first], false), 0.0).unwrap();
    assert_eq!((second, admission.nr_waiting()), (late, 2));
    assert_eq!(start(&mut admission, 0.0), Some(first));
    let reason = admission.why(second).unwrap();
    assert_eq!(reason, Reason::After { job: first, count: 1, must_succeed: false });
    assert_eq!(reason.to_string(), format!("it waits for the end of job {first}"));
    assert_eq!(admission.outlooks(0.0)[0].job, second);
    // It does not start beside the other one, even if there is room.
    admission.capacity(Capacity { slots: 8, ..Capacity::default() }, 1.0);
    assert_eq!(start(&mut admission, 1.0), None);
    assert_eq!(end(&mut admission, first, false, 2.0), []);
    assert_eq!(start(&mut admission, 2.0), Some(second));
}

#[test]
fn a_failed_requirement_is_returned_once() {
    let mut admission = queue(Name::default(), &[("a", 1.0), ("b", 1.0)]);
    let first = admission.submit(Request::new("a", 7), 0.0).unwrap();
    let other = admission.submit(Request::new("a", 7), 0.0).unwrap();
    let strict = admission.submit(after("b", &[first, other], true), 0.0).unwrap();
    let any = admission.submit(after("b", &[first, strict], false), 0.0).unwrap();
    assert_eq!(start(&mut admission, 0.0), Some(first));
    assert_eq!(end(&mut admission, first, false, 1.0), [strict]);
    assert!(admission.cancel(strict, 1.0));
    assert_eq!(admission.requirement_ended(strict, false, 1.0), []);
    // Both have their turn, and nothing of the failed one is left.
    let mut order = play(&mut admission);
    order.sort_unstable();
    assert_eq!(order, [other, any]);
    assert_eq!((admission.nr_waiting(), admission.jobs().count()), (0, 0));
}

/// A poor tenant's job is behind a hundred others; the rich tenant whose job waits for it lends its turn.
#[test]
fn a_chain_of_a_rich_tenant_is_not_held_up() {
    for discipline in all_disciplines().filter(|it| it.has_tags()) {
        let weights = [("rich", 100.0), ("poor", 0.01), ("other", 1.0)];
        let mut admission = queue(discipline, &weights);
        // The poor tenant has had more than its part.
        let before = admission.submit(Request::new("poor", 1), 0.0).unwrap();
        assert_eq!(start(&mut admission, 0.0), Some(before));
        let others: Vec<JobId> =
            (0..100).map(|_| admission.submit(Request::new("other", 2), 0.0).unwrap()).collect();
        let small = admission.submit(Request::new("poor", 1), 0.0).unwrap();
        let chained = admission.submit(after("rich", &[small], false), 0.0).unwrap();
        admission.charge(before, 100.0, None, 1.0);
        end(&mut admission, before, true, 1.0);
        let order = play(&mut admission);
        let place = |job: JobId| order.iter().position(|it| *it == job).unwrap();
        assert!(place(small) < 3 && place(chained) < 5, "{discipline:?}: {order:?}");
        assert_eq!(order.len(), others.len() + 2);
    }
}

/// A set that others wait for gets the turns of both tenants, and its donor one entry.
#[test]
fn a_set_starts_at_the_turns_of_its_donors() {
    let mut admission = queue(Name::default(), &[("rich", 4.0), ("poor", 1.0), ("other", 1.0)]);
    let tasks = Some(Tasks { count: 6, at_once: Some(1) });
    let set = admission
        .submit(Request { tasks, width: Width::Manual(1), ..Request::new("poor", 1) }, 0.0)
        .unwrap();
    let chained = admission.submit(after("rich", &[set], false), 0.0).unwrap();
    let others: Vec<JobId> =
        (0..12).map(|_| admission.submit(Request::new("other", 2), 0.0).unwrap()).collect();
    let (mut nr_ended, mut nr_others, mut now) = (0, 0, 0.0);
    while nr_ended < 6 {
        let Some(job) = start(&mut admission, now) else { panic!("{nr_ended}") };
        now += 1.0;
        if job == set {
            nr_ended += 1;
            admission.charge(set, f64::from(nr_ended), None, now);
            let (started, ended) = (nr_ended, nr_ended);
            admission.report_tasks(
                set,
                tenantd_admission::Sums { started, ended, is_closed: false },
                now,
            );
        } else {
            assert!(others.contains(&job));
            nr_others += 1;
            end(&mut admission, job, true, now);
        }
    }
    assert!(nr_others <= 3, "both tenants' turns are the set's: {nr_others}");
    end(&mut admission, set, true, now);
    assert_eq!(start(&mut admission, now), Some(chained));
}

/// A tenant that has nothing to do with a donation starts its jobs as if the donor had a job of its own instead.
#[test]
fn a_third_tenant_sees_no_donation() {
    for discipline in all_disciplines() {
        let course = |donates: bool| {
            let mut admission = queue(discipline, &[("rich", 3.0), ("poor", 0.1), ("other", 1.0)]);
            let mut of_other = Vec::new();
            // The same entries in the same order; the one of the poor tenant never has its own turn.
            for _ in 0..4 {
                if donates {
                    let held = admission.submit(Request::new("poor", 1), 0.0).unwrap();
                    admission.submit(after("rich", &[held], false), 0.0).unwrap();
                } else {
                    admission.submit(Request::new("rich", 1), 0.0).unwrap();
                }
                of_other.push(admission.submit(Request::new("other", 2), 0.0).unwrap());
            }
            let order = play(&mut admission);
            let places = of_other.iter().map(|job| order.iter().position(|it| it == job).unwrap());
            (places.collect::<Vec<_>>(), order.len())
        };
        let ((with, nr_with), (without, nr_without)) = (course(true), course(false));
        assert_eq!((nr_with, nr_without), (12, 8));
        // At most the turns that the poor tenant had anyway come in between.
        for (with, without) in with.iter().zip(&without) {
            assert!(*with <= without + 8, "{discipline:?}: {with} {without}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever waits for whatever, under every discipline: each job starts or fails exactly once, never before its
    /// requirements, and nothing is left.
    #[test]
    fn every_job_has_an_end(
        jobs in prop::collection::vec((0_usize..3, prop::collection::vec((0_u64..20, any::<bool>()), 0..3), any::<bool>()), 1..20),
        cancelled in prop::collection::vec(1_u64..20, 0..3),
    ) {
        const NAMES: [&str; 3] = ["a", "b", "c"];
        for discipline in all_disciplines() {
            let mut admission = queue(discipline, &[("a", 5.0), ("b", 1.0), ("c", 0.1)]);
            let mut known: Vec<(Vec<(JobId, bool)>, bool)> = Vec::new();
            for (tenant, requirements, fate) in &jobs {
                let id = known.len() as u64 + 1;
                let older = requirements.iter().filter(|(job, _)| (1..id).contains(job));
                let older: Vec<(JobId, bool)> = older.map(|(job, ok)| (JobId(*job), *ok)).collect();
                let all = older.iter().map(|(job, must_succeed)| Requirement { job: *job, must_succeed: *must_succeed });
                let request = Request { after: all.collect(), ..Request::new(NAMES[*tenant], 7) };
                prop_assert_eq!(admission.submit(request, 0.0), Ok(JobId(id)));
                known.push((older, *fate));
            }
            // Result of each job that has ended.
            let mut results: Vec<Option<bool>> = vec![None; known.len() + 1];
            let mut failed: Vec<JobId> = Vec::new();
            for id in cancelled.iter().copied().map(JobId) {
                if admission.cancel(id, 0.5) {
                    results[id.0 as usize] = Some(false);
                    // A job whose requirement has failed may be cancelled by its user before the caller does it.
                    failed.retain(|it| *it != id);
                    failed.extend(admission.requirement_ended(id, false, 0.5));
                }
            }
            let mut now = 1.0;
            loop {
                while let Some(job) = failed.pop() {
                    prop_assert!(results[job.0 as usize].is_none() && admission.cancel(job, now));
                    results[job.0 as usize] = Some(false);
                    failed.extend(admission.requirement_ended(job, false, now));
                }
                if now > 10.0 && now < 11.5 {
                    admission.capacity(Capacity { slots: 2, ..Capacity::default() }, now);
                }
                let Some(job) = start(&mut admission, now) else { break };
                let (requirements, fate) = &known[job.0 as usize - 1];
                for (required, must_succeed) in requirements {
                    let result = results[required.0 as usize];
                    prop_assert!(result == Some(true) || (result.is_some() && !must_succeed));
                }
                now += 1.0;
                results[job.0 as usize] = Some(*fate);
                failed.extend(end(&mut admission, job, *fate, now));
                for view in admission.jobs().filter(|it| matches!(it.phase, Phase::Running { .. })) {
                    prop_assert!(view.job.0 > 0);
                }
                let more: Vec<JobId> = admission.active().map(|view| view.job).collect();
                for job in more {
                    results[job.0 as usize] = Some(known[job.0 as usize - 1].1);
                    failed.extend(end(&mut admission, job, known[job.0 as usize - 1].1, now));
                }
            }
            prop_assert!(results[1..].iter().all(Option::is_some), "{:?} {:?}", discipline, results);
            let text = serde_json::to_value(&admission).unwrap();
            prop_assert!(text["jobs"].as_object().unwrap().is_empty());
            prop_assert_eq!(admission.nr_waiting(), 0);
        }
    }
}
