//! The band: bounds at once, everything else with patience.

use std::time::Duration;

use proptest::prelude::*;
use tenantd_dop::band::{Band, DWELL, Observation, Supply};

fn at(second: u64) -> Duration {
    Duration::from_secs(second)
}

/// A busy tenant that is entitled to `target`.
fn busy(target: u32) -> Observation {
    Observation { target, used_cpus: 1e9, pressed: true, supply: Supply::Enough, allowed: 1..=64 }
}

/// An unpressed tenant that uses so many CPUs.
fn calm(target: u32, used_cpus: f64) -> Observation {
    Observation { used_cpus, pressed: false, ..busy(target) }
}

/// The second in which the width changes, and the new width, if it does within `horizon` ticks of a second.
fn first_change(band: &mut Band, seen: &Observation, horizon: u64) -> Option<(u64, u32)> {
    let before = band.dop();
    (1..=horizon).find_map(|second| {
        let dop = band.step(seen, at(second));
        (dop != before).then_some((second, dop))
    })
}

#[test]
fn a_pressed_tenant_grows_after_two_ticks_straight_to_its_target() {
    assert_eq!(first_change(&mut Band::new(4), &busy(16), 60), Some((2, 16)));
}

#[test]
fn growing_is_quicker_than_shrinking() {
    let up = first_change(&mut Band::new(4), &calm(8, 3.9), 60);
    let down = first_change(&mut Band::new(8), &calm(4, 3.0), 60);
    assert_eq!((up, down), (Some((3, 8)), Some((5, 4))));
}

#[test]
fn utilisation_within_the_band_changes_nothing() {
    // 0.75 of 8: the target differs, but there is no hurry in either direction.
    for target in [6, 10] {
        assert_eq!(first_change(&mut Band::new(8), &calm(target, 6.0), 30), None, "{target}");
    }
    // It lasts: one change, to where it has been all along.
    let (second, dop) = first_change(&mut Band::new(8), &calm(6, 6.0), 600).unwrap();
    assert!((31..=120).contains(&second), "{second}");
    assert_eq!(dop, 6);
}

#[test]
fn a_persistent_error_of_a_tenth_is_corrected_within_minutes() {
    let (second, dop) = first_change(&mut Band::new(20), &calm(22, 16.0), 600).unwrap();
    assert!((100..=200).contains(&second), "{second}");
    assert_eq!(dop, 22);
}

#[test]
fn what_others_are_entitled_to_is_yielded_whatever_the_utilisation() {
    let short = Observation { supply: Supply::Short, ..busy(4) };
    assert_eq!(first_change(&mut Band::new(8), &short, 60), Some((4, 4)));
    // Nobody goes short: a busy tenant keeps the width for a while.
    assert!(first_change(&mut Band::new(8), &busy(4), 12).is_none());
}

#[test]
fn a_rushed_change_reverts_after_the_dwell_time_at_any_tick_length() {
    for tick in [Duration::from_millis(100), Duration::from_secs(1), Duration::from_secs(5)] {
        let mut band = Band::new(4);
        let short = Observation { supply: Supply::Short, ..busy(4) };
        let grown = (1..).find(|&n| band.step(&busy(8), tick * n) == 8).unwrap();
        band.hurry(tick * grown);
        let yielded = (grown + 1..).find(|&n| band.step(&short, tick * n) == 4).unwrap();
        assert_eq!(tick * (yielded - grown), DWELL, "ticks of {tick:?}");
    }
}

#[test]
fn after_a_change_the_width_is_stable() {
    let mut band = Band::new(4);
    assert_eq!(first_change(&mut band, &busy(16), 60), Some((2, 16)));
    let low = calm(2, 0.5);
    let changed = (3..60).find(|second| band.step(&low, at(*second)) != 16);
    assert_eq!(changed, Some(12));
    assert_eq!(band.changed(), Some(at(12)));
}

#[test]
fn frequent_changes_wait_longer() {
    let mut band = Band::new(4);
    let mut second = 0;
    let mut waits = Vec::new();
    for round in 0..8 {
        let seen = if round % 2 == 0 { busy(16) } else { calm(4, 1.0) };
        let before = band.dop();
        let start = second;
        while band.dop() == before {
            second += 1;
            band.step(&seen, at(second));
        }
        waits.push(second - start);
    }
    assert!(waits[7] > 2 * waits[1], "{waits:?}");
    assert!(waits.iter().all(|wait| *wait <= 60), "{waits:?}");
}

#[test]
fn a_policy_change_takes_effect_within_the_dwell_time() {
    let mut band = Band::new(4);
    band.step(&busy(16), at(1));
    assert_eq!(band.step(&busy(16), at(2)), 16);
    let manual = Observation { allowed: 6..=6, ..busy(6) };
    assert_eq!(band.step(&manual, at(3)), 6);
}

#[test]
fn a_clock_that_stops_or_steps_back_is_harmless() {
    let mut band = Band::new(4);
    for second in [5, 5, 4, 0] {
        assert!((1..=64).contains(&band.step(&busy(16), at(second))));
    }
}

fn any_observation() -> impl Strategy<Value = Observation> {
    (1..64_u32, 0.0..64.0_f64, any::<bool>(), any::<bool>(), 1..20_u32, 0..64_u32).prop_map(
        |(target, used_cpus, pressed, short, low, more)| Observation {
            target,
            used_cpus,
            pressed,
            supply: if short { Supply::Short } else { Supply::Enough },
            // Mostly wide open, now and then tight.
            allowed: if more % 8 == 0 { low..=low + more / 8 } else { 1..=64 },
        },
    )
}

proptest! {
    #[test]
    fn the_width_is_within_its_bounds_and_stable(
        start in 1..64_u32,
        ticks in proptest::collection::vec((any_observation(), 200..3000_u64), 1..200),
    ) {
        let mut band = Band::new(start);
        let mut now = Duration::ZERO;
        for (seen, millis) in ticks {
            now += Duration::from_millis(millis);
            let (before, changed) = (band.dop(), band.changed());
            let dop = band.step(&seen, now);
            prop_assert!(seen.allowed.contains(&dop));
            if dop != before && seen.allowed.contains(&before) {
                prop_assert!(changed.is_none_or(|last| now - last >= DWELL));
                prop_assert_eq!(band.changed(), Some(now));
            }
        }
    }

    #[test]
    fn a_steady_target_is_reached_and_then_kept(
        start in 1..64_u32,
        target in 1..64_u32,
        pressed in any::<bool>(),
    ) {
        let mut band = Band::new(start);
        let mut changes = 0;
        let mut last = start;
        for second in 1..2000 {
            let used_cpus = f64::from(target.min(band.dop())) * 0.85;
            let seen = Observation { pressed, used_cpus, ..busy(target) };
            let dop = band.step(&seen, at(second));
            changes += u32::from(dop != last);
            last = dop;
        }
        // The slow sum forgives what is hardly more than rounding.
        let slack = (f64::from(target) * 0.04) as u32;
        prop_assert!(last.abs_diff(target) <= slack, "{} for {}", last, target);
        prop_assert!(changes <= 2, "{} changes", changes);
    }

    #[test]
    fn noise_within_the_band_moves_nothing(
        dop in 8..64_u32,
        noise in proptest::collection::vec(-1.0..1.0_f64, 600),
    ) {
        let mut band = Band::new(dop);
        for (second, noise) in noise.iter().enumerate() {
            let width = f64::from(dop);
            let target = (width * (1.0 + 0.1 * noise)).round() as u32;
            let seen = calm(target, width * (0.75 + 0.1 * noise));
            prop_assert_eq!(band.step(&seen, at(second as u64 + 1)), dop);
        }
    }
}
