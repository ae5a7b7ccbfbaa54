//! The building blocks of reading: one map, one word, one number; each a value or a finding.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use super::parse::{listed, nearest};
use super::read::{Reader, Section};
use super::rules::{self, NOT_YET_EFFECTIVE_KEYS, Rule};
use super::tree::{At, Entry, Kind, Node, Place, shortened};
use super::values::PathRefusal;
use crate::units::QuantityError;

/// The known keys of one map, each at most once.
pub(super) struct Fields<'n>(pub(super) Vec<(&'static str, &'n Entry)>);

impl<'n> Fields<'n> {
    pub(super) fn get(&self, key: &str) -> Option<&'n Entry> {
        self.0.iter().find(|(name, _)| *name == key).map(|(_, entry)| *entry)
    }

    pub(super) fn value(&self, key: &str) -> Option<&'n Node> {
        self.get(key).map(|entry| &entry.value)
    }
}

impl Reader<'_> {
    pub(super) fn place(&self, node: &Node) -> Place {
        Place { source: Arc::clone(&self.source), span: node.span() }
    }

    pub(super) fn key_place(&self, entry: &Entry) -> Place {
        Place { source: Arc::clone(&self.source), span: entry.span() }
    }

    /// The keys of a map that may be left empty (`host:` with every line below it commented out).
    pub(super) fn section<'n>(
        &mut self,
        section: &'static Section,
        node: &'n Node,
    ) -> Option<Fields<'n>> {
        match node.kind {
            Kind::Null => Some(Fields(Vec::new())),
            _ => self.fields(section, node),
        }
    }

    pub(super) fn fields<'n>(
        &mut self,
        section: &'static Section,
        node: &'n Node,
    ) -> Option<Fields<'n>> {
        let Kind::Map(entries) = &node.kind else {
            self.wrong_type(node, &format!("a map with {}", listed(section.keys.iter().copied())));
            return None;
        };
        let mut fields: Vec<(&'static str, &Entry)> = Vec::new();
        for entry in entries {
            let Some(key) = section.keys.iter().find(|key| **key == &*entry.key) else {
                match self.report.is_full() {
                    true => self.report.leave_out(),
                    false => self.unknown_key(section, entry),
                }
                continue;
            };
            match fields.iter().find(|(seen, _)| seen == key) {
                Some((_, first)) => {
                    let message = format!("`{key}` is given twice");
                    let finding = rules::DUPLICATE_KEY.at(
                        &self.key_place(entry),
                        message,
                        "given again here",
                    );
                    let first = self.key_place(first).label("first given here");
                    self.report.push(finding.also(first).help("keep one of the two"));
                }
                None => {
                    self.mark_not_yet(section, key, entry);
                    fields.push((key, entry));
                }
            }
        }
        Some(Fields(fields))
    }

    pub(super) fn mark_not_yet(&mut self, section: &Section, key: &str, entry: &Entry) {
        for (index, not_yet) in NOT_YET_EFFECTIVE_KEYS.iter().enumerate() {
            let is_it = not_yet.key.strip_prefix(section.name).and_then(|k| k.strip_prefix('.'));
            let in_force = not_yet.unless.is_some_and(|word| is_word(&entry.value, word));
            if is_it == Some(key) && !in_force {
                let place = self.key_place(entry);
                self.draft.not_yet[index].push(place);
            }
        }
    }

    pub(super) fn unknown_key(&mut self, section: &Section, entry: &Entry) {
        let message = format!("unknown key `{}` in `{}`", shortened(&entry.key), section.name);
        let keys = section.keys.iter().copied();
        let (label, help) = match (&*entry.key, nearest(&entry.key, keys.clone())) {
            ("<<", _) => (String::new(), "merge keys are not read: write the keys out".to_string()),
            (_, Some(name)) => {
                (format!("did you mean `{name}`?"), format!("keys here: {}", listed(keys)))
            }
            (_, None) => (String::new(), format!("keys here: {}", listed(keys))),
        };
        let finding = rules::UNKNOWN_KEY.at(&self.key_place(entry), message, label);
        self.report.push(finding.help(help));
    }

    pub(super) fn wrong_type(&mut self, node: &Node, expected: &str) {
        let message = format!("expected {expected}, found {}", node.describe());
        self.report.push(rules::WRONG_TYPE.at(&self.place(node), message, ""));
    }

    pub(super) fn out_of_range(&mut self, node: &Node, expected: &str) {
        let message = format!("{} is out of range", node.describe());
        let finding = rules::OUT_OF_RANGE.at(&self.place(node), message, "");
        self.report.push(finding.help(format!("expected {expected}")));
    }

    pub(super) fn text(&mut self, node: &Node, expected: &str) -> Option<At<String>> {
        match &node.kind {
            Kind::Scalar { text, .. } => {
                Some(At { value: text.to_string(), place: self.place(node) })
            }
            _ => {
                self.wrong_type(node, expected);
                None
            }
        }
    }

    /// One text or a list of them; at least one, none of them empty.
    pub(super) fn texts(&mut self, node: &Node, expected: &str) -> Vec<At<String>> {
        let texts: Vec<At<String>> = match &node.kind {
            Kind::List(items) => {
                items.iter().filter_map(|item| self.text(item, expected)).collect()
            }
            _ => self.text(node, &format!("{expected} or a list of them")).into_iter().collect(),
        };
        let is_list = matches!(&node.kind, Kind::List(items) if items.is_empty());
        if is_list || texts.iter().any(|text| text.value.trim().is_empty()) {
            let message = format!("an empty text is not {expected}");
            let message = if is_list { "this list names nothing".to_string() } else { message };
            self.report.push(rules::EMPTY_MATCH.at(&self.place(node), message, ""));
            return Vec::new();
        }
        texts
    }

    pub(super) fn names_of(
        &mut self,
        node: &Node,
        what: &str,
        check: fn(&str) -> Result<(), &'static str>,
    ) -> Vec<At<String>> {
        let mut names = self.texts(node, what);
        names.retain(|name| match check(&name.value) {
            Ok(()) => true,
            Err(help) => {
                let message = format!("`{}` cannot be {what}", shortened(&name.value));
                self.report.push(rules::BAD_MATCH.at(&name.place, message, "").help(help));
                false
            }
        });
        names
    }

    pub(super) fn choice<T: Copy>(
        &mut self,
        node: &Node,
        choices: &[(&'static str, T)],
    ) -> Option<T> {
        let words: Vec<&'static str> = choices.iter().map(|(word, _)| *word).collect();
        let text = self.text(node, &format!("one of {}", listed(words.iter().copied())))?;
        match choices.iter().find(|(word, _)| *word == text.value) {
            Some((_, value)) => Some(*value),
            None => {
                self.unknown_word(node, &text.value, &words, "");
                None
            }
        }
    }

    pub(super) fn unknown_word(&mut self, node: &Node, word: &str, words: &[&str], further: &str) {
        let message = format!("`{}` is not one of the choices", shortened(word));
        let label = nearest(word, words.iter().copied());
        let label = label.map(|near| format!("did you mean `{near}`?")).unwrap_or_default();
        let finding = rules::UNKNOWN_WORD.at(&self.place(node), message, label);
        self.report
            .push(finding.help(format!("one of {}{further}", listed(words.iter().copied()))));
    }

    pub(super) fn quantity<T>(&mut self, node: &Node, rule: &Rule) -> Option<At<T>>
    where
        T: FromStr<Err = QuantityError>,
    {
        let what = rule.title.trim_start_matches("not ");
        let text = self.text(node, what)?;
        match text.value.parse() {
            Ok(value) => Some(At { value, place: text.place }),
            Err(error) => {
                let message = format!("`{}` is not {what}", shortened(&text.value));
                self.report.push(rule.at(&text.place, message, "").help(error.help));
                None
            }
        }
    }

    /// A number as YAML 1.2 writes them, `.nan` and `.inf` included: rules answer those.
    pub(super) fn number(&mut self, node: &Node) -> Option<f64> {
        let number = match &node.kind {
            Kind::Scalar { text, plain: true } => match &**text {
                ".nan" | ".NaN" | ".NAN" => Some(f64::NAN),
                ".inf" | ".Inf" | ".INF" | "+.inf" => Some(f64::INFINITY),
                "-.inf" | "-.Inf" | "-.INF" => Some(f64::NEG_INFINITY),
                // Rust also reads `inf` and `nan`, which YAML does not.
                digits if digits.ends_with(|c: char| c.is_ascii_digit() || c == '.') => {
                    digits.parse().ok()
                }
                _ => None,
            },
            _ => None,
        };
        if number.is_none() {
            self.wrong_type(node, "a number");
        }
        number
    }

    pub(super) fn whole(
        &mut self,
        node: &Node,
        range: RangeInclusive<u32>,
        what: &str,
    ) -> Option<u32> {
        let number = self.number_text(node, what)?;
        match number.parse().ok().filter(|number| range.contains(number)) {
            Some(number) => Some(number),
            None => {
                let expected = format!("a whole number from {} to {}", range.start(), range.end());
                self.out_of_range(node, &expected);
                None
            }
        }
    }

    pub(super) fn number_text(&mut self, node: &Node, what: &str) -> Option<String> {
        match &node.kind {
            Kind::Scalar { text, plain: true } if text.parse::<f64>().is_ok() => {
                Some(text.to_string())
            }
            _ => {
                self.wrong_type(node, what);
                None
            }
        }
    }

    pub(super) fn interval(&mut self, node: &Node) -> Option<Duration> {
        let text = self.text(node, "a duration such as `1s`")?;
        let help = match humantime::parse_duration(&text.value) {
            Ok(interval)
                if (Duration::from_millis(100)..=Duration::from_secs(60)).contains(&interval) =>
            {
                return Some(interval);
            }
            Ok(_) => "the interval lies between `100ms` and `60s`".to_string(),
            Err(_) if text.value.parse::<f64>().is_ok() => {
                format!("say which unit: `{}s` or `{}ms`", text.value, text.value)
            }
            Err(_) => "write a duration as `500ms` or `10s`".to_string(),
        };
        let message = format!("`{}` is not an interval", shortened(&text.value));
        self.report.push(rules::BAD_INTERVAL.at(&text.place, message, "").help(help));
        None
    }

    pub(super) fn refuse_path(&mut self, place: &Place, path: &str, refusal: PathRefusal) {
        let (rule, help) = match refusal {
            PathRefusal::Escapes(help) => (rules::PATH_ESCAPE, help),
            PathRefusal::Malformed(help) => (rules::BAD_MATCH, help),
        };
        let message = match rule == rules::PATH_ESCAPE {
            true => format!("`{}` leaves the cgroup hierarchy", shortened(path)),
            false => format!("`{}` is not the path of a cgroup", shortened(path)),
        };
        self.report.push(rule.at(place, message, "").help(help));
    }
}

pub(super) fn is_word(node: &Node, word: &str) -> bool {
    matches!(&node.kind, Kind::Scalar { text, .. } if &**text == word)
}
