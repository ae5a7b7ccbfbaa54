//! Reading a tree: scalars become values, and errors become findings.
//!
//! This file has the errors of all file kinds: unknown, repeated and missing keys, values of the wrong
//! type, unknown words. The kinds differ in the [`Codes`] of their findings. Reading goes on after a
//! finding, with the default in place of the wrong value. [`super::key`] defines the keys of a map.

use std::collections::HashMap;
use std::sync::Arc;

use super::hint::{listed, nearest, shortened};
use super::report::{Report, Source};
use super::rules::Rule;
use super::tree::{Entry, Kind, Node, Place};

/// Rules that any file can break, with their codes for a kind of file.
#[derive(Clone, Copy, Debug)]
pub struct Codes {
    /// A key in the wrong place.
    pub unknown_key: Rule,
    /// A key given twice.
    pub duplicate_key: Rule,
    /// A missing required key; `None` if another file may have it.
    pub missing_key: Option<Rule>,
    /// A value of the wrong type.
    pub wrong_type: Rule,
    /// A word that is not one of the choices.
    pub unknown_word: Rule,
    /// A number out of range.
    pub out_of_range: Rule,
    /// Name, for messages, of the only other map of the file with a key of this name.
    pub elsewhere: fn(&str) -> Option<String>,
}

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
    codes: &'static Codes,
    path: Vec<&'static str>,
    /// Open keys, as indices into `given`.
    open: Vec<usize>,
}

impl<'r> Reader<'r> {
    /// Creates a reader of `source`, which findings call `scope`.
    pub fn new(
        report: &'r mut Report,
        source: &Arc<Source>,
        codes: &'static Codes,
        scope: &'static str,
    ) -> Self {
        let (given, misspelt) = (Vec::new(), Vec::new());
        let (path, open) = (Vec::new(), Vec::new());
        let source = Arc::clone(source);
        Reader { report, given, misspelt, scope, source, codes, path, open }
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
        // YAML reads `{ weight:300 }` and `{ weight 300 }` as keys without a value.
        let (name, rest) = entry.key.split_at(entry.key.find([':', ' ', ';', '=']).unwrap_or(0));
        if keys.contains(&name) && matches!(entry.value.kind, Kind::Null) {
            let message = format!("`{}` is a key without a value", shortened(&entry.key));
            let value = rest.trim_start_matches([':', ' ', ';', '=']);
            let finding = self.codes.unknown_key.at(&self.key_place(entry), message, "");
            let help = format!("write `{name}: {}`, with a colon and a space", shortened(value));
            return self.report.push(finding.help(help));
        }
        // A key that is right in another place is not a misspelling here.
        let elsewhere = (self.codes.elsewhere)(&entry.key);
        let near = nearest(&entry.key, keys.iter().copied()).filter(|_| elsewhere.is_none());
        self.misspelt.extend(near);
        if self.report.is_full() {
            return self.report.leave_out();
        }
        let map = self.path.last().unwrap_or(&self.scope);
        let message = if map.is_empty() {
            format!("unknown key `{}`", shortened(&entry.key))
        } else {
            format!("unknown key `{}` in `{map}`", shortened(&entry.key))
        };
        let label = near.map(|name| format!("did you mean `{name}`?")).unwrap_or_default();
        let help = match &*entry.key {
            key if key.starts_with(|c: char| c.is_ascii_digit())
                && matches!(entry.value.kind, Kind::Null) =>
            {
                "the comma ends the value before it: decimals have a point, as in `1.5`".to_string()
            }
            "<<" => "merge keys are not supported: write the keys out".to_string(),
            key => match elsewhere {
                Some(map) => format!("`{key}` is a key of {map}"),
                None => format!("keys here: {}", listed(keys.iter().copied())),
            },
        };
        let finding = self.codes.unknown_key.at(&self.key_place(entry), message, label);
        self.report.push(finding.help(help));
    }

    /// Reports a missing required key, with the remedy `help`.
    pub fn missing_key(&mut self, node: &Node, key: &str, help: &str) {
        let Some(rule) = self.codes.missing_key else { return };
        // A misspelt key is one finding, not two.
        if !self.misspelt.contains(&key) {
            let begin = node.start as usize..node.start as usize + 1;
            let place = Place { source: Arc::clone(&self.source), span: begin };
            let finding = rule.at(&place, format!("`{key}` is missing"), "");
            self.report.push(finding.help(help));
        }
    }

    /// Reports a repeated key.
    pub fn duplicate(&mut self, first: &Entry, again: &Entry) {
        let message = format!("`{}` is given twice", shortened(&again.key));
        let first = self.key_place(first).label("first given here");
        let finding =
            self.codes.duplicate_key.at(&self.key_place(again), message, "given again here");
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
        // Most maps are small; a hash map for each of a million tenants is slow.
        const FEW: usize = 8;
        if entries.len() <= FEW {
            for (index, entry) in entries.iter().enumerate() {
                if let Some(first) = entries[..index].iter().find(|first| first.key == entry.key) {
                    self.duplicate(first, entry);
                }
            }
            return;
        }
        let mut seen: HashMap<&str, &Entry> = HashMap::with_capacity(entries.len());
        for entry in entries {
            let first = *seen.entry(&entry.key).or_insert(entry);
            if !std::ptr::eq(first, entry) {
                self.duplicate(first, entry);
            }
        }
    }

    // --- scalars ---

    /// Reports a value of the wrong type.
    pub fn wrong_type(&mut self, node: &Node, expected: &str, help: &str) {
        let message = format!("expected {expected}, found {}", node.describe());
        let brackets = node.only_item().filter(|_| help.is_empty());
        let brackets = brackets.map(|item| format!("drop the brackets: `{}`", shortened(item)));
        let help = brackets.as_deref().unwrap_or(help);
        self.find(&self.codes.wrong_type, node, message, help);
    }

    /// Reports a number out of range.
    pub fn out_of_range(&mut self, node: &Node, expected: &str) {
        let message = format!("{} is out of range", node.describe());
        self.find(&self.codes.out_of_range, node, message, format!("expected {expected}"));
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
        let finding = self.codes.unknown_word.at(&self.place(node), message, label);
        self.report.push(finding.help(format!("one of {}{further}", listed(words))));
    }

    /// Reads a number as YAML 1.2 and JSON write it, including `.nan` and `.inf`, which the rules report.
    pub fn number(&mut self, node: &Node, expected: &str, help: &str) -> Option<f64> {
        let (text, plain) = match &node.kind {
            Kind::Scalar { text, plain } => (&**text, *plain),
            _ => ("", false),
        };
        let number = parse_number(text);
        if plain && number.is_some() {
            return number;
        }
        match number {
            Some(_) => self.wrong_type(node, expected, &format!("drop the quotes: `{text}`")),
            None if node.only_item().is_some() => self.wrong_type(node, expected, ""),
            None => match text.replacen(',', ".", 1) {
                point if parse_number(&point).is_some() => {
                    self.wrong_type(node, expected, &format!("decimals have a point: `{point}`"));
                }
                _ => self.wrong_type(node, expected, help),
            },
        }
        None
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
