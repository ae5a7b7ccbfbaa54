//! Sets of tasks: turns, bounds, charges and restarts.

use proptest::prelude::*;
use tenantd_admission::{
    Admission, Capacity, JobId, Measured, Phase, Refusal, Request, Rules, Sums, Tasks, Terms,
};
use tenantd_dop::target::Width;

use super::course::all_disciplines;

fn queue(rules: Rules, slots: u32) -> Admission {
    let capacity = Capacity { slots, ..Capacity::default() };
    let mut admission = Admission::new(rules, capacity);
    let terms = ["a", "b"].map(|path| Terms::new(path, 1.0)).into();
    admission.policy(rules, terms, 0.0);
    admission
}

fn set(tenant: &str, count: u32, at_once: Option<u32>) -> Request {
    Request {
        tasks: Some(Tasks { count, at_once }),
        width: Width::Manual(1),
        ..Request::new(tenant, 7)
    }
}

fn starts(admission: &mut Admission, now: f64) -> Vec<JobId> {
    let starts = admission.dispatch(Measured::default(), now).starts.into_iter();
    starts.map(|start| start.job).collect()
}

fn sums(started: u32, ended: u32) -> Sums {
    Sums { started, ended, is_closed: false }
}

fn running(admission: &Admission, id: JobId) -> u32 {
    admission.job(id).unwrap().set.unwrap().running()
}

/// 200 tasks beside jobs of another tenant and of the same one: each start is one turn, and the set is one waiting job.
#[test]
fn a_set_has_one_entry_and_one_turn_for_each_start() {
    let rules = Rules { max_waiting_per_user: 3, ..Rules::default() };
    let mut admission = queue(rules, 1);
    let of_a = admission.submit(set("a", 200, None), 0.0).unwrap();
    assert_eq!(starts(&mut admission, 0.0), [of_a]);
    let own = admission.submit(Request::new("a", 7), 0.0).unwrap();
    let others: Vec<JobId> =
        (0..3).map(|_| admission.submit(Request::new("b", 8), 0.0).unwrap()).collect();
    assert_eq!(admission.nr_waiting(), 5, "the set counts once");
    let (mut order, mut ended) = (Vec::new(), 0);
    let mut last = of_a;
    for step in 1..=12 {
        let now = f64::from(step);
        if last == of_a {
            ended += 1;
            admission.charge(of_a, f64::from(ended), None, now);
            assert!(admission.report_tasks(of_a, sums(ended, ended), now));
        } else {
            admission.charge(last, 1.0, None, now);
            admission.ended(last, now);
        }
        let started = starts(&mut admission, now);
        assert_eq!(started.len(), 1);
        last = started[0];
        order.push(last);
    }
    let place = |job: &JobId| order.iter().position(|it| it == job).unwrap();
    assert!(
        place(&own) <= 3,
        "a later job of the tenant waits for a task, not for the set: {order:?}"
    );
    for (number, other) in others.iter().enumerate() {
        assert!(place(other) <= 2 * number + 2, "{order:?}");
    }
    // The bound counts the set as one job of its user.
    let more: Vec<_> = (0..3).map(|_| admission.submit(Request::new("a", 7), 13.0)).collect();
    assert!(more[1].is_ok() && more[2] == Err(Refusal::UserQueueFull { max: 3 }), "{more:?}");
}

#[test]
fn a_set_runs_as_many_tasks_as_it_may() {
    let mut admission = queue(Rules::default(), 8);
    let id = admission.submit(set("a", 5, Some(3)), 0.0).unwrap();
    assert_eq!(starts(&mut admission, 0.0), [id; 3]);
    assert_eq!(admission.nr_waiting(), 0, "a set that may not start another task does not wait");
    assert!(matches!(admission.job(id).unwrap().phase, Phase::Running { dop: 3, .. }));
    assert_eq!(admission.free().slots, 5);
    assert!(admission.report_tasks(id, sums(3, 2), 1.0));
    assert_eq!(admission.nr_waiting(), 1);
    assert_eq!(starts(&mut admission, 1.0), [id; 2]);
    // A repeated report frees nothing twice.
    assert!(admission.report_tasks(id, sums(3, 2), 1.0));
    assert_eq!((running(&admission, id), starts(&mut admission, 1.0)), (3, vec![]));
    assert!(admission.report_tasks(id, sums(5, 5), 2.0));
    assert_eq!((running(&admission, id), admission.free().slots), (0, 8));
    assert!(admission.ended(id, 3.0) && admission.jobs().next().is_none());
}

#[test]
fn the_use_of_a_set_is_that_of_its_tasks() {
    let mut admission = queue(Rules::default(), 4);
    let id = admission.submit(set("a", 4, None), 0.0).unwrap();
    assert_eq!(starts(&mut admission, 0.0).len(), 4);
    admission.charge(id, 8.0, Some(400), 4.0);
    let view = admission.job(id).unwrap();
    assert_eq!((view.cpu_seconds, view.used_bytes), (8.0, Some(400)));
    // Its use counts for its tenant: the other one goes first.
    let next = admission.submit(set("a", 1, None), 4.0).unwrap();
    let other = admission.submit(Request::new("b", 8), 4.0).unwrap();
    assert!(admission.report_tasks(id, sums(4, 1), 4.0));
    assert_eq!(starts(&mut admission, 4.0), [other]);
    assert!(admission.report_tasks(id, sums(4, 2), 4.0));
    assert_eq!(starts(&mut admission, 4.0), [next]);
}

#[test]
fn a_closed_set_starts_nothing_more() {
    for by_report in [false, true] {
        let mut admission = queue(Rules::default(), 2);
        let id = admission.submit(set("a", 9, None), 0.0).unwrap();
        assert!(!admission.close(id, 0.0), "none has started");
        assert_eq!(starts(&mut admission, 0.0), [id; 2]);
        assert!(!admission.cancel(id, 0.5), "it has begun");
        if by_report {
            // The second turn came after the starter had closed the set.
            admission.report_tasks(id, Sums { started: 1, ended: 1, is_closed: true }, 1.0);
            assert_eq!(running(&admission, id), 0);
        } else {
            assert!(admission.close(id, 1.0));
            assert_eq!(running(&admission, id), 2);
            admission.report_tasks(id, sums(2, 2), 2.0);
        }
        assert_eq!((starts(&mut admission, 3.0), admission.nr_waiting()), (vec![], 0));
        assert_eq!(admission.free().slots, 2);
    }
}

#[test]
fn a_set_of_a_removed_tenant_ends_once() {
    let mut admission = queue(Rules::default(), 2);
    let begun = admission.submit(set("a", 9, None), 0.0).unwrap();
    let parked = admission.submit(set("a", 2, Some(1)), 0.0).unwrap();
    assert_eq!(starts(&mut admission, 0.0).len(), 2);
    let waiting = admission.submit(set("a", 9, None), 0.0).unwrap();
    let only_b = || vec![Terms::new("b", 1.0)];
    let gone = admission.policy(Rules::default(), only_b(), 1.0);
    assert_eq!(gone, [begun, parked, waiting]);
    assert!(admission.job(begun).is_some() && admission.job(waiting).is_none());
    assert_eq!(admission.policy(Rules::default(), only_b(), 2.0), []);
    admission.report_tasks(begun, sums(1, 1), 3.0);
    admission.report_tasks(parked, sums(1, 1), 3.0);
    assert_eq!((starts(&mut admission, 3.0), admission.free().slots), (vec![], 2));
}

/// A restarted agent knows the tasks from the stored queue until the starter reports, and from the report then; also
/// without a stored queue.
#[test]
fn a_restarted_agent_counts_the_tasks_of_the_report() {
    let mut before = queue(Rules::default(), 4);
    let id = before.submit(set("a", 10, None), 0.0).unwrap();
    starts(&mut before, 0.0);
    before.report_tasks(id, sums(4, 2), 1.0);
    starts(&mut before, 1.0);
    let stored: Admission = serde_json::from_str(&serde_json::to_string(&before).unwrap()).unwrap();
    for mut next in [stored, queue(Rules::default(), 4)] {
        next.resume(2.0);
        let request = set("a", 10, None);
        next.adopt(id, request, (0.0, 0.0), (1.0, false), 2.0);
        assert_eq!(starts(&mut next, 2.0), [], "nothing starts before the report");
        // It got one of the last two turns only, and three tasks have ended meanwhile.
        assert!(!next.report_tasks(id, sums(11, 3), 3.0), "impossible");
        assert!(next.report_tasks(id, sums(5, 3), 3.0));
        assert_eq!((running(&next, id), next.free().slots), (2, 2));
        assert_eq!(starts(&mut next, 3.0), [id; 2]);
        assert_eq!(next.job(id).unwrap().set.unwrap().granted(), 7);
        next.left_daemons(id, 4.0);
        assert_eq!((next.free().slots, next.nr_waiting()), (4, 0));
        assert!(matches!(next.job(id).unwrap().phase, Phase::Lingering { .. }));
    }
}

#[derive(Clone, Debug)]
enum Event {
    Set(bool, u32, Option<u32>),
    Job(bool),
    EndTasks(usize, u32),
    EndJob(usize),
    Close(usize),
    Leave(usize),
    Slots(u32),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (any::<bool>(), 1_u32..12, proptest::option::of(1_u32..5))
            .prop_map(|(a, b, c)| Event::Set(a, b, c)),
        any::<bool>().prop_map(Event::Job),
        (0_usize..4, 1_u32..4).prop_map(|(a, b)| Event::EndTasks(a, b)),
        (0_usize..4, 1_u32..4).prop_map(|(a, b)| Event::EndTasks(a, b)),
        (0_usize..4).prop_map(Event::EndJob),
        (0_usize..4).prop_map(Event::Close),
        (0_usize..4).prop_map(Event::Leave),
        (1_u32..6).prop_map(Event::Slots),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever happens, each task starts once at most, no bound is exceeded, no slot idles beside a set that may start a
    /// task, and nothing is left after the last end.
    #[test]
    fn every_task_starts_once_and_nothing_is_left(events in prop::collection::vec(event(), 1..60)) {
        for discipline in all_disciplines() {
            let rules = Rules { discipline, ..Rules::default() };
            let (mut admission, mut slots) = (queue(rules, 3), 3);
            for (step, event) in events.iter().enumerate() {
                let now = step as f64;
                let ids: Vec<JobId> = admission.jobs().map(|view| view.job).collect();
                let pick = |at: usize| ids.get(at % ids.len().max(1)).copied();
                let tenant = |first: bool| if first { "a" } else { "b" };
                match *event {
                    Event::Set(first, count, at_once) => {
                        admission.submit(set(tenant(first), count, at_once), now).unwrap();
                    }
                    Event::Job(first) => {
                        let request = Request { width: Width::Manual(1), ..Request::new(tenant(first), 7) };
                        admission.submit(request, now).unwrap();
                    }
                    Event::EndTasks(at, count) => {
                        let Some(id) = pick(at) else { continue };
                        let Some(set) = admission.job(id).unwrap().set else { continue };
                        let ended = set.ended() + count.min(set.running());
                        admission.charge(id, now, None, now);
                        let view = admission.job(id).unwrap();
                        let lingers = matches!(view.phase, Phase::Lingering { .. });
                        let is_taken = admission.report_tasks(id, sums(set.granted(), ended), now);
                        prop_assert_eq!(is_taken, !lingers);
                    }
                    Event::EndJob(at) => {
                        let Some(id) = pick(at) else { continue };
                        admission.ended(id, now);
                    }
                    Event::Close(at) => drop(pick(at).map(|id| admission.close(id, now))),
                    Event::Leave(at) => drop(pick(at).map(|id| admission.left_daemons(id, now))),
                    Event::Slots(count) => {
                        slots = count;
                        let capacity = Capacity { slots, ..Capacity::default() };
                        admission.capacity(capacity, now);
                    }
                }
                starts(&mut admission, now);
                let mut nr_running = 0;
                for view in admission.jobs() {
                    let is_running = matches!(view.phase, Phase::Running { .. });
                    let Some(set) = view.set else {
                        nr_running += u32::from(is_running);
                        continue;
                    };
                    nr_running += if is_running { set.running() } else { 0 };
                    let tasks = set.tasks();
                    prop_assert!(set.granted() <= tasks.count);
                    prop_assert!(tasks.at_once.is_none_or(|most| set.running() <= most));
                    let is_idle = is_running && set.wants_turn();
                    prop_assert!(!is_idle || admission.free().slots == 0, "{view:?}");
                }
                prop_assert_eq!(admission.free().slots, slots.saturating_sub(nr_running));
            }
            let ids: Vec<JobId> = admission.jobs().map(|view| view.job).collect();
            ids.into_iter().for_each(|id| {
                admission.ended(id, 1e3);
            });
            prop_assert_eq!(admission.nr_waiting(), 0);
            prop_assert_eq!(admission.free().slots, slots);
            let text = serde_json::to_value(&admission).unwrap();
            prop_assert!(text["jobs"].as_object().unwrap().is_empty(), "{}", text["jobs"]);
            prop_assert!(text["active"].as_array().unwrap().is_empty());
            prop_assert!(text["waiting_of_users"].as_object().unwrap().is_empty());
        }
    }
}
