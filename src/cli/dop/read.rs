//! An auto-DOP problem file, read: text in, a valid problem or every finding out.
//!
//! The text becomes a tree that remembers where everything stands; the tree becomes a [`Problem`], whose
//! constructor judges the numbers; what it finds is carried back to its place in the text.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::dop::target::{Field, Place, Problem, ProblemError, Query, Reason, Running, Width};
use crate::policy::Report;
use crate::policy::parse::{self, Budget, listed, nearest};
use crate::policy::report::{Diagnostic, Severity, Source};
use crate::policy::tree::{Entry, Kind, Node, shortened};
use crate::units::Bytes;

/// What can be wrong with a problem file. A code never changes its meaning.
mod code {
    /// The text is not YAML, or is more than we read.
    pub(super) const TEXT: &str = "D001";
    /// A key that does not belong there.
    pub(super) const UNKNOWN_KEY: &str = "D002";
    /// A key given twice.
    pub(super) const DUPLICATE_KEY: &str = "D003";
    /// A key that must be there and is not.
    pub(super) const MISSING_KEY: &str = "D004";
    /// A value of the wrong type.
    pub(super) const WRONG_TYPE: &str = "D005";
    /// A number or quantity that cannot be read, or is out of range.
    pub(super) const BAD_NUMBER: &str = "D006";
    /// A manual DOP and a maximum for the same query.
    pub(super) const MANUAL_AND_MAX: &str = "D007";
    /// A manual DOP that can never run.
    pub(super) const BEYOND_SLOTS: &str = "D008";
}

/// Values that aliases may add to those of the text.
const ALIASED: usize = 100_000;

/// What a problem file asks for.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) algorithm: Algorithm,
    pub(super) problem: Problem,
}

/// Which rule decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Elastic,
    Imci,
}

impl Algorithm {
    const ALL: [Algorithm; 2] = [Algorithm::Elastic, Algorithm::Imci];

    /// Its name in files and answers.
    pub(super) fn name(self) -> &'static str {
        match self {
            Algorithm::Elastic => "elastic",
            Algorithm::Imci => "imci",
        }
    }
}

const FILE_KEYS: [&str; 6] = ["algorithm", "slots", "max_per_query", "memory", "running", "queue"];
const RUNNING_KEYS: [&str; 2] = ["dop", "memory"];
const QUEUE_KEYS: [&str; 5] = ["manual", "max", "memory", "memory_per_thread", "weight"];

/// Reads a problem.
///
/// # Errors
/// Everything that is wrong with it; the first thing only, where that makes the rest unreadable.
pub(super) fn read(name: &str, text: Vec<u8>) -> Result<Task, Report> {
    let text = match String::from_utf8(text) {
        Ok(text) => text,
        Err(error) => {
            let mut reader = Reader::new(Source::new(name, ""));
            let byte = error.utf8_error().valid_up_to();
            reader.add(code::TEXT, 0..0, format!("byte {byte} is not UTF-8"), "");
            return Err(reader.into_report());
        }
    };
    let source = Source::new(name, text);
    let mut reader = Reader::new(Arc::clone(&source));
    // A text without aliases has no more values than bytes: what is beyond is a bomb.
    let budget = Budget { nodes: source.text().len() + ALIASED, ..Budget::PROBLEM };
    match parse::tree(source.text(), budget) {
        Ok(tree) => reader.task(&tree).ok_or_else(|| reader.into_report()),
        Err(unparsed) => {
            let help = unparsed.help.unwrap_or_default();
            reader.add(code::TEXT, unparsed.span, unparsed.message, help);
            Err(reader.into_report())
        }
    }
}

/// Findings kept until they are sorted. A file with more is not read but thrown away.
const MOST_FOUND: usize = 10_000;

/// Reads on after a finding, with a harmless value in the place of the bad one, to find the rest.
struct Reader {
    source: Arc<Source>,
    found: Vec<Diagnostic>,
}

impl Reader {
    fn new(source: Arc<Source>) -> Reader {
        Reader { source, found: Vec::new() }
    }

    /// The findings in the order of the text.
    fn into_report(mut self) -> Report {
        self.found.sort_by_key(|finding| {
            (finding.labels.first().map_or(0, |label| label.span.start), finding.code)
        });
        let mut report = Report::default();
        self.found.into_iter().for_each(|finding| report.push(finding));
        report
    }

    fn push(&mut self, finding: Diagnostic) {
        if self.found.len() < MOST_FOUND {
            self.found.push(finding);
        }
    }

    fn add(
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

    /// The task, unless there are findings.
    fn task(&mut self, tree: &Node) -> Option<Task> {
        let file = self.map(tree, "a map with `algorithm`, `slots` and `queue`")?;
        self.check_keys(file, &FILE_KEYS);
        let start = tree.start as usize;
        for (key, example) in [
            ("algorithm", "add `algorithm: elastic`, or imci"),
            ("slots", "say what there is: `slots: 16`"),
            ("queue", "say who waits: `queue: [{ max: 4 }, {}]`"),
        ] {
            if get(file, key).is_none() {
                let message = format!("`{key}` is missing");
                self.add(code::MISSING_KEY, start..start + 1, message, example);
            }
        }
        let algorithm = get(file, "algorithm").and_then(|entry| self.algorithm(&entry.value));
        let slots = get(file, "slots").and_then(|entry| self.count(&entry.value));
        let max_per_query = get(file, "max_per_query").and_then(|entry| self.count(&entry.value));
        let memory = get(file, "memory").and_then(|entry| self.amount(&entry.value));
        let running = get(file, "running").map(|entry| self.running(&entry.value));
        let queue = get(file, "queue").map(|entry| self.queue(&entry.value));
        // Without slots to compare with, no manual DOP is beyond them.
        let judged = Problem::try_new(
            slots.unwrap_or(Problem::SLOTS_MAX),
            max_per_query,
            memory,
            running.unwrap_or_default(),
            queue.unwrap_or_default(),
        );
        for error in judged.as_ref().err().into_iter().flatten() {
            self.judge(file, error);
        }
        match self.found.is_empty() {
            true => Some(Task { algorithm: algorithm?, problem: judged.ok()? }),
            false => None,
        }
    }

    fn algorithm(&mut self, node: &Node) -> Option<Algorithm> {
        let names = || Algorithm::ALL.into_iter().map(Algorithm::name);
        let Kind::Scalar { text, .. } = &node.kind else {
            self.wrong_type(node, &format!("one of {}", listed(names())));
            return None;
        };
        let known = Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == &**text);
        if known.is_none() {
            let help = match nearest(text, names()) {
                Some(name) => format!("did you mean `{name}`?"),
                None => format!("one of {}", listed(names())),
            };
            let message = format!("unknown algorithm `{}`", shortened(text));
            self.add(code::WRONG_TYPE, node.span(), message, help);
        }
        known
    }

    fn running(&mut self, node: &Node) -> Vec<Running> {
        let items = self.list(node, "a list such as `[{ dop: 2 }]`");
        items.iter().map(|item| self.running_query(item)).collect()
    }

    fn running_query(&mut self, node: &Node) -> Running {
        let Some(fields) = self.map(node, "a map such as `{ dop: 2 }`") else {
            return Running::default();
        };
        self.check_keys(fields, &RUNNING_KEYS);
        if get(fields, "dop").is_none() {
            let help = "say how many slots it has: `{ dop: 2 }`";
            self.add(code::MISSING_KEY, node.span(), "`dop` is missing", help);
        }
        Running {
            dop: get(fields, "dop").and_then(|entry| self.count(&entry.value)).unwrap_or(0),
            memory: get(fields, "memory").and_then(|e| self.amount(&e.value)).unwrap_or(0.0),
        }
    }

    fn queue(&mut self, node: &Node) -> Vec<Query> {
        let items = self.list(node, "a list such as `[{ max: 4 }, {}]`");
        items.iter().map(|item| self.query(item)).collect()
    }

    fn query(&mut self, node: &Node) -> Query {
        let Some(fields) = self.map(node, "a map such as `{ max: 4 }`, or `{}`") else {
            return Query::default();
        };
        self.check_keys(fields, &QUEUE_KEYS);
        let manual = get(fields, "manual");
        let max = get(fields, "max");
        if let (Some(manual), Some(max)) = (manual, max) {
            let message = "`manual` and `max` exclude each other";
            let finding =
                Diagnostic::new(code::MANUAL_AND_MAX, Severity::Error, &self.source, message)
                    .at(max.span(), "a bound for a DOP that is found")
                    .at(manual.span(), "the DOP is given here")
                    .help("keep one of them");
            self.push(finding);
        }
        let manual = manual.and_then(|entry| self.count(&entry.value)).map(Width::Manual);
        let max = max.and_then(|entry| self.count(&entry.value)).map(Width::AtMost);
        let mut amount =
            |key: &str| get(fields, key).and_then(|entry| self.amount(&entry.value)).unwrap_or(0.0);
        let (memory, memory_per_thread) = (amount("memory"), amount("memory_per_thread"));
        let weight = get(fields, "weight").and_then(|entry| self.number(&entry.value));
        Query {
            width: manual.or(max).unwrap_or_default(),
            weight: weight.unwrap_or(1.0),
            memory,
            memory_per_thread,
        }
    }
}

/// Single values and keys.
impl Reader {
    fn map<'t>(&mut self, node: &'t Node, expected: &str) -> Option<&'t [Entry]> {
        match &node.kind {
            Kind::Map(entries) => Some(entries),
            _ => {
                self.wrong_type(node, expected);
                None
            }
        }
    }

    fn list<'t>(&mut self, node: &'t Node, expected: &str) -> &'t [Node] {
        match &node.kind {
            Kind::List(items) => items,
            _ => {
                self.wrong_type(node, expected);
                &[]
            }
        }
    }

    fn wrong_type(&mut self, node: &Node, expected: &str) {
        let message = format!("expected {expected}, found {}", node.describe());
        self.add(code::WRONG_TYPE, node.span(), message, "");
    }

    fn check_keys(&mut self, entries: &[Entry], known: &[&str]) {
        let mut seen: HashMap<&str, Range<usize>> = HashMap::new();
        for entry in entries {
            if let Some(first) = seen.insert(&entry.key, entry.span()) {
                let message = format!("`{}` is given twice", shortened(&entry.key));
                let finding =
                    Diagnostic::new(code::DUPLICATE_KEY, Severity::Error, &self.source, message)
                        .at(entry.span(), "")
                        .at(first, "first here");
                self.push(finding);
            } else if !known.contains(&&*entry.key) {
                let help = match nearest(&entry.key, known.iter().copied()) {
                    Some(name) => format!("did you mean `{name}`?"),
                    None => format!("known here: {}", listed(known.iter().copied())),
                };
                let message = format!("unknown key `{}`", shortened(&entry.key));
                self.add(code::UNKNOWN_KEY, entry.span(), message, help);
            }
        }
    }

    /// A whole number that is not negative.
    fn count(&mut self, node: &Node) -> Option<u64> {
        let number = self.number(node)?;
        // Beyond 2^53 not every whole number is one; nothing here comes near.
        if number.fract() == 0.0 && (0.0..=9e15).contains(&number) {
            return Some(number as u64);
        }
        let message = format!("expected a whole number, found {}", node.describe());
        self.add(code::BAD_NUMBER, node.span(), message, "a DOP is a number of slots, from 1");
        None
    }

    /// A number, NaN and infinity included: whether they make sense is judged later.
    fn number(&mut self, node: &Node) -> Option<f64> {
        match &node.kind {
            Kind::Scalar { text, plain: true } => {
                let number = parse_number(text);
                if number.is_none() {
                    self.wrong_type(node, "a number");
                }
                number
            }
            _ => {
                self.wrong_type(node, "a number");
                None
            }
        }
    }

    /// A plain number, or a quantity of memory in bytes.
    fn amount(&mut self, node: &Node) -> Option<f64> {
        let Kind::Scalar { text, plain } = &node.kind else {
            self.wrong_type(node, "an amount of memory");
            return None;
        };
        if let (Some(number), true) = (parse_number(text), *plain) {
            return Some(number);
        }
        match text.parse::<Bytes>() {
            Ok(bytes) => Some(bytes.0 as f64),
            Err(error) => {
                let message = format!("expected an amount of memory, found {}", node.describe());
                self.add(code::BAD_NUMBER, node.span(), message, error.help);
                None
            }
        }
    }

    /// Carries what is wrong with a problem back to its place in the text.
    fn judge(&mut self, file: &[Entry], error: &ProblemError) {
        let item = |key: &str, index: usize| match get(file, key).map(|entry| &entry.value.kind) {
            Some(Kind::List(items)) => items.get(index),
            _ => None,
        };
        let field = |item: Option<&Node>, key: &str| match item.map(|item| &item.kind) {
            Some(Kind::Map(fields)) => get(fields, key).map(|entry| entry.value.span()),
            _ => None,
        };
        let own = |key: &str| get(file, key).map(|entry| entry.value.span());
        let (span, name) = match error.place {
            Place::Slots => (own("slots"), "slots"),
            Place::MaxPerQuery => (own("max_per_query"), "max_per_query"),
            Place::Memory => (own("memory"), "memory"),
            Place::Running(index) => (field(item("running", index), "memory"), "memory"),
            Place::Queue(index, part) => (field(item("queue", index), part.key()), part.key()),
        };
        let message = format!("`{name}` {}", error.reason);
        let (code, help) = match (error.reason, error.place) {
            (Reason::BeyondSlots { .. }, _) => {
                (code::BEYOND_SLOTS, "it would wait for ever: lower it, or use `max`")
            }
            (Reason::Zero, Place::Queue(_, Field::Manual | Field::Max)) => (
                code::BAD_NUMBER,
                "a query runs on at least one slot; leave it out to keep it from running",
            ),
            _ => (code::BAD_NUMBER, ""),
        };
        self.add(code, span.unwrap_or(0..0), message, help);
    }
}

/// A number as YAML and JSON write it.
fn parse_number(text: &str) -> Option<f64> {
    match text {
        ".nan" | ".NaN" | ".NAN" => return Some(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" => return Some(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Some(f64::NEG_INFINITY),
        _ => {}
    }
    let numeric = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
    let has_digit = text.bytes().any(|byte| byte.is_ascii_digit());
    (has_digit && text.bytes().all(numeric)).then(|| text.parse().ok())?
}

/// The entry of a map under a key; the first, where it is given twice.
fn get<'t>(entries: &'t [Entry], key: &str) -> Option<&'t Entry> {
    entries.iter().find(|entry| &*entry.key == key)
}
