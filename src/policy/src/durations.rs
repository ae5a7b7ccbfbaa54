//! Forms of durations.

use std::time::Duration;

use serde_json::{Value, json};

use super::hint::shortened;
use super::key::Form;
use super::reader::Reader;
use super::rules;
use super::tree::Node;

/// A duration between two bounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lasting {
    pub(super) range: (Duration, Duration),
    pub(super) noun: &'static str,
    pub(super) example: &'static str,
    /// Remedies for one beyond the bounds, and for a text that is not a duration.
    pub(super) bounds: &'static str,
    pub(super) written: &'static str,
    /// Unit to offer beside seconds for a number without one.
    pub(super) unit: Option<&'static str>,
    /// Error and remedy for 0, where it means more than too little.
    pub(super) of_zero: Option<[&'static str; 2]>,
    pub(super) pattern: &'static str,
    pub(super) show: fn(Duration) -> String,
}

pub(super) const INTERVAL: Lasting = Lasting {
    range: (Duration::from_millis(100), Duration::from_secs(60)),
    noun: "an interval",
    example: "1s",
    bounds: "the interval lies between `100ms` and `60s`",
    written: "write a duration as `500ms` or `10s`",
    unit: Some("ms"),
    of_zero: None,
    pattern: "^[0-9]+ ?(ms|s|m)$",
    show: |value| humantime::format_duration(value).to_string(),
};

/// The longest time that a record is kept.
pub(super) const AGE: Lasting = Lasting {
    range: (Duration::from_secs(60), Duration::from_secs(366 * 24 * 3600)),
    noun: "an age",
    example: "24h",
    bounds: "the age lies between `1m` and `366d`",
    written: "write a duration as `24h` or `7d`",
    unit: None,
    pattern: "^[0-9]+ ?(s|m|min|h|d|days?|weeks?)$",
    // Whole hours are shown as hours: `24h`, not `1day`.
    show: |value| match (value.as_secs() / 3600, value.as_secs() % 3600, value.subsec_nanos()) {
        (hours, 0, 0) => format!("{hours}h"),
        _ => (INTERVAL.show)(value),
    },
    ..INTERVAL
};

const OFF: &str = "leave `credits` out to turn it off";

/// The time in which credit falls to half.
pub(super) const HALF_LIFE: Lasting = Lasting {
    range: (Duration::from_secs(10), Duration::from_secs(30 * 24 * 3600)),
    noun: "a half-life",
    example: "10m",
    bounds: "the half-life is between `10s` and `30d`",
    written: "write a duration as `10m`",
    unit: Some("m"),
    of_zero: Some(["a half-life of 0 forgets everything at once", OFF]),
    show: INTERVAL.show,
    ..AGE
};

/// The largest credit.
pub(super) const CAP: Lasting = Lasting {
    range: (Duration::from_secs(1), Duration::from_secs(3600)),
    noun: "a cap",
    example: "60s",
    bounds: "the cap is between `1s` and `1h`",
    written: "write a duration as `60s`",
    of_zero: Some(["a cap of 0 keeps no credit", OFF]),
    ..HALF_LIFE
};

/// The time of a short job.
pub(super) const SHORT_TIME: Lasting = Lasting {
    noun: "a time",
    example: "30s",
    bounds: "the time is between `1s` and `1h`",
    written: "write a duration as `30s`",
    of_zero: Some(["no job takes less than 0", "leave `short_jobs` out to turn it off"]),
    ..CAP
};

impl Lasting {
    /// Reads a duration within the bounds; reports any other text.
    fn parse(&self, reader: &mut Reader<'_>, node: &Node) -> Option<Duration> {
        let text = reader.text(node, &format!("a duration such as `{}`", self.example))?;
        let (number, parsed) = (text.parse::<f64>().ok(), humantime::parse_duration(text).ok());
        let is_zero = number == Some(0.0) || parsed.is_some_and(|duration| duration.is_zero());
        let help = match (parsed, number.and(self.unit)) {
            (Some(duration), _) if (self.range.0..=self.range.1).contains(&duration) => {
                return Some(duration);
            }
            (Some(_), _) => self.bounds.to_string(),
            (None, Some(unit)) => format!("say which unit: `{text}s` or `{text}{unit}`"),
            (None, None) => self.written.to_string(),
        };
        let message = format!("`{}` is not {}", shortened(text), self.noun);
        let of_zero = self.of_zero.filter(|_| is_zero).map(|texts| texts.map(str::to_string));
        let [message, help] = of_zero.unwrap_or([message, help]);
        reader.find(&rules::BAD_INTERVAL, node, message, help);
        None
    }
}

impl Form<Duration> for Lasting {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut Duration) {
        *into = self.parse(reader, node).unwrap_or(*into);
    }

    fn show(&self, value: &Duration) -> Option<String> {
        Some((self.show)(*value))
    }

    fn schema(&self) -> Value {
        json!({ "type": "string", "pattern": self.pattern })
    }
}

/// Longest time of a feature that is off by default.
pub(super) struct Bound;

impl Form<Option<Duration>> for Bound {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut Option<Duration>) {
        let range = (Duration::from_secs(1), Duration::from_secs(600));
        let bounds = "it lies between `1s` and `10m`; `off` is never";
        let written = "write a duration as `10s`; `off` is never";
        if !node.is_word("off") {
            *into = Lasting { range, bounds, written, ..INTERVAL }.parse(reader, node);
        }
    }

    fn show(&self, value: &Option<Duration>) -> Option<String> {
        Some(value.map_or("off".to_string(), INTERVAL.show))
    }

    fn schema(&self) -> Value {
        json!({ "anyOf": [{ "const": "off" }, INTERVAL.schema()] })
    }
}
