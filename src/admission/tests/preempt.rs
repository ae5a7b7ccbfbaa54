//! What running jobs give up while a guarantee is due.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tenantd_admission::{
    Admission, Capacity, Claim, Consent, FREEZE_AFTER_SECONDS, HOLD_SECONDS, JobId, Measured, Owed,
    PATIENCE_SECONDS, Phase, Preemption, Request, Rules, Running,
};
use tenantd_dop::target::Width;

use super::course::{TENANTS, capacity, terms};

fn claim(tenant: &str, due_cores: f64, lacking_cores: f64) -> Claim {
    Claim { tenant: tenant.to_string(), due_cores, lacking_cores }
}

fn running(job: u64, tenant: &str, dop: u32) -> Running {
    let (job, tenant, since) = (JobId(job), tenant.to_string(), job as f64);
    Running { job, tenant, since, dop, used_cores: f64::from(dop), consent: Consent::No }
}

#[test]
fn jobs_are_narrowed_first_and_frozen_later_and_thawed_in_time() {
    let mut preemption = Preemption::default();
    let jobs = [running(1, "b", 2), running(2, "b", 2), running(3, "a", 2)];
    let mut step = |lacking: f64, now: f64| {
        preemption.step(&[claim("a", 3.0, lacking)], &jobs, Some(5.0), now)
    };
    assert_eq!(step(1.5, 0.0), Default::default(), "the weights come first");
    assert_eq!(step(1.5, PATIENCE_SECONDS - 0.1), Default::default());
    let narrow = step(1.5, PATIENCE_SECONDS);
    let owed = Owed { due_cores: 3.0, lacking_cores: 1.5 };
    assert_eq!(narrow.withheld, BTreeMap::from([("a".to_string(), owed)]));
    assert!(narrow.freeze.is_empty());
    let frozen_at = PATIENCE_SECONDS + FREEZE_AFTER_SECONDS;
    let freeze = step(1.5, frozen_at).freeze;
    assert_eq!(freeze, [JobId(2)], "the youngest of the others, wide enough for what is lacking");
    assert_eq!(step(0.5, frozen_at + 1.0).freeze, [JobId(1)], "it still lacks");
    assert_eq!(step(0.0, frozen_at + 5.0).thaw, [JobId(2)], "at the bound");
    assert!(step(1.0, frozen_at + 5.5).freeze.is_empty(), "one is frozen and one rests");
    // Once it lacks nothing for long enough, all is as before.
    let end = step(0.0, frozen_at + 5.5 + HOLD_SECONDS);
    assert_eq!((end.withheld.len(), end.thaw), (0, vec![JobId(1)]));
}

/// Jobs that asked for it end after narrowing, also without a bound for freezing, and none that is about to end is counted
/// twice.
#[test]
fn jobs_that_asked_for_it_end_before_others_are_frozen() {
    let mut preemption = Preemption::default();
    let job = |job: u64, consent| Running { consent, ..running(job, "b", 1) };
    let (mut consents, mut orders) =
        ([Consent::Evictable, Consent::Evictable, Consent::No], vec![]);
    for second in 0..12 {
        let jobs = [1, 2, 3].map(|id| job(id, consents[id as usize - 1]));
        let freeze = (second >= 10).then_some(60.0);
        let lacking = if second >= 10 { 3.0 } else { 1.0 };
        let step = preemption.step(&[claim("a", 3.0, lacking)], &jobs, freeze, f64::from(second));
        orders.extend(step.evict.iter().map(|(job, tenant)| (second, job.0, tenant.clone())));
        for (job, _) in step.evict {
            consents[job.0 as usize - 1] = Consent::Leaving;
        }
        let expected: &[JobId] = if second == 10 { &[JobId(3)] } else { &[] };
        assert_eq!(step.freeze, expected, "{second}");
    }
    let a = || "a".to_string();
    assert_eq!(orders, [(5, 2, a()), (10, 1, a())], "the youngest, and the other one later");
}

/// A guarantee that work outside jobs breaks: narrower jobs would not help, and jobs wait for nothing.
#[test]
fn a_lack_that_jobs_do_not_cause_withholds_nothing() {
    for (used_cores, is_caused) in [(None, false), (Some(0.0), false), (Some(0.3), true)] {
        let mut preemption = Preemption::default();
        let job = |used_cores| Running { used_cores, ..running(1, "b", 2) };
        let jobs: Vec<Running> = used_cores.map(job).into_iter().collect();
        let mut orders = Default::default();
        for second in 0..10 {
            let claims = [claim("a", 0.5, 0.45)];
            orders = preemption.step(&claims, &jobs, Some(60.0), f64::from(second));
        }
        assert_eq!(!orders.withheld.is_empty(), is_caused, "{used_cores:?}");
        assert_eq!(preemption.is_frozen(JobId(1)), is_caused, "{used_cores:?}");
    }
}

/// One job runs even if all slots are left to a guarantee; a second one waits, and says for whom.
#[test]
fn one_job_may_always_run() {
    let mut admission =
        Admission::new(Rules::default(), Capacity { slots: 2, ..Capacity::default() });
    admission.policy(Rules::default(), terms(), 0.0);
    let owed = Owed { due_cores: 0.5, lacking_cores: 0.25 };
    admission.withhold(&BTreeMap::from([(TENANTS[0].to_string(), (2, owed))]));
    let mut submit = || admission.submit(Request::new(TENANTS[1], 1), 0.0).unwrap();
    let [first, second] = [submit(), submit()];
    let starts = admission.dispatch(Measured::default(), 0.0).starts;
    assert_eq!(starts.iter().map(|start| start.job).collect::<Vec<_>>(), [first]);
    let reason = admission.why(second).unwrap().to_string();
    let tenant = TENANTS[0];
    let figures =
        format!("leave the others to {tenant}, which has 0.25 of its guaranteed 0.50 CPUs");
    assert!(reason.contains("0 of 2 are free") && reason.contains(&figures), "{reason}");
}

/// A shell that waits for its user lends its slot after a minute, and has it back with the next end.
#[test]
fn an_idle_job_lends_its_slot() {
    let mut admission =
        Admission::new(Rules::default(), Capacity { slots: 1, ..Capacity::default() });
    admission.policy(Rules::default(), terms(), 0.0);
    let mut submit = || admission.submit(Request::new(TENANTS[0], 1), 0.0).unwrap();
    let [shell, build, last] = [submit(), submit(), submit()];
    let starts = |admission: &mut Admission, now| -> Vec<JobId> {
        let dispatch = admission.dispatch(Measured::default(), now);
        dispatch.starts.iter().map(|start| start.job).collect()
    };
    assert_eq!(starts(&mut admission, 0.0), [shell]);
    for second in 0..60 {
        // Less than a hundredth of a CPU.
        admission.charge(shell, 0.005 * f64::from(second), None, f64::from(second));
        assert_eq!(starts(&mut admission, f64::from(second)), []);
    }
    admission.charge(shell, 0.3, None, 60.0);
    assert!(admission.job(shell).unwrap().is_idle);
    assert_eq!(starts(&mut admission, 60.0), [build]);
    // A stored queue keeps the loan.
    let stored = serde_json::to_string(&admission).unwrap();
    assert!(serde_json::from_str::<Admission>(&stored).unwrap().job(shell).unwrap().is_idle);
    admission.charge(shell, 2.0, None, 61.0);
    admission.charge(build, 1.0, None, 61.0);
    assert!(!admission.job(shell).unwrap().is_idle);
    admission.ended(build, 62.0);
    assert_eq!(starts(&mut admission, 62.0), [], "the shell has its slot back");
    admission.ended(shell, 63.0);
    assert_eq!(starts(&mut admission, 63.0), [last]);
}

#[test]
fn what_nobody_wants_is_not_withheld() {
    let mut preemption = Preemption::default();
    let jobs = [running(1, "b", 2)];
    for second in 0..10 {
        preemption.step(&[claim("a", 2.0, 1.0)], &jobs, Some(60.0), f64::from(second));
    }
    assert!(preemption.is_frozen(JobId(1)));
    let orders = preemption.step(&[claim("a", 0.0, 0.0)], &jobs, Some(60.0), 10.0);
    assert_eq!((orders.withheld.len(), orders.thaw), (0, vec![JobId(1)]));
    assert!(!preemption.is_frozen(JobId(1)));
}

/// A tick: how long after the one before, who lacks what, and which jobs run.
type Tick = (f64, Vec<(usize, f64, f64)>, Vec<(u64, usize, u32)>);

fn ticks() -> impl Strategy<Value = Vec<Tick>> {
    let claims = prop::collection::vec((0_usize..2, 0.0..4.0, 0.0..4.0), 0..3);
    let jobs = prop::collection::vec((0_u64..6, 0..TENANTS.len(), 1_u32..5), 0..6);
    prop::collection::vec((0.1..3.0, claims, jobs), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Checks also that nothing is withheld or frozen once no guarantee is due.
    #[test]
    fn a_job_is_frozen_for_a_bounded_time(ticks in ticks(), bound in prop::option::of(1.0..10.0)) {
        let mut preemption = Preemption::default();
        // Since when each is frozen; until when each that was must run.
        let (mut frozen, mut rests) = (BTreeMap::new(), BTreeMap::new());
        let mut now = 0.0;
        for (pause, claims, jobs) in ticks {
            now += pause;
            let mut of_tenants: BTreeMap<usize, Claim> = BTreeMap::new();
            for (tenant, due, lacking) in claims {
                of_tenants.insert(tenant, claim(TENANTS[tenant], due, lacking.min(due)));
            }
            let claims: Vec<Claim> = of_tenants.into_values().collect();
            // A job stays one of its tenant.
            let mut there: BTreeMap<u64, Running> = BTreeMap::new();
            for (job, _, dop) in jobs {
                there.insert(job, running(job, TENANTS[job as usize % TENANTS.len()], dop));
            }
            let jobs: Vec<Running> = there.into_values().collect();
            let orders = preemption.step(&claims, &jobs, bound, now);
            frozen.retain(|job, _| jobs.iter().any(|it| it.job == *job));
            for job in &orders.thaw {
                prop_assert!(frozen.remove(job).is_some(), "{job} was not frozen");
                rests.insert(*job, now + bound.unwrap_or(0.0));
            }
            rests.retain(|job, _| jobs.iter().any(|it| it.job == *job));
            for job in &orders.freeze {
                prop_assert!(bound.is_some());
                let it = jobs.iter().find(|it| it.job == *job).unwrap();
                prop_assert!(!orders.withheld.contains_key(&it.tenant), "{it:?}");
                prop_assert!(rests.get(job).is_none_or(|until| *until <= now), "{job} rests");
                prop_assert!(frozen.insert(*job, now).is_none());
            }
            for (job, since) in &frozen {
                prop_assert!(now - since < bound.unwrap(), "{job} since {since} at {now}");
                prop_assert!(preemption.is_frozen(*job));
            }
            let is_due = claims.iter().any(|it| it.due_cores > 0.0);
            if !is_due {
                prop_assert!(orders.withheld.is_empty() && frozen.is_empty());
            }
            if orders.withheld.is_empty() {
                prop_assert!(frozen.is_empty());
            }
        }
        let left = preemption.end();
        prop_assert_eq!(left, frozen.into_keys().collect::<Vec<_>>());
    }

    #[test]
    fn the_others_are_narrowed_and_nobody_else(
        jobs in prop::collection::vec((0..TENANTS.len(), 1_u64..4), 1..10),
        withheld in prop::collection::btree_map(0_usize..2, 0_u32..12, 1..3),
    ) {
        let mut admission = Admission::new(Rules::default(), capacity());
        admission.policy(Rules::default(), terms(), 0.0);
        for (tenant, floor) in jobs {
            let width = Width::Manual(floor);
            let width = if floor > 2 { width } else { Width::Auto };
            let _ = admission.submit(Request { width, ..Request::new(TENANTS[tenant], 1) }, 0.0);
        }
        admission.dispatch(Measured::default(), 0.0);
        let widths = |admission: &Admission| -> BTreeMap<JobId, (String, u32)> {
            let running = admission.jobs().filter_map(|view| match view.phase {
                Phase::Running { dop, .. } => Some((view.job, (view.request.tenant.clone(), dop))),
                _ => None,
            });
            running.collect()
        };
        let before = widths(&admission);
        let of_paths: BTreeMap<String, (u32, Owed)> = withheld
            .iter()
            .map(|(tenant, slots)| (TENANTS[*tenant].to_string(), (*slots, Owed::default())))
            .collect();
        let sum: u32 = of_paths.values().map(|(slots, _)| slots).sum();
        prop_assert!(admission.withhold(&of_paths));
        admission.dispatch(Measured::default(), 1.0);
        let after = widths(&admission);
        let (mut others, mut floors) = (0, 0);
        for (job, (tenant, dop)) in &before {
            let is_due = of_paths.contains_key(tenant);
            let (_, narrow) = after[job];
            prop_assert!(narrow >= 1);
            if is_due {
                prop_assert!(narrow >= *dop, "{job} of {tenant}: {dop} → {narrow}");
            } else {
                prop_assert!(narrow <= *dop, "{job} of {tenant}: {dop} → {narrow}");
                let floor = match admission.job(*job).unwrap().request.width {
                    Width::Manual(floor) => floor as u32,
                    _ => 1,
                };
                prop_assert!(narrow >= floor);
                (others, floors) = (others + narrow, floors + floor);
            }
        }
        prop_assert!(others <= floors.max(8_u32.saturating_sub(sum)), "{others} beside {sum}");
        // None of the others started beyond what is left.
        for (job, (tenant, _)) in after.iter().filter(|(job, _)| !before.contains_key(job)) {
            prop_assert!(of_paths.contains_key(tenant) || others <= 8_u32.saturating_sub(sum), "{job}");
        }
        prop_assert!(admission.withhold(&BTreeMap::new()));
        prop_assert!(!admission.withhold(&BTreeMap::new()));
        admission.dispatch(Measured::default(), 2.0);
        for (job, (_, dop)) in widths(&admission) {
            prop_assert!(before.get(&job).is_none_or(|(_, old)| dop >= (*old).min(1)));
        }
    }
}
