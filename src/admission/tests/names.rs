//! Names that never return: containers, jobs of a CI, classes. What is kept of them is bounded.

use tenantd_admission::{Admission, Capacity, JobId, Measured, Refusal, Request, Rules, Terms};

/// As many names as `TENANTD_NAMES` says.
fn nr_names() -> usize {
    std::env::var("TENANTD_NAMES").ok().and_then(|text| text.parse().ok()).unwrap_or(20_000)
}

fn admission() -> Admission {
    Admission::new(
        Rules::default(),
        Capacity { slots: 4, memory_bytes: Some(1 << 30), ..Capacity::default() },
    )
}

/// The length of everything that is kept.
fn kept(admission: &Admission) -> usize {
    serde_json::to_string(admission).unwrap().len()
}

#[test]
fn what_is_kept_does_not_grow_with_the_names_of_tenants() {
    let mut admission = admission();
    let mut largest_early = 0;
    let nr_names = nr_names();
    for index in 0..nr_names {
        let now = index as f64;
        let names = [format!("c{index}"), format!("c{}", index + 1), "kept".to_string()];
        let terms = names.iter().map(|name| Terms::new(name.as_str(), 1.0)).collect();
        admission.policy(Rules::default(), terms, now);
        let mut request = Request::new(names[0].as_str(), 1000);
        request.class = Some(format!("class {index}"));
        let job = admission.submit(request, now).unwrap();
        assert_eq!(admission.dispatch(Measured::default(), now).starts.len(), 1);
        admission.charge(job, 0.5, None, now + 0.5);
        assert!(admission.ended(job, now + 0.5));
        match index {
            0..2_000 => largest_early = largest_early.max(kept(&admission)),
            _ if index % 1_000 == 0 || index + 1 == nr_names => {
                let now = kept(&admission);
                assert!(
                    now < largest_early + largest_early / 8,
                    "{now} after {index} names, {largest_early} before"
                );
            }
            _ => {}
        }
    }
    let text = serde_json::to_string(&admission).unwrap();
    let again: Admission = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string(&again).unwrap(), text, "it is kept and taken up as it is");
}

#[test]
fn classes_of_one_tenant_take_none_from_another() {
    let mut admission = admission();
    let terms = ["a", "b"].map(|name| Terms::new(name, 1.0)).into();
    admission.policy(Rules::default(), terms, 0.0);
    for index in 0..5_000 {
        let mut request = Request::new("a", 1000);
        request.class = Some(format!("class {index}"));
        // Some are refused, and take no number.
        request.memory_bytes = if index % 2 == 0 { u64::MAX } else { 0 };
        if let Ok(job) = admission.submit(request, 0.0) {
            assert!(admission.cancel(job, 0.0));
        }
    }
    assert!(kept(&admission) < 32_768, "{}", kept(&admission));
}

#[test]
fn jobs_that_leave_processes_behind_are_bounded() {
    let rules = Rules { max_waiting: 5, max_waiting_per_user: 3, ..Rules::default() };
    let mut admission = Admission::new(rules, Capacity { slots: 4, ..Capacity::default() });
    admission.policy(rules, vec![Terms::new("a", 1.0)], 0.0);
    let mut leave = |user| -> Result<JobId, Refusal> {
        let job = admission.submit(Request::new("a", user), 0.0)?;
        admission.dispatch(Measured::default(), 0.0);
        admission.left_daemons(job, 0.0);
        Ok(job)
    };
    let first = leave(1).unwrap();
    leave(1).unwrap();
    leave(1).unwrap();
    assert_eq!(leave(1), Err(Refusal::TooManyLinger { max: 3, is_of_tenant: false }));
    leave(2).unwrap();
    leave(2).unwrap();
    assert_eq!(leave(3), Err(Refusal::TooManyLinger { max: 5, is_of_tenant: true }));
    admission.ended(first, 1.0);
    admission.submit(Request::new("a", 1), 1.0).unwrap();
}
