//! Mean, deviation and maximum of figures that come one by one.

/// Mean and standard deviation of a stream of numbers (Welford).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Moments {
    count: f64,
    pub(super) mean: f64,
    squares: f64,
    pub(super) max: f64,
}

impl Moments {
    pub(super) fn add(&mut self, number: f64) {
        self.max = if self.count == 0.0 { number } else { self.max.max(number) };
        self.count += 1.0;
        let off = number - self.mean;
        self.mean += off / self.count;
        self.squares += off * (number - self.mean);
    }

    pub(super) fn mean_and_max(&self) -> Option<(f64, f64)> {
        (self.count > 0.0).then_some((self.mean, self.max))
    }

    pub(super) fn stddev(&self) -> f64 {
        if self.count > 0.0 { (self.squares / self.count).max(0.0).sqrt() } else { 0.0 }
    }
}
