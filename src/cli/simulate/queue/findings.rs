//! The possible errors of a scenario, and its single values: each is a value, or a finding with its place.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::policy::Report;
use crate::policy::hint::{listed, nearest, shortened};
use crate::policy::reader::parse_number;
use crate::policy::report::{Diagnostic, Severity, Source};
use crate::policy::tree::{Entry, Kind, Node};

/// A code never changes its meaning.
pub(super) mod code {
    /// The text is not YAML, or is more than the limit.
    pub(in super::super) const TEXT: &str = "Q001";
    /// A key that does not belong there.
    pub(in super::super) const UNKNOWN_KEY: &str = "Q002";
    /// A key given twice.
    pub(in super::super) const DUPLICATE_KEY: &str = "Q003";
    /// A required key that is missing.
    pub(in super::super) const MISSING_KEY: &str = "Q004";
    /// A value of the wrong type.
    pub(in super::super) const WRONG_TYPE: &str = "Q005";
    /// A number out of its range.
    pub(in super::super) const BAD_NUMBER: &str = "Q006";
    /// A tenant or a resource that is not defined, or is defined twice.
    pub(in super::super) const NAME: &str = "Q007";
    /// Keys that exclude each other.
    pub(in super::super) const CONFLICT: &str = "Q008";
    /// A simulation without an end in sight.
    pub(in super::super) const TOO_LONG: &str = "Q009";
}

/// Findings kept until they are sorted. A file with more is rejected without further reading.
const MOST_FOUND: usize = 10_000;

/// The findings of one file.
#[derive(Debug)]
pub(super) struct Findings {
    pub(super) source: Arc<Source>,
    found: Vec<Diagnostic>,
}

/// The ranges of numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowed {
    pub(super) range: (f64, f64),
    pub(super) words: &'static str,
}

impl Allowed {
    pub(super) const POSITIVE: Allowed =
        Allowed { range: (f64::MIN_POSITIVE, 1e15), words: "above 0 and at most 1e15" };
    pub(super) const NOT_NEGATIVE: Allowed =
        Allowed { range: (0.0, 1e15), words: "from 0 to 1e15" };
    pub(super) const PART: Allowed = Allowed { range: (0.0, 1.0), words: "from 0 to 1" };
    pub(super) const ANY: Allowed = Allowed { range: (-1e15, 1e15), words: "from -1e15 to 1e15" };
}

impl Findings {
    pub(super) fn new(source: Arc<Source>) -> Findings {
        Findings { source, found: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// The findings in the order of the text.
    pub(super) fn into_report(mut self) -> Report {
        let place = |finding: &Diagnostic| {
            (finding.labels.first().map_or(0, |label| label.span.start), finding.code)
        };
        self.found.sort_by_key(place);
        let mut report = Report::default();
        self.found.into_iter().for_each(|finding| report.push(finding));
        report
    }

    fn push(&mut self, finding: Diagnostic) {
        if self.found.len() < MOST_FOUND {
            self.found.push(finding);
        }
    }

    pub(super) fn add(
        &mut self,
        code: &'static str,
        span: Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        let help = help.into();
        let finding = Diagnostic::new(code, Severity::Error, &self.source, message).at(span, "");
        self.push(if help.is_empty() { finding } else { finding.help(help) });
    }

    pub(super) fn wrong_type(&mut self, node: &Node, expected: &str) {
        let message = format!("expected {expected}, found {}", node.describe());
        self.add(code::WRONG_TYPE, node.span(), message, "");
    }

    pub(super) fn map<'t>(&mut self, node: &'t Node, expected: &str) -> &'t [Entry] {
        match &node.kind {
            Kind::Map(entries) => entries,
            _ => {
                self.wrong_type(node, expected);
                &[]
            }
        }
    }

    pub(super) fn list<'t>(&mut self, node: &'t Node, expected: &str) -> &'t [Node] {
        match &node.kind {
            Kind::List(items) => items,
            _ => {
                self.wrong_type(node, expected);
                &[]
            }
        }
    }

    pub(super) fn text<'t>(&mut self, node: &'t Node, expected: &str) -> Option<&'t str> {
        match &node.kind {
            Kind::Scalar { text, .. } => Some(text),
            _ => {
                self.wrong_type(node, expected);
                None
            }
        }
    }

    pub(super) fn flag(&mut self, node: &Node) -> Option<bool> {
        match &node.kind {
            Kind::Scalar { text, plain: true } if &**text == "true" => Some(true),
            Kind::Scalar { text, plain: true } if &**text == "false" => Some(false),
            _ => {
                self.wrong_type(node, "`true` or `false`");
                None
            }
        }
    }

    /// One of some names.
    pub(super) fn one_of<T: Copy>(&mut self, node: &Node, names: &[(&str, T)]) -> Option<T> {
        let known = || names.iter().map(|(name, _)| *name);
        let text = self.text(node, &format!("one of {}", listed(known())))?;
        let found = names.iter().find(|(name, _)| *name == text);
        if found.is_none() {
            let help = match nearest(text, known()) {
                Some(name) => format!("did you mean `{name}`?"),
                None => format!("one of {}", listed(known())),
            };
            let message = format!("unknown value `{}`", shortened(text));
            self.add(code::WRONG_TYPE, node.span(), message, help);
        }
        found.map(|(_, value)| *value)
    }

    /// A number in its range.
    pub(super) fn number(&mut self, node: &Node, allowed: Allowed) -> Option<f64> {
        let number = match &node.kind {
            Kind::Scalar { text, plain: true } => parse_number(text),
            _ => None,
        };
        let Some(number) = number else {
            self.wrong_type(node, "a number");
            return None;
        };
        let (low, high) = allowed.range;
        if (low..=high).contains(&number) {
            return Some(number);
        }
        let message = format!("{} is out of range", node.describe());
        let help = format!("it has to be {}", allowed.words);
        self.add(code::BAD_NUMBER, node.span(), message, help);
        None
    }

    /// A whole number from `low` to `high`.
    pub(super) fn count(&mut self, node: &Node, low: u64, high: u64) -> Option<u64> {
        let number = self.number(node, Allowed::ANY)?;
        if number.fract() == 0.0 && number >= low as f64 && number <= high as f64 {
            return Some(number as u64);
        }
        let message = format!("{} is not possible here", node.describe());
        let help = format!("it has to be a whole number from {low} to {high}");
        self.add(code::BAD_NUMBER, node.span(), message, help);
        None
    }

    pub(super) fn check_keys(&mut self, entries: &[Entry], known: &[&str]) {
        self.check_duplicates(entries);
        for entry in entries.iter().filter(|entry| !known.contains(&&*entry.key)) {
            let help = match nearest(&entry.key, known.iter().copied()) {
                Some(name) => format!("did you mean `{name}`?"),
                None => format!("known here: {}", listed(known.iter().copied())),
            };
            let message = format!("unknown key `{}`", shortened(&entry.key));
            self.add(code::UNKNOWN_KEY, entry.span(), message, help);
        }
    }

    pub(super) fn check_duplicates(&mut self, entries: &[Entry]) {
        let mut seen: HashMap<&str, Range<usize>> = HashMap::new();
        for entry in entries {
            if let Some(first) = seen.insert(&entry.key, entry.span()) {
                let message = format!("`{}` is given twice", shortened(&entry.key));
                let finding =
                    Diagnostic::new(code::DUPLICATE_KEY, Severity::Error, &self.source, message)
                        .at(entry.span(), "")
                        .at(first, "first here");
                self.push(finding);
            }
        }
    }
}

/// The entry of a map under a key; the first, where it is given twice.
pub(super) fn get<'t>(entries: &'t [Entry], key: &str) -> Option<&'t Entry> {
    entries.iter().find(|entry| &*entry.key == key)
}
