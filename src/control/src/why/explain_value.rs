//! Explains a desired value and whether it is in force.

use std::time::Duration;

use super::explain_usage::percent;
use crate::report::explanation::{Outcome, ValueStep};
use crate::report::trace::{Trace, ValueRecord};
use crate::words::knob::{DeadBand, WEIGHT_DEAD_BAND_RATIO};
use tenantd_core::units::Bytes;

pub(crate) fn value_step(
    trace: &Trace,
    name: &str,
    value: &ValueRecord,
    reason: String,
) -> ValueStep {
    let text = |of| (trace.spelling.text)(value.knob, of);
    // A value written in this tick is newer than the observed one.
    let held = value.held.as_ref().filter(|_| value.outcome != Outcome::Written);
    let age = held.map(|_| trace.now.saturating_sub(value.held_at));
    ValueStep {
        path: (trace.spelling.path)(value.knob, name),
        held: value.held.as_ref().map(text),
        held_seconds: age.map(|age| age.as_secs_f64()),
        wanted: text(&value.wanted),
        outcome: value.outcome,
        reason,
        detail: value.detail.as_deref().map_or_else(|| outcome_detail(value, age), String::from),
    }
}

fn outcome_detail(value: &ValueRecord, age: Option<Duration>) -> String {
    let is_exact = value.held.as_ref() == Some(&value.wanted);
    match (value.outcome, value.knob.dead_band()) {
        (Outcome::Settled, _) if is_exact => match age.map_or(0, |age| age.as_secs()) {
            0 => "the file holds it".to_string(),
            seconds => format!("the file held it {seconds} s ago, when it was read last"),
        },
        (Outcome::Settled, DeadBand::Weight) => {
            format!("close enough: within the dead band of {}", percent(WEIGHT_DEAD_BAND_RATIO))
        }
        (Outcome::Settled, DeadBand::Ratio { ratio, bytes }) => format!(
            "close enough: within the dead band of {} or {}",
            percent(ratio),
            Bytes(bytes).rounded()
        ),
        (Outcome::Settled, DeadBand::Rounding { .. }) => {
            "the file holds it, rounded by the kernel".to_string()
        }
        (Outcome::Written, _) => "written in this tick".to_string(),
        (Outcome::Planned, _) => "would be written in mode enforce".to_string(),
        (Outcome::Deferred, _) => "deferred: it would do harm now".to_string(),
        (Outcome::Failed, _) => "the kernel refused".to_string(),
        (Outcome::Missing, _) => "the cgroup does not exist, or has no such file".to_string(),
        (Outcome::Ineffective, _) => "the file holds it, but it has no effect".to_string(),
    }
}
