//! Widths of tenants from their allocations.

use std::time::Duration;

use proptest::prelude::*;
use tenantd_dop::band::Band;
use tenantd_dop::tenant::{Claimant, Sample, Target, Width, slots, targets, tick};
use tenantd_fair::integer::{self, Claim};

/// A tenant that could use everything.
fn busy(allocation_cpus: f64) -> Claimant {
    Claimant {
        allocation_cpus,
        sample: Some(Sample {
            used_cpus: allocation_cpus,
            useful_cpus: 1e6,
            pressed: true,
            idle: false,
        }),
        width: Width::Auto,
        limit_cpus: None,
        exclusive: false,
    }
}

/// A tenant that uses and could use next to nothing.
fn asleep() -> Claimant {
    let sample = Sample { used_cpus: 0.0, useful_cpus: 0.0, pressed: false, idle: false };
    Claimant { sample: Some(sample), ..busy(0.0) }
}

/// A tenant that could use so many CPUs.
fn useful(allocation_cpus: f64, useful_cpus: f64) -> Claimant {
    let sample = Sample { used_cpus: useful_cpus, useful_cpus, pressed: false, idle: false };
    Claimant { sample: Some(sample), ..busy(allocation_cpus) }
}

fn widths(slots: u32, claimants: &[Claimant]) -> Vec<u32> {
    dops(&targets(slots, claimants, &vec![0; claimants.len()]))
}

fn dops(targets: &[Target]) -> Vec<u32> {
    targets.iter().map(|target| target.dop).collect()
}

#[test]
fn slots_are_cpus_times_oversubscription() {
    assert_eq!(slots(8.0, 1.0), 8);
    assert_eq!(slots(7.4, 1.0), 7);
    assert_eq!(slots(7.5, 1.0), 8);
    assert_eq!(slots(1.9, 1.0), 2, "a small reserve costs jobs no CPU");
    assert_eq!(slots(8.0, 1.25), 10);
    assert_eq!(slots(10.0, 1.1), 11, "not ten for want of a last bit");
    assert_eq!(slots(1.0, 0.1), 1);
}

#[test]
fn busy_tenants_share_by_allocation() {
    assert_eq!(widths(8, &[busy(4.0), busy(4.0)]), [4, 4]);
    assert_eq!(widths(8, &[busy(6.0), busy(2.0)]), [6, 2]);
    assert_eq!(widths(8, &[busy(8.0 / 3.0), busy(8.0 / 3.0), busy(8.0 / 3.0)]), [3, 3, 2]);
}

#[test]
fn the_sleepers_slots_are_lent() {
    assert_eq!(widths(8, &[busy(8.0), asleep()]), [8, 1]);
    let mut tenants = vec![asleep(); 1000];
    tenants.extend([busy(128.0), busy(128.0)]);
    assert_eq!(widths(256, &tenants)[1000..], [128, 128]);
    assert!(widths(256, &tenants)[..1000].iter().all(|dop| *dop == 1));
}

#[test]
fn tenants_that_can_use_a_part_of_a_cpu_take_that_part() {
    // Three times 0.3 CPUs are one slot, and the rest is one tenant's.
    let small = useful(0.3, 0.3);
    assert_eq!(widths(8, &[small, small, small, busy(7.1)]), [1, 1, 1, 7]);
    // With exclusive CPUs each of them is one less for the others.
    let mine = Claimant { exclusive: true, ..small };
    assert_eq!(widths(8, &[mine, mine, mine, busy(7.1)]), [1, 1, 1, 5]);
}

#[test]
fn no_width_exceeds_its_bounds() {
    let limited = Claimant { limit_cpus: Some(2.5), ..busy(8.0) };
    let capped = Claimant { width: Width::AtMost(2), ..busy(8.0) };
    assert_eq!(widths(16, &[limited, capped, useful(8.0, 4.2), busy(8.0)]), [3, 2, 5, 6]);
}

#[test]
fn a_manual_width_is_taken_out_first_and_bounded_by_the_slots() {
    let manual = |dop| Claimant { width: Width::Manual(dop), ..busy(1.0) };
    assert_eq!(widths(8, &[manual(6), busy(4.0), busy(4.0)]), [6, 1, 1]);
    assert_eq!(widths(8, &[Claimant { width: Width::Manual(3), ..asleep() }, busy(8.0)]), [3, 5]);
    // A CPU went away after the policy was accepted.
    assert_eq!(widths(4, &[manual(6)]), [4]);
}

#[test]
fn with_more_busy_tenants_than_slots_everybody_has_one() {
    assert_eq!(widths(2, &[busy(1.0), busy(1.0), busy(1.0)]), [1, 1, 1]);
}

#[test]
fn a_small_part_of_a_slot_blocks_no_cpu() {
    let limited = |cpus| Claimant { limit_cpus: Some(cpus), ..busy(cpus) };
    assert_eq!(widths(2, &[limited(0.2), busy(1.8)]), [1, 2]);
    assert_eq!(widths(2, &[limited(0.4), busy(1.6)]), [1, 1]);
    let mut bands = [Band::new(1), Band::new(1)];
    for second in 1..30 {
        tick(2, &[limited(0.2), busy(1.8)], &mut bands, Duration::from_secs(second));
    }
    assert_eq!((bands[0].dop(), bands[1].dop()), (1, 2));
}

#[test]
fn a_tenant_without_a_sample_keeps_its_width() {
    let dark = Claimant { sample: None, ..busy(4.0) };
    assert_eq!(dops(&targets(8, &[dark, busy(4.0)], &[3, 5])), [3, 5]);
    let mut bands = [Band::new(3), Band::new(1)];
    for second in 1..30 {
        tick(8, &[dark, busy(4.0)], &mut bands, Duration::from_secs(second));
    }
    assert_eq!((bands[0].dop(), bands[1].dop()), (3, 5));
    // What the policy says counts all the same.
    let manual = Claimant { width: Width::Manual(2), ..dark };
    assert_eq!(tick(8, &[manual, busy(4.0)], &mut bands, Duration::from_secs(31))[0], 2);
}

#[test]
fn a_sample_that_is_missing_now_and_then_does_not_reset_the_patience() {
    let small = useful(1.0, 0.5);
    let dark = Claimant { sample: None, ..small };
    let mut bands = [Band::new(8)];
    for second in 1..=10 {
        let seen = if second % 2 == 0 { dark } else { small };
        let dop = tick(8, &[seen], &mut bands, Duration::from_secs(second))[0];
        // The fifth sample is that of the ninth second.
        assert_eq!(dop, if second < 9 { 8 } else { 1 }, "{second}");
    }
}

#[test]
fn the_tenant_with_the_larger_part_keeps_it() {
    let thirds = [busy(8.0 / 3.0); 3];
    for present in [[3, 3, 2], [3, 2, 3], [2, 3, 3]] {
        assert_eq!(dops(&targets(8, &thirds, &present)), present);
    }
    // Also when the last digits of a sample favour another.
    let noisy = [busy(2.6), busy(2.7), busy(2.69)];
    assert_eq!(dops(&targets(8, &noisy, &[3, 3, 2])), [3, 3, 2]);
}

#[test]
fn both_get_half_within_seconds_of_the_sleeper_waking() {
    let mut bands = [Band::new(8), Band::new(1)];
    let mut second = 0;
    let mut run = |bands: &mut [Band; 2], claimants: &[Claimant; 2], seconds: u64| {
        for _ in 0..seconds {
            second += 1;
            tick(8, claimants, bands, Duration::from_secs(second));
        }
        (bands[0].dop(), bands[1].dop())
    };
    assert_eq!(run(&mut bands, &[busy(8.0), asleep()], 60), (8, 1));
    assert_eq!(run(&mut bands, &[busy(4.0), busy(4.0)], 8), (4, 4));
    assert_eq!(run(&mut bands, &[busy(8.0), asleep()], 20), (8, 1));
}

fn any_claimant() -> impl Strategy<Value = Claimant> {
    let width = prop_oneof![
        6 => Just(Width::Auto),
        1 => (1..20_u32).prop_map(Width::AtMost),
        1 => (1..20_u32).prop_map(Width::Manual),
    ];
    let sample = (0.0..40.0_f64, any::<bool>()).prop_map(|(useful_cpus, pressed)| Sample {
        used_cpus: useful_cpus,
        useful_cpus,
        pressed,
        idle: false,
    });
    let sample = prop_oneof![9 => sample.prop_map(Some), 1 => Just(None)];
    let limit = proptest::option::weighted(0.2, 0.5..20.0_f64);
    (0.0..20.0_f64, sample, width, limit, any::<bool>()).prop_map(
        |(allocation_cpus, sample, width, limit_cpus, exclusive)| Claimant {
            allocation_cpus,
            sample,
            width,
            limit_cpus,
            exclusive,
        },
    )
}

proptest! {
    #[test]
    fn widths_are_within_bounds_and_fit_into_the_slots(
        slots in 1..64_u32,
        tenants in proptest::collection::vec((any_claimant(), 0..20_u32), 1..12),
    ) {
        let (claimants, present): (Vec<Claimant>, Vec<u32>) = tenants.into_iter().unzip();
        let targets = targets(slots, &claimants, &present);
        let mut wide = 0;
        let mut floors = 0;
        for (target, claimant) in targets.iter().zip(&claimants) {
            prop_assert!(target.allowed.contains(&target.dop), "{:?} of {:?}", target, claimant);
            prop_assert!((f64::from(target.dop) - target.ideal).abs() < 1.0 + 1e-5);
            if target.dop > 1 {
                wide += target.dop;
                let fixed = claimant.sample.is_none();
                floors += if fixed { target.dop } else { *target.allowed.start() };
            }
        }
        prop_assert!(wide <= slots.max(floors), "{} on {}", wide, slots);
    }

    #[test]
    fn no_slot_is_idle_while_a_tenant_can_use_more(
        slots in 1..64_u32,
        allocations in proptest::collection::vec(0.1..10.0_f64, 1..8),
    ) {
        let claimants: Vec<Claimant> = allocations.iter().map(|cpus| busy(*cpus)).collect();
        let sum: u32 = widths(slots, &claimants).iter().sum();
        prop_assert_eq!(sum, slots.max(claimants.len() as u32));
    }

    #[test]
    fn a_present_width_next_to_the_ideal_is_kept(
        slots in 2..64_u32,
        allocations in proptest::collection::vec(0.1..10.0_f64, 1..8),
    ) {
        let claimants: Vec<Claimant> = allocations.iter().map(|cpus| busy(*cpus)).collect();
        let first = widths(slots, &claimants);
        prop_assert_eq!(dops(&targets(slots, &claimants, &first)), first);
    }

    /// Integer max-min gives at most the exact part, rounded up, and a width is less than one from it. What narrow tenants
    /// get there by rounding up, a wide one may lack: that one is wider here by more than one.
    #[test]
    fn fresh_widths_are_at_most_one_below_integer_apportionment(
        slots in 8..64_u32,
        allocations in proptest::collection::vec(0.1..10.0_f64, 1..8),
    ) {
        let claimants: Vec<Claimant> = allocations.iter().map(|cpus| busy(*cpus)).collect();
        let claim = |weight: &f64| Claim { weight: *weight, floor: 1, ceiling: u64::from(slots) };
        let claims: Vec<Claim> = allocations.iter().map(claim).collect();
        let exact = integer::apportion(u64::from(slots), &claims);
        for (mine, exact) in widths(slots, &claimants).iter().zip(exact) {
            prop_assert!(u64::from(*mine) + 1 >= exact, "{} and not {}", mine, exact);
        }
    }
}
