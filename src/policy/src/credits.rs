//! The form of a section that is off where it is left out, such as `control.credits`, and those of its values.

use std::time::Duration;

use serde_json::{Value, json};

use super::amount::percentage;
use super::hint::shortened;
use super::key::{Form, Key, Row, Setting, object, rows};
use super::reader::Reader;
use super::rules;
use super::tree::{Kind, Node};

/// A map that turns something on; without it that is off.
pub(super) struct Optional<T: 'static> {
    pub(super) keys: &'static [Key<T>],
    /// Its shape, and the remedy for another one.
    pub(super) words: [&'static str; 2],
    /// Of credits the half-life and the cap.
    pub(super) lengths: fn(&T) -> Option<[Duration; 2]>,
}

impl<T: Default + PartialEq + Copy> Form<Option<T>> for Optional<T> {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut Option<T>) {
        match &node.kind {
            // With every line below it commented out, it is left out.
            Kind::Null => return,
            Kind::Scalar { .. } => {
                let [shape, help] = self.words;
                return reader.wrong_type(node, shape, help);
            }
            _ => {}
        }
        let Some(fields) = reader.fields(self.keys, node) else { return };
        let before = reader.report.total();
        let mut section = T::default();
        reader.values(&fields, &mut section);
        if reader.report.total() > before {
            return;
        }
        if let Some([half_life, cap]) = (self.lengths)(&section)
            && cap > half_life
        {
            let [cap, half_life] = [cap, half_life].map(humantime::format_duration);
            let message = format!("the cap of {cap} is longer than the half-life of {half_life}");
            let given = fields.get("cap").or(fields.get("half_life"));
            let place = given.map_or(reader.place(node), |entry| reader.key_place(entry));
            let finding = rules::BAD_INTERVAL.at(&place, message, "it fades before it is full");
            let help = format!("set `cap` to {half_life} or less, or `half_life` to {cap} or more");
            return reader.report.push(finding.help(help));
        }
        *into = Some(section);
    }

    fn schema(&self) -> Value {
        object(&self.rows())
    }

    fn rows(&self) -> Vec<Row> {
        rows(self.keys)
    }

    /// One setting with all values: it differs from being off even where all are the defaults.
    fn outline(&self, value: &Option<T>, default: &Option<T>, path: &str, into: &mut Vec<Setting>) {
        let Some(section) = value.filter(|_| value != default) else { return };
        let each = self.keys.iter().filter_map(|key| {
            let shown = (key.row)(&section).default?;
            Some(format!("{}: {shown}", key.name))
        });
        let value = format!("{{ {} }}", each.collect::<Vec<_>>().join(", "));
        into.push(Setting { key: path.to_string(), value });
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
        let percent = percentage(text);
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
