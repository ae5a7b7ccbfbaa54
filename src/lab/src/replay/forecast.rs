//! Forecast of the CPU time that a tenant would use under the other policy, by minute.
//!
//! **Problem.** The recording has the use under the policy of that time. Another policy changes what a tenant gets, and
//! perhaps what it wants.
//!
//! **Terms.** The *wish* of a tenant in a tick is its use if no task of it waited. If tasks waited, the wish is the use
//! without these waits where the threads were read, and else unknown: at least the use. The *model* of a tick gives each
//! tenant the smaller of wish and entitlement, and divides what is left in proportion to the entitlements, up to wishes and
//! limits, as the kernel does. The *ratio* of a recorded minute is the use over the model with the recorded
//! entitlement: how far the kernel and the load were from the model. A minute is *held* if the entitlement is below the
//! wish by a twentieth: then the ratio is higher, because others leave CPU time in moments between two ticks.
//!
//! **Algorithm.** The forecast of a minute is the model with the other entitlement, times the median of the ratios of the
//! tenant's minutes that are held like this one. Its interval is the same with the ratios of the ranks `(n + 1) / 10`,
//! rounded down, and `9 (n + 1) / 10`, rounded up, of `n` ratios. The lower end takes an unknown wish for the use, and
//! the upper end for the whole entitlement. With fewer than nine such ratios it takes those of all tenants, and with
//! fewer than nine of these all there are. Both ends are at least a hundredth away from the forecast.
//!
//! **Properties.** Where minutes under the other policy err like the recorded ones, 80 % of them are in their intervals
//! (`four_of_five_minutes_are_within`). Work that the other policy ends earlier or later moves to other minutes,
//! which no interval covers.
//!
//! Source: the ranks of split conformal prediction (Lei, G'Sell, Rinaldo, Tibshirani and Wasserman, "Distribution-Free
//! Predictive Inference for Regression", JASA 2018, §2.2).

use std::collections::BTreeMap;

use serde::Serialize;

use tenantd_control::report::reason::SEEN_CORES_MIN;
use tenantd_control::share::demand;
use tenantd_control::state::NodeState;
use tenantd_core::resource::CPU;
use tenantd_fair::max_min::{self, Claim};

/// Seconds of a minute.
pub(super) const MINUTE_SECONDS: f64 = 60.0;
/// Ratios from which the outer tenths are values of their own.
const RATIOS_MIN: usize = 9;
/// Least distance of the ends of an interval, as a part of the forecast: weights have that effect within a minute at best.
const ERROR_MIN: f64 = 0.01;
/// Part of the wish below which a tenant is held.
const HELD_RATIO: f64 = 0.95;

/// A recorded minute of a tenant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Minute {
    /// Seconds since the beginning.
    pub(super) begin_seconds: f64,
    pub(super) used_cores: f64,
    pub(super) model: Model,
}

/// CPUs of a tenant by the model, in a tick or as a mean of ticks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Model {
    wish: f64,
    /// With the recorded entitlement.
    was: f64,
    /// With the entitlement of the other policy.
    would: f64,
    /// The same if an unknown wish is no more than the use.
    low: f64,
    /// The same if it has no bound.
    high: f64,
}

/// One tenant in one tick: CPUs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    /// At least, probably, and at most.
    wishes: [f64; 3],
    /// Entitlement and limit, as recorded and under the other policy.
    sides: [(f64, f64); 2],
}

impl Wish {
    /// The wish of a tenant with these states and limits; `wanted_cores` is the estimate of an unknown one.
    pub(super) fn of(states: [&NodeState; 2], limits: [Option<f64>; 2], wanted_cores: f64) -> Wish {
        let [was, would] = [0, 1].map(|side| {
            let entitled = states[side].target.allocation[CPU];
            (entitled, limits[side].unwrap_or(f64::INFINITY))
        });
        let wishes = states[0].usage.as_ref().map_or([0.0; 3], |usage| {
            let used = usage.cpu_cores;
            match usage.wanted_cores {
                _ if !demand::is_pressed(usage, was.0) => [used; 3],
                Some(wanted) => [wanted.max(used); 3],
                None => [used, wanted_cores.max(used), f64::INFINITY],
            }
        });
        Wish { wishes, sides: [was, would] }
    }
}

/// The models of the tenants of one tick, of which `capacity` was divided, and would have been.
pub(super) fn models(tenants: &[Wish], capacity: [f64; 2]) -> Vec<Model> {
    let divided = [0, 1].map(|side| {
        let claim = |it: &Wish| {
            let ((entitled, limit), [_, wish, _]) = (it.sides[side], it.wishes);
            let ceiling = wish.min(limit);
            Claim { weight: entitled, floor: entitled.min(ceiling), ceiling }
        };
        let claims: Vec<Claim> = tenants.iter().map(claim).collect();
        max_min::divide(capacity[side], &claims).allocation
    });
    let model = |(it, (was, would)): (&Wish, (&f64, &f64))| {
        let [low, wish, high] = it.wishes;
        let most = would.max(it.sides[1].0);
        Model { wish, was: *was, would: *would, low: low.min(most), high: high.min(most) }
    };
    tenants.iter().zip(divided[0].iter().zip(&divided[1])).map(model).collect()
}

impl Model {
    /// True if the tenant gets less than its wish with the entitlement of this model.
    fn is_held(&self, cores: f64) -> bool {
        cores < self.wish * HELD_RATIO
    }

    /// The mean of this with weight `one` and another with weight `two`.
    pub(super) fn mean(&self, one: f64, other: &Model, two: f64) -> Model {
        let mean = |of: fn(&Model) -> f64| (of(self) * one + of(other) * two) / (one + two);
        Model {
            wish: mean(|it| it.wish),
            was: mean(|it| it.was),
            would: mean(|it| it.would),
            low: mean(|it| it.low),
            high: mean(|it| it.high),
        }
    }
}

/// Use of CPUs under the other policy, and an interval for four of five minutes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Forecast {
    pub(super) usage_cores: f64,
    pub(super) low_cores: f64,
    pub(super) high_cores: f64,
}

/// Forecasts of a tenant, by the seconds at which a minute begins.
pub(super) type Minutes = Vec<(f64, Forecast)>;

/// Forecasts of all tenants.
pub(super) struct Forecasts<'a>(pub(super) BTreeMap<&'a str, Minutes>);

impl Forecasts<'_> {
    /// The mean of a tenant's forecasts; zeros for a tenant without any.
    pub(super) fn mean(&self, tenant: &str) -> Forecast {
        let minutes = self.0.get(tenant).map_or(&[][..], Vec::as_slice);
        let count = minutes.len().max(1) as f64;
        let mean =
            |of: fn(&Forecast) -> f64| minutes.iter().map(|(_, it)| of(it)).sum::<f64>() / count;
        Forecast {
            usage_cores: mean(|it| it.usage_cores),
            low_cores: mean(|it| it.low_cores),
            high_cores: mean(|it| it.high_cores),
        }
    }
}

/// The forecasts of the recorded minutes of all tenants.
pub(super) fn forecasts(minutes: BTreeMap<&str, Vec<Minute>>) -> Forecasts<'_> {
    let errors = Errors::of(&minutes);
    let foretold = |name: &str, minutes: &[Minute]| {
        let of_held = [false, true].map(|is_held| outer(errors.like(name, is_held)));
        let of = |minute: &Minute| {
            let Model { would, low: least, high: most, .. } = minute.model;
            let [low, median, high] = of_held[usize::from(minute.model.is_held(would))];
            let usage_cores = would * median;
            let forecast = Forecast {
                usage_cores,
                low_cores: (least * low).min(usage_cores * (1.0 - ERROR_MIN)),
                high_cores: (most * high).max(usage_cores * (1.0 + ERROR_MIN)),
            };
            (minute.begin_seconds, forecast)
        };
        minutes.iter().map(of).collect()
    };
    Forecasts(minutes.iter().map(|(name, minutes)| (*name, foretold(name, minutes))).collect())
}

/// Ratios of recorded minutes, sorted: those that are not held, and those that are.
struct Errors<'a> {
    by_tenant: BTreeMap<&'a str, [Vec<f64>; 2]>,
    by_held: [Vec<f64>; 2],
    all: Vec<f64>,
}

impl Errors<'_> {
    fn of<'a>(minutes: &BTreeMap<&'a str, Vec<Minute>>) -> Errors<'a> {
        let mut errors =
            Errors { by_tenant: BTreeMap::new(), by_held: Default::default(), all: Vec::new() };
        for (name, minutes) in minutes {
            let own = errors.by_tenant.entry(*name).or_default();
            for minute in minutes.iter().filter(|minute| minute.model.was >= SEEN_CORES_MIN) {
                let ratio = minute.used_cores / minute.model.was;
                let held = usize::from(minute.model.is_held(minute.model.was));
                own[held].push(ratio);
                errors.by_held[held].push(ratio);
                errors.all.push(ratio);
            }
        }
        let own = errors.by_tenant.values_mut().flatten();
        own.chain(&mut errors.by_held)
            .chain([&mut errors.all])
            .for_each(|it| it.sort_by(f64::total_cmp));
        errors
    }

    /// The ratios for a minute of a tenant.
    fn like(&self, name: &str, is_held: bool) -> &[f64] {
        let held = usize::from(is_held);
        let own = self.by_tenant.get(name).map(|own| &own[held]);
        own.into_iter()
            .chain([&self.by_held[held]])
            .find(|it| it.len() >= RATIOS_MIN)
            .unwrap_or(&self.all)
    }
}

/// The ratios at the outer tenths, and their median; 1 without any.
fn outer(sorted: &[f64]) -> [f64; 3] {
    let Some(last) = sorted.len().checked_sub(1) else { return [1.0; 3] };
    let n = sorted.len() as f64 + 1.0;
    let at = |rank: f64| sorted[(rank as usize).saturating_sub(1).min(last)];
    [at((n * 0.1).floor()), at((n * 0.5).floor()), at((n * 0.9).ceil())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outer_tenths_have_the_ranks_of_the_source() {
        let values: Vec<f64> = (1..=9).map(f64::from).collect();
        assert_eq!(outer(&values), [1.0, 5.0, 9.0]);
        let values: Vec<f64> = (1..=99).map(f64::from).collect();
        assert_eq!(outer(&values), [10.0, 50.0, 90.0]);
        assert_eq!((outer(&[]), outer(&[2.0])), ([1.0; 3], [2.0; 3]));
    }
}
