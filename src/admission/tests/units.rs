//! Indices of units: the lowest first, each held once, also by sets, by lingering jobs and after a restart.

use tenantd_admission::{
    Admission, Capacity, Indices, JobId, Measured, Request, Rules, Sums, Tasks, Terms,
};

fn admission(gpus: u32) -> Admission {
    let units = vec![("gpu".to_string(), gpus)];
    let capacity = Capacity { slots: 64, memory_bytes: None, units };
    let mut admission = Admission::new(Rules::default(), capacity);
    admission.policy(Rules::default(), vec![Terms::new("a", 1.0)], 0.0);
    admission
}

fn gpus(count: u32) -> Request {
    Request { units: vec![("gpu".into(), count)], ..Request::new("a", 1) }
}

fn start(admission: &mut Admission, request: Request) -> JobId {
    let id = admission.submit(request, 0.0).unwrap();
    admission.dispatch(Measured::default(), 0.0);
    id
}

fn held(admission: &Admission, job: JobId) -> Vec<u32> {
    admission.job(job).map(|view| view.indices.of("gpu").collect()).unwrap_or_default()
}

#[test]
fn the_lowest_free_indices_come_first() {
    let mut admission = admission(4);
    let [one, two, three] = [1, 2, 1].map(|count| start(&mut admission, gpus(count)));
    assert_eq!([one, two, three].map(|job| held(&admission, job)), [vec![0], vec![1, 2], vec![3]]);
    let waiting = start(&mut admission, gpus(1));
    assert_eq!(held(&admission, waiting), [0; 0]);
    admission.ended(two, 1.0);
    admission.dispatch(Measured::default(), 1.0);
    assert_eq!(held(&admission, waiting), [1]);
    let none = start(&mut admission, Request::new("a", 1));
    assert_eq!(held(&admission, none), [0; 0]);
}

/// Processes that a job has left behind may still use its devices.
#[test]
fn a_lingering_job_keeps_its_indices() {
    let mut admission = admission(2);
    let first = start(&mut admission, gpus(1));
    admission.left_daemons(first, 1.0);
    let [second, third] = [1, 1].map(|count| start(&mut admission, gpus(count)));
    assert_eq!(held(&admission, second), [1]);
    assert_eq!(held(&admission, third), [0; 0]);
    admission.ended(first, 2.0);
    admission.dispatch(Measured::default(), 2.0);
    assert_eq!(held(&admission, third), [0]);
}

/// A job that waits for more units than those that end can release holds no other one up.
#[test]
fn a_senior_that_a_daemon_holds_up_delays_no_other() {
    let mut admission = admission(2);
    let first = start(&mut admission, gpus(1));
    admission.left_daemons(first, 0.0);
    let both = start(&mut admission, gpus(2));
    for _ in 0..3 * Rules::default().overtakes_max {
        let job = start(&mut admission, gpus(1));
        assert_eq!(held(&admission, job), [1]);
        admission.ended(job, 0.0);
    }
    admission.ended(first, 0.0);
    admission.dispatch(Measured::default(), 0.0);
    assert_eq!(held(&admission, both), [0, 1]);
}

#[test]
fn a_set_holds_the_indices_of_its_tasks() {
    let mut admission = admission(5);
    let tasks = Some(Tasks { count: 10, at_once: Some(2) });
    let set = start(&mut admission, Request { tasks, ..gpus(2) });
    assert_eq!(held(&admission, set), [0, 1, 2, 3]);
    let other = start(&mut admission, gpus(1));
    assert_eq!(held(&admission, other), [4]);
    // The first task has ended, and the one with the higher indices runs.
    let mut in_use = Indices::default();
    in_use.extend("gpu", [2, 3]);
    admission.use_indices(set, in_use);
    let sums = |started, ended| Sums { started, ended, is_closed: false };
    assert!(admission.report_tasks(set, sums(2, 1), 1.0));
    assert_eq!(held(&admission, set), [2, 3]);
    admission.dispatch(Measured::default(), 1.0);
    assert_eq!(held(&admission, set), [0, 1, 2, 3]);
    admission.ended(set, 2.0);
    assert_eq!(admission.free().units, [("gpu".to_string(), 4)]);
}

#[test]
fn indices_survive_a_restart() {
    let mut before = admission(6);
    let jobs = [1, 2].map(|count| start(&mut before, gpus(count)));
    let tasks = Some(Tasks { count: 4, at_once: Some(1) });
    let set = start(&mut before, Request { tasks, ..gpus(2) });
    before.ended(jobs[0], 1.0);
    let text = serde_json::to_string(&before).unwrap();
    let mut restored: Admission = serde_json::from_str(&text).unwrap();
    restored.resume(2.0);
    let mut adopted = admission(6);
    for view in before.active() {
        adopted.adopt(view.job, view.request.clone(), (0.0, 0.0), (0.0, false), 2.0);
        adopted.hold_indices(view.job, view.indices.clone());
    }
    adopted.complete_indices();
    for mut next in [restored, adopted] {
        assert_eq!(held(&next, jobs[1]), [1, 2]);
        assert_eq!(held(&next, set), [3, 4], "before its starter has reported");
        let late = [3, 1, 1].map(|count| start(&mut next, gpus(count)));
        assert_eq!(late.map(|job| held(&next, job)), [vec![], vec![0], vec![5]]);
    }
}

/// Jobs of an agent that knew no indices get free ones.
#[test]
fn a_job_without_indices_gets_free_ones() {
    let mut next = admission(3);
    let adopt = |next: &mut Admission, id: u64, held: &[u32]| {
        next.adopt(JobId(id), gpus(1), (0.0, 0.0), (0.0, false), 0.0);
        let mut indices = Indices::default();
        indices.extend("gpu", held.iter().copied());
        next.hold_indices(JobId(id), indices);
    };
    adopt(&mut next, 1, &[]);
    adopt(&mut next, 2, &[0]);
    next.complete_indices();
    assert_eq!([1, 2].map(|id| held(&next, JobId(id))), [vec![1], vec![0]]);
}

#[test]
fn fewer_units_take_none_away() {
    let mut admission = admission(4);
    let [one, three] = [1, 3].map(|count| start(&mut admission, gpus(count)));
    let units = |units| Capacity { slots: 64, memory_bytes: None, units };
    admission.capacity(units(vec![("gpu".into(), 2)]), 1.0);
    assert_eq!(held(&admission, three), [1, 2, 3]);
    admission.ended(one, 1.0);
    let waiting = start(&mut admission, gpus(1));
    assert_eq!(held(&admission, waiting), [0; 0], "3 are held of 2");
    admission.capacity(units(Vec::new()), 1.0);
    admission.capacity(units(vec![("gpu".into(), 5)]), 1.0);
    admission.dispatch(Measured::default(), 1.0);
    assert_eq!(held(&admission, waiting), [0]);
}
