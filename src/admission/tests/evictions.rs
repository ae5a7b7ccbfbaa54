//! Jobs that asked for it end for others, and wait again.

use proptest::prelude::*;
use tenantd_admission::{
    Admission, Capacity, Eviction, FORCE_SECONDS, Guarantee, JobId, Measured, Phase,
    RESERVED_SECONDS, REST_SECONDS, RUN_SECONDS, RUNS_MAX, Reason, Request, Requeue, Rules, Sums,
    Tasks, Terms,
};
use tenantd_dop::target::Width;

const GRACE: u32 = 30;
const GIB: u64 = 1 << 30;

fn queue(slots: u32, guarantees: [f64; 3]) -> Admission {
    let units = vec![("gpu".to_string(), 2)];
    let capacity = Capacity { slots, memory_bytes: Some(64 * GIB), units };
    let rules = Rules::default();
    let mut admission = Admission::new(rules, capacity);
    let terms = ["a", "b", "c"].iter().zip(guarantees).map(|(path, cores)| Terms {
        guarantee: Guarantee { cores, memory_bytes: 0 },
        ..Terms::new(*path, 1.0)
    });
    admission.policy(rules, terms.collect(), 0.0);
    admission
}

/// A job of this width that may be evicted.
fn evictable(tenant: &str, dop: u64) -> Request {
    Request {
        tasks: Some(Tasks { count: RUNS_MAX, at_once: Some(1) }),
        requeue: Some(Requeue { grace_seconds: GRACE }),
        ..fixed(tenant, dop)
    }
}

fn fixed(tenant: &str, dop: u64) -> Request {
    Request { width: Width::Manual(dop), ..Request::new(tenant, 7) }
}

fn starts(admission: &mut Admission, now: f64) -> Vec<JobId> {
    let starts = admission.dispatch(Measured::default(), now).starts.into_iter();
    starts.map(|start| start.job).collect()
}

/// Reports that the run of a job has ended, as its client does.
fn leave(admission: &mut Admission, job: JobId, now: f64) {
    let ended = admission.job(job).unwrap().set.unwrap().granted();
    assert!(admission.report_tasks(job, Sums { started: ended, ended, is_closed: false }, now));
}

fn evicted(evictions: &[Eviction]) -> Vec<JobId> {
    evictions.iter().map(|it| it.job).collect()
}

/// Submits a job and starts what fits.
fn submit(admission: &mut Admission, request: Request, now: f64) -> JobId {
    let id = admission.submit(request, now).unwrap();
    starts(admission, now);
    id
}

#[test]
fn the_youngest_ends_for_a_job_of_a_tenant_below_its_share() {
    let mut admission = queue(4, [0.0; 3]);
    let old: Vec<JobId> =
        (0..4).map(|at| submit(&mut admission, evictable("a", 1), f64::from(at))).collect();
    let early = submit(&mut admission, fixed("b", 1), 10.0);
    assert_eq!(admission.evict(10.0), [], "no job has run for a minute");
    let now = 3.0 + RUN_SECONDS;
    let evictions = admission.evict(now);
    assert_eq!(evicted(&evictions), [old[3]], "one is enough, the youngest");
    assert_eq!((evictions[0].cause.job, evictions[0].grace_seconds), (Some(early), GRACE));
    assert_eq!(admission.evict(now), [], "one at a time");
    let reason = admission.why(early).unwrap();
    assert_eq!(reason.to_string(), format!("job {} of a ends for it, and waits again", old[3]));
    // No third job takes what becomes free.
    let third = submit(&mut admission, fixed("c", 1), now);
    assert!(matches!(admission.why(third), Some(Reason::Slots { .. })));
    leave(&mut admission, old[3], now + 1.0);
    assert_eq!(starts(&mut admission, now + 1.0), [early]);
    let view = admission.job(old[3]).unwrap();
    assert_eq!(view.eviction.unwrap().job, Some(early));
    assert!(!view.is_leaving && view.set.unwrap().running() == 0);
    assert_eq!(admission.nr_waiting(), 2, "it waits again");
}

#[test]
fn only_jobs_that_asked_for_it_end_and_only_for_a_claim() {
    let of = |first: Request, second: Request| {
        let mut admission = queue(2, [0.0; 3]);
        submit(&mut admission, first.clone(), 0.0);
        submit(&mut admission, first, 0.0);
        submit(&mut admission, second, 1.0);
        admission.evict(1000.0).len()
    };
    assert_eq!(of(evictable("a", 1), fixed("b", 1)), 1);
    assert_eq!(of(evictable("a", 1), evictable("b", 1)), 1, "a first run may have others end");
    assert_eq!(of(fixed("a", 1), fixed("b", 1)), 0, "it did not ask for it");
    assert_eq!(of(evictable("a", 1), fixed("a", 1)), 0, "a tenant loses no job to itself");
    assert_eq!(of(evictable("a", 1), fixed("b", 2)), 0, "the second one is within the share of a");
}

#[test]
fn a_guarantee_takes_precedence_over_turns_and_is_kept() {
    let mut admission = queue(4, [2.0, 2.0, 0.0]);
    let of_c = submit(&mut admission, evictable("c", 1), 0.0);
    let of_a: Vec<JobId> = (0..3).map(|_| submit(&mut admission, evictable("a", 1), 1.0)).collect();
    let first = submit(&mut admission, fixed("b", 2), 2.0);
    let evictions = admission.evict(100.0);
    assert_eq!(evicted(&evictions), [of_a[2], of_c], "a keeps the two of its guarantee");
    assert!(evictions.iter().all(|it| it.cause.job == Some(first)));
    evicted(&evictions).into_iter().for_each(|job| leave(&mut admission, job, 101.0));
    assert_eq!(starts(&mut admission, 101.0), [first]);
    let beyond = submit(&mut admission, fixed("b", 1), 102.0);
    assert!(admission.job(beyond).is_some() && admission.evict(900.0).is_empty());
}

#[test]
fn units_of_a_resource_are_taken_back() {
    let mut admission = queue(8, [0.0; 3]);
    let gpu = |request: Request| Request { units: vec![("gpu".into(), 2)], ..request };
    let long = submit(&mut admission, gpu(evictable("a", 1)), 0.0);
    let short = submit(&mut admission, gpu(fixed("b", 1)), 1.0);
    assert_eq!(evicted(&admission.evict(100.0)), [long]);
    leave(&mut admission, long, 101.0);
    assert_eq!(starts(&mut admission, 101.0), [short]);
    admission.ended(short, 110.0);
    assert_eq!(starts(&mut admission, 110.0), [long], "its second run");
}

#[test]
fn an_evicted_job_has_its_old_place() {
    let mut admission = queue(1, [0.0; 3]);
    let old = submit(&mut admission, evictable("a", 1), 0.0);
    let later = submit(&mut admission, fixed("a", 1), 1.0);
    let of_b = submit(&mut admission, fixed("b", 1), 2.0);
    // The turn is that of b, which has used nothing.
    admission.charge(old, 100.0, None, 90.0);
    assert_eq!(evicted(&admission.evict(100.0)), [old]);
    leave(&mut admission, old, 101.0);
    assert_eq!(starts(&mut admission, 101.0), [of_b]);
    admission.ended(of_b, 102.0);
    assert_eq!(starts(&mut admission, 102.0), [old], "before the younger jobs of its tenant");
    admission.ended(old, 103.0);
    assert_eq!(starts(&mut admission, 103.0), [later]);
}

#[test]
fn two_jobs_do_not_evict_each_other_in_turn() {
    let mut admission = queue(1, [0.0; 3]);
    let jobs = ["a", "b"].map(|tenant| submit(&mut admission, evictable(tenant, 1), 0.0));
    let mut nr_evictions = 0;
    for minute in 1..600 {
        let now = 60.0 * f64::from(minute);
        for job in jobs {
            let used = admission.job(job).unwrap().cpu_seconds;
            let is_running = admission.job(job).unwrap().set.unwrap().running() > 0;
            admission.charge(job, used + if is_running { 60.0 } else { 0.0 }, None, now);
        }
        for Eviction { job, .. } in admission.evict(now) {
            nr_evictions += 1;
            leave(&mut admission, job, now);
            starts(&mut admission, now);
        }
    }
    assert_eq!(nr_evictions, 1, "the evicted job waits for its turn with free resources");
}

#[test]
fn a_reservation_ends_with_its_time_and_a_late_client_is_named() {
    let mut admission = queue(1, [0.0; 3]);
    let old = submit(&mut admission, evictable("a", 1), 0.0);
    let waiting = submit(&mut admission, fixed("b", 1), 1.0);
    assert_eq!(evicted(&admission.evict(100.0)), [old]);
    let until = 100.0 + f64::from(GRACE);
    assert_eq!(admission.overdue(until + FORCE_SECONDS - 0.1), []);
    assert_eq!(admission.overdue(until + FORCE_SECONDS), [old]);
    admission.eviction_failed(old, until + FORCE_SECONDS);
    assert!(!admission.job(old).unwrap().is_leaving);
    assert!(matches!(admission.why(waiting), Some(Reason::Slots { .. })), "no promise is left");
    assert_eq!(admission.evict(until + REST_SECONDS), [], "it is left alone");
    assert_eq!(evicted(&admission.evict(until + 2.0 * REST_SECONDS)), [old]);
    // A client that reports nothing and cannot be forced: the reservation ends with its time.
    admission.evict(until + 2.0 * REST_SECONDS + f64::from(GRACE) + RESERVED_SECONDS);
    assert!(matches!(admission.why(waiting), Some(Reason::Evicting { is_own: true, .. })));
    // A beneficiary that leaves the queue takes its reservation along.
    assert!(admission.cancel(waiting, 3000.0));
    admission.charge(old, 100.0, None, 3000.0);
    let third = submit(&mut admission, fixed("c", 1), 3001.0);
    leave(&mut admission, old, 3002.0);
    assert_eq!(starts(&mut admission, 3002.0), [third]);
}

#[test]
fn an_eviction_survives_a_restart() {
    let mut before = queue(1, [0.0; 3]);
    let old = submit(&mut before, evictable("a", 1), 0.0);
    submit(&mut before, fixed("b", 1), 1.0);
    assert_eq!(evicted(&before.evict(100.0)), [old]);
    let text = serde_json::to_string(&before).unwrap();
    let mut after: Admission = serde_json::from_str(&text).unwrap();
    after.resume(101.0);
    assert_eq!(after.eviction(old).map(|it| it.job), Some(old), "the order can be sent again");
    let sums = Sums { started: 1, ended: 1, is_closed: false };
    assert!(after.report_tasks(old, sums, 102.0));
    assert_eq!(after.eviction(old), None);
    assert_eq!(starts(&mut after, 102.0), [old], "no other job has come back");
    assert!(!after.is_evictable(old, 102.0 + RUN_SECONDS), "it rests");
}

#[derive(Clone, Debug)]
enum Step {
    Submit { tenant: usize, dop: u64, memory: u64, gpus: u32, is_evictable: bool },
    End(usize),
    Pass(f64),
}

fn step() -> impl Strategy<Value = Step> {
    let submit = (0..3_usize, 1..4_u64, 0..3_u64, 0..3_u32, any::<bool>()).prop_map(
        |(tenant, dop, memory, gpus, is_evictable)| Step::Submit {
            tenant,
            dop,
            memory: memory * 20,
            gpus,
            is_evictable,
        },
    );
    prop_oneof![
        4 => submit,
        2 => (0..8_usize).prop_map(Step::End),
        3 => (10.0..200.0).prop_map(Step::Pass),
    ]
}

/// Resources that running jobs hold: slots, memory and units.
fn held(admission: &Admission) -> [u64; 3] {
    let mut sums = [0; 3];
    for view in admission.jobs() {
        let Phase::Running { dop, .. } = view.phase else { continue };
        let is_there = view.set.is_none_or(|set| set.running() > 0);
        if is_there && dop > 0 {
            let Width::Manual(floor) = view.request.width else { panic!() };
            let gpus: u32 = view.request.units.iter().map(|(_, count)| count).sum();
            sums[0] += floor;
            sums[1] += view.request.memory_bytes;
            sums[2] += u64::from(gpus);
        }
    }
    sums
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn evictions_are_useful_and_bounded(
        steps in prop::collection::vec(step(), 1..80),
        guarantees in prop::array::uniform3(prop_oneof![Just(0.0), Just(1.0), Just(2.0)]),
    ) {
        let mut admission = queue(4, guarantees);
        let (mut now, mut last) = (0.0, std::collections::BTreeMap::<JobId, f64>::new());
        for step in steps {
            now += 1.0;
            match step {
                Step::Submit { tenant, dop, memory, gpus, is_evictable } => {
                    let tenant = ["a", "b", "c"][tenant];
                    let base = if is_evictable { evictable(tenant, dop) } else { fixed(tenant, dop) };
                    let units = vec![("gpu".to_string(), gpus)];
                    let _ = admission.submit(Request { memory_bytes: memory * GIB, units, ..base }, now);
                }
                Step::End(place) => {
                    let is_running = |it: &tenantd_admission::JobView<'_>| {
                        matches!(it.phase, Phase::Running { dop, .. } if dop > 0)
                    };
                    let running: Vec<JobId> =
                        admission.jobs().filter(is_running).map(|it| it.job).collect();
                    if let Some(job) = running.get(place % running.len().max(1)) {
                        admission.ended(*job, now);
                    }
                }
                Step::Pass(seconds) => now += seconds,
            }
            starts(&mut admission, now);
            let evictions = admission.evict(now);
            for Eviction { job, .. } in &evictions {
                let view = admission.job(*job).unwrap();
                prop_assert!(view.request.requeue.is_some(), "it asked for it");
                let Phase::Running { .. } = view.phase else { panic!("it runs") };
                let rest = REST_SECONDS + f64::from(GRACE);
                prop_assert!(last.insert(*job, now).is_none_or(|before| now - before >= rest));
            }
            let Some(beneficiary) = evictions.first().and_then(|it| it.cause.job) else { continue };
            let tenant = admission.job(beneficiary).unwrap().request.tenant.clone();
            for (place, left_out) in evictions.iter().enumerate() {
                prop_assert!(admission.job(left_out.job).unwrap().request.tenant != tenant);
                // Without one of them the beneficiary does not start.
                let mut other = admission.clone();
                for (at, eviction) in evictions.iter().enumerate() {
                    if at != place {
                        leave(&mut other, eviction.job, now);
                    }
                }
                prop_assert!(!starts(&mut other, now).contains(&beneficiary));
            }
            evictions.iter().for_each(|it| leave(&mut admission, it.job, now));
            let started = starts(&mut admission, now);
            prop_assert_eq!(started.first(), Some(&beneficiary));
            let [slots, memory, gpus] = held(&admission);
            prop_assert!(slots <= 4 && memory <= 64 * GIB && gpus <= 2, "{slots} {memory} {gpus}");
        }
    }
}

#[test]
fn a_worker_is_taken_back() {
    let rules = Rules { max_running: Some(1), ..Rules::default() };
    let capacity = Capacity { slots: 4, memory_bytes: Some(64 * GIB), units: vec![] };
    let mut admission = Admission::new(rules, capacity);
    let terms = ["a", "b"].map(|path| Terms::new(path, 0.5)).into();
    admission.policy(rules, terms, 0.0);
    let wide = |request: Request| Request { width: Width::Auto, ..request };
    let old = submit(&mut admission, wide(evictable("a", 1)), 1.0);
    let waiting = submit(&mut admission, wide(fixed("b", 1)), 2.0);
    admission.charge(old, 0.0, Some(GIB), 10.0);
    admission.charge(old, 3.0, Some(GIB), 100.0);
    assert_eq!(starts(&mut admission, 100.0), []);
    assert_eq!(evicted(&admission.evict(100.0)), [old]);
    leave(&mut admission, old, 101.0);
    assert_eq!(starts(&mut admission, 101.0), [waiting]);
}
