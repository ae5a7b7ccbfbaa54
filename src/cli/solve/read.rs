//! A problem file, read: text in, a valid problem or every finding out.
//!
//! The text becomes a tree that remembers where everything stands; the tree becomes the nodes of a
//! [`Problem`], whose constructor judges the numbers; what it finds is carried back to its place in the text.
//! Neither step recurses, so that no depth can overflow the stack.

use super::findings::{self, Findings};
use crate::fair::problem::{Guarantees, Terms};
use crate::fair::{Algorithm, Bounds, Demand, Kind, Node, Problem, WorkConserving, tasks};
use crate::policy::Report;
use crate::policy::hint::{listed, nearest, shortened};
use crate::policy::parse::{self, Budget};
use crate::policy::report::Source;
use crate::policy::tree::{self, Entry};

/// Collections within collections: two for each group, and so some two thousand groups.
const DEEPEST: usize = 4096;

/// Values that aliases may add to those of the text.
const ALIASED: usize = 100_000;

/// What a problem file asks for.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) algorithm: Algorithm,
    pub(super) work_conserving: WorkConserving,
    pub(super) resources: Vec<Resource>,
    /// The path of each node: its groups and itself, joined by `/`.
    pub(super) paths: Vec<String>,
    pub(super) problem: Problem,
}

/// A resource as the file names it.
#[derive(Debug)]
pub(super) struct Resource {
    pub(super) name: String,
    /// Whether its capacity was written in bytes, and its amounts are best shown so.
    pub(super) in_bytes: bool,
}

const ALGORITHMS: [(&str, Algorithm); 4] = [
    ("max-min", Algorithm::MaxMin),
    ("drf", Algorithm::Drf),
    ("drf-tasks", Algorithm::DrfTasks),
    ("yarn", Algorithm::Yarn),
];

/// The name of an algorithm, as files and answers have it.
pub(super) fn algorithm_name(algorithm: Algorithm) -> &'static str {
    ALGORITHMS.iter().find(|(_, it)| *it == algorithm).map_or("", |(name, _)| name)
}

/// Reads a problem.
///
/// # Errors
/// Everything that is wrong with it; the first thing only, where that makes the rest unreadable.
pub(super) fn read(name: &str, text: Vec<u8>) -> Result<Task, Report> {
    let text = match String::from_utf8(text) {
        Ok(text) => text,
        Err(error) => {
            let mut findings = Findings::new(Source::new(name, ""));
            let byte = error.utf8_error().valid_up_to();
            findings.add(findings::TEXT, 0..0, format!("byte {byte} is not UTF-8"), "");
            return Err(findings.into_report());
        }
    };
    let source = Source::new(name, text);
    let text = source.text();
    // No text without aliases has more values than bytes: what is beyond is a bomb.
    let budget = Budget { nodes: text.len() + ALIASED, depth: DEEPEST, bytes: 1 << 30 };
    let mut reader = Reader { findings: Findings::new(source.clone()), resources: Vec::new() };
    match parse::tree(text, budget) {
        Ok(tree) => reader.read(&tree).ok_or_else(|| reader.findings.into_report()),
        Err(unparsed) => {
            let help = unparsed.help.unwrap_or_default();
            reader.findings.add(findings::TEXT, unparsed.span, unparsed.message, help);
            Err(reader.findings.into_report())
        }
    }
}

pub(super) struct Reader {
    pub(super) findings: Findings,
    pub(super) resources: Vec<Resource>,
}

/// The keys of a file, a tenant and a group.
const FILE_KEYS: [&str; 4] = ["algorithm", "capacity", "work_conserving", "tenants"];
const TENANT_KEYS: [&str; 7] =
    ["weight", "task", "tasks", "demand", "guarantee", "limit", "tenants"];

/// The tenants as nodes, and where each of them stands in the text.
#[derive(Default)]
struct Nodes<'t> {
    nodes: Vec<Node>,
    paths: Vec<String>,
    entries: Vec<&'t Entry>,
}

impl Reader {
    /// The task, unless there are findings.
    fn read(&mut self, tree: &tree::Node) -> Option<Task> {
        let file = self.map(tree, "a map with `algorithm`, `capacity` and `tenants`")?;
        self.check_keys(file, &FILE_KEYS);
        let algorithm = get(file, "algorithm").and_then(|entry| self.algorithm(entry));
        let work_conserving =
            get(file, "work_conserving").and_then(|entry| self.work_conserving(entry));
        for key in ["algorithm", "capacity", "tenants"] {
            if get(file, key).is_none() {
                let example = match key {
                    "algorithm" => "add `algorithm: drf`, or max-min, drf-tasks, yarn",
                    "capacity" => "say what there is: `capacity: { cpu: 8, memory: 32GiB }`",
                    _ => "say who shares it: `tenants: { a: { task: { cpu: 1 } } }`",
                };
                let message = format!("`{key}` is missing");
                self.findings.add(
                    findings::MISSING_KEY,
                    tree.start as usize..tree.start as usize + 1,
                    message,
                    example,
                );
            }
        }
        let capacity = self.capacity(get(file, "capacity")?)?;
        let whole_tasks = algorithm == Some(Algorithm::DrfTasks);
        let nodes = self.nodes(&get(file, "tenants")?.value, whole_tasks);
        // The numbers are judged whatever else was found: one report shows it all.
        let judged = algorithm.unwrap_or(Algorithm::Drf);
        let problem = self.problem(file, judged, capacity, &nodes.entries, nodes.nodes)?;
        if !self.findings.is_empty() {
            return None;
        }
        Some(Task {
            algorithm: judged,
            work_conserving: work_conserving.unwrap_or(WorkConserving::No),
            resources: std::mem::take(&mut self.resources),
            paths: nodes.paths,
            problem,
        })
    }

    fn problem(
        &mut self,
        file: &[Entry],
        algorithm: Algorithm,
        capacity: Vec<f64>,
        entries: &[&Entry],
        nodes: Vec<Node>,
    ) -> Option<Problem> {
        let guarantees = match algorithm {
            Algorithm::Yarn => Guarantees::Targets,
            _ => Guarantees::Kept,
        };
        let terms = Terms { guarantees, ..Terms::default() };
        let problem = match Problem::try_new_on(terms, capacity, nodes) {
            Ok(problem) => problem,
            Err(errors) => {
                for error in &errors {
                    self.judge(file, entries, error);
                }
                return None;
            }
        };
        if algorithm == Algorithm::DrfTasks && tasks::most_tasks(&problem) > tasks::MOST_TASKS {
            let span = get(file, "algorithm").map_or(0..0, |entry| entry.value.span());
            let message = "more tasks would be granted than can be listed one by one";
            let help = "`drf` divides among any number of tasks; or bound them with `tasks:`";
            self.findings.add(findings::WHOLE_TASKS, span, message, help);
            return None;
        }
        Some(problem)
    }

    fn algorithm(&mut self, entry: &Entry) -> Option<Algorithm> {
        let names = || ALGORITHMS.iter().map(|(name, _)| *name);
        let tree::Kind::Scalar { text, .. } = &entry.value.kind else {
            self.wrong_type(&entry.value, &format!("one of {}", listed(names())));
            return None;
        };
        let known = ALGORITHMS.iter().find(|(name, _)| **name == **text);
        if known.is_none() {
            let help = match nearest(text, names()) {
                Some(name) => format!("did you mean `{name}`?"),
                None => format!("one of {}", listed(names())),
            };
            let message = format!("unknown algorithm `{}`", shortened(text));
            self.findings.add(findings::WRONG_TYPE, entry.value.span(), message, help);
        }
        known.map(|(_, algorithm)| *algorithm)
    }

    fn work_conserving(&mut self, entry: &Entry) -> Option<WorkConserving> {
        match &entry.value.kind {
            tree::Kind::Scalar { text, plain: true } if &**text == "true" => {
                Some(WorkConserving::Yes)
            }
            tree::Kind::Scalar { text, plain: true } if &**text == "false" => {
                Some(WorkConserving::No)
            }
            _ => {
                self.wrong_type(&entry.value, "`true` or `false`");
                None
            }
        }
    }

    /// What there is, and with it the names of the resources.
    fn capacity(&mut self, entry: &Entry) -> Option<Vec<f64>> {
        let amounts = self.map(&entry.value, "a map such as `{ cpu: 8, memory: 32GiB }`")?;
        if amounts.is_empty() {
            let help = "say what there is: `capacity: { cpu: 8, memory: 32GiB }`";
            let span = entry.value.span();
            self.findings.add(findings::MISSING_KEY, span, "there is no resource to divide", help);
            return None;
        }
        self.check_duplicates(amounts);
        let mut capacity = Vec::new();
        for entry in amounts {
            let amount = self.quantity(&entry.value);
            let in_bytes = matches!(&entry.value.kind, tree::Kind::Scalar { text, .. } if text.ends_with("iB"));
            self.resources.push(Resource { name: entry.key.to_string(), in_bytes });
            // Something valid stands in for what was found wrong, so that the rest is judged too.
            capacity.push(amount.unwrap_or(1.0));
        }
        Some(capacity)
    }

    /// The tenants in the order of the text, groups before their members.
    fn nodes<'t>(&mut self, tenants: &'t tree::Node, whole_tasks: bool) -> Nodes<'t> {
        let mut read = Nodes::default();
        let mut stack: Vec<(Option<usize>, &Entry)> = Vec::new();
        self.push_members(tenants, None, &mut stack);
        while let Some((parent, entry)) = stack.pop() {
            let node = read.nodes.len();
            self.check_name(entry);
            let path = match parent {
                Some(parent) => format!("{}/{}", read.paths[parent], entry.key),
                None => entry.key.to_string(),
            };
            let Some(fields) = self.map(&entry.value, "a map with `task`, `demand` or `tenants`")
            else {
                continue;
            };
            self.check_keys(fields, &TENANT_KEYS);
            let weight = get(fields, "weight").map(|entry| self.weight(&entry.value));
            let weight = weight.unwrap_or_else(|| vec![1.0; self.resources.len()]);
            let kind = match self.kind(entry, fields) {
                Some(members) if &*members.key == "tenants" => {
                    self.push_members(&members.value, Some(node), &mut stack);
                    Kind::Group(self.bounds(fields))
                }
                Some(demand) => Kind::Leaf(self.demand(fields, demand, whole_tasks)),
                None => continue,
            };
            read.nodes.push(Node { parent, weight, kind });
            read.paths.push(path);
            read.entries.push(entry);
        }
        read
    }

    fn push_members<'t>(
        &mut self,
        tenants: &'t tree::Node,
        group: Option<usize>,
        stack: &mut Vec<(Option<usize>, &'t Entry)>,
    ) {
        if matches!(tenants.kind, tree::Kind::Null) {
            return;
        }
        if let Some(members) = self.map(tenants, "a map of tenants by name") {
            self.check_duplicates(members);
            stack.extend(members.iter().rev().map(|entry| (group, entry)));
        }
    }

    /// The one of `task`, `demand` and `tenants` that says what a tenant is.
    fn kind<'t>(&mut self, tenant: &Entry, fields: &'t [Entry]) -> Option<&'t Entry> {
        let kinds: Vec<&Entry> =
            ["task", "demand", "tenants"].into_iter().filter_map(|key| get(fields, key)).collect();
        let [kind] = kinds[..] else {
            let help = "give exactly one: `task` (any number of them), `demand` (once) or `tenants` (a group)";
            match kinds[..] {
                [first, second, ..] => self.findings.add_pair(
                    findings::KIND,
                    (second.span(), ""),
                    (first.span(), "already said here"),
                    format!("a tenant has either `{}` or `{}`", first.key, second.key),
                ),
                _ => self.findings.add(
                    findings::KIND,
                    tenant.span(),
                    format!("`{}` does not say what it wants", shortened(&tenant.key)),
                    help,
                ),
            }
            return None;
        };
        let strangers: &[&str] = match &*kind.key {
            "tenants" => &["tasks"],
            "demand" => &["tasks"],
            _ => &[],
        };
        for stranger in strangers.iter().filter_map(|key| get(fields, key)) {
            let message = format!("`{}` does not go with `{}`", stranger.key, kind.key);
            let help = "`tasks` bounds the number of a `task`";
            self.findings.add(findings::KIND, stranger.span(), message, help);
        }
        Some(kind)
    }

    fn demand(&mut self, fields: &[Entry], kind: &Entry, whole_tasks: bool) -> Demand {
        let task = self.amounts(&kind.value, 0.0);
        let mut demand = match (&*kind.key, get(fields, "tasks")) {
            ("task", None) => Demand::tasks(task, f64::INFINITY),
            ("task", Some(tasks)) => {
                let number = self.tasks(&tasks.value, whole_tasks);
                Demand::tasks(task, number.unwrap_or(1.0))
            }
            _ => Demand::once(task),
        };
        let bounds = self.bounds(fields);
        (demand.guarantee, demand.limit) = (bounds.guarantee, bounds.limit);
        demand
    }

    /// What a tenant or a group has at least and at most.
    fn bounds(&mut self, fields: &[Entry]) -> Bounds {
        let mut bounds = Bounds::none(self.resources.len());
        if let Some(guarantee) = get(fields, "guarantee") {
            bounds.guarantee = self.amounts(&guarantee.value, 0.0);
        }
        if let Some(limit) = get(fields, "limit") {
            bounds.limit = self.amounts(&limit.value, f64::INFINITY);
        }
        bounds
    }

    fn tasks(&mut self, node: &tree::Node, whole_tasks: bool) -> Option<f64> {
        let tasks = self.quantity(node)?;
        if whole_tasks && tasks.fract() != 0.0 {
            let help = "`drf` divides tasks, `drf-tasks` does not";
            let message = format!("{tasks} is not a whole number of tasks");
            self.findings.add(findings::WHOLE_TASKS, node.span(), message, help);
            return None;
        }
        Some(tasks)
    }

    /// A map from resources to quantities as a vector, `missing` where a resource is not in it.
    fn amounts(&mut self, node: &tree::Node, missing: f64) -> Vec<f64> {
        let mut vector = vec![missing; self.resources.len()];
        let Some(amounts) = self.map(node, "a map such as `{ cpu: 2, memory: 4GiB }`") else {
            return vector;
        };
        self.check_duplicates(amounts);
        for entry in amounts {
            let is_unbounded = missing == f64::INFINITY
                && matches!(&entry.value.kind, tree::Kind::Scalar { text, .. } if &**text == "max");
            let amount = if is_unbounded { Some(missing) } else { self.quantity(&entry.value) };
            if let (Some(resource), Some(amount)) = (self.resource(entry), amount) {
                vector[resource] = amount;
            }
        }
        vector
    }

    /// A weight: one number, or one for each resource; 1 where nothing is said.
    fn weight(&mut self, node: &tree::Node) -> Vec<f64> {
        let mut vector = vec![1.0; self.resources.len()];
        match &node.kind {
            tree::Kind::Map(weights) => {
                self.check_duplicates(weights);
                for entry in weights {
                    let weight = self.number(&entry.value, "a weight is a number");
                    if let (Some(resource), Some(weight)) = (self.resource(entry), weight) {
                        vector[resource] = weight;
                    }
                }
            }
            tree::Kind::Scalar { .. } => {
                if let Some(weight) = self.number(node, "a weight is a number") {
                    vector.fill(weight);
                }
            }
            _ => self.wrong_type(node, "a number, or a map such as `{ cpu: 2, memory: 1 }`"),
        }
        vector
    }
}

/// The entry of a map under a key; the first, where it is given twice.
pub(super) fn get<'t>(entries: &'t [Entry], key: &str) -> Option<&'t Entry> {
    entries.iter().find(|entry| &*entry.key == key)
}
