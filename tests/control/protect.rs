//! What is protected leaves something to reclaim, whatever the tenants hold and want.

use proptest::collection::vec;
use proptest::prelude::*;
use tenantd_control::measure::sample::HostSample;
use tenantd_control::measure::usage::Usage;
use tenantd_control::memory::protect::{self, Memory, Need};
use tenantd_control::share::demand::Demand;
use tenantd_control::share::target;
use tenantd_control::tree;
use tenantd_control::tree::bounds::AncestorBounds;
use tenantd_control::words::knob::{Knob, Value};
use tenantd_control::write::value_reason;
use tenantd_core::resource::{MEMORY, PerResource};
use tenantd_core::units::Limit;
use tenantd_policy::model::Allocation;

use crate::util;

const MIB: f64 = (1_u64 << 20) as f64;

fn need() -> impl Strategy<Value = Need> {
    let part = || prop_oneof![Just(0.0), 0.0..500.0_f64];
    let limit = proptest::option::of(0.0..600.0_f64);
    (part(), 0.0..=1.0_f64, part(), part(), part(), part(), limit).prop_map(
        |(held, anon, growth, wanted, guarantee, fair, limit)| Need {
            unreclaimable_bytes: held * MIB,
            anon_bytes: held * anon * MIB,
            growth_bytes: growth * 0.1 * MIB,
            limit_bytes: limit.map_or(f64::INFINITY, |limit| limit.max(held) * MIB),
            wanted_bytes: wanted.max(guarantee * 0.5) * MIB,
            guarantee_bytes: guarantee * 0.5 * MIB,
            fair_bytes: fair * MIB,
        },
    )
}

fn memory() -> impl Strategy<Value = Memory> {
    let swap = prop_oneof![2 => Just(0.0), 1 => 0.0..2000.0_f64];
    (256.0..4096.0_f64, swap, 0.0..300.0_f64, 0.0..=1.0_f64, 0.0..100.0_f64).prop_map(
        |(total, swap, held, anon, kept_free)| Memory {
            total_bytes: total * MIB,
            swap_free_bytes: swap * MIB,
            outside_unreclaimable_bytes: held * MIB,
            outside_anon_bytes: held * anon * MIB,
            kept_free_bytes: kept_free * MIB,
        },
    )
}

/// What is promised of a need.
fn promised(need: &Need) -> f64 {
    need.guarantee_bytes.min(need.wanted_bytes)
}

/// What cannot be reclaimed where so much is protected, growth included: counted anew, one tenant
/// after the other. Where `most` is given, what a tenant holds counts up to that.
fn kept(memory: &Memory, needs: &[Need], bytes: &[f64], most: Option<fn(&Need) -> f64>) -> f64 {
    let anon: f64 =
        needs.iter().map(|need| need.anon_bytes).sum::<f64>() + memory.outside_anon_bytes;
    let swappable = if anon > 0.0 { (memory.swap_free_bytes / anon).min(1.0) } else { 0.0 };
    let mut sum = memory.outside_unreclaimable_bytes - swappable * memory.outside_anon_bytes;
    for (need, protected) in needs.iter().zip(bytes) {
        let grown = need.unreclaimable_bytes + 2.0 * need.growth_bytes;
        let held = grown.min(need.limit_bytes.max(need.unreclaimable_bytes));
        let held = (held - swappable * need.anon_bytes).max(0.0);
        sum += held.min(most.map_or(f64::INFINITY, |most| most(need))).max(*protected);
    }
    sum
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_protected_leaves_room(memory in memory(), needs in vec(need(), 0..8)) {
        let protections = protect::protect(&memory, &needs);
        let room = memory.total_bytes - protect::margin(memory.total_bytes) - memory.kept_free_bytes;
        let promises: Vec<f64> = needs.iter().map(promised).collect();
        let least = kept(&memory, &needs, &promises, None);
        let sum = kept(&memory, &needs, &protections.bytes, None);
        prop_assert!(sum <= room.max(least) + 1.0, "{sum} of {room}, {least} for guarantees");
        // Nor do these take more than is left by what is outside.
        let nothing = vec![0.0; needs.len()];
        let guaranteed: Vec<f64> =
            protections.bytes.iter().zip(&promises).map(|(bytes, most)| bytes.min(*most)).collect();
        let least = kept(&memory, &needs, &nothing, Some(promised));
        let sum = kept(&memory, &needs, &guaranteed, Some(promised));
        prop_assert!(sum <= room.max(least) + 1.0, "{sum} of {room}, {least} without any");
        for (need, bytes) in needs.iter().zip(&protections.bytes) {
            prop_assert!((0.0..=need.wanted_bytes * (1.0 + 1e-12)).contains(bytes), "{bytes} of {need:?}");
        }
    }

    #[test]
    fn no_more_could_be_protected(memory in memory(), needs in vec(need(), 1..8)) {
        let protections = protect::protect(&memory, &needs);
        let Some(shortage) = protections.shortage else {
            let wanted: f64 = needs.iter().map(|need| need.wanted_bytes).sum();
            let sum: f64 = protections.bytes.iter().sum();
            prop_assert!((sum - wanted).abs() <= wanted * 1e-9);
            return Ok(());
        };
        // A thousandth more of what was scaled down, for all of them, would not fit.
        let [guarantee, allocation, lent] = match shortage {
            it if it.breaks_guarantees() => [it.guarantee_ratio + 1e-3, 0.0, 0.0],
            it if it.allocation_ratio < 1.0 => [1.0, it.allocation_ratio + 1e-3, 0.0],
            it => [1.0, 1.0, it.lent_ratio + 1e-3],
        };
        let more: Vec<f64> = needs
            .iter()
            .map(|need| {
                let promised = promised(need);
                let own = need.wanted_bytes.min(need.guarantee_bytes.max(need.fair_bytes));
                promised * guarantee + (own - promised) * allocation + (need.wanted_bytes - own) * lent
            })
            .collect();
        let room = memory.total_bytes - protect::margin(memory.total_bytes) - memory.kept_free_bytes;
        let most: Option<fn(&Need) -> f64> =
            if shortage.breaks_guarantees() { Some(promised) } else { None };
        prop_assert!(kept(&memory, &needs, &more, most) > room, "{shortage:?}");
    }
}

/// The values as they are written: groups are protected by the sum of what is protected below them.
#[test]
fn the_values_written_are_bounded_at_every_level() {
    let policy = util::policy(
        "version: 1\ntenants:\n  g: { tenants: { cache: { guarantee: { memory: 100MiB } }, idle: {} } }\n  hog: {}\n",
    );
    let nodes = tree::flatten(&policy);
    let memory = |bytes: f64| Demand { amount: PerResource([0.0, bytes * MIB]), ..Demand::UNKNOWN };
    let demands = [memory(0.0), memory(600.0), memory(0.0), memory(1500.0)];
    let capacity = PerResource([2.0, 1900.0 * MIB]);
    let mut targets = target::targets(&nodes, &demands, capacity, Allocation::Drf);
    let holds = |bytes: f64| Usage {
        unreclaimable_bytes: Some(bytes * MIB),
        anon_bytes: Some(bytes * MIB),
        ..Usage::default()
    };
    let usages = [None, Some(holds(0.0)), None, Some(holds(1500.0))];
    let host = HostSample {
        memory_total_bytes: 2048 << 20,
        unreclaimable_bytes: Some(1600 << 20),
        anon_bytes: Some(1500 << 20),
        swap_free_bytes: Some(0),
        ..HostSample::default()
    };
    let low = |targets: &[target::Target]| -> Vec<f64> {
        let of = |knobs: &Vec<(Knob, Value)>| match &knobs[knobs.len() - 1] {
            (Knob::MemoryLow, Value::Amount(_, Limit::Finite(bytes))) => {
                (*bytes as f64 / MIB).round()
            }
            other => panic!("{other:?}"),
        };
        target::knobs(&nodes, targets).iter().map(of).collect()
    };
    assert_eq!(low(&targets)[..3], [600.0, 600.0, 0.0]);
    let usages = || usages.iter().map(Option::as_ref);
    let free = AncestorBounds::default();
    let shortage = target::protect(&nodes, usages(), &host, &free, &mut targets);
    assert!(shortage.is_some_and(|shortage| !shortage.breaks_guarantees()));
    // 2048 less 128 of margin, 100 outside and 1500 of the hog's.
    assert_eq!(low(&targets)[..3], [320.0, 320.0, 0.0]);
    let knobs = target::knobs(&nodes, &targets);
    let (knob, value) = &knobs[1][knobs[1].len() - 1];
    let reason = value_reason::reason(*knob, value, &nodes[1], &targets[1]);
    assert!(reason.contains("320MiB of 600MiB"), "{reason}");
    assert!(nodes[1].guarantee[MEMORY].is_some());
    // A host that tells nothing of its memory bounds nothing.
    let mute = HostSample { unreclaimable_bytes: None, ..host };
    let mut targets = target::targets(&nodes, &demands, capacity, Allocation::Drf);
    assert_eq!(target::protect(&nodes, usages(), &mute, &free, &mut targets), None);
    assert_eq!(low(&targets)[1], 600.0);
    // What the outside holds is not charged to a limit above the tenants: 2000 less 125 of margin
    // and 1500.
    let roomy = HostSample { memory_total_bytes: 64 << 30, ..host };
    let slice = AncestorBounds { limit: PerResource([None, Some(2000.0 * MIB)]), ..free };
    assert!(target::protect(&nodes, usages(), &roomy, &slice, &mut targets).is_some());
    assert_eq!(low(&targets)[1], 375.0);
    assert_eq!(target::protect(&nodes, usages(), &roomy, &free, &mut targets), None);
    assert_eq!(low(&targets)[1], 600.0);
}
