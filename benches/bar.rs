//! The line that a benchmark prints for each figure, and whether all bars held.
//!
//! A line is `figure: NAME: VALUE UNIT (bar ≤ BAR): held`, or `missed`; without a bar it ends after the unit. With any bar
//! missed, the benchmark ends with status 1.

use std::fmt::Display;
use std::process::ExitCode;
use std::time::Instant;

/// The figures of one run.
#[derive(Default)]
pub(crate) struct Bars {
    nr_missed: u32,
}

impl Bars {
    /// A figure that may be no larger than its bar.
    #[allow(dead_code, reason = "not every benchmark has one")]
    pub(crate) fn at_most(&mut self, name: impl Display, value: f64, unit: &str, bar: f64) {
        self.judge(name, value, unit, &format!("≤ {bar}"), value <= bar);
    }

    /// A figure that may be no smaller than its bar.
    #[allow(dead_code, reason = "not every benchmark has one")]
    pub(crate) fn at_least(&mut self, name: impl Display, value: f64, unit: &str, bar: f64) {
        self.judge(name, value, unit, &format!("≥ {bar}"), value >= bar);
    }

    /// A figure without a bar.
    #[allow(dead_code, reason = "not every benchmark has one")]
    pub(crate) fn note(&self, name: impl Display, value: f64, unit: &str) {
        println!("figure: {name}: {} {unit}", digits(value));
    }

    fn judge(&mut self, name: impl Display, value: f64, unit: &str, bar: &str, is_held: bool) {
        let outcome = if is_held { "held" } else { "missed" };
        self.nr_missed += u32::from(!is_held);
        println!("figure: {name}: {} {unit} (bar {bar}): {outcome}", digits(value));
    }

    /// How the benchmark ends.
    #[must_use]
    pub(crate) fn verdict(self) -> ExitCode {
        ExitCode::from(u8::from(self.nr_missed > 0))
    }
}

/// The least of so many runs, in milliseconds: other work on the machine only adds.
#[allow(dead_code, reason = "not every benchmark has such a figure")]
pub(crate) fn least_millis(runs: u32, mut act: impl FnMut()) -> f64 {
    let run = |_| {
        let begin = Instant::now();
        act();
        begin.elapsed().as_secs_f64() * 1e3
    };
    (0..runs).map(run).fold(f64::INFINITY, f64::min)
}

/// The exponent of the power law that fits best, by least squares of the logarithms.
#[allow(dead_code, reason = "not every benchmark has several sizes")]
pub(crate) fn exponent(points: &[(f64, f64)]) -> f64 {
    let logs: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    let mean = |of: fn(&(f64, f64)) -> f64| logs.iter().map(of).sum::<f64>() / logs.len() as f64;
    let (x_mean, y_mean) = (mean(|p| p.0), mean(|p| p.1));
    let above: f64 = logs.iter().map(|(x, y)| (x - x_mean) * (y - y_mean)).sum();
    let below: f64 = logs.iter().map(|(x, _)| (x - x_mean).powi(2)).sum();
    above / below
}

/// Three significant digits.
fn digits(value: f64) -> String {
    let whole = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 };
    format!("{value:.*}", (2 - whole).clamp(0, 9) as usize)
}
