//! The band that keeps a tenant's width steady.
//!
//! **Problem.** The best width changes with every sample; a width that follows it would move threads and
//! caches every second and gain nothing. Follow lasting changes, ignore short ones, and widen sooner than
//! narrow.
//!
//! **Terms.** *Present* is the width in force, *target* the best width this tick ([`super::tenant`]),
//! *utilisation* the CPUs used over the present width. *Supply* compares the present widths of all tenants
//! together with the slots.
//!
//! **Rule.** A tick is *outside upwards* when the target lies a fifth (at least 1) above the present width
//! and the tenant is pressed or its utilisation is above 0.9; *outside downwards* when the target lies as
//! far below and the utilisation is below 0.6, or supply is short and others are entitled to the
//! difference. After several ticks outside in one direction (fewer upwards than downwards, fewest when
//! pressed) and at least 10 s after the last change, the width jumps straight to the mean target of those
//! ticks.
//!
//! Inside of the band a small error could last forever; it is worth one change once it has lasted long
//! enough. A two-sided cumulative sum of the relative error ([Page 1954]) detects that: each second adds
//! the error less a slack, and beyond a bound the width changes to the mean target since the sum left zero.
//! A lasting error of 10 % causes a change after two minutes, one of 5 % after seven, noise around zero
//! never.
//!
//! A tenant that changes often has to wait longer: every change adds one to a penalty that halves in ten
//! minutes, and beyond one the ticks needed double with each further one, as does, up to fourfold, the
//! bound of the sum (route flap damping does the same, RFC 2439 §2.2). If threads wait for a CPU, or other
//! tenants are entitled to this one's CPUs, the ticks grow to eight at most. A tenant that sleeps now and
//! then lends its CPUs, and must get them back soon each time it wakes: the bands of the borrowers are
//! hurried ([`Band::hurry`]), and one tick is enough then.
//!
//! Bounds of the policy (manual width, maximum, limit, slots that went away) take effect at once.
//!
//! [Page 1954]: https://doi.org/10.1093/biomet/41.1-2.100
//!
//! **Properties** (`tests/dop/band.rs`): within the bounds always; no two changes within 10 s unless the
//! bounds force one; a steady target is reached and then kept; noise inside of the band moves nothing; and
//! over two hours of a noisy load at most 12 changes an hour at less than 10 % mean error.

use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;
use std::time::Duration;

/// The utilisation that needs no change.
pub const UTILISATION: RangeInclusive<f64> = 0.6..=0.9;
/// The least time between two changes of one tenant.
pub const DWELL: Duration = Duration::from_secs(10);

/// The part of the present width that a target must differ by to count as outside.
pub const MARGIN_RATIO: f64 = 0.2;
const TICKS_UP_PRESSED: f64 = 2.0;
const TICKS_UP: f64 = 3.0;
const TICKS_YIELD: f64 = 4.0;
const TICKS_DOWN: f64 = 5.0;
/// The upper bound of these ticks under the penalty.
const TICKS_MAX: f64 = 60.0;
/// Relative error per second that is ignored as rounding and noise.
const SLACK_RATIO: f64 = 0.03;
/// Relative error times seconds that justifies a change.
const BOUND_SECONDS: f64 = 8.0;
/// Time for which a tenant is hurried; longer than [`DWELL`], which still applies meanwhile.
const HURRY: Duration = Duration::from_secs(15);
const PENALTY_HALF_LIFE_SECONDS: f64 = 600.0;
const PENALTY_FREE: f64 = 1.0;
/// The upper bound of the ticks under the penalty while threads of this tenant wait.
const PATIENCE_PRESSED_MAX: f64 = 4.0;
/// The upper bound of the ticks under the penalty while others wait for their entitlement.
const PATIENCE_YIELD_MAX: f64 = 2.0;
/// The upper factor of the bound of the slow sum under the penalty.
const PATIENCE_SLOW_MAX: f64 = 4.0;

/// The present widths of all tenants against the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supply {
    /// Not above the slots.
    Enough,
    /// Above the slots: some tenant holds CPUs to which another is entitled.
    Short,
}

/// The figures of one tenant in one tick.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// The best width now.
    pub target: u32,
    /// CPUs used, averaged over the tick.
    pub used_cpus: f64,
    /// True if threads wait for a CPU.
    pub pressed: bool,
    /// Present widths against the slots.
    pub supply: Supply,
    /// Widths that the policy allows. Not empty.
    pub allowed: RangeInclusive<u32>,
}

/// The result of the last tick, for reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aim {
    /// The best width then.
    pub target: u32,
    /// The smallest width that the policy allows.
    pub floor: u32,
    /// The largest width that the policy allows.
    pub ceiling: u32,
}

/// The width of one tenant, with the state that decides its changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Band {
    dop: u32,
    changed: Option<Duration>,
    stepped: Option<Duration>,
    outside: Run,
    above: Run,
    below: Run,
    penalty: f64,
    /// End of the hurry.
    hurried: Option<Duration>,
    aim: Option<Aim>,
}

/// Consecutive ticks of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Run {
    /// Ticks, or seconds times error.
    sum: f64,
    /// The targets seen, to take their mean.
    targets: f64,
    ticks: f64,
    upwards: bool,
}

impl Run {
    fn add(&mut self, amount: f64, target: u32) {
        self.sum += amount;
        self.targets += f64::from(target);
        self.ticks += 1.0;
    }

    fn mean_target(&self) -> u32 {
        (self.targets / self.ticks).round() as u32
    }
}

impl Band {
    /// Creates the band of a tenant that is `dop` wide and free to change.
    pub fn new(dop: u32) -> Self {
        Band {
            dop,
            changed: None,
            stepped: None,
            outside: Run::default(),
            above: Run::default(),
            below: Run::default(),
            penalty: 0.0,
            hurried: None,
            aim: None,
        }
    }

    /// Hurries the band because a tenant woke up whose CPUs this one may have borrowed: one tick in which
    /// others get too little is now enough to return them. `now` is the clock of [`Band::step`].
    pub fn hurry(&mut self, now: Duration) {
        self.hurried = Some(now + HURRY);
    }

    /// Present width.
    pub fn dop(&self) -> u32 {
        self.dop
    }

    /// Time of the last change, on the clock of [`Band::step`].
    pub fn changed(&self) -> Option<Duration> {
        self.changed
    }

    /// The result of the last tick with a sample.
    pub fn aim(&self) -> Option<Aim> {
        self.aim
    }

    /// Number of ticks in a row with a target outside of the band.
    pub fn outside_ticks(&self) -> u32 {
        self.outside.ticks as u32
    }

    /// Steps one tick and returns the width from now on. `now` is any monotonic clock.
    ///
    /// Do not step a tick without a sample: apply only the [bounds](Band::obey).
    pub fn step(&mut self, seen: &Observation, now: Duration) -> u32 {
        let elapsed = self.stepped.map_or(Duration::ZERO, |last| now.saturating_sub(last));
        self.stepped = Some(now);
        self.hurried = self.hurried.filter(|until| now < *until);
        self.penalty *= 0.5_f64.powf(elapsed.as_secs_f64() / PENALTY_HALF_LIFE_SECONDS);
        let (low, high) = (*seen.allowed.start(), *seen.allowed.end());
        self.aim = Some(Aim { target: seen.target.clamp(low, high), floor: low, ceiling: high });
        let before = self.dop;
        if self.obey(&seen.allowed, now) != before {
            return self.dop;
        }
        let target = seen.target.clamp(low, high);
        let wanted = self.outside(seen, target).or(self.drifted(target, elapsed));
        let rested = self.changed.is_none_or(|changed| now.saturating_sub(changed) >= DWELL);
        if rested && let Some(width) = wanted {
            let width = width.clamp(low, high);
            if width == self.dop { self.forget() } else { self.change(width, now) }
        }
        self.dop
    }

    /// Applies the bounds of the policy at once.
    pub fn obey(&mut self, allowed: &RangeInclusive<u32>, now: Duration) -> u32 {
        if !allowed.contains(&self.dop) {
            self.change(self.dop.clamp(*allowed.start(), *allowed.end()), now);
        }
        self.dop
    }

    /// Returns the width to jump to, once enough ticks in a row were outside.
    fn outside(&mut self, seen: &Observation, target: u32) -> Option<u32> {
        let present = f64::from(self.dop);
        let margin = (present * MARGIN_RATIO).max(1.0);
        let off = f64::from(target) - present;
        let utilisation = seen.used_cpus / present;
        let upwards = off > 0.0;
        let (ticks, patience_max) = match upwards {
            true if seen.pressed => (TICKS_UP_PRESSED, PATIENCE_PRESSED_MAX),
            true if utilisation > *UTILISATION.end() => (TICKS_UP, f64::INFINITY),
            false if seen.supply == Supply::Short && self.hurried.is_some() => (1.0, 1.0),
            false if seen.supply == Supply::Short => (TICKS_YIELD, PATIENCE_YIELD_MAX),
            false if utilisation < *UTILISATION.start() => (TICKS_DOWN, f64::INFINITY),
            _ => (f64::INFINITY, 1.0),
        };
        if off.abs() < margin || ticks.is_infinite() {
            self.outside = Run::default();
            return None;
        }
        if self.outside.upwards != upwards {
            self.outside = Run { upwards, ..Run::default() };
        }
        self.outside.add(1.0, target);
        let needed = (ticks * self.patience().min(patience_max)).min(TICKS_MAX);
        // A tenant that may have the whole machine, and could use it, must be able to reach it.
        let whole = upwards && seen.pressed && target == *seen.allowed.end();
        let width = if whole { target } else { self.outside.mean_target() };
        (self.outside.sum >= needed).then_some(width)
    }

    /// Returns the new width, once a small error has lasted long enough.
    fn drifted(&mut self, target: u32, elapsed: Duration) -> Option<u32> {
        let error = f64::from(target) / f64::from(self.dop) - 1.0;
        let bound = BOUND_SECONDS * self.patience().min(PATIENCE_SLOW_MAX);
        let accumulate = |run: &mut Run, error: f64| {
            run.add((error - SLACK_RATIO) * elapsed.as_secs_f64(), target);
            if run.sum <= 0.0 {
                *run = Run::default();
            }
            (run.sum > bound).then(|| run.mean_target())
        };
        accumulate(&mut self.above, error).or(accumulate(&mut self.below, -error))
    }

    /// Factor on the waiting time: 1 for a width that does not change.
    fn patience(&self) -> f64 {
        2_f64.powf((self.penalty - PENALTY_FREE).max(0.0))
    }

    fn change(&mut self, width: u32, now: Duration) {
        self.dop = width;
        self.changed = Some(now);
        self.penalty += 1.0;
        self.forget();
    }

    fn forget(&mut self) {
        self.hurried = None;
        self.outside = Run::default();
        self.above = Run::default();
        self.below = Run::default();
    }
}
