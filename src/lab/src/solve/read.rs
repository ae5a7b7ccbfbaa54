//! A problem file, read: text in, a valid problem or every finding out.
//!
//! The text becomes a tree that keeps every place; the tree becomes the nodes of a [`Problem`], whose
//! constructor checks the numbers; its errors are mapped back to their places in the text. Neither step
//! recurses, so no depth can overflow the stack.

use super::codes;
use super::judge::judge;
use super::task::{Asked, Cluster, Deadline, PLACEMENTS, Resource, Rule, Task};
use super::together::{check_asked, check_deadlines, check_file, check_tenant, conflict};
use super::values::{amounts, get, number, quantity, weight as weight_of};
use crate::problem::{self, OneOf};
use tenantd_fair::problem::{Guarantees, Terms};
use tenantd_fair::{
    Algorithm, Bounds, Demand, Kind, Node, Nodes, Order, Placement, Problem, WorkConserving, tasks,
};
use tenantd_policy::Report;
use tenantd_policy::forms::{Count, Structure, Word};
use tenantd_policy::hint::{listed, shortened};
use tenantd_policy::key::Flag::Needed;
use tenantd_policy::key::{Fields, section};
use tenantd_policy::reader::Reader;
use tenantd_policy::tree::{self, Entry};

/// Largest depth of collections: two for each group, so about two thousand groups.
const DEEPEST: usize = 4096;

/// Largest number of machines in a file.
const MOST_NODES: usize = 10_000;

/// Largest number of tries of a task on a machine: beyond that the answer takes minutes.
const MOST_TRIES: f64 = 1e9;

section! {
    /// A problem file.
    pub(super) struct File, FILE {
        /// The rule that divides.
        "algorithm" => algorithm: Option<Rule>, Word,
            [Needed("add `algorithm: drf`, or another of them")];
        /// What there is of each resource.
        "capacity" => capacity: (), Structure;
        /// The machines, instead.
        "nodes" => nodes: (), Structure;
        /// The machine that a task takes.
        "placement" => placement: Option<Placement>, OneOf(PLACEMENTS);
        /// Whether tasks move to make room for others.
        "evict" => evict: bool, Word;
        /// Slots on each machine.
        "slots" => slots: Option<u32>, Count { most: 1_000_000, auto: false };
        /// Who is next under the machine.
        "order" => order: (), Structure;
        /// Whether what is left over is handed out by the per-resource second stage.
        "work_conserving" => work_conserving: bool, Word;
        /// The tenants that share it, in the order that breaks ties.
        "tenants" => tenants: (), Structure,
            [Needed("name what shares it: `tenants: { a: { task: { cpu: 1 } } }`")];
    }
}

section! {
    /// A tenant or a group.
    pub(super) struct Tenant, TENANT {
        /// Its weight, for all resources or for each.
        "weight" => weight: (), Structure;
        /// What one task takes.
        "task" => task: (), Structure;
        /// The number of tasks, at most.
        "tasks" => tasks: (), Structure;
        /// What it takes once.
        "demand" => demand: (), Structure;
        /// What it uses now.
        "usage" => usage: (), Structure;
        /// What it gets whenever it wants it.
        "guarantee" => guarantee: (), Structure;
        /// What it never exceeds.
        "limit" => limit: (), Structure;
        /// The tenants of a group.
        "tenants" => tenants: (), Structure;
        /// Who is next of them.
        "order" => order: (), Structure;
        /// Seconds of one task, or of the whole demand, to be done.
        "work" => work: (), Structure;
        /// Seconds until it has to be done.
        "deadline" => deadline: (), Structure;
        /// Tasks that run already.
        "running" => running: (), Structure;
        /// What one task takes by its own account.
        "claim" => claim: (), Structure;
        /// How often something was allocated to it.
        "allocations" => allocations: (), Structure;
        /// Whether it asks for nothing.
        "inactive" => inactive: bool, Word;
    }
}

/// Reads a problem.
///
/// # Errors
/// All findings; only the first one if it makes the rest unreadable.
pub(super) fn read(name: &str, text: Vec<u8>, asked: Asked) -> Result<Task, Report> {
    let (source, tree) = problem::tree(name, text, DEEPEST, &codes::TEXT)?;
    let mut report = Report::default();
    let reader = Reader::new(&mut report, &source, &codes::CODES, "");
    let rule = Rule::Divide(Algorithm::Drf);
    let problems = Problems { reader, rule, asked, on_nodes: false, resources: Vec::new() };
    let task = problems.read(&tree);
    report.sort(&[source]);
    task.ok_or(report)
}

struct Problems<'r> {
    reader: Reader<'r>,
    rule: Rule,
    asked: Asked,
    on_nodes: bool,
    resources: Vec<Resource>,
}

/// The tenants as nodes, with their places in the text. All lists have an entry for each.
#[derive(Default)]
struct Nodelist<'t> {
    nodes: Vec<Node>,
    paths: Vec<String>,
    entries: Vec<&'t Entry>,
    claims: Vec<Option<Vec<f64>>>,
    orders: Vec<Order>,
    deadlines: Vec<Option<Deadline>>,
    running: Vec<Option<f64>>,
    allocations: Vec<u64>,
    active: Vec<bool>,
}

impl Problems<'_> {
    /// The task, unless there are findings.
    fn read(mut self, tree: &tree::Node) -> Option<Task> {
        let fields = self.reader.fields(FILE, tree)?;
        let mut file = File::default();
        self.reader.values(&fields, &mut file);
        self.rule = file.algorithm.unwrap_or(self.rule);
        if file.algorithm.is_some() {
            check_file(&mut self.reader, self.rule, &fields);
        }
        self.on_nodes = fields.get("nodes").is_some();
        let (capacity_entry, capacity, cluster) = self.whole(tree, &fields, &file)?;
        let order = fields.get("order").map(|entry| self.order(entry)).unwrap_or_default();
        let read = self.nodes(&fields.get("tenants")?.value, &capacity);
        // The numbers are checked in spite of other findings: one report shows all errors.
        let is_target = matches!(self.rule, Rule::Divide(Algorithm::Yarn))
            || self.rule == Rule::Order(tenantd_fair::order::Sorter::Yarn);
        let guarantees = if is_target { Guarantees::Targets } else { Guarantees::Kept };
        let terms = Terms { guarantees, ..Terms::default() };
        let claimed = self.claimed(&read);
        let claimed_any = claimed.is_some();
        let mut problem =
            |nodes: Vec<Node>| match Problem::try_new_on(terms, capacity.clone(), nodes) {
                Ok(problem) if self.rule == Rule::Fifo => {
                    Some(problem.ordered(Order::Fifo, |_| Order::Fifo))
                }
                Ok(problem) => Some(problem.ordered(order, |node| read.orders[node])),
                Err(errors) => {
                    for error in &errors {
                        let (reader, entries) = (&mut self.reader, &read.entries);
                        judge(reader, &self.resources, capacity_entry, entries, error);
                    }
                    None
                }
            };
        let believed = claimed.map(&mut problem);
        let truth = problem(read.nodes.clone())?;
        self.count_tasks(tree, &fields, &truth, cluster.as_ref());
        check_asked(&mut self.reader, self.asked, self.rule, &fields, &truth, claimed_any);
        let (believed, truth) = match believed {
            Some(believed) => (believed?, Some(truth)),
            None => (truth, None),
        };
        if self.reader.report.has_errors() {
            return None;
        }
        let work_conserving =
            if file.work_conserving { WorkConserving::Yes } else { WorkConserving::No };
        Some(Task {
            rule: self.rule,
            work_conserving,
            resources: self.resources,
            paths: read.paths,
            problem: believed,
            truth,
            cluster,
            deadlines: read.deadlines,
            running: read.running,
            allocations: read.allocations,
            active: read.active,
        })
    }

    /// The divided amounts: the entry that defines them, the sum, and the machines, if any.
    fn whole<'t>(
        &mut self,
        tree: &'t tree::Node,
        fields: &Fields<'t, File>,
        file: &File,
    ) -> Option<(&'t Entry, Vec<f64>, Option<Cluster>)> {
        let placement = file.placement.unwrap_or_default();
        let slots = file.slots.map(u64::from);
        if self.rule == Rule::Slots && fields.get("slots").is_none() {
            self.reader.missing_key(tree, "slots", "say how many a machine has: `slots: 4`");
        }
        if let Some(entry) = fields.get("nodes") {
            let (names, capacity) = self.machines(entry)?;
            let nodes = Nodes { capacity, placement, evict: file.evict };
            let total = nodes.total(self.resources.len());
            return Some((entry, total, Some(Cluster { names, nodes, slots })));
        }
        let Some(entry) = fields.get("capacity") else {
            let help = "say what there is: `capacity: { cpu: 8, memory: 32GiB }`";
            self.reader.missing_key(tree, "capacity", help);
            return None;
        };
        let capacity = self.capacity(entry)?;
        let nodes = || Nodes { capacity: capacity.clone(), placement, evict: false };
        let cluster = slots.map(|slots| Cluster {
            names: vec!["node".to_string()],
            nodes: nodes(),
            slots: Some(slots),
        });
        Some((entry, capacity, cluster))
    }

    /// Reads the machines: their names, and their capacities, which also name the resources.
    fn machines(&mut self, entry: &Entry) -> Option<(Vec<String>, Vec<f64>)> {
        let items = self.reader.list(&entry.value, "a list such as `[{ count: 4, cpu: 8 }]`");
        let mut rows: Vec<(String, usize, Vec<f64>)> = Vec::new();
        for item in items {
            let keys = self.reader.map(item, "a map such as `{ count: 4, cpu: 8, memory: 32GiB }`");
            self.reader.duplicates(keys);
            let count = get(keys, "count")
                .map(|it| self.reader.whole(&it.value, MOST_NODES as u32, "a number of nodes"));
            let name = get(keys, "name").and_then(|it| self.reader.text(&it.value, "a name"));
            let mut row = vec![0.0; self.resources.len()];
            for amount in keys.iter().filter(|it| !["count", "name"].contains(&&*it.key)) {
                let r = self.resources.iter().position(|it| *it.name == *amount.key);
                let r = r.unwrap_or_else(|| self.new_resource(amount));
                row.resize(self.resources.len(), 0.0);
                row[r] = quantity(&mut self.reader, &amount.value).unwrap_or(1.0);
            }
            rows.push((
                name.unwrap_or("node").to_string(),
                count.flatten().unwrap_or(1) as usize,
                row,
            ));
        }
        let total: usize = rows.iter().map(|(_, count, _)| count).sum();
        if self.resources.is_empty() {
            let message = "there is no node with a resource to divide";
            self.reader.find(&codes::MISSING_KEY, &entry.value, message, "`nodes: [{ cpu: 8 }]`");
            return None;
        }
        if total > MOST_NODES {
            let message = format!("{total} nodes are more than {MOST_NODES}");
            self.reader.find(&codes::BAD_NUMBER, &entry.value, message, "divide fewer");
            return None;
        }
        let (mut names, mut capacity) = (Vec::new(), Vec::new());
        for (name, count, row) in &rows {
            let same = |others: &[(String, usize, Vec<f64>)]| -> usize {
                others.iter().filter(|it| it.0 == *name).map(|it| it.1).sum()
            };
            for _ in 0..*count {
                let before = names.iter().filter(|(of, _)| of == name).count();
                let shown =
                    if same(&rows) > 1 { format!("{name}-{}", before + 1) } else { name.clone() };
                names.push((name.clone(), shown));
                capacity.extend((0..self.resources.len()).map(|r| row.get(r).unwrap_or(&0.0)));
            }
        }
        Some((names.into_iter().map(|(_, shown)| shown).collect(), capacity))
    }

    /// Adds a resource that is named for the first time.
    fn new_resource(&mut self, entry: &Entry) -> usize {
        if ["drf", "fifo"].contains(&&*entry.key) {
            let message = format!("`{}` is an order, and no name of a resource", entry.key);
            let finding = codes::NAME.at(&self.reader.key_place(entry), message, "");
            self.reader.report.push(finding.help("name it otherwise"));
        }
        let in_bytes =
            matches!(&entry.value.kind, tree::Kind::Scalar { text, .. } if text.ends_with("iB"));
        self.resources.push(Resource { name: entry.key.to_string(), in_bytes });
        self.resources.len() - 1
    }

    /// Reads an order: a word, or the name of a resource.
    fn order(&mut self, entry: &Entry) -> Order {
        let names = self.resources.iter().map(|it| it.name.as_str());
        let words: Vec<&str> = ["drf", "fifo"].into_iter().chain(names).collect();
        let expected = format!("one of {}", listed(words.iter().copied()));
        let Some(text) = self.reader.text(&entry.value, &expected) else { return Order::Drf };
        match (text, words.iter().position(|word| *word == text)) {
            ("fifo", _) => Order::Fifo,
            (_, Some(index @ 2..)) => Order::Resource(index - 2),
            (_, None) => {
                self.reader.unknown_word(&entry.value, text, words.iter().copied(), "");
                Order::Drf
            }
            _ => Order::Drf,
        }
    }

    /// The nodes with their claims, if there are any.
    fn claimed(&self, read: &Nodelist<'_>) -> Option<Vec<Node>> {
        let has_claims = read.claims.iter().any(Option::is_some);
        let claimed = |(node, claim): (&Node, &Option<Vec<f64>>)| {
            let mut node = node.clone();
            if let (Kind::Leaf(demand), Some(claim)) = (&mut node.kind, claim) {
                demand.task.clone_from(claim);
            }
            node
        };
        has_claims.then(|| read.nodes.iter().zip(&read.claims).map(claimed).collect())
    }

    /// Reports more whole tasks than can be granted one by one.
    fn count_tasks(
        &mut self,
        tree: &tree::Node,
        fields: &Fields<'_, File>,
        problem: &Problem,
        cluster: Option<&Cluster>,
    ) {
        if !self.rule.is_whole() {
            return;
        }
        let machines = cluster.map_or(1, |cluster| cluster.names.len()) as f64;
        let granted = match cluster.and_then(|cluster| cluster.slots) {
            Some(slots) => slots as f64 * machines,
            None => tasks::most_tasks(problem),
        };
        let tries = match cluster.is_some_and(|cluster| cluster.nodes.evict) {
            true => granted * machines * machines,
            false => granted * machines,
        };
        if granted > tasks::MOST_TASKS || tries > MOST_TRIES {
            let message = "more tasks would be granted than can be listed one by one";
            let help = "`drf` divides among any number of tasks; or bound them with `tasks:`";
            let node = fields.get("algorithm").map_or(tree, |entry| &entry.value);
            self.reader.find(&codes::WHOLE_TASKS, node, message, help);
        }
    }

    /// Reads the capacity, and with it the names of the resources.
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
            self.new_resource(entry);
            // A valid value replaces a wrong one, so that the rest is checked too.
            capacity.push(amount.unwrap_or(1.0));
        }
        Some(capacity)
    }

    /// The tenants in the order of the text, groups before their members.
    fn nodes<'t>(&mut self, tenants: &'t tree::Node, capacity: &[f64]) -> Nodelist<'t> {
        let mut read = Nodelist::default();
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
            let weight = weight.unwrap_or_else(|| vec![1.0; self.resources.len()]);
            let Some(kind_entry) = self.kind(entry, &fields) else { continue };
            check_tenant(&mut self.reader, (self.rule, self.on_nodes), kind_entry, &fields);
            let kind = match &*kind_entry.key {
                "tenants" => {
                    self.push_members(&kind_entry.value, Some(node), &mut stack);
                    Kind::Group(self.bounds(&fields))
                }
                _ => Kind::Leaf(self.demand(&fields, kind_entry)),
            };
            read.nodes.push(Node { parent, weight, kind });
            read.paths.push(path);
            read.entries.push(entry);
            self.extras(&fields, &mut read);
        }
        self.weigh_by_deadlines(&mut read, capacity);
        read
    }

    /// Reads the keys of a tenant other than its demand and bounds.
    fn extras(&mut self, fields: &Fields<'_, Tenant>, read: &mut Nodelist<'_>) {
        let mut tenant = Tenant::default();
        self.reader.values(fields, &mut tenant);
        let order = fields.get("order").map(|entry| self.order(entry));
        read.orders.push(order.unwrap_or_default());
        let claim = fields.get("claim");
        read.claims
            .push(claim.map(|it| amounts(&mut self.reader, &self.resources, &it.value, 0.0)));
        let mut positive = |key: &str| {
            let entry = fields.get(key)?;
            let amount = number(&mut self.reader, &entry.value, "a number above 0")?;
            if amount <= 0.0 {
                let message = format!("{amount} is not above 0");
                self.reader.find(&codes::BAD_NUMBER, &entry.value, message, "a number above 0");
            }
            (amount > 0.0).then_some(amount)
        };
        let deadline = match (positive("work"), positive("deadline")) {
            (Some(work), Some(seconds)) => Some(Deadline { work, seconds }),
            _ => None,
        };
        read.deadlines.push(deadline);
        for (key, other) in [("work", "deadline"), ("deadline", "work")] {
            if let (Some(entry), None) = (fields.get(key), fields.get(other)) {
                let message = format!("`{key}` without `{other}`");
                conflict(&mut self.reader, entry, &message, "give both, or none");
            }
        }
        let mut whole = |key: &str| {
            let entry = fields.get(key)?;
            let count = number(&mut self.reader, &entry.value, "a whole number")?;
            if !(0.0..=1e15).contains(&count) || count.fract() != 0.0 {
                let message = format!("{count} is not a whole number from 0 to 1e15");
                self.reader.find(&codes::BAD_NUMBER, &entry.value, message, "count whole ones");
                return None;
            }
            Some(count)
        };
        read.running.push(whole("running"));
        read.allocations.push(whole("allocations").unwrap_or(0.0) as u64);
        read.active.push(!tenant.inactive);
    }

    /// Sets the weight of each tenant with a deadline: the part of the machine that it needs.
    fn weigh_by_deadlines(&mut self, read: &mut Nodelist<'_>, capacity: &[f64]) {
        let is_leaf: Vec<bool> =
            read.nodes.iter().map(|node| matches!(node.kind, Kind::Leaf(_))).collect();
        let has: Vec<bool> = read
            .entries
            .iter()
            .map(|it| matches!(&it.value.kind, tree::Kind::Map(keys) if get(keys, "deadline").is_some()))
            .collect();
        check_deadlines(&mut self.reader, &has, &read.entries, &is_leaf);
        for (node, deadline) in read.nodes.iter_mut().zip(&read.deadlines) {
            let (Kind::Leaf(demand), Some(deadline)) = (&node.kind, deadline) else { continue };
            let parts = demand.task.iter().zip(capacity).filter(|(_, capacity)| **capacity > 0.0);
            let part = parts.map(|(task, capacity)| task / capacity).fold(0.0, f64::max);
            // A tenant that demands nothing gets nothing at any weight.
            if part > 0.0 {
                node.weight.fill(deadline.work / deadline.seconds * part);
            }
        }
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

    /// The one of `task`, `demand`, `usage` and `tenants` that defines the kind of a tenant.
    fn kind<'t>(&mut self, tenant: &Entry, fields: &Fields<'t, Tenant>) -> Option<&'t Entry> {
        let kinds: Vec<&Entry> = ["task", "demand", "usage", "tenants"]
            .into_iter()
            .filter_map(|key| fields.get(key))
            .collect();
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
            "task" => &[],
            _ => &["tasks"],
        };
        for other in others.iter().filter_map(|key| fields.get(key)) {
            let message = format!("`{}` does not go with `{}`", other.key, kind.key);
            let help = "`tasks` bounds the number of a `task`";
            let finding = codes::KIND.at(&self.reader.key_place(other), message, "");
            self.reader.report.push(finding.help(help));
        }
        Some(kind)
    }

    fn demand(&mut self, fields: &Fields<'_, Tenant>, kind: &Entry) -> Demand {
        let task = amounts(&mut self.reader, &self.resources, &kind.value, 0.0);
        let mut demand = match (&*kind.key, fields.get("tasks")) {
            ("task", None) => Demand::tasks(task, f64::INFINITY),
            ("task", Some(tasks)) => {
                let number = self.tasks(&tasks.value);
                Demand::tasks(task, number.unwrap_or(1.0))
            }
            _ => Demand::once(task),
        };
        let bounds = self.bounds(fields);
        (demand.guarantee, demand.limit) = (bounds.guarantee, bounds.limit);
        demand
    }

    /// Guarantees and limits of a tenant or a group.
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

    fn tasks(&mut self, node: &tree::Node) -> Option<f64> {
        let tasks = quantity(&mut self.reader, node)?;
        if self.rule.is_whole() && tasks.fract() != 0.0 {
            let help = "`drf` divides tasks, `drf-tasks` does not";
            let message = format!("{tasks} is not a whole number of tasks");
            self.reader.find(&codes::WHOLE_TASKS, node, message, help);
            return None;
        }
        Some(tasks)
    }
}
