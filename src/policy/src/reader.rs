//! Reading a tree: scalars become values, and errors become findings.
//!
//! This file has the errors of a policy's single values: unknown and repeated keys, values of the wrong type,
//! unknown words. Reading goes on after a finding, with the default in place of the wrong value.
//! [`super::key`] defines the keys of a map. [`super::file`] shares the messages.

use std::collections::HashMap;
use std::sync::Arc;

use super::hint::{listed, nearest, oddity, shortened};
use super::report::{Report, Source};
use super::rules::{self, Rule};
use super::tree::{Entry, Kind, Node, Place};
use super::words;

/// Scope of the keys at the top.
pub(super) const POLICY_SCOPE: &str = "policy";

/// Keys of which one value may be a list.
const MATCH_LISTS: &[&str] = &["users", "groups", "unit", "cgroup"];

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

/// Maps of a policy that have a key of some name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Homes {
    /// Sections at the top.
    pub sections: Vec<&'static str>,
    /// True for the policy itself.
    pub is_of_policy: bool,
    /// True for a tenant.
    pub is_of_tenant: bool,
    /// Sections of a tenant.
    pub in_tenant: Vec<&'static str>,
}

impl Homes {
    /// The place of the key, if it is one; the sections of a tenant are one.
    fn place(&self) -> Option<String> {
        let mut places: Vec<String> =
            self.sections.iter().map(|section| format!("`{section}`")).collect();
        places.extend(self.is_of_policy.then(|| "the policy, at the top".to_string()));
        places.extend(self.is_of_tenant.then(|| "a tenant".to_string()));
        let in_tenant = (!self.in_tenant.is_empty()).then_some(&self.in_tenant);
        places.extend(in_tenant.map(|it| format!("{} of a tenant", listed(it.iter().copied()))));
        places.pop().filter(|_| places.is_empty())
    }

    /// The only section with the key, of those that can be in the map `of`.
    fn section(&self, of: &str) -> Option<&'static str> {
        let sections = match of {
            POLICY_SCOPE => &self.sections,
            "tenant" | "each" => &self.in_tenant,
            _ => return None,
        };
        sections.first().copied().filter(|_| sections.len() == 1 && self.place().is_some())
    }

    fn has(&self, section: &str) -> bool {
        self.sections.contains(&section) || self.in_tenant.contains(&section)
    }
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
    elsewhere: fn(&str) -> Homes,
    path: Vec<&'static str>,
    /// Open keys, as indices into `given`.
    open: Vec<usize>,
}

impl<'r> Reader<'r> {
    /// Creates a reader of `source`, which findings call `scope`. `elsewhere` names the maps of a policy with a key.
    pub fn new(
        report: &'r mut Report,
        source: &Arc<Source>,
        elsewhere: fn(&str) -> Homes,
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
        let help = node.oddity().map_or(help.into(), str::to_string);
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

    /// Reports a key that is not in `keys`; `above` is the entry above it in its map.
    pub fn unknown_key(&mut self, keys: &[&'static str], entry: &Entry, above: Option<&Entry>) {
        let is_empty = matches!(entry.value.kind, Kind::Null);
        let homes = (self.elsewhere)(&entry.key);
        let mut unknown = unknown_key(keys, &entry.key, is_empty, homes.place());
        self.misspelt.extend(unknown.near);
        let map = *self.path.last().unwrap_or(&self.scope);
        if map == POLICY_SCOPE {
            // A key that a wrong mark has joined with the text before it.
            self.misspelt.extend(keys.iter().filter(|name| entry.key.contains(**name)));
        }
        if self.report.is_full() {
            return self.report.leave_out();
        }
        if !unknown.is_value {
            if let Some(help) = self.remedy(map, &homes, entry, above) {
                (unknown.near, unknown.help) = (None, help);
            }
            unknown.message += &format!(" in `{map}`");
        }
        let label = unknown.near.map(|name| format!("did you mean `{name}`?")).unwrap_or_default();
        let finding = rules::UNKNOWN_KEY.at(&self.key_place(entry), unknown.message, label);
        self.report.push(finding.help(unknown.help));
    }

    /// The remedy for an unknown key of `map`, from its word, its value or the entry above it.
    fn remedy(
        &self,
        map: &str,
        homes: &Homes,
        entry: &Entry,
        above: Option<&Entry>,
    ) -> Option<String> {
        let key = shortened(&entry.key);
        if let Some(help) = oddity(&entry.key) {
            return Some(help.to_string());
        }
        if let Some(above) = above.filter(|above| homes.has(&above.key) && above.value.is_empty()) {
            return Some(format!("indent it more than `{}`, whose key it is", above.key));
        }
        let section = homes.section(map);
        let of_policy = section.filter(|_| map == POLICY_SCOPE);
        if let (Some(help), None) = (words::instead(map, &entry.key, Some(&entry.value)), of_policy)
        {
            return Some(help);
        }
        if let Some(section) = section {
            let value = words::flow(&entry.value).map_or("…".into(), |value| shortened(&value));
            let place = homes.place().unwrap_or_default();
            return Some(format!(
                "`{key}` is a key of {place}: write `{section}: {{ {key}: {value} }}`"
            ));
        }
        // YAML reads `{ users: ana, bob }` as a key without a value.
        let value = above.map(|above| (&above.key, &above.value.kind));
        match (&entry.value.kind, value) {
            (Kind::Null, Some((name, Kind::Scalar { text, .. })))
                if MATCH_LISTS.contains(&&**name) =>
            {
                let text = shortened(text);
                Some(format!("several values make a list: `{name}: [{text}, {key}]`"))
            }
            (_, Some((name, Kind::Scalar { text, .. }))) if entry.is_decimals() => {
                let text = shortened(text);
                Some(format!(
                    "decimals have a point: `{name}: {text}.{key}`, and the comma ends a value"
                ))
            }
            _ => None,
        }
    }

    /// Reports a value that is not a map with these keys.
    pub fn not_a_map(&mut self, node: &Node, keys: &[&'static str]) {
        if let Kind::Scalar { text, plain: true } = &node.kind
            && let Some((message, help)) = without_colon(keys, text)
        {
            return self.find(&rules::WRONG_TYPE, node, message, help);
        }
        let expected = format!("a map with {}", listed(keys.iter().copied()));
        self.wrong_type(node, &expected, &name_the_key(node, keys));
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
                self.wrong_type(node, expected, "write a key and a value for each");
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
        let choices = || format!("one of {}{further}", listed(words));
        self.report.push(finding.help(node.oddity().map_or_else(choices, str::to_string)));
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
        let number = self.number(node, expected, "write a whole number, without a unit")?;
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
    if let Some((message, help)) = without_colon(keys, key).filter(|_| is_empty) {
        return Unknown { message, is_value: true, near: None, help };
    }
    // A key that is right in another place is not a misspelling here.
    let near = nearest(key, keys.iter().copied()).filter(|_| elsewhere.is_none());
    let help = match (key, elsewhere) {
        (key, _) if key.starts_with(|c: char| c.is_ascii_digit()) && is_empty => {
            "the comma ends the value before it: decimals have a point, as in `1.5`".to_string()
        }
        ("<<", _) => "merge keys are not supported: write the keys out".to_string(),
        (key, Some(map)) => format!("`{}` is a key of {map}", shortened(key)),
        (_, None) => format!("keys here: {}", listed(keys.iter().copied())),
    };
    let message = format!("unknown key `{}`", shortened(key));
    Unknown { message, is_value: false, near, help }
}

/// Message and remedy for a key and its value that YAML reads as one text.
fn without_colon(keys: &[&'static str], text: &str) -> Option<(String, String)> {
    const MARKS: [char; 4] = [':', ' ', ';', '='];
    let (name, rest) = text.split_at(text.find(MARKS)?);
    let value = rest.trim_start_matches(MARKS).split_whitespace().next();
    let value = value.filter(|_| keys.contains(&name))?;
    let message = if rest.starts_with(':') {
        format!("no space after the colon of `{name}`")
    } else {
        format!("`{name}` has no colon")
    };
    Some((message, format!("write `{name}: {}`", shortened(value))))
}

/// Message and remedy for a value of the wrong type.
pub(super) fn mistyped(node: &Node, expected: &str, help: &str) -> (String, String) {
    let brackets = node.only_item().filter(|_| help.is_empty());
    let brackets = brackets.map(|item| format!("drop the brackets: `{}`", shortened(item)));
    let message = format!("expected {expected}, found {}", node.describe());
    let help = match &node.kind {
        _ if !help.is_empty() => help,
        Kind::Null => "give it a value, or remove the key",
        Kind::List(_) | Kind::Map(_) => "write one value, without brackets or keys",
        Kind::Scalar { .. } => "",
    };
    (message, brackets.unwrap_or(help.to_string()))
}

/// Remedy for another value than a map with these keys.
pub(super) fn name_the_key(node: &Node, keys: &[&str]) -> String {
    let text = match &node.kind {
        Kind::Scalar { text, .. } => Some(&**text),
        _ => node.only_item(),
    };
    // The key whose values look like this one.
    let looks = |text: &str| match text {
        path if path.starts_with('/') => "cgroup",
        size if size.starts_with(|c: char| c.is_ascii_digit())
            && size.ends_with(is_unit_of_memory) =>
        {
            "memory"
        }
        _ => "",
    };
    let looks = text.map_or("", looks);
    let Some(key) = keys.iter().find(|key| **key == looks).or(keys.first()) else {
        return String::new();
    };
    let is_unit = |text: &str| [".service", ".slice", ".scope"].iter().any(|it| text.ends_with(it));
    if let Some(unit) = text.filter(|text| is_unit(text) && keys.contains(&"match")) {
        return format!("write `match: {{ unit: {} }}`", shortened(unit));
    }
    if node.list().len() > 1 && node.list().iter().all(|it| matches!(it.kind, Kind::Map(_))) {
        return "write the keys without `-`".to_string();
    }
    match &node.kind {
        Kind::Scalar { text, .. } => {
            format!("name the key, as in `{{ {key}: {} }}`", shortened(text))
        }
        Kind::List(items) => {
            let one = items.first().filter(|_| items.len() == 1).and_then(words::flow);
            let value = one.map_or("…".into(), |one| shortened(&one));
            let named =
                if value.starts_with('{') { value } else { format!("{{ {key}: {value} }}") };
            format!("name the keys instead, as in `{named}`")
        }
        _ => String::new(),
    }
}

fn is_unit_of_memory(c: char) -> bool {
    matches!(c, 'B' | 'b' | 'i' | 'K' | 'M' | 'G' | 'T' | 'k' | 'g' | 't')
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
        None => Err(meant_number(text)),
    }
}

/// Remedy for a text that may be a number in another notation; empty for others.
fn meant_number(text: &str) -> String {
    let (point, plain) = (text.replacen(',', ".", 1), text.replace(['_', ',', '\''], ""));
    let hexadecimal = text.strip_prefix("0x").and_then(|it| u64::from_str_radix(it, 16).ok());
    let of_thousands = text.split(',').skip(1).all(|group| group.len() == 3);
    match hexadecimal {
        Some(number) => format!("numbers are decimal: `{number}`"),
        None if parse_number(&point).is_some() && text.contains(',') && of_thousands => {
            format!("decimals have a point: `{point}`; thousands have no comma: `{plain}`")
        }
        None if parse_number(&point).is_some() => format!("decimals have a point: `{point}`"),
        None if parse_number(&plain).is_some() => format!("write the digits alone: `{plain}`"),
        None => String::new(),
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
