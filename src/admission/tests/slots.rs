//! Price of slots.

use std::collections::BTreeMap;

use tenantd_admission::{
    Admission, Capacity, Cores, JobId, Measured, Request, Rules, SlotUse, Terms,
};
use tenantd_dop::target::Width;
use tenantd_queue::discipline::Name;

/// CPU time of each job, by its CPUs.
const JOB_SECONDS: f64 = 2.0;
const SLOTS: u32 = 4;

/// A tenant with jobs, one after the other and several beside each other.
#[derive(Clone, Copy)]
struct Tenant {
    weight: f64,
    /// Slots of each job.
    slots: u32,
    /// CPUs that each job uses, and the part of it that it uses in every other second.
    job_cores: f64,
    uneven_ratio: f64,
    /// CPUs that it is entitled to while its jobs run.
    entitled_cores: f64,
    /// CPUs that its other processes use while its jobs wait.
    beside_cores: f64,
}

const USUAL: Tenant = Tenant {
    weight: 100.0,
    slots: 1,
    job_cores: 1.0,
    uneven_ratio: 1.0,
    entitled_cores: 4.0,
    beside_cores: 0.0,
};

/// Jobs of both tenants share the slots for 400 seconds. Returns the time of slots of the first one, as a part.
fn part_of_slots(tenants: [Tenant; 2]) -> f64 {
    let names = ["a", "b"];
    let capacity = Capacity { slots: SLOTS, ..Capacity::default() };
    let mut admission = Admission::new(Rules::default(), capacity);
    let terms = [0, 1].map(|at| Terms::new(names[at], tenants[at].weight)).to_vec();
    admission.policy(Rules::default(), terms, 0.0);
    let mut used: BTreeMap<JobId, (usize, f64)> = BTreeMap::new();
    let mut slot_seconds = [0.0; 2];
    for second in 0..400 {
        let now = f64::from(second);
        let mut ended = Vec::new();
        for (job, (at, seconds)) in &mut used {
            let Tenant { slots, job_cores, uneven_ratio, .. } = tenants[*at];
            let ratio = if second % 2 == 0 { uneven_ratio } else { 2.0 - uneven_ratio };
            *seconds += job_cores * ratio;
            slot_seconds[*at] += f64::from(slots);
            admission.charge(*job, *seconds, None, now);
            ended.extend((*seconds >= JOB_SECONDS * f64::from(slots)).then_some(*job));
        }
        let cores = |name: &str| {
            let Tenant { entitled_cores, beside_cores, .. } = tenants[usize::from(name == "b")];
            Some(Cores { entitled: entitled_cores, used: Some(beside_cores) })
        };
        admission.price_slots(cores, now);
        for job in ended {
            used.remove(&job);
            admission.ended(job, now);
        }
        for (at, name) in names.into_iter().enumerate() {
            while admission.jobs().filter(|view| view.request.tenant == name).count() < 8 {
                let width = Width::Manual(tenants[at].slots.into());
                let request = Request { width, ..Request::new(name, at as u32 + 1) };
                admission.submit(request, now).unwrap();
            }
        }
        for start in admission.dispatch(Measured::default(), now).starts {
            let at = usize::from(admission.job(start.job).unwrap().request.tenant == "b");
            used.insert(start.job, (at, 0.0));
        }
    }
    slot_seconds[0] / (slot_seconds[0] + slot_seconds[1])
}

/// Its jobs are slow because of its other processes, or declare more than they use. Others would wait for slots that it hardly
/// pays for.
#[test]
fn unused_slots_are_paid_for() {
    for job_cores in [0.1, 0.25, 0.5] {
        let part = part_of_slots([Tenant { job_cores, ..USUAL }, USUAL]);
        assert!((0.45..=0.55).contains(&part), "{job_cores}: {part}");
    }
    let wide = Tenant { slots: 4, ..USUAL };
    for job_cores in [0.5, 1.0, 2.0] {
        let wide = [Tenant { job_cores, ..wide }, Tenant { job_cores: 4.0, ..wide }];
        let part = part_of_slots(wide);
        assert!((0.4..=0.6).contains(&part), "wide, {job_cores}: {part}");
    }
}

/// Beside others, jobs of a tenant of half the weight have half of the CPU time. The weight does not count twice: with as many
/// slots it has what is due to it.
#[test]
fn slots_cost_what_their_tenant_is_entitled_to() {
    let light = Tenant { weight: 50.0, job_cores: 0.5, entitled_cores: 1.0, ..USUAL };
    let part = part_of_slots([light, Tenant { entitled_cores: 2.0, ..USUAL }]);
    assert!((0.45..=0.55).contains(&part), "{part}");
}

/// It uses what it is entitled to, in turns more and less.
#[test]
fn uneven_use_costs_nothing() {
    for uneven_ratio in [0.5, 0.8] {
        let part = part_of_slots([
            Tenant { job_cores: 0.5, uneven_ratio, entitled_cores: 1.0, ..USUAL },
            Tenant { job_cores: 0.5, entitled_cores: 1.0, ..USUAL },
        ]);
        assert!((0.45..=0.55).contains(&part), "{uneven_ratio}: {part}");
    }
}

/// Use of its other processes counts while its jobs wait. A tenant that always uses its share has a turn now and then.
#[test]
fn use_beside_waiting_jobs_is_paid_for() {
    let wide = Tenant { slots: SLOTS, job_cores: 4.0, ..USUAL };
    // Each pays for 4 CPUs in its turn, and a in that of b for what it uses: 4 x + beside (1 − x) = 4 (1 − x).
    for (beside_cores, expected) in [(0.0, 0.5), (2.0, 0.34), (4.0, 0.03)] {
        let part = part_of_slots([Tenant { beside_cores, ..wide }, wide]);
        assert!((part - expected).abs() <= 0.03, "{beside_cores}: {part}");
        assert!(part > 0.01, "{beside_cores}: {part}");
    }
}

#[test]
fn a_waiting_job_is_told_what_counts_for_its_turn() {
    let capacity = Capacity { slots: SLOTS, ..Capacity::default() };
    let mut admission = Admission::new(Rules::default(), capacity);
    let tenants = ["a", "b"].map(|tenant| Terms::new(tenant, 100.0)).to_vec();
    admission.policy(Rules::default(), tenants, 0.0);
    for tenant in ["b", "a"] {
        let request = Request { width: Width::Manual(SLOTS.into()), ..Request::new(tenant, 1) };
        admission.submit(request, 0.0).unwrap();
        admission.dispatch(Measured::default(), 0.0);
    }
    let mut told = |now| {
        admission.price_slots(|_| Some(Cores { entitled: 2.0, used: Some(1.5) }), now);
        admission.outlooks(now)[0].beside_cores
    };
    assert_eq!([told(1.0), told(2.0)], [0.0, 1.5]);
    // This discipline counts nothing beside the queue.
    let rules = Rules { discipline: Name::Drf, ..Rules::default() };
    let tenants = ["a", "b"].map(|tenant| Terms::new(tenant, 100.0)).to_vec();
    admission.policy(rules, tenants, 2.0);
    admission.price_slots(|_| Some(Cores { entitled: 2.0, used: Some(1.5) }), 3.0);
    assert_eq!(admission.outlooks(3.0)[0].beside_cores, 0.0);
}

/// Jobs that wait for others, for memory or for a limit of their tenant do not wait for slots.
#[test]
fn slots_are_awaited_by_jobs_that_lack_nothing_else() {
    let capacity = Capacity { slots: SLOTS, memory_bytes: Some(100), ..Capacity::default() };
    let mut admission = Admission::new(Rules::default(), capacity);
    let limited = Terms { max_running: Some(1), ..Terms::new("limited", 100.0) };
    let tenants = vec![Terms::new("a", 100.0), Terms::new("b", 100.0), limited];
    admission.policy(Rules::default(), tenants, 0.0);
    let wide = |tenant: &str| Request { width: Width::Manual(3), ..Request::new(tenant, 1) };
    let narrow = |tenant: &str| Request::new(tenant, 1);
    admission.submit(wide("a"), 0.0).unwrap();
    admission.submit(narrow("limited"), 0.0).unwrap();
    admission.dispatch(Measured::default(), 0.0);
    let of = |held, are_awaited| SlotUse { held, are_awaited, were_held: held > 0 };
    assert_eq!(admission.slot_use()["a"], of(3, false));
    admission.submit(narrow("limited"), 1.0).unwrap();
    admission.submit(Request { memory_bytes: 200, ..wide("b") }, 1.0).unwrap_err();
    admission.dispatch(Measured::default(), 1.0);
    assert_eq!(admission.slot_use()["limited"], of(1, false));
    admission.submit(wide("b"), 2.0).unwrap();
    admission.dispatch(Measured::default(), 2.0);
    assert_eq!(admission.slot_use()["b"], of(0, true));
    // A job that has ended since the price was set has held slots as well.
    let first = admission.jobs().next().unwrap().job;
    admission.ended(first, 3.0);
    let ended = SlotUse { were_held: true, ..SlotUse::default() };
    assert_eq!(admission.slot_use()["a"], ended);
    admission.price_slots(|_| Some(Cores { entitled: 1.0, used: Some(0.0) }), 3.0);
    assert_eq!(admission.slot_use().get("a"), None);
}
