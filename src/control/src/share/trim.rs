//! Weights that are trimmed by what they bring about (`control: { trim: true }`).
//!
//! **Problem.** Weights divide CPU time as the kernel spreads them over CPUs and threads, and it errs by itself: with few
//! runnable threads for each CPU, or weights that are far apart, siblings that all want more get parts that differ from
//! their weights, for as long as the load lasts. What was decided is right, and what comes of it is not.
//!
//! **Terms.** The *open-loop* weight of a cgroup is what follows from entitlements alone ([`super::weight`],
//! [`super::govern`]). Its *factor* is its trimmed weight over that. A sibling is *backlogged* while it wants more than it
//! is allocated and its tasks wait.
//!
//! **Rule.** In a window of [`WINDOW`], siblings take part that were backlogged in all of it, while none of their siblings
//! was throttled, none of them had a set of CPUs of its own, and their files held what was wanted. Where some part of what
//! they used together is more than [`ERROR_MIN`] away from its part of what they were entitled to together, the weight of
//! each is moved by the square root of entitled over used: half of the error, as a logarithm. The sum of weights
//! stays what it is without the trim, so siblings of others keep their place, and no factor is further from 1 than
//! [`REACH`]. Nothing moves otherwise.
//!
//! **Stillness.** A trimmed weight is a whole number beside an open-loop weight that is held within the dead band of
//! [`crate::write::plan`]: it changes where a window shows an error, or where the open-loop weight does. It is written exactly,
//! because the dead band would hide most of it; one that was trimmed is so until its file holds the open-loop weight again.
//!
//! **Forgetting.** The error depends on the load. Where the entitlement of a trimmed sibling is more than [`REACH`] away
//! from what it was, all siblings are back at their open-loop weights. So they are where the policy no longer says `trim`.
//!
//! **Properties** (tests below, and `tests/agent/trim.rs` with a kernel that errs): the part of each comes within 2 % of its
//! entitlement where its factor can reach that, without passing it (`a_bias_is_trimmed_away`); weights stay within their
//! bounds and keep their sum (`trimmed_weights_stay_within_their_bounds`); nothing is written once the parts are right
//! (`it_comes_to_rest`); all is given back (`a_trim_is_given_back`). `control_loop/trimming.rs` applies it.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long siblings are watched before their weights move.
pub const WINDOW: Duration = Duration::from_secs(10);
/// How far a factor is from 1 at most, and how far an entitlement may move before its trim is forgotten.
pub const REACH: f64 = 0.2;
/// A smaller error is left: half of what the trim is to reach.
pub const ERROR_MIN: f64 = 0.01;
/// Halvings in the search for a scale: as many as a double has digits.
const HALVINGS: u32 = 53;

/// What is known of the trim of one cgroup. There is none where the policy has no trim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trim {
    /// Its factor; `None` where it has its open-loop weight.
    pub factor: Option<f64>,
    /// The open-loop weight that this is a factor of.
    pub base: f64,
    /// CPUs that it was entitled to when it was trimmed.
    pub entitled_cores: f64,
    /// Whether its file shall hold the weight without a dead band.
    pub is_exact: bool,
    /// What it came to in the present window so far.
    pub window: Share,
    /// What its file held when the window began; `None` where it takes no part.
    pub held: Option<f64>,
}

/// What a sibling was entitled to in a window, and what it used, in CPU seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// The integral of its allocation.
    pub entitled: f64,
    /// The integral of its use.
    pub used: f64,
}

/// One that takes part, at the end of a window.
#[derive(Clone, Copy, Debug)]
pub struct Sibling {
    /// Its open-loop weight, positive.
    pub open: f64,
    /// Its factor so far, 1 where it has none.
    pub factor: f64,
    /// The weight that its file holds.
    pub held: f64,
    /// What it came to.
    pub share: Share,
}

impl Trim {
    /// A window begins, in which the file holds this weight.
    pub fn begin(&mut self, held: Option<f64>) {
        (self.window, self.held) = (Share::default(), held);
    }

    /// Whether what it is entitled to now is not what it was when it was trimmed.
    pub fn has_moved(&self, entitled_cores: f64) -> bool {
        let (then, reach) = (self.entitled_cores, 1.0 + REACH);
        let is_far = entitled_cores > then * reach || entitled_cores * reach < then;
        self.factor.is_some() && is_far
    }

    /// It has a new factor of its open-loop weight, after a window of this length.
    pub fn take(&mut self, factor: f64, open: f64, window: Duration) {
        (self.factor, self.base, self.is_exact) = (Some(factor), open, true);
        self.entitled_cores = self.window.entitled / window.as_secs_f64();
    }

    /// Its weight; the one that it is a factor of follows the open-loop weight beyond this part of it.
    pub fn weight(&mut self, open: f64, band_ratio: f64) -> Option<f64> {
        let factor = self.factor?;
        if (open - self.base).abs() > band_ratio * open {
            self.base = open;
        }
        Some((self.base * factor).round())
    }
}

/// The factors that bring siblings nearer to what they are entitled to; `None` where they are near enough, or nothing
/// can be told.
pub fn factors(siblings: &[Sibling]) -> Option<Vec<f64>> {
    let sum = |of: fn(&Share) -> f64| siblings.iter().map(|it| of(&it.share)).sum::<f64>();
    let (entitled, used) = (sum(|share| share.entitled), sum(|share| share.used));
    if siblings.len() < 2 || entitled <= 0.0 || used <= 0.0 {
        return None;
    }
    let parts = |it: &Sibling| (it.share.entitled / entitled, it.share.used / used);
    let is_near = |it: &Sibling| {
        let (due, got) = parts(it);
        (due - got).abs() <= ERROR_MIN
    };
    if siblings.iter().all(is_near) {
        return None;
    }
    let moved = |it: &Sibling| {
        let (due, got) = parts(it);
        let step = (due / got.max(f64::MIN_POSITIVE)).sqrt();
        it.held / it.open * step.clamp(1.0 / (1.0 + REACH), 1.0 + REACH)
    };
    let moved: Vec<f64> = siblings.iter().map(moved).collect();
    Some(in_sum(siblings, &moved))
}

/// These factors within their reach, scaled so that the weights add up to what they do with the factors so far: those of
/// siblings that take no part stay as they are, and so does the sum of all.
fn in_sum(siblings: &[Sibling], factors: &[f64]) -> Vec<f64> {
    let bounded = |factor: f64| factor.clamp(1.0 - REACH, 1.0 + REACH);
    let all: f64 = siblings.iter().map(|it| it.open * it.factor).sum();
    let sum = |scale: f64| -> f64 {
        siblings.iter().zip(factors).map(|(it, factor)| it.open * bounded(scale * factor)).sum()
    };
    let largest = factors.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let smallest = factors.iter().copied().fold(f64::INFINITY, f64::min).max(f64::MIN_POSITIVE);
    // Where all are at their lower bounds, and where all are at their upper ones.
    let (mut low, mut high) = ((1.0 - REACH) / largest, (1.0 + REACH) / smallest);
    for _ in 0..HALVINGS {
        let middle = low + (high - low) / 2.0;
        match sum(middle) < all {
            true => low = middle,
            false => high = middle,
        }
    }
    factors.iter().map(|factor| bounded(low * factor)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Siblings after a window in which a kernel divides by weight times bias.
    fn window(entitled: &[f64], open: &[f64], held: &[f64], bias: &[f64]) -> Vec<Sibling> {
        let pull: Vec<f64> = held.iter().zip(bias).map(|(held, bias)| held * bias).collect();
        let (all, pulls) = (entitled.iter().sum::<f64>(), pull.iter().sum::<f64>());
        let each = entitled.iter().zip(open).zip(held).zip(pull);
        let sibling = |(((entitled, open), held), pull): (((&f64, &f64), &f64), f64)| {
            let share = Share { entitled: *entitled, used: pull / pulls * all };
            Sibling { open: *open, factor: 1.0, held: *held, share }
        };
        each.map(sibling).collect()
    }

    fn errors(siblings: &[Sibling]) -> Vec<f64> {
        let all: f64 = siblings.iter().map(|it| it.share.entitled).sum();
        siblings.iter().map(|it| (it.share.used - it.share.entitled) / all).collect()
    }

    proptest! {
        #[test]
        fn a_bias_is_trimmed_away(
            siblings in proptest::collection::vec((1.0..8.0_f64, 0.92..1.08_f64), 2..8)
        ) {
            let (entitled, bias): (Vec<f64>, Vec<f64>) = siblings.into_iter().unzip();
            let scale = 100.0 * entitled.len() as f64 / entitled.iter().sum::<f64>();
            let open: Vec<f64> = entitled.iter().map(|it| it * scale).collect();
            let mut held = open.clone();
            let mut before = errors(&window(&entitled, &open, &held, &bias));
            let mut nr_moves = 0;
            while let Some(factors) = factors(&window(&entitled, &open, &held, &bias)) {
                held = open.iter().zip(factors).map(|(open, it)| (open * it).round()).collect();
                let now = errors(&window(&entitled, &open, &held, &bias));
                for (before, now) in before.iter().zip(&now) {
                    // What is passed is the rounding to whole weights at most.
                    prop_assert!(before * now >= 0.0 || now.abs() < ERROR_MIN, "{before} {now}");
                }
                before = now;
                nr_moves += 1;
                prop_assert!(nr_moves < 20, "{before:?}");
            }
            prop_assert!(before.iter().all(|error| error.abs() <= 0.02), "{before:?}");
        }

        #[test]
        fn trimmed_weights_stay_within_their_bounds(
            siblings in proptest::collection::vec(
                (1.0..1000.0_f64, 0.7..1.4_f64, 0.0..5.0_f64, 0.01..5.0_f64), 2..8
            )
        ) {
            let sibling = |&(open, ratio, used, entitled): &(f64, f64, f64, f64)| {
                Sibling { open, factor: 1.0, held: open * ratio, share: Share { entitled, used } }
            };
            let siblings: Vec<Sibling> = siblings.iter().map(sibling).collect();
            if let Some(factors) = factors(&siblings) {
                let all: f64 = siblings.iter().map(|it| it.open).sum();
                let sum: f64 = siblings.iter().zip(&factors).map(|(it, factor)| it.open * factor).sum();
                prop_assert!((sum - all).abs() < 1e-9 * all, "{sum} of {all}");
                for factor in factors {
                    prop_assert!((1.0 - REACH..=1.0 + REACH).contains(&factor), "{factor}");
                }
            }
        }
    }

    #[test]
    fn nothing_moves_without_an_error_or_a_sibling() {
        let two = |used: [f64; 2]| -> Vec<Sibling> {
            let share = |used| Share { entitled: 10.0, used };
            let sibling =
                |used| Sibling { open: 100.0, factor: 1.0, held: 100.0, share: share(used) };
            used.map(sibling).to_vec()
        };
        assert_eq!(factors(&two([9.9, 10.1])), None);
        assert_eq!(factors(&two([0.0, 0.0])), None);
        assert_eq!(factors(&two([8.0, 12.0])[..1]), None);
        let factors = factors(&two([8.0, 12.0])).unwrap();
        assert!((factors[0] / factors[1] - 1.5_f64.sqrt()).abs() < 1e-9, "{factors:?}");
    }

    #[test]
    fn another_entitlement_makes_the_trim_void() {
        let mut trim = Trim { window: Share { entitled: 20.0, used: 18.0 }, ..Trim::default() };
        assert!(!trim.has_moved(9.0), "it is not trimmed");
        trim.take(1.1, 100.0, WINDOW);
        assert!(!trim.has_moved(2.0) && !trim.has_moved(2.39) && !trim.has_moved(1.7));
        assert!(trim.has_moved(2.41) && trim.has_moved(1.66) && trim.has_moved(0.0));
        assert_eq!(trim.weight(104.0, 0.05), Some(110.0));
        assert_eq!(trim.weight(110.0, 0.05), Some(121.0));
    }
}
