//! Starts of waiting jobs, foreseen from the runs of their classes.

use tenantd_admission::{
    Admission, Capacity, JobId, JobView, Measured, PastRun, Request, Rules, Terms,
};

/// Futures of each forecast, and the ranks of the ends of its interval: a tenth of the starts is before, and a tenth after.
const FUTURES: usize = 19;
const RANKS: [usize; 2] = [2, 18];

/// A linear congruence: the same draws in each run of the test.
struct Dice(u64);

impl Dice {
    /// Uniform within 0 and 1, both exclusive.
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ((self.0 >> 33) as f64 + 0.5) / (1_u64 << 31) as f64
    }

    /// A run that is longer than some seconds; skewed, as run times are.
    fn run(&mut self, ran: f64) -> PastRun {
        let seconds = ran - 600.0 * self.uniform().ln();
        PastRun { seconds, cpu_seconds: seconds }
    }
}

fn queue(workers: u32) -> Admission {
    let rules = Rules { max_running: Some(workers), ..Rules::default() };
    let capacity = Capacity { slots: workers, ..Capacity::default() };
    let mut admission = Admission::new(rules, capacity);
    admission.policy(rules, vec![Terms::new("a", 1.0), Terms::new("b", 3.0)], 0.0);
    admission
}

#[test]
fn four_of_five_starts_are_within() {
    let mut dice = Dice(3);
    let (mut nr_within, mut nr_all) = (0, 0);
    for trial in 0..300 {
        let mut admission = queue(1 + trial % 4);
        for number in 0..12 {
            let tenant = if number % 3 == 0 { "a" } else { "b" };
            admission.submit(Request::new(tenant, number % 2), 0.0).unwrap();
        }
        admission.dispatch(Measured::default(), 0.0);
        let now = 30.0;
        let waiting = admission.nr_waiting();
        let mut sample: Vec<f64> = Vec::new();
        // One job of each trial: those of one queue start together or late together.
        let place = trial as usize % waiting;
        let started = |dice: &mut Dice| {
            let starts = admission.foresee(12, now, &mut |_, ran| Some(dice.run(ran)));
            assert_eq!(starts.len(), waiting);
            let job = *starts.keys().nth(place).unwrap();
            starts[&job]
        };
        sample.extend((0..FUTURES).map(|_| started(&mut dice)));
        let came = started(&mut dice);
        sample.sort_unstable_by(f64::total_cmp);
        let [low, high] = RANKS.map(|rank| sample[rank - 1]);
        nr_all += 1;
        nr_within += u32::from((low..=high).contains(&came));
    }
    let part = f64::from(nr_within) / f64::from(nr_all);
    assert!((0.75..=0.85).contains(&part), "{nr_within} of {nr_all}");
}

#[test]
fn a_queue_of_equal_jobs_starts_in_turn() {
    let mut admission = queue(2);
    let jobs: Vec<JobId> =
        (0..5).map(|_| admission.submit(Request::new("a", 1), 0.0).unwrap()).collect();
    admission.dispatch(Measured::default(), 0.0);
    let all_take =
        |seconds| move |_: &JobView<'_>, _: f64| Some(PastRun { seconds, cpu_seconds: seconds });
    let starts = admission.foresee(9, 4.0, &mut all_take(10.0));
    assert_eq!(
        starts.into_iter().collect::<Vec<_>>(),
        [(jobs[2], 6.0), (jobs[3], 6.0), (jobs[4], 16.0)]
    );
    assert_eq!(admission.foresee(2, 4.0, &mut all_take(10.0)).len(), 2);
    let before = admission.nr_waiting();
    assert_eq!(before, 3, "the queue itself is not played");
}

#[test]
fn an_unknown_run_hides_what_comes_after() {
    let mut admission = queue(1);
    let jobs: Vec<JobId> =
        (0..4).map(|_| admission.submit(Request::new("a", 1), 0.0).unwrap()).collect();
    admission.dispatch(Measured::default(), 0.0);
    let unknown = |hidden: JobId| {
        move |view: &JobView<'_>, _: f64| {
            (view.job != hidden).then_some(PastRun { seconds: 10.0, cpu_seconds: 0.0 })
        }
    };
    assert!(admission.foresee(9, 1.0, &mut unknown(jobs[0])).is_empty(), "it runs");
    let starts = admission.foresee(9, 1.0, &mut unknown(jobs[2]));
    assert_eq!(starts.into_keys().collect::<Vec<_>>(), jobs[1..3]);
}
