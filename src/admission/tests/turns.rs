//! Short jobs of equal tenants, one at a time: nobody starves by how ties are broken.

use tenantd_admission::{Admission, Capacity, Measured, Request, Rules, Terms};
use tenantd_queue::discipline::Name;

use super::course::{GIB, all_disciplines};

/// Whose jobs start, in their order. Each ends before the next starts; the capacity changes after each where it `moves`.
fn starts(discipline: Name, moves: bool) -> String {
    let rules = Rules { discipline, max_running: Some(1), ..Rules::default() };
    let capacity = |bytes| Capacity { slots: 1, memory_bytes: Some(bytes), ..Capacity::default() };
    let mut admission = Admission::new(rules, capacity(GIB));
    admission.policy(rules, ["a", "b"].map(|path| Terms::new(path, 1.0)).to_vec(), 0.0);
    let mut tenants = Vec::new();
    for _ in 0..20 {
        for tenant in ["a", "b"] {
            tenants.push((admission.submit(Request::new(tenant, 1), 0.0).unwrap(), tenant));
        }
    }
    let mut order = String::new();
    for tick in 1..=20_u32 {
        let now = f64::from(tick);
        if moves {
            admission.capacity(capacity(GIB + u64::from(tick)), now);
        }
        let begun = admission.dispatch(Measured::default(), now).starts;
        assert_eq!(begun.len(), 1, "{discipline:?}");
        let job = begun[0].job;
        order.push_str(tenants.iter().find(|(known, _)| *known == job).unwrap().1);
        admission.charge(job, 0.5, None, now + 0.5);
        admission.ended(job, now + 0.5);
    }
    order
}

#[test]
fn tenants_of_short_jobs_take_turns() {
    for discipline in all_disciplines() {
        let order = starts(discipline, false);
        let of_b = order.matches('b').count();
        assert!((8..=12).contains(&of_b), "{discipline:?}: {order}");
    }
    assert_eq!(starts(Name::Drf, false), "ab".repeat(10));
}

/// A host whose memory changes begins a new queue each time.
#[test]
fn turns_outlast_a_change_of_capacity() {
    assert_eq!(starts(Name::Drf, true), "ab".repeat(10));
}
