//! A problem file, read: text in, a valid problem or every finding out.
//!
//! The text becomes a tree that keeps every place; the tree becomes the nodes of a [`Problem`], whose
//! constructor judges the numbers; what it finds is carried back to its place in the text. Neither step
//! recurses, so that no depth can overflow the stack.

use super::codes;
use super::judge::judge;
use super::task::{ALGORITHMS, Resource, Task};
use super::values::{amounts, quantity, weight as weight_of};
use crate::problem::{self, OneOf};
use tenantd_fair::problem::{Guarantees, Terms};
use tenantd_fair::{Algorithm, Bounds, Demand, Kind, Node, Problem, WorkConserving, tasks};
use tenantd_policy::Report;
use tenantd_policy::forms::{Structure, Word};
use tenantd_policy::hint::shortened;
use tenantd_policy::key::Flag::Needed;
use tenantd_policy::key::{Fields, section};
use tenantd_policy::reader::Reader;
use tenantd_policy::tree::{self, Entry};

/// Collections within collections: two for each group, and so some two thousand groups.
const DEEPEST: usize = 4096;

section! {
    /// A problem file.
    struct File, FILE {
        /// The rule that divides.
        "algorithm" => algorithm: Option<Algorithm>, OneOf(ALGORITHMS),
            [Needed("add `algorithm: drf`, or max-min, drf-tasks, yarn")];
        /// What there is of each resource.
        "capacity" => capacity: (), Structure,
            [Needed("say what there is: `capacity: { cpu: 8, memory: 32GiB }`")];
        /// Whether what is left over is handed out by the per-resource second stage.
        "work_conserving" => work_conserving: bool, Word;
        /// The tenants that share it, in the order that breaks ties.
        "tenants" => tenants: (), Structure,
            [Needed("name what shares it: `tenants: { a: { task: { cpu: 1 } } }`")];
    }
}

section! {
    /// A tenant or a group.
    struct Tenant, TENANT {
        /// Its weight, for all resources or for each.
        "weight" => weight: (), Structure;
        /// What one task takes.
        "task" => task: (), Structure;
        /// The number of tasks, at most.
        "tasks" => tasks: (), Structure;
        /// What it takes once.
        "demand" => demand: (), Structure;
        /// What it gets whenever it wants it.
        "guarantee" => guarantee: (), Structure;
        /// What it never exceeds.
        "limit" => limit: (), Structure;
        /// The tenants of a group.
        "tenants" => tenants: (), Structure;
    }
}

/// Reads a problem.
///
/// # Errors
/// Everything that is wrong with it; the first thing only, where that makes the rest unreadable.
pub(super) fn read(name: &str, text: Vec<u8>) -> Result<Task, Report> {
    let (source, tree) = problem::tree(name, text, DEEPEST, &codes::TEXT)?;
    let mut report = Report::default();
    let reader = Reader::new(&mut report, &source, &codes::CODES, "");
    let task = Problems { reader, resources: Vec::new() }.read(&tree);
    report.sort(&[source]);
    task.ok_or(report)
}

/// Reads one file.
struct Problems<'r> {
    reader: Reader<'r>,
    resources: Vec<Resource>,
}

/// The tenants as nodes, with their places in the text.
#[derive(Default)]
struct Nodes<'t> {
    nodes: Vec<Node>,
    paths: Vec<String>,
    entries: Vec<&'t Entry>,
}

impl Problems<'_> {
    /// The task, unless there are findings.
    fn read(mut self, tree: &tree::Node) -> Option<Task> {
        let fields = self.reader.fields(FILE, tree)?;
        let mut file = File::default();
        self.reader.values(&fields, &mut file);
        let capacity_entry = fields.get("capacity")?;
        let capacity = self.capacity(capacity_entry)?;
        let algorithm = file.algorithm.unwrap_or(Algorithm::Drf);
        let whole_tasks = algorithm == Algorithm::DrfTasks;
        let nodes = self.nodes(&fields.get("tenants")?.value, algorithm);
        // The numbers are judged whatever else was found: one report shows it all.
        let guarantees = match algorithm {
            Algorithm::Yarn => Guarantees::Targets,
            _ => Guarantees::Kept,
        };
        let terms = Terms { guarantees, ..Terms::default() };
        let problem = match Problem::try_new_on(terms, capacity, nodes.nodes) {
            Ok(problem) => problem,
            Err(errors) => {
                for error in &errors {
                    let (reader, entries) = (&mut self.reader, &nodes.entries);
                    judge(reader, &self.resources, capacity_entry, entries, error);
                }
                return None;
            }
        };
        if whole_tasks && tasks::most_tasks(&problem) > tasks::MOST_TASKS {
            let message = "more tasks would be granted than can be listed one by one";
            let help = "`drf` divides among any number of tasks; or bound them with `tasks:`";
            let node = fields.get("algorithm").map_or(tree, |entry| &entry.value);
            self.reader.find(&codes::WHOLE_TASKS, node, message, help);
        }
        if self.reader.report.has_errors() {
            return None;
        }
        let work_conserving =
            if file.work_conserving { WorkConserving::Yes } else { WorkConserving::No };
        let (resources, paths) = (self.resources, nodes.paths);
        Some(Task { algorithm, work_conserving, resources, paths, problem })
    }

    /// What there is, and with it the names of the resources.
    fn capacity(&mut self, entry: &Entry) -> Option<Vec<f64>> {
        let expected = "a map such as `{ cpu: 8, memory: 32GiB }`";
        let amounts = self.reader.map(&entry.value, expected);
        if !matches!(entry.value.kind, tree::Kind::Map(_)) {
            return None;
        }
        if amounts.is_empty() {
            let help = "say what there is: `capacity: { cpu: 8, memory: 32GiB }`";
            let message = "there is no resource to divide";
            self.reader.find(&codes::MISSING_KEY, &entry.value, message, help);
            return None;
        }
        self.reader.duplicates(amounts);
        let mut capacity = Vec::new();
        for entry in amounts {
            let amount = quantity(&mut self.reader, &entry.value);
            let in_bytes = matches!(&entry.value.kind, tree::Kind::Scalar { text, .. } if text.ends_with("iB"));
            self.resources.push(Resource { name: entry.key.to_string(), in_bytes });
            // A valid value replaces what was found wrong, so that the rest is judged too.
            capacity.push(amount.unwrap_or(1.0));
        }
        Some(capacity)
    }

    /// The tenants in the order of the text, groups before their members.
    fn nodes<'t>(&mut self, tenants: &'t tree::Node, algorithm: Algorithm) -> Nodes<'t> {
        let whole_tasks = algorithm == Algorithm::DrfTasks;
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
            let Some(fields) = self.reader.fields(TENANT, &entry.value) else { continue };
            let weight = fields.get("weight");
            let weight = weight.map(|e| weight_of(&mut self.reader, &self.resources, &e.value));
            let mut weight = weight.unwrap_or_else(|| vec![1.0; self.resources.len()]);
            let mut kind = match self.kind(entry, &fields) {
                Some(members) if &*members.key == "tenants" => {
                    self.push_members(&members.value, Some(node), &mut stack);
                    Kind::Group(self.bounds(&fields))
                }
                Some(demand) => Kind::Leaf(self.demand(&fields, demand, whole_tasks)),
                None => continue,
            };
            if algorithm == Algorithm::Yarn {
                let (guarantee, limit) = match &mut kind {
                    Kind::Group(bounds) => (&bounds.guarantee, &mut bounds.limit),
                    Kind::Leaf(demand) => (&demand.guarantee, &mut demand.limit),
                };
                only_minimum(&mut weight, guarantee, limit);
            }
            read.nodes.push(Node { parent, weight, kind });
            read.paths.push(path);
            read.entries.push(entry);
        }
        read
    }

    fn check_name(&mut self, entry: &Entry) {
        if entry.key.is_empty() || entry.key.contains('/') {
            let message = "a name has at least one character, and no `/`";
            let finding = codes::NAME.at(&self.reader.key_place(entry), message, "");
            let help = "the answer names what is in a group `group/name`";
            self.reader.report.push(finding.help(help));
        }
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
        let members = self.reader.map(tenants, "a map of tenants by name");
        self.reader.duplicates(members);
        stack.extend(members.iter().rev().map(|entry| (group, entry)));
    }

    /// The one of `task`, `demand` and `tenants` that says what a tenant is.
    fn kind<'t>(&mut self, tenant: &Entry, fields: &Fields<'t, Tenant>) -> Option<&'t Entry> {
        let kinds: Vec<&Entry> =
            ["task", "demand", "tenants"].into_iter().filter_map(|key| fields.get(key)).collect();
        let [kind] = kinds[..] else {
            let finding = match kinds[..] {
                [first, second, ..] => {
                    let message =
                        format!("a tenant has either `{}` or `{}`", first.key, second.key);
                    let first = self.reader.key_place(first).label("already given here");
                    codes::KIND.at(&self.reader.key_place(second), message, "").also(first)
                }
                _ => {
                    let message =
                        format!("`{}` does not say what it wants", shortened(&tenant.key));
                    codes::KIND.at(&self.reader.key_place(tenant), message, "").help(
                        "give exactly one: `task` (any number of them), `demand` (once) or \
                         `tenants` (a group)",
                    )
                }
            };
            self.reader.report.push(finding);
            return None;
        };
        let others: &[&str] = match &*kind.key {
            "tenants" => &["tasks"],
            "demand" => &["tasks"],
            _ => &[],
        };
        for other in others.iter().filter_map(|key| fields.get(key)) {
            let message = format!("`{}` does not go with `{}`", other.key, kind.key);
            let help = "`tasks` bounds the number of a `task`";
            let finding = codes::KIND.at(&self.reader.key_place(other), message, "");
            self.reader.report.push(finding.help(help));
        }
        Some(kind)
    }

    fn demand(&mut self, fields: &Fields<'_, Tenant>, kind: &Entry, whole_tasks: bool) -> Demand {
        let task = amounts(&mut self.reader, &self.resources, &kind.value, 0.0);
        let mut demand = match (&*kind.key, fields.get("tasks")) {
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
    fn bounds(&mut self, fields: &Fields<'_, Tenant>) -> Bounds {
        let mut bounds = Bounds::none(self.resources.len());
        if let Some(entry) = fields.get("guarantee") {
            bounds.guarantee = amounts(&mut self.reader, &self.resources, &entry.value, 0.0);
        }
        if let Some(entry) = fields.get("limit") {
            bounds.limit = amounts(&mut self.reader, &self.resources, &entry.value, f64::INFINITY);
        }
        bounds
    }

    fn tasks(&mut self, node: &tree::Node, whole_tasks: bool) -> Option<f64> {
        let tasks = quantity(&mut self.reader, node)?;
        if whole_tasks && tasks.fract() != 0.0 {
            let help = "`drf` divides tasks, `drf-tasks` does not";
            let message = format!("{tasks} is not a whole number of tasks");
            self.reader.find(&codes::WHOLE_TASKS, node, message, help);
            return None;
        }
        Some(tasks)
    }
}

/// A queue of YARN's with a minimum and a weight of 0 gets its minimum and no more: the same as with any weight and that limit.
fn only_minimum(weight: &mut [f64], guarantee: &[f64], limit: &mut [f64]) {
    if !guarantee.iter().any(|amount| *amount > 0.0) {
        return;
    }
    for ((weight, guarantee), limit) in weight.iter_mut().zip(guarantee).zip(limit) {
        if *weight == 0.0 {
            (*weight, *limit) = (1.0, limit.min(*guarantee));
        }
    }
}
