//! Forecast of the CPU time that a tenant would use under the other policy, by minute.
//!
//! **Problem.** The recording has the use under the policy of that time. Another policy changes what a tenant gets, and
//! perhaps what it wants.
//!
//! **Terms.** The *wish* of a tenant in a tick is its use if no task of it waited. If tasks waited, the wish is the use
//! without these waits where the threads were read, and else unknown: at least the use. The *model* of a tick is the
//! smaller of wish and entitlement. The *ratio* of a recorded minute is the use over the model with the recorded
//! entitlement: how far the kernel and the load were from the model.
//!
//! **Algorithm.** The forecast of a minute is the model with the other entitlement, times the median of the tenant's
//! ratios. Its interval is the same with the ratios of the ranks `(n + 1) / 10`, rounded down, and `9 (n + 1) / 10`,
//! rounded up, of `n` ratios. The lower end takes an unknown wish for the use, and the upper end for the
//! whole entitlement. A tenant with fewer than nine minutes of use takes the ratios of all tenants.
//!
//! **Properties.** Where minutes under the other policy err like the recorded ones, 80 % of them are in their intervals
//! (`four_of_five_minutes_are_within`). Work that the other policy ends earlier or later moves to other minutes,
//! which no interval covers.
//!
//! Source: the ranks of split conformal prediction (Lei, G'Sell, Rinaldo, Tibshirani and Wasserman, "Distribution-Free
//! Predictive Inference for Regression", JASA 2018, §2.2).

use std::collections::BTreeMap;

use serde::Serialize;

use super::measure::{Both, Point};
use tenantd_control::report::reason::SEEN_CORES_MIN;
use tenantd_control::share::demand;
use tenantd_control::state::NodeState;
use tenantd_core::resource::CPU;

const MINUTE_SECONDS: f64 = 60.0;
/// Ratios from which the outer tenths are values of their own.
const RATIOS_MIN: usize = 9;

/// CPUs of a tenant by the model, in a tick or as a mean of ticks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Model {
    /// With the recorded entitlement.
    was: f64,
    /// With the entitlement of the other policy.
    would: f64,
    /// The same if an unknown wish is no more than the use.
    low: f64,
    /// The same if it has no bound.
    high: f64,
}

impl Model {
    pub(super) fn of([was, would]: [&NodeState; 2], wanted_cores: f64) -> Model {
        let Some(usage) = &was.usage else { return Model::default() };
        let entitled = [was, would].map(|state| state.target.allocation[CPU]);
        let used = usage.cpu_cores;
        let [low, wish, high] = match usage.wanted_cores {
            _ if !demand::is_pressed(usage, entitled[0]) => [used; 3],
            Some(wanted) => [wanted.max(used); 3],
            None => [used, wanted_cores, f64::INFINITY],
        };
        let [was, would] = entitled;
        Model {
            was: wish.min(was),
            would: wish.min(would),
            low: low.min(would),
            high: high.min(would),
        }
    }

    /// The mean of this with weight `one` and another with weight `two`.
    pub(super) fn mean(&self, one: f64, other: &Model, two: f64) -> Model {
        let mean = |of: fn(&Model) -> f64| (of(self) * one + of(other) * two) / (one + two);
        Model {
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

/// The forecasts of all tenants. Recordings above half a day have longer minutes: one for each of their points.
pub(super) fn forecasts(tenants: &BTreeMap<String, Both>) -> BTreeMap<&str, Minutes> {
    let minutes: BTreeMap<&str, Vec<Point>> =
        tenants.iter().map(|(name, tenant)| (name.as_str(), minutes(&tenant.points))).collect();
    let mut ratios: BTreeMap<&str, Vec<f64>> =
        minutes.iter().map(|(name, minutes)| (*name, ratios(minutes))).collect();
    let mut all: Vec<f64> = ratios.values().flatten().copied().collect();
    all.sort_by(f64::total_cmp);
    for own in ratios.values_mut().filter(|own| own.len() < RATIOS_MIN) {
        own.clone_from(&all);
    }
    let foretold = |name: &str, minutes: &[Point]| {
        let [low, median, high] = ratios.get(name).map_or([1.0; 3], |own| outer(own));
        let of = |minute: &Point| {
            let Model { would, low: least, high: most, .. } = minute.model;
            let forecast = Forecast {
                usage_cores: would * median,
                low_cores: least * low,
                high_cores: most * high,
            };
            ((minute.seconds() / MINUTE_SECONDS).floor() * MINUTE_SECONDS, forecast)
        };
        minutes.iter().map(of).collect()
    };
    minutes.iter().map(|(name, minutes)| (*name, foretold(name, minutes))).collect()
}

/// The mean of a tenant's forecasts.
pub(super) fn mean(minutes: &Minutes) -> Forecast {
    let count = minutes.len().max(1) as f64;
    let mean = |of: fn(&Forecast) -> f64| minutes.iter().map(|(_, it)| of(it)).sum::<f64>() / count;
    Forecast {
        usage_cores: mean(|it| it.usage_cores),
        low_cores: mean(|it| it.low_cores),
        high_cores: mean(|it| it.high_cores),
    }
}

/// Points of at least a minute each.
fn minutes(points: &[Point]) -> Vec<Point> {
    let number = |point: &Point| (point.seconds() / MINUTE_SECONDS).floor();
    points.chunk_by(|one, other| number(one) == number(other)).map(Point::joined).collect()
}

/// Use over the model of each minute in which the tenant did something, sorted.
fn ratios(minutes: &[Point]) -> Vec<f64> {
    let of = minutes.iter().filter(|minute| minute.model.was >= SEEN_CORES_MIN);
    let mut ratios: Vec<f64> = of.map(|minute| minute.used[CPU] / minute.model.was).collect();
    ratios.sort_by(f64::total_cmp);
    ratios
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
