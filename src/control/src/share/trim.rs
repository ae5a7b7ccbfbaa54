//! Weights corrected by the CPU time that they bring about (`control: { trim: true }`).
//!
//! **Problem.** The kernel spreads the weight of a cgroup over the CPUs of its threads, and balances CPUs by load
//! averages. Threads stay on their CPU while the averages look even, and a heavy sibling that mostly sleeps counts in
//! them with its weight. So busy siblings get shares that differ from their weights by a fifth or more, for as long as
//! the load lasts. The weights are right, and their effect is not.
//!
//! **Idea.** A higher weight gives a sibling more of the CPUs that its threads are on, and it makes the kernel move
//! threads. So the weights of siblings that wait for CPU time follow the ratio of due to used time.
//!
//! **Terms.**
//!
//! | term | meaning |
//! |---|---|
//! | open-loop weight | weight from entitlements alone ([`super::weight`], [`super::govern`]) |
//! | factor | trimmed weight over the open-loop weight, within 1/[`REACH`] and [`REACH`] |
//! | backlogged | the sibling wants more than it is allocated, and its tasks wait |
//! | window | time in which neither the weight nor the entitlement of a sibling changed |
//! | due | its part of the entitlements of all backlogged siblings |
//! | used | its part of the CPU time that they used together |
//! | lag | (due − used) × length of the window, in seconds of all that they used, or of one CPU if that is more |
//!
//! **Rule.** After [`WINDOW`] a set of siblings is judged at each tick. While every lag is within [`LAG_MAX_SEC`],
//! nothing moves. Otherwise each weight in its file is multiplied by `(due / used)`^[`GAIN`], at most by [`STEP`] up or
//! down, and a new window begins. Then all factors are scaled so that the weights keep their sum.
//!
//! The lag is a dead band on the *error*, not on the weight: an error of 5 % is corrected after a second, one of 1 %
//! after five, and noise, which has no lag, moves nothing. That keeps the number of writes low, while a dead band on
//! weights would hide small corrections until they are too large.
//!
//! The sum of the weights stays, so foreign siblings keep their place. Siblings that are not backlogged keep their
//! open-loop weight: it costs their siblings nothing, and gives them their share as soon as they wake. A lower weight for
//! sleepers would make the kernel err less, and would starve them when they wake.
//!
//! **Frozen** is a set of siblings while one of them is throttled, and a sibling while it is satisfied, has CPUs of its
//! own or jobs in [turns](super::turns): other bounds than the weight decide there. The interval in which a sibling begins
//! to wait, or its entitlement changes, counts for no window.
//!
//! **No wind-up.** A move starts from the weight in the file, so moves that were not written do not add up. Weights that do
//! not reduce the error are of no use: if a lag stays at what it was without the trim for [`TRIES`] judgements, all siblings
//! return to their open-loop weights. The next try comes after [`PAUSE`] more judgements, or when the error changes.
//!
//! **Forgetting.** The error belongs to a load. If the entitlement of a trimmed sibling changes by more than
//! [`MOVED_RATIO`], or its demand is met, all siblings return to their open-loop weights. So they do without the key.
//! Trimmed weights are whole numbers and written exactly, and so is the first weight after a trim.
//!
//! **Properties** (`tests/trim.rs`): `a_bias_is_trimmed_away`, `trimmed_weights_stay_within_their_bounds`,
//! `noise_moves_nothing`, `an_error_that_stays_is_left`; with kernels that err, `tests/agent/trim.rs`.
//! `control_loop/trimming.rs` applies the rule.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Shortest window: a tick of a second, which may come a little early.
pub const WINDOW: Duration = Duration::from_millis(900);
/// A longer window loses half of its time.
const WINDOW_MAX_SEC: f64 = 10.0;
/// Largest factor, and inverse of the smallest.
pub const REACH: f64 = 2.5;
/// Part of an error, as a logarithm, that one move corrects: threads that change their CPU correct more of it.
pub const GAIN: f64 = 0.85;
/// Largest change of a weight in one move.
pub const STEP: f64 = 1.3;
/// Lag that is left, in seconds of the CPU time of all.
const LAG_MAX_SEC: f64 = 0.05;
/// The same for a small sibling, in seconds of its own time: a quarter of its share after eight seconds.
const LAG_MAX_OWN_SEC: f64 = 2.0;
/// Relative change from which an entitlement counts as another one.
const MOVED_RATIO: f64 = 0.2;
/// Judgements without effect until the trim is given up: the moves between them reach the bounds of the factors.
const TRIES: u32 = 5;
/// Judgements after that until it is tried again: a minute at the shortest.
const PAUSE: u32 = 60;
/// The trim has an effect if it leaves at most this part of the error.
const EFFECT_RATIO: f64 = 0.9;
/// Halvings in the search for a scale: the digits of a double.
const HALVINGS: u32 = 53;

/// Trim of one cgroup; absent if it is neither trimmed nor watched.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trim {
    /// Its factor; `None` if it has its open-loop weight.
    pub factor: Option<f64>,
    /// True if its file needs an exact weight: it is trimmed, or was until now.
    pub is_exact: bool,
    /// Its window.
    pub window: Window,
    /// Weight in its file during the window.
    pub held: Option<f64>,
    /// Open-loop weight to which the factor applies.
    base: f64,
    /// CPUs that it was entitled to when it was trimmed.
    entitled_cores: f64,
    /// Logarithm of due over used, without the trim.
    error: f64,
    /// Judgements in a row without effect on that.
    nr_futile: u32,
}

/// Sums over a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// Length.
    pub seconds: f64,
    /// CPU seconds that its sibling was entitled to.
    pub entitled: f64,
    /// CPU seconds that its sibling used.
    pub used: f64,
}

/// A backlogged sibling at the end of a window.
#[derive(Clone, Copy, Debug)]
pub struct Sibling {
    /// Its open-loop weight, positive.
    pub open: f64,
    /// Its factor so far; 1 if it has none.
    pub factor: f64,
    /// Weight in its file.
    pub held: f64,
    /// Its window.
    pub window: Window,
}

impl Window {
    /// Adds an interval. One that another entitlement follows ends the window, and is not part of the next.
    fn add(&mut self, seconds: f64, entitled_cores: f64, used_cores: f64) {
        if self.seconds > 0.0 && has_moved(self.entitled / self.seconds, entitled_cores) {
            *self = Window::default();
            return;
        }
        let kept = if self.seconds >= WINDOW_MAX_SEC { 0.5 } else { 1.0 };
        self.seconds = kept * self.seconds + seconds;
        self.entitled = kept * self.entitled + seconds * entitled_cores;
        self.used = kept * self.used + seconds * used_cores;
    }

    /// CPUs that its sibling was entitled to, and those that it used, on average.
    fn cores(&self) -> [f64; 2] {
        [self.entitled / self.seconds, self.used / self.seconds]
    }
}

impl Trim {
    /// Adds an interval in which the file held the weight `held`. The first one with this weight is left out: the kernel
    /// has yet to move threads. So is the first one since its sibling takes part, which may have begun within it.
    pub fn note(&mut self, held: f64, seconds: f64, entitled_cores: f64, used_cores: f64) {
        if self.held.replace(held) == Some(held) {
            self.window.add(seconds, entitled_cores, used_cores);
        } else {
            self.restart();
        }
    }

    /// Begins a new window.
    pub fn restart(&mut self) {
        self.window = Window::default();
    }

    /// Takes no part until the next interval.
    pub fn rest(&mut self) {
        self.restart();
        self.held = None;
    }

    /// Returns to the open-loop weight, for as long as the error stays.
    pub fn give_up(&mut self) {
        self.factor = None;
        self.restart();
    }

    /// Returns to the open-loop weight, without memory of the error.
    pub fn forget(&mut self) {
        (self.factor, self.error, self.nr_futile) = (None, 0.0, 0);
    }

    /// True if it is trimmed for another entitlement.
    pub fn has_moved(&self, entitled_cores: f64) -> bool {
        self.factor.is_some() && has_moved(self.entitled_cores, entitled_cores)
    }

    /// Compares the error to correct with the one without the trim. Returns true if the trim is of no use.
    pub fn is_futile(&mut self, error: f64) -> bool {
        let is_paused = (TRIES..TRIES + PAUSE).contains(&self.nr_futile);
        let ratio = error / self.error;
        // While it is given up, the error changes only by itself.
        let is_same = ratio > EFFECT_RATIO && !(is_paused && ratio > 1.0 / EFFECT_RATIO);
        let stays = is_same && self.error != 0.0 && (is_paused || self.factor.is_some());
        self.nr_futile = if stays { self.nr_futile + 1 } else { 0 };
        self.nr_futile >= TRIES
    }

    /// Takes a new factor of its open-loop weight, because of this error.
    pub fn take(&mut self, factor: f64, open: f64, error: f64) {
        if self.factor.is_none() {
            self.error = error;
        }
        (self.factor, self.base, self.is_exact) = (Some(factor), open, true);
        self.entitled_cores = self.window.cores()[0];
    }

    /// Its trimmed weight. The base follows the open-loop weight if that leaves the dead band.
    pub fn weight(&mut self, open: f64, band_ratio: f64) -> Option<f64> {
        let factor = self.factor?;
        if (open - self.base).abs() > band_ratio * open {
            self.base = open;
        }
        Some((self.base * factor).round())
    }
}

/// Index of the sibling with the largest lag beyond the one that is left to each.
pub fn largest_lag(siblings: &[Sibling]) -> Option<usize> {
    let cpus: f64 = siblings.iter().map(|it| it.window.cores()[1]).sum();
    let lag = |(index, [due, used]): (usize, [f64; 2])| {
        // The same noise is a larger part of less than a CPU.
        let lag_sec = (due - used).abs() * siblings[index].window.seconds * cpus.min(1.0);
        (index, lag_sec / LAG_MAX_SEC.min(LAG_MAX_OWN_SEC * due))
    };
    let lags = parts(siblings)?.into_iter().enumerate().map(lag).filter(|(_, over)| *over > 1.0);
    lags.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(index, _)| index)
}

/// Logarithm of due over used CPU time of each sibling.
pub fn errors(siblings: &[Sibling]) -> Option<Vec<f64>> {
    let error = |[due, used]: [f64; 2]| (due / used.max(f64::MIN_POSITIVE)).ln();
    Some(parts(siblings)?.into_iter().map(error).collect())
}

/// Factors that bring siblings nearer to their due; `None` if no weight moves.
pub fn factors(siblings: &[Sibling]) -> Option<Vec<f64>> {
    let moved = |(it, error): (&Sibling, f64)| {
        it.held / it.open * (GAIN * error).exp().clamp(1.0 / STEP, STEP)
    };
    let moved: Vec<f64> = siblings.iter().zip(errors(siblings)?).map(moved).collect();
    let factors = in_sum(siblings, &moved);
    let moves = |(it, factor): (&Sibling, &f64)| (it.open * factor).round() != it.held.round();
    siblings.iter().zip(&factors).any(moves).then_some(factors)
}

fn has_moved(then_cores: f64, now_cores: f64) -> bool {
    let (larger, smaller) = (then_cores.max(now_cores), then_cores.min(now_cores));
    larger > (1.0 + MOVED_RATIO) * smaller
}

/// Due and used part of each sibling.
fn parts(siblings: &[Sibling]) -> Option<Vec<[f64; 2]>> {
    let sum = |index: usize| siblings.iter().map(|it| it.window.cores()[index]).sum::<f64>();
    let (entitled, used) = (sum(0), sum(1));
    if siblings.len() < 2 || entitled <= 0.0 || used <= 0.0 {
        return None;
    }
    let part = |it: &Sibling| [it.window.cores()[0] / entitled, it.window.cores()[1] / used];
    Some(siblings.iter().map(part).collect())
}

/// These factors within their reach, scaled so that the weights keep their sum.
fn in_sum(siblings: &[Sibling], factors: &[f64]) -> Vec<f64> {
    let bounded = |factor: f64| factor.clamp(1.0 / REACH, REACH);
    let all: f64 = siblings.iter().map(|it| it.open * it.factor).sum();
    let sum = |scale: f64| -> f64 {
        siblings.iter().zip(factors).map(|(it, factor)| it.open * bounded(scale * factor)).sum()
    };
    let largest = factors.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let smallest = factors.iter().copied().fold(f64::INFINITY, f64::min).max(f64::MIN_POSITIVE);
    // At the first scale all are at their lower bounds, at the second one at their upper bounds.
    let (mut low, mut high) = (1.0 / REACH / largest, REACH / smallest);
    for _ in 0..HALVINGS {
        let middle = low + (high - low) / 2.0;
        *(if sum(middle) < all { &mut low } else { &mut high }) = middle;
    }
    factors.iter().map(|factor| bounded(low * factor)).collect()
}
