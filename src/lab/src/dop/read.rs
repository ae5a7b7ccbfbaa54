//! An auto-DOP problem file, read: text in, a valid problem or every finding out.
//!
//! The text becomes a tree that keeps every place; the tree is read by the tables below; the constructors
//! of [`Problem`] and of [`Course`] check the numbers, and their errors are mapped back to their places in
//! the text.

use crate::problem::{self, OneOf};
use tenantd_core::units::Bytes;
use tenantd_dop::rounds::{Arrival, Course, Rule};
use tenantd_dop::target::{
    Field, Place, Problem, ProblemError, Query, Reason, Running, Speedup, Supply, Width,
};
use tenantd_policy::Report;
use tenantd_policy::forms::{Keys, Word};
use tenantd_policy::hint::shortened;
use tenantd_policy::key::Flag::Needed;
use tenantd_policy::key::{Form, Key, section};
use tenantd_policy::parse::Budget;
use tenantd_policy::reader::{Codes, Reader, parse_number};
use tenantd_policy::rules;
use tenantd_policy::tree::{Entry, Kind, Node};

/// The text is not YAML, or too large.
const TEXT: rules::Rule = rules::Rule::error("D001", "a text that cannot be read");
const WRONG_TYPE: rules::Rule = rules::Rule::error("D005", "a value of the wrong type");
const BAD_NUMBER: rules::Rule = rules::Rule::error("D006", "a number out of range");
const MANUAL_AND_MAX: rules::Rule =
    rules::Rule::error("D007", "a manual DOP and a maximum for one query");
const BEYOND_SLOTS: rules::Rule = rules::Rule::error("D008", "a manual DOP that can never run");

const CONFLICT: rules::Rule = rules::Rule::error("D009", "keys that do not go together");
const UNKNOWN_RESOURCE: rules::Rule =
    rules::Rule::error("D010", "a resource that is not in `resources`");
const TOO_LONG: rules::Rule = rules::Rule::error("D011", "a run without an end in sight");

/// A code never changes its meaning.
static CODES: Codes = Codes {
    unknown_key: rules::Rule::error("D002", "an unknown key"),
    duplicate_key: rules::Rule::error("D003", "a key given twice"),
    missing_key: Some(rules::Rule::error("D004", "a missing key")),
    wrong_type: WRONG_TYPE,
    unknown_word: WRONG_TYPE,
    out_of_range: BAD_NUMBER,
    elsewhere: |_| None,
};

/// Content of a problem file.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) rule: Rule,
    pub(super) resources: Vec<String>,
    pub(super) asked: Asked,
}

#[derive(Debug)]
pub(super) enum Asked {
    Round(Problem),
    /// True if the answer lists the queries.
    Course(Course, bool),
}

/// The rules by the words of a problem file.
pub(super) const RULES: &[(&str, Rule)] = &[("elastic", Rule::Elastic), ("imci", Rule::Imci)];

section! {
    /// A problem file.
    struct File, FILE {
        /// Which rule decides.
        "algorithm" => algorithm: Option<Rule>, OneOf(RULES),
            [Needed("add `algorithm: elastic`, or imci")];
        /// Units of parallelism, those of running queries included.
        "slots" => slots: Option<u64>, Slots, [Needed("say what there is: `slots: 16`")];
        /// The most slots of one query.
        "max_per_query" => max_per_query: Option<u64>, Slots;
        /// Memory that all queries share, a number or a quantity; without it memory does not bind.
        "memory" => memory: Option<f64>, Memory;
        /// What there is of further resources, by name.
        "resources" => resources: Vec<(String, f64)>, Amounts;
        /// What one more slot must add, as a part of the work of one.
        "min_gain" => min_gain: f64 = Supply::MIN_GAIN, Plain;
        /// How many run or are looked at.
        "users" => users: Option<u64>, Slots;
        /// What runs already.
        "running" => running: Vec<Ran>, List { keys: RUNNING, example: "{ dop: 2 }" };
        /// What waits, in order.
        "queue" => queue: Vec<Waiting>, List { keys: QUEUE, example: "{ max: 4 }" };
        /// What arrives over time, instead.
        "queries" => queries: Vec<Waiting>, List { keys: QUEUE, example: "{ at: 1, work: 16 }" };
        /// When it is broken off.
        "horizon" => horizon: Option<f64>, Memory;
        /// Looks at measured speeds.
        "feedback" => feedback: Looks, Keys(LOOKS);
        /// Whether the answer lists the queries.
        "list" => list: bool = true, Word;
    }
}

section! {
    /// A query that runs.
    struct Ran, RUNNING {
        /// Its slots.
        "dop" => dop: u64, Slots, [Needed("say how many slots it has: `{ dop: 2 }`")];
        /// Its memory.
        "memory" => memory: f64, Memory;
        /// What it holds of further resources.
        "resources" => resources: Vec<(String, f64)>, Amounts;
    }
}

section! {
    /// `feedback:` looks at measured speeds.
    struct Looks, LOOKS {
        /// Seconds between them.
        "interval" => interval: Option<f64>, Memory, [Needed("say how often: `{ interval: 1 }`")];
    }
}

section! {
    /// A query that waits, or arrives.
    struct Waiting, QUEUE {
        /// Exactly this wide.
        "manual" => manual: Option<u64>, Slots;
        /// At most this wide.
        "max" => max: Option<u64>, Slots;
        /// Memory that it needs whatever its width.
        "memory" => memory: f64, Memory;
        /// Memory for each slot.
        "memory_per_thread" => memory_per_thread: f64, Memory;
        /// What it needs of further resources, whatever its width.
        "resources" => resources: Vec<(String, f64)>, Amounts;
        /// What it needs of them for each slot.
        "per_thread" => per_thread: Vec<(String, f64)>, Amounts;
        /// Its weight against the others.
        "weight" => weight: f64 = 1.0, Plain;
        /// How much more it does when it is wider.
        "speedup" => speedup: Scaling, Keys(SCALING);
        /// When it arrives, in seconds.
        "at" => at: f64, Plain;
        /// Its work, in slot-seconds.
        "work" => work: Option<f64>, Memory;
        /// How many of it arrive.
        "count" => count: Option<u64>, Slots;
        /// Whether its client sends it again.
        "again" => again: bool, Word;
    }
}

section! {
    /// `speedup:` a query of n slots does n / (1 + contention·(n−1) + coherency·n·(n−1)).
    struct Scaling, SCALING {
        /// The part that only one slot at a time can do.
        "contention" => contention: f64, Plain;
        /// What a pair of slots costs.
        "coherency" => coherency: f64, Plain;
    }
}

/// The finding of a run that has no end.
pub(super) fn too_long(name: &str, at: f64) -> Report {
    let mut report = Report::default();
    let message = format!("more queries or rounds than are run, after {at} s already");
    let finding = TOO_LONG.about(&tenantd_policy::report::Source::new(name, ""), message);
    report.push(finding.help("a nearer horizon, fewer queries, or more work for each"));
    report
}

/// Reads a problem.
///
/// # Errors
/// All findings; only the first one if it makes the rest unreadable.
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
        together(reader, tree, &file);
    } else {
        reader.wrong_type(tree, "a map with `algorithm`, `slots` and `queue`", "");
    }
    let resources: Vec<String> = file.resources.iter().map(|(name, _)| name.clone()).collect();
    // Without slots to compare with, no manual DOP exceeds them.
    let supply = Supply {
        slots: file.slots.unwrap_or(Problem::SLOTS_MAX),
        max_per_query: file.max_per_query,
        memory: file.memory,
        resources: file.resources.iter().map(|(_, amount)| *amount).collect(),
        min_gain: file.min_gain,
        users: file.users,
    };
    let by_name = |amounts: &[(String, f64)]| -> Vec<f64> {
        let amount =
            |name: &String| amounts.iter().find(|(it, _)| it == name).map_or(0.0, |it| it.1);
        resources.iter().map(amount).collect()
    };
    let query = |waiting: &Waiting| Query {
        width: match (waiting.manual, waiting.max) {
            (Some(dop), _) => Width::Manual(dop),
            (None, Some(max)) => Width::AtMost(max),
            (None, None) => Width::Auto,
        },
        weight: waiting.weight,
        memory: waiting.memory,
        memory_per_thread: waiting.memory_per_thread,
        resources: by_name(&waiting.resources),
        per_thread: by_name(&waiting.per_thread),
        speedup: Speedup {
            contention: waiting.speedup.contention,
            coherency: waiting.speedup.coherency,
        },
    };
    let rule = file.algorithm.unwrap_or(Rule::Elastic);
    let is_course = entry(Some(tree), "queries").is_some();
    let judged = if is_course {
        let arrivals = file.queries.iter().map(|it| Arrival {
            at: it.at,
            work: it.work.unwrap_or(1.0),
            count: it.count.unwrap_or(1),
            again: it.again,
            query: query(it),
        });
        let course = Course::try_new(rule, supply, arrivals.collect());
        let (horizon, feedback) = (file.horizon, file.feedback.interval);
        course.map(|course| Asked::Course(Course { horizon, feedback, ..course }, file.list))
    } else {
        let running = file.running.iter().map(|it| Running {
            dop: it.dop,
            memory: it.memory,
            resources: by_name(&it.resources),
        });
        let queue = file.queue.iter().map(query).collect();
        Problem::try_new_with(supply, running.collect(), queue).map(Asked::Round)
    };
    for error in judged.as_ref().err().into_iter().flatten() {
        judge(reader, tree, (is_course, &resources), error);
    }
    match reader.report.has_errors() {
        true => None,
        false => Some(Task { rule: file.algorithm?, resources, asked: judged.ok()? }),
    }
}

/// Reports keys that do not go together, and numbers of a run over time that are out of their range.
fn together(reader: &mut Reader<'_>, tree: &Node, file: &File) {
    let has = |key: &str| entry(Some(tree), key).is_some();
    let over_time = has("queries");
    if !over_time && !has("queue") {
        let help =
            "say what waits: `queue: [{ max: 4 }, {}]`, or what arrives: `queries: [{ work: 16 }]`";
        reader.missing_key(tree, "queue", help);
    }
    let conflict = |reader: &mut Reader<'_>, of: &Node, key: &str, message: &str, help: &str| {
        if let Some(entry) = entry(Some(of), key) {
            let finding = CONFLICT.at(&reader.key_place(entry), message, "");
            reader.report.push(finding.help(help));
        }
    };
    for key in ["queue", "running"].into_iter().filter(|_| over_time) {
        let message = format!("`{key}` is one round, and `queries` are many");
        conflict(reader, tree, key, &message, "keep one of them");
    }
    for key in ["horizon", "feedback", "list"].into_iter().filter(|_| !over_time) {
        let message = format!("`{key}` needs `queries`");
        conflict(reader, tree, key, &message, "leave it out, or write `queries` for `queue`");
    }
    if file.algorithm == Some(Rule::Imci) {
        let message = "under `imci` a query keeps its width";
        conflict(reader, tree, "feedback", message, "use `elastic`");
    }
    let items = |key: &str| match entry(Some(tree), key).map(|it| &it.value.kind) {
        Some(Kind::List(items)) => items.as_slice(),
        _ => &[],
    };
    for item in items("queue") {
        for key in ["at", "work", "count", "again"] {
            let message = format!("`{key}` is one of `queries`");
            conflict(reader, item, key, &message, "in a `queue` all wait from the beginning");
        }
    }
    let bound = |reader: &mut Reader<'_>, of: &Node, key: &str, value: Option<f64>, above: bool| {
        let Some((entry, value)) = entry(Some(of), key).zip(value) else { return };
        if !value.is_finite() || value < 0.0 || above && value == 0.0 {
            let range = if above { "above 0" } else { "not negative" };
            let message = format!("`{key}` must be a number that is {range}");
            reader.find(&BAD_NUMBER, &entry.value, message, "");
        }
    };
    bound(reader, tree, "horizon", file.horizon, true);
    if let Some(feedback) = entry(Some(tree), "feedback") {
        bound(reader, &feedback.value, "interval", file.feedback.interval, true);
    }
    for (item, query) in items("queries").iter().zip(&file.queries) {
        bound(reader, item, "at", Some(query.at), false);
        bound(reader, item, "work", query.work, true);
        if entry(Some(item), "work").is_none() && matches!(item.kind, Kind::Map(_) | Kind::Null) {
            reader.missing_key(item, "work", "say how many slot-seconds it takes: `{ work: 16 }`");
        }
        if query.again && file.horizon.is_none() {
            let help = "add `horizon: 100`, in seconds";
            conflict(reader, item, "again", "it is sent again without end", help);
        }
    }
    let all = ["queue", "queries", "running"].into_iter().flat_map(items);
    for amounts in
        all.flat_map(|item| ["resources", "per_thread"].map(|key| entry(Some(item), key)))
    {
        let Some(Kind::Map(amounts)) = amounts.map(|it| &it.value.kind) else { continue };
        for amount in
            amounts.iter().filter(|it| !file.resources.iter().any(|(n, _)| **n == *it.key))
        {
            let message = format!("there is no resource `{}`", shortened(&amount.key));
            let finding = UNKNOWN_RESOURCE.at(&reader.key_place(amount), message, "");
            reader.report.push(finding.help("add what there is of it to `resources`"));
        }
    }
}

/// Maps the errors of a problem to their places in the text.
fn judge(
    reader: &mut Reader<'_>,
    tree: &Node,
    (over_time, resources): (bool, &[String]),
    error: &ProblemError,
) {
    let queue = if over_time { "queries" } else { "queue" };
    let item = |key: &str, index: usize| match entry(Some(tree), key).map(|e| &e.value.kind) {
        Some(Kind::List(items)) => items.get(index),
        _ => None,
    };
    let (entry, name) = match error.place {
        Place::Slots => (entry(Some(tree), "slots"), "slots"),
        Place::MaxPerQuery => (entry(Some(tree), "max_per_query"), "max_per_query"),
        Place::Memory => (entry(Some(tree), "memory"), "memory"),
        Place::Resource(index) => {
            let all = entry(Some(tree), "resources").map(|it| &it.value);
            (entry(all, &resources[index]), resources[index].as_str())
        }
        Place::MinGain => (entry(Some(tree), "min_gain"), "min_gain"),
        Place::Users => (entry(Some(tree), "users"), "users"),
        Place::Running(index) => (entry(item("running", index), "memory"), "memory"),
        Place::Queue(index, part) => (entry(item(queue, index), part.key()), part.key()),
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

/// The entry of a map under a key; the first one of duplicates.
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
        // Not every number beyond 2^53 is exact; no valid value is near it.
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

struct Amounts;

impl Form<Vec<(String, f64)>> for Amounts {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut Vec<(String, f64)>) {
        let amounts = reader.map(node, "a map such as `{ io: 400 }`");
        reader.duplicates(amounts);
        for entry in amounts {
            let mut amount = None;
            Form::<Option<f64>>::read(&Memory, reader, &entry.value, &mut amount);
            into.push((entry.key.to_string(), amount.unwrap_or(0.0)));
        }
    }
}
