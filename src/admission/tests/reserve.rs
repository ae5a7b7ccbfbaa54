//! Workers for short jobs.

use std::time::Duration;

use proptest::prelude::*;
use tenantd_admission::{
    Admission, Capacity, JobId, Measured, Phase, Reason, Request, Reserve, Rules, Terms,
};
use tenantd_dop::target::Width;

use super::course::{Course, Event, all_disciplines, events};

const BELOW: Duration = Duration::from_secs(30);

fn rules(workers: u32) -> Rules {
    Rules { reserve: Some(Reserve { workers, below: BELOW }), ..Rules::default() }
}

fn queue(rules: Rules) -> Admission {
    let mut admission = Admission::new(rules, Capacity { slots: 4, ..Capacity::default() });
    admission.policy(rules, vec![Terms::new("a", 1.0), Terms::new("b", 1.0)], 0.0);
    admission
}

fn long(tenant: &str) -> Request {
    Request::new(tenant, 1)
}

fn short(tenant: &str) -> Request {
    Request { expected: Some(BELOW - Duration::from_secs(1)), ..long(tenant) }
}

fn is_long(request: &Request) -> bool {
    request.expected.is_none_or(|expected| expected >= BELOW)
}

fn submit(admission: &mut Admission, request: Request) -> JobId {
    admission.submit(request, 0.0).unwrap()
}

fn starts(admission: &mut Admission) -> Vec<JobId> {
    admission.dispatch(Measured::default(), 0.0).starts.iter().map(|start| start.job).collect()
}

#[test]
fn a_short_job_starts_beside_long_ones() {
    let mut admission = queue(rules(1));
    let jobs: Vec<JobId> = (0..4).map(|_| submit(&mut admission, long("a"))).collect();
    assert_eq!(starts(&mut admission), jobs[..3]);
    let reason = admission.why(jobs[3]).unwrap();
    assert_eq!(reason.kind(), "reserve");
    assert_eq!(
        reason.to_string(),
        "1 of 4 workers is kept for short jobs (admission.short_jobs): a job is short if nine of ten of its class \
         (--class) took less than 30 s"
    );
    // The time is a bound: a class that takes as long is long.
    let equal = submit(&mut admission, Request { expected: Some(BELOW), ..long("b") });
    assert!(matches!(admission.why(equal), Some(Reason::Reserve { kept: 1, total: 4, .. })));
    let brief = submit(&mut admission, short("b"));
    assert_eq!(starts(&mut admission), [brief]);
    // Without the rule, or with a higher bound, the others start too.
    assert!(admission.ended(brief, 0.0));
    admission.policy(Rules::default(), vec![Terms::new("a", 1.0), Terms::new("b", 1.0)], 0.0);
    assert_eq!(starts(&mut admission).len(), 1);
}

#[test]
fn one_long_job_may_always_run() {
    let mut admission = queue(rules(9));
    let wide = Request { width: Width::Manual(4), ..long("a") };
    let jobs = [submit(&mut admission, wide), submit(&mut admission, long("b"))];
    assert_eq!(starts(&mut admission), [jobs[0]]);
    admission.ended(jobs[0], 0.0);
    assert_eq!(starts(&mut admission), [jobs[1]]);
}

/// Slots are kept with the workers: a worker without a slot helps no short job.
#[test]
fn long_jobs_leave_slots_free_too() {
    let mut admission = queue(rules(1));
    let of = |dop: u64| Request { width: Width::Manual(dop), ..long("a") };
    let jobs = [submit(&mut admission, of(2)), submit(&mut admission, of(2))];
    assert_eq!(starts(&mut admission), [jobs[0]]);
    let short = submit(&mut admission, Request { width: Width::Manual(2), ..short("b") });
    assert_eq!(starts(&mut admission), [short]);
    assert_eq!(admission.why(jobs[1]).unwrap().kind(), "reserve");
}

/// Short jobs without end do not keep a long one from starting: its turn comes, and it lacks nothing then.
#[test]
fn a_stream_of_short_jobs_starves_no_long_one() {
    for discipline in all_disciplines() {
        let mut admission = queue(Rules { discipline, ..rules(2) });
        let mut running = Vec::new();
        for _ in 0..8 {
            submit(&mut admission, short("a"));
        }
        let last = submit(&mut admission, long("b"));
        let mut nr_before = 0;
        loop {
            running.extend(starts(&mut admission));
            if running.contains(&last) {
                break;
            }
            let ended = running.remove(0);
            nr_before += 1;
            assert!(nr_before <= 64, "{discipline:?}");
            admission.charge(ended, 1.0, None, f64::from(nr_before));
            admission.ended(ended, f64::from(nr_before));
            submit(&mut admission, short("a"));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// For any course of events: no more long jobs than may run, and no idle worker beside a job but for the reserve.
    #[test]
    fn only_the_reserve_idles(events in events(), workers in 1_u32..10, lengths in prop::collection::vec(0_u64..60, 120)) {
        for discipline in all_disciplines() {
            let mut course = Course::within(Rules { discipline, overtakes_max: 3, ..rules(workers) });
            for (event, seconds) in events.iter().zip(&lengths) {
                let mut event = event.clone();
                if let Event::Submit(request) = &mut event {
                    request.expected = Some(Duration::from_secs(*seconds)).filter(|_| *seconds > 9);
                }
                let dispatch = course.happen(&event);
                course.check(&dispatch);
                let running = course.admission.jobs().filter(|it| matches!(it.phase, Phase::Running { .. }));
                let nr_long = running.filter(|it| is_long(it.request)).count();
                let most = 8_usize.saturating_sub(workers as usize).max(1);
                prop_assert!(nr_long <= most, "{nr_long} long jobs run, {workers} workers are kept");
            }
        }
    }
}
