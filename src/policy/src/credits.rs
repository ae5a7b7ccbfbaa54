//! The forms of `control.credits`: a section that is off where it is left out, and its values.

use std::time::Duration;

use serde_json::{Value, json};

use super::hint::shortened;
use super::key::{Form, Key, Row, Setting, object, rows};
use super::reader::Reader;
use super::rules;
use super::tree::{Kind, Node};

/// A map that turns something on; without it that is off.
pub(super) struct Optional<T: 'static> {
    pub(super) keys: &'static [Key<T>],
    /// The half-life and the cap.
    pub(super) lengths: fn(&T) -> [Duration; 2],
}

impl<T: Default + PartialEq + Copy> Form<Option<T>> for Optional<T> {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut Option<T>) {
        match &node.kind {
            // With every line below it commented out, it is left out.
            Kind::Null => return,
            Kind::Scalar { .. } => {
                let help =
                    "write `credits: {}` for the defaults, or leave `credits` out to turn it off";
                return reader.wrong_type(node, "a map with `half_life`, `cap` and `keep`", help);
            }
            _ => {}
        }
        let Some(fields) = reader.fields(self.keys, node) else { return };
        let before = reader.report.total();
        let mut credits = T::default();
        reader.values(&fields, &mut credits);
        if reader.report.total() > before {
            return;
        }
        let [half_life, cap] = (self.lengths)(&credits);
        if cap > half_life {
            let [cap, half_life] = [cap, half_life].map(humantime::format_duration);
            let message = format!("the cap of {cap} is longer than the half-life of {half_life}");
            let given = fields.get("cap").or(fields.get("half_life"));
            let place = given.map_or(reader.place(node), |entry| reader.key_place(entry));
            let finding = rules::BAD_INTERVAL.at(&place, message, "it fades before it is full");
            let help = format!("set `cap` to {half_life} or less, or `half_life` to {cap} or more");
            return reader.report.push(finding.help(help));
        }
        *into = Some(credits);
    }

    fn schema(&self) -> Value {
        object(&self.rows())
    }

    fn rows(&self) -> Vec<Row> {
        rows(self.keys)
    }

    /// One setting with all values: it differs from being off even where all are the defaults.
    fn outline(&self, value: &Option<T>, default: &Option<T>, path: &str, into: &mut Vec<Setting>) {
        let Some(credits) = value.filter(|_| value != default) else { return };
        let each = self.keys.iter().filter_map(|key| {
            let shown = (key.row)(&credits).default?;
            Some(format!("{}: {shown}", key.name))
        });
        let value = format!("{{ {} }}", each.collect::<Vec<_>>().join(", "));
        into.push(Setting { key: path.to_string(), value });
    }
}

/// A duration between two bounds, where 0 has an error of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lasting {
    range: (Duration, Duration),
    noun: &'static str,
    example: &'static str,
    bounds: &'static str,
    /// Effect of 0.
    of_zero: &'static str,
}

/// The time in which credit falls to half.
pub(super) const HALF_LIFE: Lasting = Lasting {
    range: (Duration::from_secs(10), Duration::from_secs(30 * 24 * 3600)),
    noun: "half-life",
    example: "10m",
    bounds: "the half-life is between `10s` and `30d`",
    of_zero: "a half-life of 0 forgets everything at once",
};

/// The largest credit.
pub(super) const CAP: Lasting = Lasting {
    range: (Duration::from_secs(1), Duration::from_secs(3600)),
    noun: "cap",
    example: "60s",
    bounds: "the cap is between `1s` and `1h`",
    of_zero: "a cap of 0 keeps no credit",
};

impl Form<Duration> for Lasting {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut Duration) {
        let Lasting { range: (least, most), noun, example, bounds, of_zero } = *self;
        let expected = format!("a duration such as `{example}`");
        let Some(text) = reader.text(node, &expected) else { return };
        let number = text.parse::<f64>().ok();
        let parsed = humantime::parse_duration(text).ok();
        let is_zero = number == Some(0.0) || parsed.is_some_and(|duration| duration.is_zero());
        let help = match parsed {
            _ if is_zero => "leave `credits` out to turn it off".to_string(),
            Some(duration) if (least..=most).contains(&duration) => return *into = duration,
            Some(_) => bounds.to_string(),
            None if number.is_some() => format!("say which unit: `{text}s` or `{text}m`"),
            None => format!("write a duration as `{example}`"),
        };
        let message = match is_zero {
            true => of_zero.to_string(),
            false => format!("`{}` is not a {noun}", shortened(text)),
        };
        reader.find(&rules::BAD_INTERVAL, node, message, help);
    }

    fn show(&self, value: &Duration) -> Option<String> {
        Some(humantime::format_duration(*value).to_string())
    }

    fn schema(&self) -> Value {
        json!({ "type": "string", "pattern": "^[0-9]+ ?(s|m|min|h|d|days?|weeks?)$" })
    }
}

/// A part, written as a percentage.
pub(super) struct Percent {
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Form<f64> for Percent {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut f64) {
        let Some(text) = reader.text(node, "a percentage such as `10%`") else { return };
        let percent = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
        if let Some(percent) = percent.filter(|it| (self.least..=self.most).contains(it)) {
            *into = percent / 100.0;
            return;
        }
        let (least, most) = (self.least, self.most);
        let message = format!("`{}` is not a percentage from {least}% to {most}%", shortened(text));
        let help = match percent {
            Some(0.0) => "siblings without any share would starve: set at least `1%`",
            _ => "write a percentage such as `10%`",
        };
        reader.find(&rules::OUT_OF_RANGE, node, message, help);
    }

    fn show(&self, value: &f64) -> Option<String> {
        Some(format!("{}%", (value * 1e6).round() / 1e4))
    }

    fn schema(&self) -> Value {
        json!({ "type": "string", "pattern": "^[0-9]+(\\.[0-9]+)?%$" })
    }
}
