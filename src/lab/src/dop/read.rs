//! An auto-DOP problem file, read: text in, a valid problem or its first error out.
//!
//! The types below are deserialized; the constructors of [`Problem`] and of [`Course`] check the numbers, and
//! their errors are mapped back to their places in the text.

use serde::de::{Error, IgnoredAny, Unexpected};
use serde::{Deserialize, Deserializer};

use crate::problem::{by_name, parse, refuse_key};
use tenantd_core::units::Bytes;
use tenantd_dop::rounds::{Arrival, Course, Rule};
use tenantd_dop::target::{
    Field, Place, Problem, ProblemError, Query, Reason, Running, Speedup, Supply, Width,
};
use tenantd_policy::Report;
use tenantd_policy::file::{Cause, Format, Refusal, one_of, text};
use tenantd_policy::hint::shortened;
use tenantd_policy::parse::Budget;
use tenantd_policy::reader::parse_number;
use tenantd_policy::report::Source;
use tenantd_policy::tree::Node;

static FORMAT: Format = Format {
    codes: ["D001", "D002", "D003", "D004", "D005", "D006"],
    depth: Budget::PROBLEM.depth,
    remedies: &[
        ("algorithm", "add `algorithm: elastic`, or imci"),
        ("slots", "say what there is: `slots: 16`"),
        ("running", "as in `running: [{ dop: 2 }]`"),
        ("dop", "say how many slots it has: `{ dop: 2 }`"),
        (
            "queue",
            "say what waits: `queue: [{ max: 4 }, {}]`, or what arrives: `queries: [{ work: 16 }]`",
        ),
        ("queries", "as in `queries: [{ work: 16 }]`"),
        ("resources", "as in `resources: { io: 400 }`"),
        ("per_thread", "as in `per_thread: { io: 100 }`"),
        ("work", "say how many slot-seconds it takes: `{ work: 16 }`"),
        ("interval", "say how often: `{ interval: 1 }`"),
    ],
};

// A code never changes its meaning.
/// A manual DOP and a maximum for one query.
const MANUAL_AND_MAX: Cause = Cause::Rule("D007");
/// A manual DOP that can never run.
const BEYOND_SLOTS: Cause = Cause::Rule("D008");
/// Keys that do not go together.
const CONFLICT: &str = "D009";
/// A resource that is not in `resources`.
const UNKNOWN_RESOURCE: Cause = Cause::Rule("D010");
/// A run without an end in sight.
const TOO_LONG: Cause = Cause::Rule("D011");

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

fn rule<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Rule, D::Error> {
    one_of(deserializer, RULES)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "maps from resources are read by name")]
struct File {
    #[serde(deserialize_with = "rule")]
    algorithm: Rule,
    slots: Slots,
    max_per_query: Option<Slots>,
    memory: Option<Amount>,
    resources: Option<IgnoredAny>,
    min_gain: Option<f64>,
    users: Option<Slots>,
    #[serde(default)]
    running: Vec<Ran>,
    queue: Option<Vec<Waiting>>,
    queries: Option<Vec<Waiting>>,
    horizon: Option<Amount>,
    feedback: Option<Looks>,
    list: Option<bool>,
}

/// A query that runs.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "maps from resources are read by name")]
struct Ran {
    dop: Slots,
    #[serde(default)]
    memory: Amount,
    resources: Option<IgnoredAny>,
}

/// Looks at measured speeds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Looks {
    interval: Amount,
}

/// A query that waits, or arrives.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "maps from resources are read by name")]
struct Waiting {
    manual: Option<Slots>,
    max: Option<Slots>,
    #[serde(default)]
    memory: Amount,
    #[serde(default)]
    memory_per_thread: Amount,
    resources: Option<IgnoredAny>,
    per_thread: Option<IgnoredAny>,
    weight: Option<f64>,
    #[serde(default)]
    speedup: Scaling,
    at: Option<f64>,
    /// In slot-seconds.
    work: Option<Amount>,
    count: Option<Slots>,
    /// True if its client sends it again.
    #[serde(default)]
    again: bool,
}

/// A query of n slots does n / (1 + contention·(n−1) + coherency·n·(n−1)).
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Scaling {
    contention: f64,
    coherency: f64,
}

/// A whole number that is not negative.
#[derive(Clone, Copy)]
struct Slots(u64);

impl<'de> Deserialize<'de> for Slots {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Slots, D::Error> {
        let number = f64::deserialize(deserializer)?;
        // Not every number beyond 2^53 is exact; no valid value is near it.
        if number.fract() == 0.0 && (0.0..=9e15).contains(&number) {
            return Ok(Slots(number as u64));
        }
        let message = format!("expected a whole number, found `{number}`");
        Err(Error::invalid_value(
            Unexpected::Other(&message),
            &"a DOP is a number of slots, from 1",
        ))
    }
}

/// A plain number, NaN and infinity included, or a quantity of memory in bytes: the problem judges it.
#[derive(Clone, Copy, Default)]
struct Amount(f64);

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Amount, D::Error> {
        let text = text(deserializer, "an amount of memory")?;
        if let Some(number) = parse_number(&text) {
            return Ok(Amount(number));
        }
        let bytes = text.parse::<Bytes>().map_err(|error| {
            let message = format!("expected an amount of memory, found `{}`", shortened(&text));
            D::Error::invalid_value(Unexpected::Other(&message), &error.help.as_str())
        });
        Ok(Amount(bytes?.0 as f64))
    }
}

/// The finding of a run that has no end.
pub(super) fn too_long(name: &str, at: f64) -> Report {
    let message = format!("more queries or rounds than are run, after {at} s already");
    let refusal = Refusal::new(TOO_LONG, 0..0, message);
    let help = "a nearer horizon, fewer queries, or more work for each";
    refusal.help(help).report(&Source::new(name, ""), &FORMAT)
}

/// Reads a problem.
///
/// # Errors
/// The first error.
pub(super) fn read(name: &str, text: Vec<u8>) -> Result<Task, Report> {
    parse(name, text, &FORMAT, |_, tree| task(tree))
}

fn task(tree: &Node) -> Result<Task, Refusal> {
    let file: File = tree.read()?;
    check_keys(tree, &file)?;
    let given = tree.get("resources").map_or(Ok(&[][..]), |entry| entry.value.map())?;
    let resources: Vec<String> = given.iter().map(|entry| entry.key.to_string()).collect();
    let supply = Supply {
        slots: file.slots.0,
        max_per_query: file.max_per_query.map(|it| it.0),
        memory: file.memory.map(|it| it.0),
        resources: amounts(tree, "resources", &resources)?,
        min_gain: file.min_gain.unwrap_or(Supply::MIN_GAIN),
        users: file.users.map(|it| it.0),
    };
    let rule = file.algorithm;
    let judged = if let Some(queries) = file.queries {
        let queries = queries.into_iter().zip(items(tree, "queries"));
        let arrivals =
            queries.map(|(query, place)| query.arrival(place, file.horizon.is_some(), &resources));
        let course = Course::try_new(rule, supply, arrivals.collect::<Result<_, _>>()?);
        let horizon = file.horizon.map(|horizon| horizon.0);
        let feedback = file.feedback.map(|looks| looks.interval.0);
        let course = course.map(|course| Course { horizon, feedback, ..course });
        course.map(|course| Asked::Course(course, file.list.unwrap_or(true)))
    } else {
        let running = file.running.iter().zip(items(tree, "running")).map(|(ran, place)| {
            let resources = amounts(place, "resources", &resources)?;
            Ok(Running { dop: ran.dop.0, memory: ran.memory.0, resources })
        });
        let running = running.collect::<Result<_, _>>()?;
        let queue = file.queue.into_iter().flatten().zip(items(tree, "queue"));
        let queue = queue.map(|(query, place)| query.query(place, &resources));
        Problem::try_new_with(supply, running, queue.collect::<Result<_, _>>()?).map(Asked::Round)
    };
    match judged {
        Ok(asked) => Ok(Task { rule, resources, asked }),
        Err(errors) => Err(judge(tree, &resources, &errors[0])),
    }
}

impl Waiting {
    fn query(self, place: &Node, resources: &[String]) -> Result<Query, Refusal> {
        let Scaling { contention, coherency } = self.speedup;
        Ok(Query {
            width: match (self.manual, self.max) {
                (Some(dop), _) => Width::Manual(dop.0),
                (None, Some(max)) => Width::AtMost(max.0),
                (None, None) => Width::Auto,
            },
            weight: self.weight.unwrap_or(1.0),
            memory: self.memory.0,
            memory_per_thread: self.memory_per_thread.0,
            resources: amounts(place, "resources", resources)?,
            per_thread: amounts(place, "per_thread", resources)?,
            speedup: Speedup { contention, coherency },
        })
    }

    fn arrival(
        self,
        place: &Node,
        has_horizon: bool,
        resources: &[String],
    ) -> Result<Arrival, Refusal> {
        let (at, again) = (self.at.unwrap_or(0.0), self.again);
        check_range(place, "at", self.at, false)?;
        check_range(place, "work", self.work.map(|it| it.0), true)?;
        let Some(work) = self.work.map(|it| it.0) else {
            return Err(Refusal::missing(place, "work"));
        };
        if again && !has_horizon {
            let help = "add `horizon: 100`, in seconds";
            refuse_key(place, "again", CONFLICT, "it is sent again without end", help)?;
        }
        let count = self.count.map_or(1, |it| it.0);
        Ok(Arrival { at, work, count, again, query: self.query(place, resources)? })
    }
}

/// The amounts of resources under a key.
fn amounts(place: &Node, key: &str, resources: &[String]) -> Result<Vec<f64>, Refusal> {
    let unknown = (UNKNOWN_RESOURCE, "add what there is of it to `resources`");
    let names = resources.iter().map(String::as_str);
    by_name(place.get(key), names, unknown, 0.0, |amount: Amount| amount.0)
}

fn items<'t>(tree: &'t Node, key: &str) -> &'t [Node] {
    tree.get(key).map_or(&[], |entry| entry.value.list())
}

/// Refuses keys that do not go together, and numbers of a run over time that are out of their range.
fn check_keys(tree: &Node, file: &File) -> Result<(), Refusal> {
    let over_time = file.queries.is_some();
    if !over_time && file.queue.is_none() {
        return Err(Refusal::missing(tree, "queue"));
    }
    for key in ["queue", "running"].into_iter().filter(|_| over_time) {
        let message = format!("`{key}` is one round, and `queries` are many");
        refuse_key(tree, key, CONFLICT, message, "keep one of them")?;
    }
    for key in ["horizon", "feedback", "list"].into_iter().filter(|_| !over_time) {
        let message = format!("`{key}` needs `queries`");
        let help = "leave it out, or write `queries` for `queue`";
        refuse_key(tree, key, CONFLICT, message, help)?;
    }
    if file.algorithm == Rule::Imci {
        let message = "under `imci` a query keeps its width";
        refuse_key(tree, "feedback", CONFLICT, message, "use `elastic`")?;
    }
    for item in items(tree, "queue") {
        for key in ["at", "work", "count", "again"] {
            let message = format!("`{key}` is one of `queries`");
            let help = "in a `queue` all wait from the beginning";
            refuse_key(item, key, CONFLICT, message, help)?;
        }
    }
    for item in ["queue", "queries"].into_iter().flat_map(|key| items(tree, key)) {
        if let (Some(manual), Some(max)) = (item.get("manual"), item.get("max")) {
            let message = "`manual` and `max` exclude each other";
            let both = Refusal::new(MANUAL_AND_MAX, max.span(), message);
            return Err(both.also(manual.span(), "the DOP is given here").help("keep one of them"));
        }
    }
    check_range(tree, "horizon", file.horizon.map(|it| it.0), true)?;
    let interval = file.feedback.as_ref().map(|looks| looks.interval.0);
    let feedback = tree.get("feedback").map(|entry| &entry.value);
    feedback.map_or(Ok(()), |feedback| check_range(feedback, "interval", interval, true))
}

/// Refuses a number that is negative, or with `is_above` 0.
fn check_range(map: &Node, key: &str, value: Option<f64>, is_above: bool) -> Result<(), Refusal> {
    let Some((entry, value)) = map.get(key).zip(value) else { return Ok(()) };
    if value.is_finite() && (value > 0.0 || value == 0.0 && !is_above) {
        return Ok(());
    }
    let range = if is_above { "above 0" } else { "not negative" };
    let message = format!("`{key}` must be a number that is {range}");
    Err(Refusal::new(Cause::Number, entry.value.span(), message))
}

/// Maps an error of a problem to its place in the text.
fn judge(tree: &Node, resources: &[String], error: &ProblemError) -> Refusal {
    let queue = if tree.get("queries").is_some() { "queries" } else { "queue" };
    let (map, key) = match error.place {
        Place::Slots => (Some(tree), "slots"),
        Place::MaxPerQuery => (Some(tree), "max_per_query"),
        Place::Memory => (Some(tree), "memory"),
        Place::Resource(index) => {
            (tree.get("resources").map(|it| &it.value), resources[index].as_str())
        }
        Place::MinGain => (Some(tree), "min_gain"),
        Place::Users => (Some(tree), "users"),
        Place::Running(index) => (items(tree, "running").get(index), "memory"),
        Place::Queue(index, part) => (items(tree, queue).get(index), part.key()),
    };
    let (cause, help) = match (error.reason, error.place) {
        (Reason::BeyondSlots { .. }, _) => {
            (BEYOND_SLOTS, "it would wait for ever: lower it, or use `max`")
        }
        (Reason::Zero, Place::Queue(_, Field::Manual | Field::Max)) => {
            let help = "a query runs on at least one slot; leave it out to keep it from running";
            (Cause::Number, help)
        }
        _ => (Cause::Number, ""),
    };
    let entry = map.and_then(|map| map.get(key));
    let span = entry.map_or(tree.span(), |entry| entry.value.span());
    Refusal::new(cause, span, format!("`{key}` {}", error.reason)).help(help)
}
