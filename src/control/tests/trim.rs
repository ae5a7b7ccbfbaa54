//! Properties of the trim, with models of kernels that err.

#![allow(clippy::unwrap_used, reason = "a test asserts; it need not handle")]

use proptest::prelude::*;
use tenantd_control::share::trim::{
    GAIN, REACH, STEP, Sibling, Trim, WINDOW, Window, errors, factors, largest_lag,
};

/// Backlogged siblings that are entitled by their open-loop weights.
struct Scene {
    open: Vec<f64>,
    trims: Vec<Trim>,
    held: Vec<f64>,
    nr_moves: u32,
}

impl Scene {
    fn new(open: &[f64]) -> Scene {
        let trims = vec![Trim::default(); open.len()];
        Scene { open: open.to_vec(), trims, held: open.to_vec(), nr_moves: 0 }
    }

    fn siblings(&self) -> Vec<Sibling> {
        let sibling = |(trim, open): (&Trim, &f64)| Sibling {
            open: *open,
            factor: trim.factor.unwrap_or(1.0),
            held: trim.held.unwrap_or(*open),
            window: trim.window,
        };
        self.trims.iter().zip(&self.open).map(sibling).collect()
    }

    /// A second in which each sibling used this part of a CPU.
    fn second(&mut self, used: &[f64]) {
        let all: f64 = self.open.iter().sum();
        for (index, trim) in self.trims.iter_mut().enumerate() {
            trim.note(self.held[index], 1.0, self.open[index] / all, used[index]);
        }
        let siblings = self.siblings();
        if siblings[0].window.seconds < WINDOW.as_secs_f64() {
            return;
        }
        let Some(late) = largest_lag(&siblings) else { return };
        let errors = errors(&siblings).unwrap();
        let is_futile = self.trims[late].is_futile(errors[late]);
        let factors = factors(&siblings).filter(|_| !is_futile);
        let before = self.held.clone();
        for (index, trim) in self.trims.iter_mut().enumerate() {
            match &factors {
                Some(factors) => trim.take(factors[index], self.open[index], errors[index]),
                None if is_futile => trim.give_up(),
                None => {}
            }
            trim.restart();
            self.held[index] = trim.weight(self.open[index], 0.05).unwrap_or(self.open[index]);
        }
        self.nr_moves += u32::from(before != self.held);
    }

    /// Parts from a kernel that divides by weight times bias.
    fn biased(&self, bias: &[f64]) -> Vec<f64> {
        let pull: Vec<f64> = self.held.iter().zip(bias).map(|(held, bias)| held * bias).collect();
        let all: f64 = pull.iter().sum();
        pull.iter().map(|pull| pull / all).collect()
    }

    fn seconds(&mut self, nr: u32, bias: &[f64]) {
        for _ in 0..nr {
            let used = self.biased(bias);
            self.second(&used);
        }
    }

    fn error(&self, used: &[f64]) -> f64 {
        let all: f64 = self.open.iter().sum();
        let errors = self.open.iter().zip(used).map(|(open, used)| (open / all - used).abs());
        errors.fold(0.0, f64::max)
    }
}

fn scaled(parts: &[f64]) -> Vec<f64> {
    let scale = 100.0 * parts.len() as f64 / parts.iter().sum::<f64>();
    parts.iter().map(|part| part * scale).collect()
}

proptest! {
    #[test]
    fn a_bias_is_trimmed_away(
        siblings in proptest::collection::vec((1.0..8.0_f64, 0.65..1.5_f64), 2..8)
    ) {
        let (parts, bias): (Vec<f64>, Vec<f64>) = siblings.into_iter().unzip();
        let mut scene = Scene::new(&scaled(&parts));
        scene.seconds(60, &bias);
        let (error, moves) = (scene.error(&scene.biased(&bias)), scene.nr_moves);
        prop_assert!(error <= 0.01, "{error} after {moves} moves");
        prop_assert!(moves <= 12, "{moves}");
        scene.seconds(60, &bias);
        prop_assert!(scene.nr_moves <= moves + 1);
    }

    #[test]
    fn trimmed_weights_stay_within_their_bounds(
        siblings in proptest::collection::vec(
            (1.0..1000.0_f64, 0.5..2.0_f64, 0.0..5.0_f64, 0.01..5.0_f64), 2..8
        )
    ) {
        let sibling = |&(open, ratio, used, entitled): &(f64, f64, f64, f64)| {
            let window = Window { seconds: 2.0, entitled, used };
            Sibling { open, factor: 1.0, held: open * ratio, window }
        };
        let siblings: Vec<Sibling> = siblings.iter().map(sibling).collect();
        if let Some(factors) = factors(&siblings) {
            let all: f64 = siblings.iter().map(|it| it.open).sum();
            let sum: f64 = siblings.iter().zip(&factors).map(|(it, factor)| it.open * factor).sum();
            prop_assert!((sum - all).abs() < 1e-9 * all, "{sum} of {all}");
            for factor in factors {
                prop_assert!((1.0 / REACH..=REACH).contains(&factor), "{factor}");
            }
        }
    }

    /// Seconds that are off by up to 3 % of all and even out.
    #[test]
    fn noise_moves_nothing(
        noise in 0.0..0.03_f64, parts in proptest::collection::vec(1.0..8.0_f64, 2..6)
    ) {
        let mut scene = Scene::new(&scaled(&parts));
        for second in 0..100 {
            let mut used = scene.biased(&vec![1.0; parts.len()]);
            let moved = if second % 2 == 0 { noise } else { -noise };
            (used[0], used[1]) = (used[0] + moved, used[1] - moved);
            scene.second(&used);
        }
        prop_assert_eq!(scene.nr_moves, 0);
    }
}

#[test]
fn nothing_moves_without_an_error_or_a_sibling() {
    let two = |used: [f64; 2]| {
        let window = |used| Window { seconds: 4.0, entitled: 4.0, used };
        used.map(|used| Sibling { open: 100.0, factor: 1.0, held: 100.0, window: window(used) })
    };
    assert_eq!(largest_lag(&two([3.96, 4.04])), None);
    assert_eq!(largest_lag(&two([0.0, 0.0])), None);
    assert_eq!(largest_lag(&two([3.0, 5.0])[..1]), None);
    assert!(largest_lag(&two([3.0, 5.0])).is_some());
    let factors = factors(&two([3.6, 4.4])).unwrap();
    let expected = (4.4 / 3.6_f64).powf(GAIN);
    assert!((factors[0] / factors[1] - expected).abs() < 1e-9, "{factors:?}");
}

#[test]
fn the_reach_is_a_factor_of_two_and_a_half_each_way() {
    for bias in [0.45, 2.2] {
        let mut scene = Scene::new(&[100.0; 4]);
        let bias = [bias, 1.0, 1.0, 1.0];
        scene.seconds(60, &bias);
        let error = scene.error(&scene.biased(&bias));
        assert!(error <= 0.01, "{error} with {:?}", scene.held);
    }
}

#[test]
fn an_error_that_stays_is_left() {
    let mut scene = Scene::new(&[100.0, 200.0, 100.0]);
    let (mut furthest, mut seconds_trimmed) = (1.0_f64, 0);
    for _ in 0..200 {
        scene.second(&[0.15, 0.6, 0.25]);
        furthest = furthest.max(scene.held[0] / scene.open[0]);
        seconds_trimmed += u32::from(scene.held != scene.open);
    }
    assert!(furthest > STEP, "it was not tried: {furthest}");
    assert!(seconds_trimmed < 50, "{seconds_trimmed}");
    // The kernel follows again.
    let bias = [0.7, 1.0, 1.2];
    scene.seconds(60, &bias);
    assert!(scene.error(&scene.biased(&bias)) <= 0.01, "{:?}", scene.held);
}

#[test]
fn a_useless_trim_is_tried_again_after_a_minute() {
    let mut scene = Scene::new(&[100.0, 100.0]);
    let is_trimmed = |scene: &mut Scene| {
        scene.second(&[0.3, 0.7]);
        scene.held != scene.open
    };
    let tries = (0..300).filter(|_| is_trimmed(&mut scene)).count();
    assert!((10..=60).contains(&tries), "{tries} of 300 seconds");
    assert!(scene.nr_moves <= 40, "{}", scene.nr_moves);
    let nr_moves = scene.nr_moves;
    scene.seconds(30, &[0.8, 1.0]);
    assert!(scene.nr_moves > nr_moves);
}

#[test]
fn another_entitlement_makes_the_trim_void() {
    let mut trim = Trim::default();
    trim.note(100.0, 1.0, 9.0, 9.0);
    assert_eq!(trim.window.seconds, 0.0, "the first interval is left out");
    trim.note(100.0, 10.0, 2.0, 1.8);
    assert!(!trim.has_moved(9.0), "it is not trimmed");
    trim.take(1.1, 100.0, 0.1);
    assert!(!trim.has_moved(2.0) && !trim.has_moved(2.39) && !trim.has_moved(1.7));
    assert!(trim.has_moved(2.41) && trim.has_moved(1.66) && trim.has_moved(0.0));
    assert_eq!(trim.weight(104.0, 0.05), Some(110.0));
    assert_eq!(trim.weight(110.0, 0.05), Some(121.0));
    trim.note(100.0, 1.0, 3.0, 3.0);
    assert_eq!(trim.window.seconds, 0.0, "the entitlement was another one");
    trim.note(100.0, 1.0, 3.0, 3.0);
    assert_eq!(trim.window.seconds, 1.0, "a new window");
    trim.note(110.0, 1.0, 3.0, 3.0);
    assert_eq!(trim.window.seconds, 0.0, "another weight");
}

/// An error beyond the reach is reduced as far as the bounds allow, and the weights rest there.
#[test]
fn a_trim_that_helps_in_part_stays() {
    let mut scene = Scene::new(&[100.0; 3]);
    let bias = [0.15, 1.0, 1.0];
    let before = scene.error(&scene.biased(&bias));
    scene.seconds(60, &bias);
    let (held, nr_moves) = (scene.held.clone(), scene.nr_moves);
    assert!(scene.error(&scene.biased(&bias)) < 0.5 * before, "{held:?}");
    scene.seconds(200, &bias);
    assert_eq!((&scene.held, scene.nr_moves), (&held, nr_moves));
}
