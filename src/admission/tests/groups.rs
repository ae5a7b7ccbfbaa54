//! What running jobs give up while the guarantee of a group is due, or one inside of it.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tenantd_admission::{
    Admission, Capacity, Claim, Consent, FREEZE_AFTER_SECONDS, JobId, Measured, Owed,
    PATIENCE_SECONDS, Phase, Preemption, Request, Rules, Running, Terms,
};
use tenantd_dop::target::Width;

const SLOTS: u32 = 12;
/// A tenant outside of groups, and groups in a group.
const TENANTS: [&str; 5] = ["free", "g/a", "g/b", "g/h/c", "g-h/d"];
/// What may be due, each group before what is in it.
const CLAIMS: [&str; 5] = ["g", "g-h", "g/a", "g/h", "g/h/c"];

fn is_in(tenant: &str, claim: &str) -> bool {
    tenant == claim || tenant.starts_with(&format!("{claim}/"))
}

/// The claims that whoever is in exactly the claims of this tenant leaves something to: the outermost of those inside the
/// innermost one of its own.
fn leaves_to<'a>(tenant: &str, claims: &[&'a str]) -> Vec<&'a str> {
    let own = claims.iter().filter(|claim| is_in(tenant, claim)).max_by_key(|claim| claim.len());
    let inside = |claim: &str| own.is_none_or(|own| claim != *own && is_in(claim, own));
    let others: Vec<&str> =
        claims.iter().copied().filter(|claim| inside(claim) && !is_in(tenant, claim)).collect();
    let is_outermost = |claim: &&str| !others.iter().any(|it| it != claim && is_in(claim, it));
    others.iter().copied().filter(is_outermost).collect()
}

/// What is due to a claim: at least what is due inside of it.
fn due(claim: &str, slots: &BTreeMap<&str, u32>) -> u32 {
    let inside = slots.keys().filter(|it| **it != claim && is_in(it, claim));
    let is_below = |it: &&&str| {
        !slots.keys().any(|other| {
            *other != **it && *other != claim && is_in(it, other) && is_in(other, claim)
        })
    };
    let inside: u32 = inside.filter(is_below).map(|it| due(it, slots)).sum();
    inside.max(slots[claim])
}

fn claim(tenant: &str, due_cores: f64, lacking_cores: f64) -> Claim {
    Claim { tenant: tenant.to_string(), due_cores, lacking_cores }
}

fn running(job: u64, tenant: &str, dop: u32) -> Running {
    let (job, tenant, since) = (JobId(job), tenant.to_string(), job as f64);
    Running { job, tenant, since, dop, used_cores: f64::from(dop), consent: Consent::No }
}

/// The jobs that are frozen while these claims lack.
fn frozen(claims: &[Claim], jobs: &[Running]) -> Vec<JobId> {
    let mut preemption = Preemption::default();
    [0.0, PATIENCE_SECONDS].into_iter().for_each(|now| {
        let early = preemption.step(claims, jobs, Some(60.0), now);
        assert_eq!(early.freeze, []);
    });
    let now = PATIENCE_SECONDS + FREEZE_AFTER_SECONDS;
    preemption.step(claims, jobs, Some(60.0), now).freeze
}

#[test]
fn those_outside_of_a_group_give_way_to_it() {
    let jobs = [running(1, "free", 2), running(2, "g/a", 2), running(3, "g/h/c", 2)];
    assert_eq!(frozen(&[claim("g", 4.0, 3.0)], &jobs), [JobId(1)]);
    assert_eq!(frozen(&[claim("g-h", 4.0, 5.0)], &jobs), [JobId(3), JobId(2), JobId(1)]);
}

#[test]
fn those_in_a_group_give_way_to_a_claim_inside_of_it() {
    let jobs = [running(1, "free", 2), running(2, "g/a", 2), running(3, "g/b", 2)];
    // All others do, while only the tenant lacks.
    assert_eq!(frozen(&[claim("g/a", 2.0, 3.0)], &jobs), [JobId(3), JobId(1)]);
    // While its group lacks as well, what the youngest gives up in the group is nothing that the group gets.
    let both = [claim("g", 4.0, 1.0), claim("g/a", 2.0, 1.0)];
    assert_eq!(frozen(&both, &jobs), [JobId(3), JobId(1)]);
    // What one from outside gives up, both get.
    let jobs = [running(1, "g/b", 2), running(2, "g/a", 2), running(3, "free", 2)];
    assert_eq!(frozen(&both, &jobs), [JobId(3)]);
}

#[test]
fn a_frozen_job_is_thawed_when_its_own_group_lacks() {
    let jobs = [running(1, "g/b", 2)];
    let mut preemption = Preemption::default();
    let mut step = |claims: &[Claim], now| preemption.step(claims, &jobs, Some(60.0), now);
    (0..=5).for_each(|second| {
        step(&[claim("free", 2.0, 1.0)], f64::from(second));
    });
    let both = [claim("free", 2.0, 1.0), claim("g", 2.0, 1.0)];
    assert_eq!(step(&both, 6.0).thaw, [], "the weights come first");
    assert_eq!(step(&both, 8.0).thaw, [JobId(1)]);
}

/// The running jobs of a queue, with their tenants and widths.
fn widths(admission: &Admission) -> BTreeMap<JobId, (String, u32)> {
    let running = admission.jobs().filter_map(|view| match view.phase {
        Phase::Running { dop, .. } => Some((view.job, (view.request.tenant.clone(), dop))),
        _ => None,
    });
    running.collect()
}

fn queue() -> Admission {
    let capacity = Capacity { slots: SLOTS, ..Capacity::default() };
    let mut admission = Admission::new(Rules::default(), capacity);
    let terms = TENANTS.iter().map(|path| Terms::new(*path, 1.0)).collect();
    admission.policy(Rules::default(), terms, 0.0);
    admission
}

fn withhold(admission: &mut Admission, slots: &[(&str, u32)]) -> bool {
    let claims = slots.iter().map(|(path, slots)| (path.to_string(), (*slots, Owed::default())));
    admission.withhold(&claims.collect())
}

#[test]
fn the_jobs_of_a_group_get_what_is_due_to_it() {
    let mut admission = queue();
    let mut submit = |tenant: &str| admission.submit(Request::new(tenant, 1), 0.0).unwrap();
    let [free, a, b] = ["free", "g/a", "g/b"].map(&mut submit);
    admission.dispatch(Measured::default(), 0.0);
    let of = |admission: &Admission| [free, a, b].map(|job| widths(admission)[&job].1);
    assert_eq!(of(&admission), [4, 4, 4]);
    assert!(withhold(&mut admission, &[("g", 10)]));
    admission.dispatch(Measured::default(), 1.0);
    assert_eq!(of(&admission), [2, 5, 5]);
    // One of its tenants has a claim of its own, which the others in the group respect.
    assert!(withhold(&mut admission, &[("g", 10), ("g/a", 8)]));
    admission.dispatch(Measured::default(), 2.0);
    assert_eq!(of(&admission), [2, 8, 2]);
    assert!(!withhold(&mut admission, &[("g", 10), ("g/a", 8)]));
    // A new job from outside has no room beside what is left, one of the group has.
    let late = admission.submit(Request::new("free", 1), 3.0).unwrap();
    assert!(withhold(&mut admission, &[("g", 11)]));
    admission.dispatch(Measured::default(), 3.0);
    assert!(!widths(&admission).contains_key(&late));
    let member = admission.submit(Request::new("g/h/c", 1), 4.0).unwrap();
    admission.dispatch(Measured::default(), 4.0);
    assert!(widths(&admission).contains_key(&member));
    // Nothing is due any more.
    assert!(withhold(&mut admission, &[]));
    admission.dispatch(Measured::default(), 5.0);
    assert!(widths(&admission).contains_key(&late));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Of any claims in each other: what is left to each is left by all who leave something to it, down to their floors, and
    /// by nobody else; and none starts beyond that.
    #[test]
    fn what_is_due_in_groups_is_left_by_those_outside(
        jobs in prop::collection::vec((0..TENANTS.len(), 1_u64..4), 1..14),
        slots in prop::collection::btree_map(0..CLAIMS.len(), 0_u32..10, 1..5),
    ) {
        let mut admission = queue();
        for (tenant, floor) in jobs {
            let width = if floor > 2 { Width::Manual(floor) } else { Width::Auto };
            let request = Request { width, ..Request::new(TENANTS[tenant], 1) };
            prop_assert!(admission.submit(request, 0.0).is_ok());
        }
        admission.dispatch(Measured::default(), 0.0);
        let before = widths(&admission);
        let slots: BTreeMap<&str, u32> =
            slots.into_iter().map(|(claim, slots)| (CLAIMS[claim], slots)).collect();
        let given: Vec<(&str, u32)> = slots.iter().map(|(path, slots)| (*path, *slots)).collect();
        withhold(&mut admission, &given);
        admission.dispatch(Measured::default(), 1.0);
        let after = widths(&admission);
        let claims: Vec<&str> = slots.keys().copied().collect();
        let floor = |job: &JobId| match admission.job(*job).unwrap().request.width {
            Width::Manual(floor) => floor as u32,
            _ => 1,
        };
        let total: u32 = after.values().map(|(_, dop)| dop).sum();
        prop_assert!(total <= SLOTS, "{after:?}");
        for tenant in TENANTS {
            let left_to = leaves_to(tenant, &claims);
            let of = |job: &(&JobId, &(String, u32))| leaves_to(&job.1.0, &claims) == left_to;
            let own = claims.iter().any(|claim| is_in(tenant, claim));
            let same: Vec<_> = after.iter().filter(of).collect();
            for (job, (_, dop)) in same.iter().filter(|(job, _)| before.contains_key(job)) {
                prop_assert!(*dop >= floor(job));
                if left_to.is_empty() {
                    prop_assert!(*dop >= before[job].1, "{job} leaves nothing: {before:?} {after:?}");
                } else if !own {
                    prop_assert!(*dop <= before[job].1, "{job} got wider: {before:?} {after:?}");
                }
            }
            let sum: u32 = left_to.iter().map(|claim| due(claim, &slots)).sum();
            let has: u32 = same.iter().map(|(_, (_, dop))| dop).sum();
            let floors: u32 = same.iter().map(|(job, _)| floor(job)).sum();
            let is_new = same.iter().any(|(job, _)| !before.contains_key(job));
            let most = if is_new { SLOTS.saturating_sub(sum) } else { floors.max(SLOTS.saturating_sub(sum)) };
            prop_assert!(has <= most, "{tenant}: {has} of {SLOTS} beside {sum}: {after:?}");
        }
    }
}
