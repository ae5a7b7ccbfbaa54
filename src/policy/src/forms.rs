//! Forms of maps, words and numbers: reading, showing, describing. [`super::bounds`] has those of amounts.
//!
//! Rules about one value are here, those for names and paths in [`super::names`]; rules about several
//! values are in [`super::check`].

use serde_json::{Value, json};

use super::hint::shortened;
use super::key::{Form, Key, Row, Setting, object, outline, rows};
use super::reader::Reader;
use super::rules;
use super::tree::{Kind, Node};
use super::types::*;
use super::words::instead_of_match;
use tenantd_core::units::Weight;
use tenantd_queue::discipline::Name;

// --- maps ---

/// A map with the keys of a table.
#[derive(Debug)]
pub struct Keys<M: 'static>(pub &'static [Key<M>]);

impl<M: PartialEq + Default> Form<M> for Keys<M> {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut M) {
        reader.keys(self.0, node, into);
    }

    fn schema(&self) -> Value {
        object(&self.rows())
    }

    fn rows(&self) -> Vec<Row> {
        rows(self.0)
    }

    fn outline(&self, value: &M, default: &M, path: &str, into: &mut Vec<Setting>) {
        outline(self.0, value, default, &format!("{path}."), into);
    }
}

/// A map with at least one key of a table; the text is the remedy for an empty one.
pub(super) struct SomeKeys<M: 'static>(pub(super) Keys<M>, pub(super) &'static str);

impl<M: PartialEq + Default> Form<M> for SomeKeys<M> {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut M) {
        if node.is_empty() {
            return reader.find(&rules::EMPTY_MATCH, node, "this map names nothing", self.1);
        }
        self.0.read(reader, node, into);
    }

    fn schema(&self) -> Value {
        let mut schema = self.0.schema();
        schema["type"] = "object".into();
        schema["minProperties"] = 1.into();
        schema
    }

    fn rows(&self) -> Vec<Row> {
        self.0.rows()
    }

    fn outline(&self, value: &M, default: &M, path: &str, into: &mut Vec<Setting>) {
        self.0.outline(value, default, path, into);
    }
}

pub(super) struct KeysOr<M: 'static>(
    pub(super) &'static [Key<M>],
    pub(super) &'static str,
    pub(super) fn() -> M,
);

impl<M: PartialEq + Default> Form<M> for KeysOr<M> {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut M) {
        let other = match &node.kind {
            Kind::Scalar { text, .. } => instead_of_match(text),
            _ => None,
        };
        match other {
            _ if node.is_word(self.1) => *into = (self.2)(),
            Some(help) => {
                let message = format!("{} is not a `match`", node.describe());
                reader.find(&rules::WRONG_TYPE, node, message, help);
            }
            None => reader.keys(self.0, node, into),
        }
    }

    fn schema(&self) -> Value {
        json!({ "anyOf": [{ "const": self.1 }, object(&self.rows())] })
    }

    fn rows(&self) -> Vec<Row> {
        rows(self.0)
    }

    fn outline(&self, value: &M, default: &M, path: &str, into: &mut Vec<Setting>) {
        if *value == (self.2)() {
            into.push(Setting { key: path.to_string(), value: self.1.to_string() })
        } else {
            outline(self.0, value, default, &format!("{path}."), into)
        }
    }
}

/// One value per resource, or one for all. A resource missing in the map has the first given value.
pub(super) struct OneOrEach<M: 'static> {
    pub(super) keys: &'static [Key<M>],
    /// Keys that are left out without a note.
    pub(super) quiet: &'static [&'static str],
}

impl<M: PartialEq + Default> Form<M> for OneOrEach<M> {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut M) {
        if !matches!(node.kind, Kind::Map(_) | Kind::Null) {
            let before = reader.report.total();
            for key in self.keys {
                // An error in the value applies to each resource, and is reported once.
                if reader.report.total() == before {
                    (key.read)(reader, node, into);
                }
            }
            return;
        }
        let before = reader.report.total();
        let Some(fields) = reader.fields(self.keys, node) else { return };
        reader.values(&fields, into);
        let Some((given, first)) = fields.known.first() else { return };
        if reader.report.total() > before {
            return;
        }
        for key in self.keys.iter().filter(|key| fields.get(key.name).is_none()) {
            let shown = first.value.describe();
            let message = format!("no weight is given for {}: it is {shown} as well", key.name);
            let help = format!(
                "say `weight: {}` for all, or add `{}:`",
                shown.trim_matches('`'),
                key.name
            );
            (key.read)(reader, &first.value, into);
            if self.quiet.contains(&key.name) {
                continue;
            }
            let place = reader.key_place(first);
            let label = format!("only {} is given", given.name);
            let finding = rules::PARTIAL_WEIGHT.at(&place, message, label);
            reader.report.push(finding.help(help));
        }
    }

    fn show(&self, value: &M) -> Option<String> {
        self.keys.first().and_then(|key| (key.row)(value).default)
    }

    fn schema(&self) -> Value {
        let one = self.rows().into_iter().next().map_or(Value::Null, |row| row.schema);
        json!({ "anyOf": [one, object(&self.rows())] })
    }

    fn rows(&self) -> Vec<Row> {
        rows(self.keys)
    }

    fn outline(&self, value: &M, default: &M, path: &str, into: &mut Vec<Setting>) {
        let mut each = Vec::new();
        outline(self.keys, value, default, &format!("{path}."), &mut each);
        let is_one =
            each.len() == self.keys.len() && each.iter().all(|it| it.value == each[0].value);
        if is_one {
            each.truncate(1);
            each[0].key = path.to_string();
        }
        into.extend(each);
    }
}

pub(super) struct DopForm(pub(super) &'static [Key<DopBounds>]);

const DOP_WORDS: &[(&str, DopPolicy)] = &[("auto", DopPolicy::Auto), ("imci", DopPolicy::Imci)];

impl Form<DopPolicy> for DopForm {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut DopPolicy) {
        if let Kind::Scalar { text, .. } = &node.kind {
            if text.parse::<u32>().is_ok() {
                let message = format!("`dop: {text}` could be an exact width or a bound");
                let help = format!(
                    "say `dop: {{ manual: {text} }}` for exactly {text} CPUs, or \
                     `dop: {{ max: {text} }}` for at most {text}"
                );
                return reader.find(&rules::WRONG_TYPE, node, message, help);
            }
            match DOP_WORDS.iter().find(|(word, _)| *word == &**text) {
                Some((_, policy)) => *into = *policy,
                None => {
                    let words = DOP_WORDS.iter().map(|(word, _)| *word);
                    reader.unknown_word(node, text, words, ", or a bound such as `{ max: 4 }`");
                }
            }
            return;
        }
        let Some(fields) = reader.fields(self.0, node) else { return };
        if let (Some(manual), Some(max)) = (fields.get("manual"), fields.get("max")) {
            let message = "`dop` is both `manual` and bounded by `max`";
            let finding = rules::DOP_TWICE.at(&reader.key_place(max), message, "");
            let manual = reader.key_place(manual).label("exactly this wide");
            return reader.report.push(finding.also(manual).help("remove one of them"));
        }
        let mut bounds = DopBounds::default();
        reader.values(&fields, &mut bounds);
        *into = match (bounds.manual, bounds.max) {
            (Some(width), _) => DopPolicy::Manual(width),
            (None, Some(width)) => DopPolicy::AtMost(width),
            (None, None) => DopPolicy::Auto,
        };
    }

    fn show(&self, value: &DopPolicy) -> Option<String> {
        Some(match value {
            DopPolicy::Auto => "auto".to_string(),
            DopPolicy::AtMost(most) => format!("at most {most}"),
            DopPolicy::Manual(dop) => dop.to_string(),
            DopPolicy::Imci => "imci".to_string(),
        })
    }

    fn schema(&self) -> Value {
        let mut bounds = object(&self.rows());
        bounds["maxProperties"] = 1.into();
        let words: Vec<&str> = DOP_WORDS.iter().map(|(word, _)| *word).collect();
        json!({ "anyOf": [{ "enum": words }, bounds] })
    }

    fn rows(&self) -> Vec<Row> {
        rows(self.0)
    }
}

/// A value that the reader of the file handles itself: tenants nest, and amounts follow the resources of a
/// file.
#[derive(Debug)]
pub struct Structure;

impl<T: PartialEq> Form<T> for Structure {
    fn read(&self, _: &mut Reader<'_>, _: &Node, _: &mut T) {}

    fn schema(&self) -> Value {
        json!({ "$ref": "#/$defs/tenants" })
    }

    fn outline(&self, _: &T, _: &T, _: &str, _: &mut Vec<Setting>) {}
}

/// A nested map of the same table, which the reader of the file handles itself.
pub(super) struct Template<M: 'static>(pub(super) &'static [Key<M>]);

impl<M: PartialEq + Default> Form<Option<Box<M>>> for Template<M> {
    fn read(&self, _: &mut Reader<'_>, _: &Node, _: &mut Option<Box<M>>) {}

    fn schema(&self) -> Value {
        json!({ "$ref": "#/$defs/template" })
    }

    fn outline(
        &self,
        value: &Option<Box<M>>,
        _: &Option<Box<M>>,
        path: &str,
        into: &mut Vec<Setting>,
    ) {
        if let Some(template) = value {
            outline(self.0, template, &M::default(), &format!("{path}."), into);
        }
    }
}

// --- words and numbers ---

/// One of the words of a type.
#[derive(Debug)]
pub struct Word;

impl<T: Words> Form<T> for Word {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut T) {
        if let Some(value) = reader.word(node, T::WORDS) {
            *into = value;
        }
    }

    fn show(&self, value: &T) -> Option<String> {
        T::WORDS.iter().find(|(_, it)| it == value).map(|(word, _)| word.to_string())
    }

    fn schema(&self) -> Value {
        let words: Vec<&str> = T::WORDS.iter().map(|(word, _)| *word).collect();
        match words[..] {
            ["false", "true"] => json!({ "type": "boolean" }),
            _ => json!({ "enum": words }),
        }
    }
}

impl<T: Words> Form<Option<T>> for Word {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut Option<T>) {
        *into = reader.word(node, T::WORDS);
    }
}

/// A discipline. `fq` is the old word for `sfq`: jobs do not state costs, without which there are no finish tags.
pub(super) struct DisciplineWord;

impl Form<Name> for DisciplineWord {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut Name) {
        Word.read(reader, node, into);
        if node.is_word("fq") {
            *into = Name::Sfq;
            let message =
                "`fq` is the old word for `sfq`; jobs start in the order of start tags as before";
            reader.find(&rules::OLD_WORD, node, message, "write `discipline: sfq`");
        }
    }

    fn show(&self, value: &Name) -> Option<String> {
        Word.show(value)
    }

    fn schema(&self) -> Value {
        Form::<Name>::schema(&Word)
    }
}

pub(super) struct VersionNumber;

impl Form<Version> for VersionNumber {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, _: &mut Version) {
        const HELP: &str = "this program reads version 1: say `version: 1`";
        match &node.kind {
            Kind::Scalar { text, plain: true } if &**text == Version::One.word() => {}
            Kind::Scalar { text, plain: false } if &**text == Version::One.word() => {
                reader.wrong_type(node, "the number 1", "drop the quotes: `version: 1`");
            }
            Kind::Scalar { text, .. } => {
                let message = format!("version `{}` is not supported", shortened(text));
                reader.find(&rules::UNKNOWN_VERSION, node, message, HELP);
            }
            _ => reader.wrong_type(node, "the number 1", HELP),
        }
    }

    fn schema(&self) -> Value {
        json!({ "const": 1 })
    }
}

/// A number within bounds.
#[derive(Debug)]
pub struct Number {
    /// Smallest value.
    pub least: f64,
    /// Largest value.
    pub most: f64,
}

impl Form<f64> for Number {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut f64) {
        let expected = format!("a number from {} to {}", self.least, self.most);
        match reader.number(node, "a number", &expected) {
            Some(number) if (self.least..=self.most).contains(&number) => *into = number,
            Some(_) => reader.out_of_range(node, &expected),
            None => {}
        }
    }

    fn show(&self, value: &f64) -> Option<String> {
        Some(value.to_string())
    }

    fn schema(&self) -> Value {
        json!({ "type": "number", "minimum": self.least, "maximum": self.most })
    }
}

/// A whole number from 1, or `auto` if allowed.
#[derive(Debug)]
pub struct Count {
    /// Largest value.
    pub most: u32,
    /// True if `auto` is allowed.
    pub auto: bool,
}

impl Form<Option<u32>> for Count {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut Option<u32>) {
        let expected = if self.auto { "`auto` or a number" } else { "a whole number" };
        if !self.auto || !node.is_word("auto") {
            *into = reader.whole(node, self.most, expected);
        }
    }

    fn show(&self, value: &Option<u32>) -> Option<String> {
        value.map(|count| count.to_string()).or(self.auto.then(|| "auto".to_string()))
    }

    fn schema(&self) -> Value {
        let number = json!({ "type": "integer", "minimum": 1, "maximum": self.most });
        if self.auto { json!({ "anyOf": [{ "const": "auto" }, number] }) } else { number }
    }
}

pub(super) struct WeightNumber;

impl Form<Weight> for WeightNumber {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut Weight) {
        const HELP: &str =
            "a weight is a number, by default 100: a tenant of 200 gets twice as much";
        let Some(number) = reader.number(node, "a number", HELP) else { return };
        match Weight::try_new(number) {
            Ok(weight) => *into = weight,
            Err(error) => {
                let message = format!("{} is not a weight", node.describe());
                reader.find(&rules::BAD_WEIGHT, node, message, error.help);
            }
        }
    }

    fn show(&self, value: &Weight) -> Option<String> {
        Some(value.to_string())
    }

    fn schema(&self) -> Value {
        json!({ "type": "number", "minimum": Weight::MIN, "maximum": Weight::MAX })
    }
}
