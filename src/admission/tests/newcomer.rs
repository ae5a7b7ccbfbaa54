//! How long the small jobs of one tenant wait beside the long ones of another.

use std::collections::BTreeMap;

use tenantd_admission::{Admission, Capacity, JobId, Measured, Phase, Request, Rules, Terms};
use tenantd_queue::discipline::Name;

/// Steps in a second: running jobs are charged with each.
const STEPS: u32 = 10;
/// A long job runs so many of them.
const LONG: u32 = 10;
const WORKERS: u32 = 2;

/// The longest time that a small job waits, in seconds, where each of the long ones uses so much of a CPU while it runs. They
/// have been there for some time when the first small one comes.
fn longest_wait(discipline: Name, cores: f64) -> f64 {
    let rules = Rules { discipline, max_running: Some(WORKERS), ..Rules::default() };
    let capacity = Capacity { slots: WORKERS, ..Capacity::default() };
    let mut admission = Admission::new(rules, capacity);
    let terms = ["long", "small"].map(|path| Terms::new(path, 100.0)).to_vec();
    admission.policy(rules, terms, 0.0);
    for _ in 0..200 {
        admission.submit(Request::new("long", 1), 0.0).unwrap();
    }
    let (mut began, mut longest): (BTreeMap<JobId, u32>, u32) = (BTreeMap::new(), 0);
    for step in 0..60 * STEPS {
        let now = f64::from(step) / f64::from(STEPS);
        let running: Vec<(JobId, bool)> = admission
            .jobs()
            .filter(|view| matches!(view.phase, Phase::Running { .. }))
            .map(|view| (view.job, view.request.tenant == "long"))
            .collect();
        for (job, is_long) in running {
            let ran = step - began[&job];
            let used = if is_long { f64::from(ran) / f64::from(STEPS) * cores } else { 0.002 };
            admission.charge(job, used, None, now);
            // Those of one moment do not stay together.
            if !is_long || ran >= LONG - job.0 as u32 % 3 {
                admission.ended(job, now);
            }
        }
        // A small one every second and a half, once the long ones are known.
        if step >= 20 * STEPS && step % (STEPS * 3 / 2) == 0 {
            admission.submit(Request::new("small", 2), now).unwrap();
        }
        for start in admission.dispatch(Measured::default(), now).starts {
            began.insert(start.job, step);
        }
        let waits = admission.jobs().filter(|view| matches!(view.phase, Phase::Waiting { .. }));
        let small = waits.filter(|view| view.request.tenant == "small");
        let since = |submitted: f64| step - (submitted * f64::from(STEPS)).round() as u32;
        longest = longest.max(small.map(|view| since(view.submitted)).max().unwrap_or(0));
    }
    f64::from(longest) / f64::from(STEPS)
}

/// A worker is free within a second.
#[test]
fn a_slow_machine_holds_no_newcomer_up() {
    for discipline in [Name::TwoDfqE, Name::Wf2qE, Name::WfqE] {
        for cores in [1.0, 0.5, 0.2, 0.05] {
            let wait = longest_wait(discipline, cores);
            assert!(wait <= 1.0, "{discipline:?}: {wait} s where jobs get {cores} of a CPU");
        }
    }
    let fifo = longest_wait(Name::Fifo, 1.0);
    assert!(fifo > 20.0, "{fifo} s: without an order the newcomer waits for all");
}

/// Jobs that only wait for something hold workers, which is what the others wait for.
#[test]
fn jobs_that_use_nothing_hold_no_newcomer_up_for_long() {
    for discipline in [Name::TwoDfqE, Name::Wf2qE, Name::WfqE] {
        let wait = longest_wait(discipline, 0.0);
        assert!(wait <= 3.0, "{discipline:?}: {wait} s");
    }
}
