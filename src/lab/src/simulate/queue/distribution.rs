//! Random costs: the distributions of the papers' experiments. The only file that names the crates for random
//! numbers.

use rand::{Rng, RngExt, SeedableRng};
use rand_distr::{Distribution, Exp, LogNormal, Normal};
use rand_pcg::Pcg64Mcg;

/// A distribution of costs, cut off at both ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cost {
    pub(super) shape: Shape,
    pub(super) min: f64,
    pub(super) max: f64,
    pub(super) redraw: Redraw,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Shape {
    Fixed(f64),
    Uniform,
    Normal {
        mean: f64,
        stddev: f64,
    },
    /// With the standard deviation of the logarithm.
    LogNormal {
        median: f64,
        sigma: f64,
    },
    Exponential {
        mean: f64,
    },
}

/// Frequency of drawing a cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Redraw {
    /// For each request.
    Request,
    /// Once for each tenant; its requests are within this part of it, evenly.
    Tenant { spread: f64 },
}

impl Cost {
    pub(super) fn fixed(cost: f64) -> Cost {
        Cost { shape: Shape::Fixed(cost), min: 0.0, max: f64::MAX, redraw: Redraw::Request }
    }

    /// The mean, ignoring the cuts.
    pub(super) fn mean(&self) -> f64 {
        match self.shape {
            Shape::Fixed(cost) => cost,
            Shape::Uniform => f64::midpoint(self.min, self.max),
            Shape::Normal { mean, .. } | Shape::Exponential { mean } => mean,
            Shape::LogNormal { median, sigma } => median * (sigma * sigma / 2.0).exp(),
        }
    }
}

/// A stream of random numbers: the same for the same seed and number of the stream.
#[derive(Clone, Debug)]
pub(super) struct Dice(Pcg64Mcg);

impl Dice {
    pub(super) fn new(seed: u64, stream: u64) -> Dice {
        // Adjacent seeds would begin alike; the odd constant spreads them (splitmix64).
        let spread = stream.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Dice(Pcg64Mcg::seed_from_u64(seed ^ spread))
    }

    /// A random time between two arrivals.
    pub(super) fn pause(&mut self, per_second: f64) -> f64 {
        let pause = Exp::new(per_second).map(|pauses| pauses.sample(&mut self.0));
        pause.unwrap_or(f64::INFINITY)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Costs {
    cost: Cost,
    /// Set if the tenant has a cost of its own.
    own: Option<f64>,
}

impl Costs {
    pub(super) fn new(cost: Cost, dice: &mut Dice) -> Costs {
        let own = matches!(cost.redraw, Redraw::Tenant { .. }).then(|| draw(&cost, &mut dice.0));
        Costs { cost, own }
    }

    pub(super) fn mean(&self) -> f64 {
        self.own.unwrap_or(self.cost.mean())
    }

    pub(super) fn next(&self, dice: &mut Dice) -> f64 {
        match (self.cost.redraw, self.own) {
            (Redraw::Tenant { spread }, Some(own)) if spread > 0.0 => {
                own * dice.0.random_range(1.0 - spread..=1.0 + spread)
            }
            (_, Some(own)) => own,
            _ => draw(&self.cost, &mut dice.0),
        }
    }
}

/// Draws a cost. Parameters were checked before: a rejected distribution would return its minimum.
fn draw(cost: &Cost, dice: &mut impl Rng) -> f64 {
    let drawn = match cost.shape {
        Shape::Fixed(cost) => cost,
        Shape::Uniform if cost.min < cost.max => dice.random_range(cost.min..=cost.max),
        Shape::Uniform => cost.min,
        Shape::Normal { mean, stddev } => {
            Normal::new(mean, stddev).map_or(cost.min, |normal| normal.sample(dice))
        }
        Shape::LogNormal { median, sigma } => {
            LogNormal::new(median.ln(), sigma).map_or(cost.min, |normal| normal.sample(dice))
        }
        Shape::Exponential { mean } => Exp::new(1.0 / mean).map_or(cost.min, |e| e.sample(dice)),
    };
    drawn.clamp(cost.min, cost.max)
}
