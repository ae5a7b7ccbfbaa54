//! Reading a tree: scalars become values, and errors become findings.
//!
//! This file has what all files share: unknown, repeated and missing keys, values of the wrong type, words
//! that are not among the choices. Files differ in the [`Codes`] of their findings. Reading goes on after a
//! finding, with the default in place of the wrong value. [`super::key`] defines which keys a map has.

use std::collections::HashMap;
use std::sync::Arc;

use super::hint::{listed, nearest, shortened};
use super::report::{Report, Source};
use super::rules::Rule;
use super::tree::{Entry, Kind, Node, Place};

/// The rules that any file can break, with the codes that a kind of file has for them.
#[derive(Clone, Copy, Debug)]
pub struct Codes {
    /// A key that does not belong there.
    pub unknown_key: Rule,
    /// A key given twice.
    pub duplicate_key: Rule,
    /// A required key that is missing; none where a file may leave it to a different one.
    pub missing_key: Option<Rule>,
    /// A value of the wrong type.
    pub wrong_type: Rule,
    /// A word that is not one of the choices.
    pub unknown_word: Rule,
    /// A number out of range.
    pub out_of_range: Rule,
    /// The only other map of the file that has a key of this name, by its name in messages.
    pub elsewhere: fn(&str) -> Option<String>,
}

/// Where a key was given.
#[derive(Clone, Debug)]
pub struct Given {
    /// The key with those above it: `limit.cpu`.
    pub path: String,
    /// The key.
    pub key: Place,
    /// Its value, or the items of its list: those without a finding.
    pub values: Vec<Place>,
}

/// Reads the tree of one file.
#[derive(Debug)]
pub struct Reader<'r> {
    /// What was found.
    pub report: &'r mut Report,
    /// Where each key was given, in the order of the text.
    pub given: Vec<Given>,
    /// Misspelt keys, by their probable correction.
    pub misspelt: Vec<&'static str>,
    /// The name of the map whose keys are being read.
    pub scope: &'static str,
    source: Arc<Source>,
    codes: &'static Codes,
    path: Vec<&'static str>,
    /// The keys that were entered, as indices into `given`.
    open: Vec<usize>,
}

impl<'r> Reader<'r> {
    /// Reads the file of `source`, which findings call `scope`.
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

    /// The place of a value.
    pub fn place(&self, node: &Node) -> Place {
        Place { source: Arc::clone(&self.source), span: node.span() }
    }

    /// The place of a key.
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

    /// Enters a key: what is read until [`Self::leave`] is its value.
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

    /// Notes the place of an item of the list that is being read, which was accepted.
    pub fn accept(&mut self, item: &Node) {
        let place = self.place(item);
        if let Some(given) = self.given.last_mut() {
            given.values.push(place);
        }
    }

    /// Reports a key that is none of `keys`.
    pub fn unknown_key(&mut self, keys: &[&'static str], entry: &Entry) {
        // `{ weight:300 }` and `{ weight 300 }` are keys without a value to YAML.
        let (name, rest) = entry.key.split_at(entry.key.find([':', ' ', ';', '=']).unwrap_or(0));
        if keys.contains(&name) && matches!(entry.value.kind, Kind::Null) {
            let message = format!("`{}` is a key without a value", shortened(&entry.key));
            let value = rest.trim_start_matches([':', ' ', ';', '=']);
            let finding = self.codes.unknown_key.at(&self.key_place(entry), message, "");
            let help = format!("write `{name}: {}`, with a colon and a space", shortened(value));
            return self.report.push(finding.help(help));
        }
        // A key that is right in another place is no misspelling here.
        let elsewhere = (self.codes.elsewhere)(&entry.key);
        let near = nearest(&entry.key, keys.iter().copied()).filter(|_| elsewhere.is_none());
        self.misspelt.extend(near);
        if self.report.is_full() {
            return self.report.leave_out();
        }
        let map = self.path.last().unwrap_or(&self.scope);
        let message = match map.is_empty() {
            true => format!("unknown key `{}`", shortened(&entry.key)),
            false => format!("unknown key `{}` in `{map}`", shortened(&entry.key)),
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

    /// Reports a required key that is missing: `help` says what to write.
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

    /// Reports a key that is given twice.
    pub fn duplicate(&mut self, first: &Entry, again: &Entry) {
        let message = format!("`{}` is given twice", shortened(&again.key));
        let first = self.key_place(first).label("first given here");
        let finding =
            self.codes.duplicate_key.at(&self.key_place(again), message, "given again here");
        self.report.push(finding.also(first).help("remove one of them"));
    }

    /// The entries of a map with keys of any name; none where it is not a map, which is reported.
    pub fn map<'n>(&mut self, node: &'n Node, expected: &str) -> &'n [Entry] {
        match &node.kind {
            Kind::Map(entries) => entries,
            _ => {
                self.wrong_type(node, expected, "");
                &[]
            }
        }
    }

    /// The items of a list; none where it is not a list, which is reported.
    pub fn list<'n>(&mut self, node: &'n Node, expected: &str) -> &'n [Node] {
        match &node.kind {
            Kind::List(items) => items,
            _ => {
                self.wrong_type(node, expected, "");
                &[]
            }
        }
    }

    /// Reports the names of a map that are given twice.
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

    /// A text.
    pub fn text<'n>(&mut self, node: &'n Node, expected: &str) -> Option<&'n str> {
        match &node.kind {
            Kind::Scalar { text, .. } => Some(text),
            _ => {
                self.wrong_type(node, expected, "");
                None
            }
        }
    }

    /// One of some words.
    pub fn word<T: Copy>(&mut self, node: &Node, words: &[(&'static str, T)]) -> Option<T> {
        let names = || words.iter().map(|(word, _)| *word);
        let text = self.text(node, &format!("one of {}", listed(names())))?;
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            self.unknown_word(node, text, names(), "");
        }
        found
    }

    /// Reports a text that is none of some words, nor what `further` names.
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

    /// A number as YAML 1.2 and JSON write it, `.nan` and `.inf` included: the rules report those.
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
            // `[1]` and `1,5`.
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

    /// A whole number of a range.
    pub fn whole(&mut self, node: &Node, most: u32, expected: &str) -> Option<u32> {
        let number = self.number(node, expected, "")?;
        // Only digits: `1.0` is a different kind of number, as it is in the schema.
        let whole = number.fract() == 0.0 && (1.0..=f64::from(most)).contains(&number);
        if !whole || !matches!(&node.kind, Kind::Scalar { text, .. } if !text.contains('.')) {
            self.out_of_range(node, &format!("a whole number from 1 to {most}"));
            return None;
        }
        Some(number as u32)
    }
}

/// A number as YAML 1.2 and JSON write it. A negative zero is 0: no quantity has two, and a quotient by it would be
/// infinite in the other direction.
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

/// The number, with 0 for a negative zero.
pub fn without_sign_of_zero(number: f64) -> f64 {
    if number == 0.0 { 0.0 } else { number }
}
