//! An auto-DOP problem file, read: text in, a valid problem or every finding out.
//!
//! The text becomes a tree that keeps every place; the tree is read by the tables below; the constructor of
//! [`Problem`] judges the numbers, and what it finds is carried back to its place in the text.

use crate::problem;
use tenantd_core::units::Bytes;
use tenantd_dop::target::{Field, Place, Problem, ProblemError, Query, Reason, Running, Width};
use tenantd_policy::Report;
use tenantd_policy::forms::Word;
use tenantd_policy::hint::shortened;
use tenantd_policy::key::Flag::Needed;
use tenantd_policy::key::{Form, Key, section, table};
use tenantd_policy::parse::Budget;
use tenantd_policy::reader::{Codes, Reader, parse_number};
use tenantd_policy::rules::Rule;
use tenantd_policy::tree::{Entry, Kind, Node};
use tenantd_policy::types::Words;

/// The text is not YAML, or more than is read.
const TEXT: Rule = Rule::error("D001", "a text that cannot be read");
const WRONG_TYPE: Rule = Rule::error("D005", "a value of the wrong type");
const BAD_NUMBER: Rule = Rule::error("D006", "a number out of range");
const MANUAL_AND_MAX: Rule = Rule::error("D007", "a manual DOP and a maximum for one query");
const BEYOND_SLOTS: Rule = Rule::error("D008", "a manual DOP that can never run");

/// A code never changes its meaning.
static CODES: Codes = Codes {
    unknown_key: Rule::error("D002", "an unknown key"),
    duplicate_key: Rule::error("D003", "a key given twice"),
    missing_key: Some(Rule::error("D004", "a missing key")),
    wrong_type: WRONG_TYPE,
    unknown_word: WRONG_TYPE,
    out_of_range: BAD_NUMBER,
    elsewhere: |_| None,
};

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

impl Words for Algorithm {
    const WORDS: &'static [(&'static str, Algorithm)] =
        &[("elastic", Algorithm::Elastic), ("imci", Algorithm::Imci)];
}

section! {
    /// A problem file.
    struct File, FILE {
        /// Which rule decides.
        "algorithm" => algorithm: Option<Algorithm>, Word,
            [Needed("add `algorithm: elastic`, or imci")];
        /// Units of parallelism, those of running queries included.
        "slots" => slots: Option<u64>, Slots, [Needed("say what there is: `slots: 16`")];
        /// The most slots of one query.
        "max_per_query" => max_per_query: Option<u64>, Slots;
        /// Memory that all queries share, a number or a quantity; without it memory does not bind.
        "memory" => memory: Option<f64>, Memory;
        /// What runs already.
        "running" => running: Vec<Running>, List { keys: RUNNING, example: "{ dop: 2 }" };
        /// What waits, in order.
        "queue" => queue: Vec<Waiting>, List { keys: QUEUE, example: "{ max: 4 }" },
            [Needed("say what waits: `queue: [{ max: 4 }, {}]`")];
    }
}

table! {
    RUNNING: Running {
        /// Its slots.
        "dop" => dop: u64, Slots, [Needed("say how many slots it has: `{ dop: 2 }`")];
        /// Its memory.
        "memory" => memory: f64, Memory;
    }
}

section! {
    /// A query that waits.
    struct Waiting, QUEUE {
        /// Exactly this wide.
        "manual" => manual: Option<u64>, Slots;
        /// At most this wide.
        "max" => max: Option<u64>, Slots;
        /// Memory that it needs whatever its width.
        "memory" => memory: f64, Memory;
        /// Memory for each slot.
        "memory_per_thread" => memory_per_thread: f64, Memory;
        /// Its weight against the others.
        "weight" => weight: f64 = 1.0, Plain;
    }
}

/// Reads a problem.
///
/// # Errors
/// Everything that is wrong with it; the first thing only, where that makes the rest unreadable.
pub(super) fn read(name: &str, text: Vec<u8>) -> Result<Task, Report> {
    let (source, tree) = problem::tree(name, text, Budget::PROBLEM.depth, &TEXT)?;
    let mut report = Report::default();
    let task = task(&mut Reader::new(&mut report, &source, &CODES, ""), &tree);
    report.sort(&[source]);
    task.ok_or(report)
}

/// The task, unless there are findings.
fn task(reader: &mut Reader<'_>, tree: &Node) -> Option<Task> {
    let mut file = File::default();
    if matches!(tree.kind, Kind::Map(_)) {
        reader.keys(FILE, tree, &mut file);
    } else {
        reader.wrong_type(tree, "a map with `algorithm`, `slots` and `queue`", "");
    }
    let queue = file.queue.iter().map(|waiting| Query {
        width: match (waiting.manual, waiting.max) {
            (Some(dop), _) => Width::Manual(dop),
            (None, Some(max)) => Width::AtMost(max),
            (None, None) => Width::Auto,
        },
        weight: waiting.weight,
        memory: waiting.memory,
        memory_per_thread: waiting.memory_per_thread,
    });
    // Without slots to compare with, no manual DOP is beyond them.
    let slots = file.slots.unwrap_or(Problem::SLOTS_MAX);
    let queue = queue.collect();
    let judged = Problem::try_new(slots, file.max_per_query, file.memory, file.running, queue);
    for error in judged.as_ref().err().into_iter().flatten() {
        judge(reader, tree, error);
    }
    match reader.report.has_errors() {
        true => None,
        false => Some(Task { algorithm: file.algorithm?, problem: judged.ok()? }),
    }
}

/// Carries what is wrong with a problem back to its place in the text.
fn judge(reader: &mut Reader<'_>, tree: &Node, error: &ProblemError) {
    let item = |key: &str, index: usize| match entry(Some(tree), key).map(|e| &e.value.kind) {
        Some(Kind::List(items)) => items.get(index),
        _ => None,
    };
    let (entry, name) = match error.place {
        Place::Slots => (entry(Some(tree), "slots"), "slots"),
        Place::MaxPerQuery => (entry(Some(tree), "max_per_query"), "max_per_query"),
        Place::Memory => (entry(Some(tree), "memory"), "memory"),
        Place::Running(index) => (entry(item("running", index), "memory"), "memory"),
        Place::Queue(index, part) => (entry(item("queue", index), part.key()), part.key()),
    };
    let (rule, help) = match (error.reason, error.place) {
        (Reason::BeyondSlots { .. }, _) => {
            (BEYOND_SLOTS, "it would wait for ever: lower it, or use `max`")
        }
        (Reason::Zero, Place::Queue(_, Field::Manual | Field::Max)) => {
            (BAD_NUMBER, "a query runs on at least one slot; leave it out to keep it from running")
        }
        _ => (BAD_NUMBER, ""),
    };
    let node = entry.map_or(tree, |entry| &entry.value);
    reader.find(&rule, node, format!("`{name}` {}", error.reason), help);
}

/// The entry of a map under a key; the first, where it is given twice.
fn entry<'t>(map: Option<&'t Node>, key: &str) -> Option<&'t Entry> {
    match &map?.kind {
        Kind::Map(entries) => entries.iter().find(|entry| &*entry.key == key),
        _ => None,
    }
}

// --- the forms of the values ---

/// A list of maps with the keys of a table.
struct List<M: 'static> {
    keys: &'static [Key<M>],
    example: &'static str,
}

impl<M: PartialEq + Default> Form<Vec<M>> for List<M> {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut Vec<M>) {
        let Kind::List(items) = &node.kind else {
            return reader.wrong_type(
                node,
                &format!("a list such as `[{}, {{}}]`", self.example),
                "",
            );
        };
        for item in items {
            let mut value = M::default();
            match &item.kind {
                Kind::Map(_) => {
                    if let Some(fields) = reader.fields(self.keys, item) {
                        if let (Some(manual), Some(max)) = (fields.get("manual"), fields.get("max"))
                        {
                            let message = "`manual` and `max` exclude each other";
                            let manual = reader.key_place(manual).label("the DOP is given here");
                            let place = reader.key_place(max);
                            let finding = MANUAL_AND_MAX.at(
                                &place,
                                message,
                                "a bound for a DOP that is found",
                            );
                            reader.report.push(finding.also(manual).help("keep one of them"));
                        }
                        reader.values(&fields, &mut value);
                    }
                }
                _ => reader.wrong_type(
                    item,
                    &format!("a map such as `{}`, or `{{}}`", self.example),
                    "",
                ),
            }
            // One for each item, so that indices stay.
            into.push(value);
        }
    }
}

/// A whole number that is not negative.
struct Slots;

impl Form<Option<u64>> for Slots {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut Option<u64>) {
        let Some(number) = reader.number(node, "a number", "") else { return };
        // Beyond 2^53 not every whole number is one; nothing here comes near.
        match number.fract() == 0.0 && (0.0..=9e15).contains(&number) {
            true => *into = Some(number as u64),
            false => {
                let message = format!("expected a whole number, found {}", node.describe());
                reader.find(&BAD_NUMBER, node, message, "a DOP is a number of slots, from 1");
            }
        }
    }
}

impl Form<u64> for Slots {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut u64) {
        let mut slots = None;
        Form::<Option<u64>>::read(self, reader, node, &mut slots);
        *into = slots.unwrap_or(*into);
    }
}

/// A number, NaN and infinity included: the problem judges it.
struct Plain;

impl Form<f64> for Plain {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut f64) {
        *into = reader.number(node, "a number", "").unwrap_or(*into);
    }
}

/// A plain number, or a quantity of memory in bytes.
struct Memory;

impl Form<Option<f64>> for Memory {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut Option<f64>) {
        let Kind::Scalar { text, plain } = &node.kind else {
            return reader.wrong_type(node, "an amount of memory", "");
        };
        if let (Some(number), true) = (parse_number(text), *plain) {
            *into = Some(number);
            return;
        }
        match text.parse::<Bytes>() {
            Ok(bytes) => *into = Some(bytes.0 as f64),
            Err(error) => {
                let message = format!("expected an amount of memory, found `{}`", shortened(text));
                reader.find(&BAD_NUMBER, node, message, error.help);
            }
        }
    }
}

impl Form<f64> for Memory {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut f64) {
        let mut amount = None;
        Form::<Option<f64>>::read(self, reader, node, &mut amount);
        *into = amount.unwrap_or(*into);
    }
}
