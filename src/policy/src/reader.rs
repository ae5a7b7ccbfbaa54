//! Reading a tree: scalars become values, and errors become findings.
//!
//! This file has the errors of a policy's single values: unknown and repeated keys, values of the wrong type,
//! unknown words. Reading goes on after a finding, with the default in place of the wrong value.
//! [`super::key`] defines the keys of a map. [`super::file`] shares the messages.

use std::collections::HashMap;
use std::sync::Arc;

use super::hint::{listed, nearest, shortened};
use super::report::{Report, Source};
use super::rules::{self, Rule};
use super::tree::{Entry, Kind, Node, Place};

/// Places of a given key.
#[derive(Clone, Debug)]
pub struct Given {
    /// Key with its parents: `limit.cpu`.
    pub path: String,
    /// Place of the key.
    pub key: Place,
    /// Places of its value, or of the valid items of its list.
    pub values: Vec<Place>,
}

/// Reader of one file's tree.
#[derive(Debug)]
pub struct Reader<'r> {
    /// Findings so far.
    pub report: &'r mut Report,
    /// Places of all keys, in the order of the text.
    pub given: Vec<Given>,
    /// Probable corrections of misspelt keys.
    pub misspelt: Vec<&'static str>,
    /// Name of the map whose keys are being read.
    pub scope: &'static str,
    source: Arc<Source>,
    elsewhere: fn(&str) -> Option<String>,
    path: Vec<&'static str>,
    /// Open keys, as indices into `given`.
    open: Vec<usize>,
}

impl<'r> Reader<'r> {
    /// Creates a reader of `source`, which findings call `scope`. `elsewhere` names the only map of a policy
    /// with a key.
    pub fn new(
        report: &'r mut Report,
        source: &Arc<Source>,
        elsewhere: fn(&str) -> Option<String>,
        scope: &'static str,
    ) -> Self {
        let (given, misspelt) = (Vec::new(), Vec::new());
        let (path, open) = (Vec::new(), Vec::new());
        let source = Arc::clone(source);
        Reader { report, given, misspelt, scope, source, elsewhere, path, open }
    }

    /// Place of a value.
    pub fn place(&self, node: &Node) -> Place {
        Place { source: Arc::clone(&self.source), span: node.span() }
    }

    /// Place of a key.
    pub fn key_place(&self, entry: &Entry) -> Place {
        Place { source: Arc::clone(&self.source), span: entry.span() }
    }

    /// Adds a finding about a value.
    pub fn find(
        &mut self,
        rule: &Rule,
        node: &Node,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        let help = help.into();
        let finding = rule.at(&self.place(node), message, "");
        self.report.push(if help.is_empty() { finding } else { finding.help(help) });
    }

    // --- maps ---

    /// Enters a key: everything read until [`Self::leave`] is its value.
    pub fn enter(&mut self, key: &'static str, entry: &Entry) {
        self.path.push(key);
        let path = self.path.join(".");
        self.given.push(Given { path, key: self.key_place(entry), values: Vec::new() });
        self.open.push(self.given.len() - 1);
    }

    /// Leaves the key that was entered last.
    pub fn leave(&mut self, entry: &Entry) {
        self.path.pop();
        if let Some(index) = self.open.pop()
            && self.given[index].values.is_empty()
        {
            let place = self.place(&entry.value);
            self.given[index].values.push(place);
        }
    }

    /// Records the place of a valid item of the current list.
    pub fn accept(&mut self, item: &Node) {
        let place = self.place(item);
        if let Some(given) = self.given.last_mut() {
            given.values.push(place);
        }
    }

    /// Reports a key that is not in `keys`.
    pub fn unknown_key(&mut self, keys: &[&'static str], entry: &Entry) {
        let is_empty = matches!(entry.value.kind, Kind::Null);
        let unknown = unknown_key(keys, &entry.key, is_empty, (self.elsewhere)(&entry.key));
        self.misspelt.extend(unknown.near);
        if self.report.is_full() {
            return self.report.leave_out();
        }
        let map = self.path.last().unwrap_or(&self.scope);
        let message = if map.is_empty() || unknown.is_value {
            unknown.message
        } else {
            format!("{} in `{map}`", unknown.message)
        };
        let label = unknown.near.map(|name| format!("did you mean `{name}`?")).unwrap_or_default();
        let finding = rules::UNKNOWN_KEY.at(&self.key_place(entry), message, label);
        self.report.push(finding.help(unknown.help));
    }

    /// Reports a repeated key.
    pub fn duplicate(&mut self, first: &Entry, again: &Entry) {
        let message = format!("`{}` is given twice", shortened(&again.key));
        let first = self.key_place(first).label("first given here");
        let finding = rules::DUPLICATE_KEY.at(&self.key_place(again), message, "given again here");
        self.report.push(finding.also(first).help("remove one of them"));
    }

    /// Entries of a map with keys of any name; reports another type and returns none.
    pub fn map<'n>(&mut self, node: &'n Node, expected: &str) -> &'n [Entry] {
        match &node.kind {
            Kind::Map(entries) => entries,
            _ => {
                self.wrong_type(node, expected, "");
                &[]
            }
        }
    }

    /// Items of a list; reports another type and returns none.
    pub fn list<'n>(&mut self, node: &'n Node, expected: &str) -> &'n [Node] {
        match &node.kind {
            Kind::List(items) => items,
            _ => {
                self.wrong_type(node, expected, "");
                &[]
            }
        }
    }

    /// Reports the repeated names of a map.
    pub fn duplicates(&mut self, entries: &[Entry]) {
        duplicates(entries).for_each(|(first, again)| self.duplicate(first, again));
    }

    // --- scalars ---

    /// Reports a value of the wrong type.
    pub fn wrong_type(&mut self, node: &Node, expected: &str, help: &str) {
        let (message, help) = mistyped(node, expected, help);
        self.find(&rules::WRONG_TYPE, node, message, help);
    }

    /// Reports a number out of range.
    pub fn out_of_range(&mut self, node: &Node, expected: &str) {
        let message = format!("{} is out of range", node.describe());
        self.find(&rules::OUT_OF_RANGE, node, message, format!("expected {expected}"));
    }

    /// Reads a text.
    pub fn text<'n>(&mut self, node: &'n Node, expected: &str) -> Option<&'n str> {
        match &node.kind {
            Kind::Scalar { text, .. } => Some(text),
            _ => {
                self.wrong_type(node, expected, "");
                None
            }
        }
    }

    /// Reads one of some words.
    pub fn word<T: Copy>(&mut self, node: &Node, words: &[(&'static str, T)]) -> Option<T> {
        let names = || words.iter().map(|(word, _)| *word);
        let text = self.text(node, &format!("one of {}", listed(names())))?;
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            self.unknown_word(node, text, names(), "");
        }
        found
    }

    /// Reports a text that is not one of some words, nor a value in `further`.
    pub fn unknown_word<'w>(
        &mut self,
        node: &Node,
        text: &str,
        words: impl Iterator<Item = &'w str> + Clone,
        further: &str,
    ) {
        let message = format!("`{}` is not one of the choices", shortened(text));
        let label = nearest(text, words.clone());
        let label = label.map(|near| format!("did you mean `{near}`?")).unwrap_or_default();
        let finding = rules::UNKNOWN_WORD.at(&self.place(node), message, label);
        self.report.push(finding.help(format!("one of {}{further}", listed(words))));
    }

    /// Reads a number; an error that the text does not explain has the remedy `help`.
    pub fn number(&mut self, node: &Node, expected: &str, help: &str) -> Option<f64> {
        let number = number(node);
        if let Err(of_text) = &number {
            let is_explained = !of_text.is_empty() || node.only_item().is_some();
            self.wrong_type(node, expected, if is_explained { of_text } else { help });
        }
        number.ok()
    }

    /// Reads a whole number of a range.
    pub fn whole(&mut self, node: &Node, most: u32, expected: &str) -> Option<u32> {
        let number = self.number(node, expected, "")?;
        // Only digits: `1.0` is a different kind of number, as in the schema.
        let whole = number.fract() == 0.0 && (1.0..=f64::from(most)).contains(&number);
        if !whole || !matches!(&node.kind, Kind::Scalar { text, .. } if !text.contains('.')) {
            self.out_of_range(node, &format!("a whole number from 1 to {most}"));
            return None;
        }
        Some(number as u32)
    }
}

/// The remark on a key that is not one of the choices.
pub(super) struct Unknown {
    pub(super) message: String,
    /// True if the key is a key and its value in one word.
    pub(super) is_value: bool,
    /// The probable correction.
    pub(super) near: Option<&'static str>,
    pub(super) help: String,
}

/// Describes a key that is not in `keys`, perhaps without a value; `elsewhere` names the only other map with
/// such a key.
pub(super) fn unknown_key(
    keys: &[&'static str],
    key: &str,
    is_empty: bool,
    elsewhere: Option<String>,
) -> Unknown {
    // YAML reads `{ weight:300 }` and `{ weight 300 }` as keys without a value.
    let (name, rest) = key.split_at(key.find([':', ' ', ';', '=']).unwrap_or(0));
    if is_empty && keys.contains(&name) {
        let value = shortened(rest.trim_start_matches([':', ' ', ';', '=']));
        return Unknown {
            message: format!("`{}` is a key without a value", shortened(key)),
            is_value: true,
            near: None,
            help: format!("write `{name}: {value}`, with a colon and a space"),
        };
    }
    // A key that is right in another place is not a misspelling here.
    let near = nearest(key, keys.iter().copied()).filter(|_| elsewhere.is_none());
    let help = match (key, elsewhere) {
        (key, _) if key.starts_with(|c: char| c.is_ascii_digit()) && is_empty => {
            "the comma ends the value before it: decimals have a point, as in `1.5`".to_string()
        }
        ("<<", _) => "merge keys are not supported: write the keys out".to_string(),
        (key, Some(map)) => format!("`{key}` is a key of {map}"),
        (_, None) => format!("keys here: {}", listed(keys.iter().copied())),
    };
    let message = format!("unknown key `{}`", shortened(key));
    Unknown { message, is_value: false, near, help }
}

/// Message and remedy for a value of the wrong type.
pub(super) fn mistyped(node: &Node, expected: &str, help: &str) -> (String, String) {
    let brackets = node.only_item().filter(|_| help.is_empty());
    let brackets = brackets.map(|item| format!("drop the brackets: `{}`", shortened(item)));
    let message = format!("expected {expected}, found {}", node.describe());
    (message, brackets.unwrap_or(help.to_string()))
}

/// Remedy for another value than a map with these keys.
pub(super) fn name_the_key(node: &Node, keys: &[&str]) -> String {
    match (&node.kind, keys.first()) {
        (Kind::Scalar { text, .. }, Some(first)) => {
            format!("name the key, as in `{{ {first}: {} }}`", shortened(text))
        }
        (Kind::List(_), Some(first)) => {
            let value = node.only_item().map_or("…".into(), shortened);
            format!("name the keys instead, as in `{{ {first}: {value} }}`")
        }
        _ => String::new(),
    }
}

/// The repeated entries of a map, each with the first of its key.
pub(super) fn duplicates(entries: &[Entry]) -> impl Iterator<Item = (&Entry, &Entry)> {
    // Most maps are small; a hash map for each of a million tenants is slow.
    const FEW: usize = 8;
    let is_small = entries.len() <= FEW;
    let mut seen: HashMap<&str, &Entry> = HashMap::new();
    entries.iter().enumerate().filter_map(move |(index, entry)| {
        let first = if is_small {
            entries[..index].iter().find(|first| first.key == entry.key)?
        } else {
            *seen.entry(&entry.key).or_insert(entry)
        };
        (!std::ptr::eq(first, entry)).then_some((first, entry))
    })
}

/// The number that a scalar is, including `.nan` and `.inf`, which the rules report.
///
/// # Errors
/// The remedy; empty if the text does not explain what was meant.
pub(super) fn number(node: &Node) -> Result<f64, String> {
    let Kind::Scalar { text, plain } = &node.kind else { return Err(String::new()) };
    match parse_number(text) {
        Some(number) if *plain => Ok(number),
        Some(_) => Err(format!("drop the quotes: `{text}`")),
        None => match text.replacen(',', ".", 1) {
            point if parse_number(&point).is_some() => {
                Err(format!("decimals have a point: `{point}`"))
            }
            _ => Err(String::new()),
        },
    }
}

/// Parses a number as YAML 1.2 and JSON write it. A negative zero becomes 0, because a quotient by it would
/// be infinite in the other direction.
pub fn parse_number(text: &str) -> Option<f64> {
    match text {
        ".nan" | ".NaN" | ".NAN" => return Some(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" => return Some(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Some(f64::NEG_INFINITY),
        _ => {}
    }
    // Rust also reads `inf` and `nan`, which YAML does not.
    let numeric = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
    let has_digit = text.bytes().any(|byte| byte.is_ascii_digit());
    let number: f64 = (has_digit && text.bytes().all(numeric)).then(|| text.parse().ok())??;
    Some(without_sign_of_zero(number))
}

/// Returns the number, with 0 for a negative zero.
pub fn without_sign_of_zero(number: f64) -> f64 {
    if number == 0.0 { 0.0 } else { number }
}
