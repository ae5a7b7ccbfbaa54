//! A problem file, read: text in, a valid problem or its first error out.
//!
//! The types below are deserialized, one tenant at a time: groups may nest a thousand deep, and no step calls
//! itself. [`super::rules`] refuses keys without an effect, and the constructor of [`Problem`] checks the
//! numbers; [`judge`] maps its errors back to their places in the text.

use std::collections::HashMap;

use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::codes::{CONFLICT, FORMAT, KIND, NAME, UNKNOWN_RESOURCE, WHOLE_TASKS};
use super::judge::judge;
use super::rules::{check_asked, check_deadlines, check_file, check_tenant};
use super::task::{Asked, Cluster, Deadline, Resource, Rule, Task};
use super::values::{Amount, Count, Limit, Number, Positive, placement, rule};
use crate::problem::{by_name, parse, refuse_key};
use tenantd_fair::order::Sorter;
use tenantd_fair::problem::{Guarantees, Terms};
use tenantd_fair::{
    Algorithm, Bounds, Demand, Kind, Node, Nodes, Order, Placement, Problem, WorkConserving, tasks,
};
use tenantd_policy::Report;
use tenantd_policy::file::{Cause, Refusal, Whole};
use tenantd_policy::hint::shortened;
use tenantd_policy::tree::{self, Entry};

/// Largest number of machines in a file.
const MOST_NODES: u64 = 10_000;

/// Largest number of tries of a task on a machine: beyond that the answer takes minutes.
const MOST_TRIES: f64 = 1e9;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "maps with any keys are read from the tree")]
struct File {
    #[serde(deserialize_with = "rule")]
    algorithm: Rule,
    capacity: Option<IgnoredAny>,
    nodes: Option<Vec<IgnoredAny>>,
    #[serde(default, deserialize_with = "placement")]
    placement: Placement,
    #[serde(default)]
    evict: bool,
    slots: Option<Whole<1, 1_000_000>>,
    order: Option<String>,
    #[serde(default)]
    work_conserving: bool,
    tenants: IgnoredAny,
}

/// A tenant or a group.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "maps with any keys are read from the tree")]
struct Tenant {
    weight: Option<IgnoredAny>,
    task: Option<IgnoredAny>,
    tasks: Option<Amount>,
    demand: Option<IgnoredAny>,
    usage: Option<IgnoredAny>,
    guarantee: Option<IgnoredAny>,
    limit: Option<IgnoredAny>,
    tenants: Option<IgnoredAny>,
    order: Option<String>,
    work: Option<Positive>,
    deadline: Option<Positive>,
    running: Option<Count>,
    claim: Option<IgnoredAny>,
    allocations: Option<Count>,
    #[serde(default)]
    inactive: bool,
}

/// Reads a problem.
///
/// # Errors
/// The first error.
pub(super) fn read(name: &str, text: Vec<u8>, asked: Asked) -> Result<Task, Report> {
    parse(name, text, &FORMAT, |_, tree| task(tree, asked))
}

fn task(tree: &tree::Node, asked: Asked) -> Result<Task, Refusal> {
    let file: File = tree.read()?;
    check_file(file.algorithm, tree)?;
    let mut reading = Reading { rule: file.algorithm, on_nodes: false, resources: Vec::new() };
    let (capacity_entry, capacity, cluster) = reading.whole(tree, &file)?;
    let order = reading.order(tree)?;
    let Some(tenants) = tree.get("tenants") else { return Err(Refusal::missing(tree, "tenants")) };
    let read = reading.members(&tenants.value, &capacity)?;
    let is_target =
        [Rule::Divide(Algorithm::Yarn), Rule::Order(Sorter::Yarn)].contains(&reading.rule);
    let guarantees = if is_target { Guarantees::Targets } else { Guarantees::Kept };
    let terms = Terms { guarantees, ..Terms::default() };
    let problem = |nodes: Vec<Node>| match Problem::try_new_on(terms, capacity.clone(), nodes) {
        Ok(problem) if reading.rule == Rule::Fifo => {
            Ok(problem.ordered(Order::Fifo, |_| Order::Fifo))
        }
        Ok(problem) => Ok(problem.ordered(order, |node| read.orders[node])),
        Err(errors) => Err(judge(&reading.resources, capacity_entry, &read.entries, &errors[0])),
    };
    let truth = problem(read.nodes.clone())?;
    let believed = read.claimed().map(problem).transpose()?;
    reading.count_tasks(tree, &truth, cluster.as_ref())?;
    check_asked(asked, reading.rule, tree, &truth, believed.is_some())?;
    let (problem, truth) = match believed {
        Some(believed) => (believed, Some(truth)),
        None => (truth, None),
    };
    Ok(Task {
        rule: reading.rule,
        work_conserving: if file.work_conserving {
            WorkConserving::Yes
        } else {
            WorkConserving::No
        },
        resources: reading.resources,
        paths: read.paths,
        problem,
        truth,
        cluster,
        deadlines: read.deadlines,
        running: read.running,
        allocations: read.allocations,
        active: read.active,
    })
}

/// The tenants as nodes, with their entries in the text. All lists have an entry for each.
#[derive(Default)]
struct Members<'t> {
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

impl Members<'_> {
    /// The nodes with their claims, if there are any.
    fn claimed(&self) -> Option<Vec<Node>> {
        let claimed = |(node, claim): (&Node, &Option<Vec<f64>>)| {
            let mut node = node.clone();
            if let (Kind::Leaf(demand), Some(claim)) = (&mut node.kind, claim) {
                demand.task.clone_from(claim);
            }
            node
        };
        let has_claims = self.claims.iter().any(Option::is_some);
        has_claims.then(|| self.nodes.iter().zip(&self.claims).map(claimed).collect())
    }
}

/// The parts of a file that the values of tenants depend on.
struct Reading {
    rule: Rule,
    on_nodes: bool,
    resources: Vec<Resource>,
}

impl Reading {
    /// The divided amounts: the entry that defines them, the sum, and the machines, if any.
    fn whole<'t>(
        &mut self,
        tree: &'t tree::Node,
        file: &File,
    ) -> Result<(&'t Entry, Vec<f64>, Option<Cluster>), Refusal> {
        let slots = file.slots.map(|slots| slots.0);
        if self.rule == Rule::Slots && slots.is_none() {
            return Err(Refusal::missing(tree, "slots"));
        }
        if let Some(entry) = tree.get("nodes") {
            self.on_nodes = true;
            let (names, capacity) = self.machines(entry)?;
            let nodes = Nodes { capacity, placement: file.placement, evict: file.evict };
            let total = nodes.total(self.resources.len());
            return Ok((entry, total, Some(Cluster { names, nodes, slots })));
        }
        let Some(entry) = tree.get("capacity") else {
            return Err(Refusal::missing(tree, "capacity"));
        };
        let mut capacity = Vec::new();
        for entry in entry.value.map()? {
            let amount: Amount = entry.read()?;
            self.resource(entry, amount.in_bytes)?;
            capacity.push(amount.amount);
        }
        if self.resources.is_empty() {
            let message = "there is no resource to divide";
            let empty = Refusal::new(Cause::MissingKey, entry.value.span(), message);
            return Err(empty.help("say what there is: `capacity: { cpu: 8, memory: 32GiB }`"));
        }
        let cluster = slots.map(|slots| Cluster {
            names: vec!["node".to_string()],
            nodes: Nodes { capacity: capacity.clone(), placement: file.placement, evict: false },
            slots: Some(slots),
        });
        Ok((entry, capacity, cluster))
    }

    /// Reads the machines: their names, and their capacities, which also name the resources.
    fn machines(&mut self, nodes: &Entry) -> Result<(Vec<String>, Vec<f64>), Refusal> {
        let mut rows: Vec<(String, usize, Vec<f64>)> = Vec::new();
        for item in nodes.value.list() {
            let (mut name, mut count, mut row) = ("node".to_string(), 1, Vec::new());
            for entry in item.map()? {
                match &*entry.key {
                    "count" => count = entry.read::<Whole<1, MOST_NODES>>()?.0 as usize,
                    "name" => name = entry.read()?,
                    _ => {
                        let amount: Amount = entry.read()?;
                        let resource = self.resource(entry, amount.in_bytes)?;
                        row.resize(self.resources.len(), 0.0);
                        row[resource] = amount.amount;
                    }
                }
            }
            rows.push((name, count, row));
        }
        let total: usize = rows.iter().map(|(_, count, _)| count).sum();
        if self.resources.is_empty() {
            let message = "there is no node with a resource to divide";
            let empty = Refusal::new(Cause::MissingKey, nodes.value.span(), message);
            return Err(empty.help("`nodes: [{ cpu: 8 }]`"));
        }
        if total as u64 > MOST_NODES {
            let message = format!("{total} nodes are more than {MOST_NODES}");
            let many = Refusal::new(Cause::Number, nodes.value.span(), message);
            return Err(many.help("divide fewer"));
        }
        let mut of_name: HashMap<&str, (usize, usize)> = HashMap::new();
        for (name, count, _) in &rows {
            of_name.entry(name).or_default().1 += count;
        }
        let (mut names, mut capacity) = (Vec::new(), Vec::new());
        for (name, count, row) in &rows {
            for _ in 0..*count {
                let (last, all) = of_name.entry(name).or_default();
                *last += 1;
                names.push(if *all > 1 { format!("{name}-{last}") } else { name.clone() });
                capacity.extend((0..self.resources.len()).map(|r| row.get(r).unwrap_or(&0.0)));
            }
        }
        Ok((names, capacity))
    }

    /// The index of a resource, which is added if it is named for the first time.
    fn resource(&mut self, entry: &Entry, in_bytes: bool) -> Result<usize, Refusal> {
        let name = &*entry.key;
        if ["drf", "fifo"].contains(&name) {
            let message = format!("`{name}` is an order, and no name of a resource");
            let refusal = Refusal::new(Cause::Rule(NAME), entry.span(), message);
            return Err(refusal.help("name it otherwise"));
        }
        let known = self.resources.iter().position(|resource| resource.name == name);
        Ok(known.unwrap_or_else(|| {
            self.resources.push(Resource { name: name.to_string(), in_bytes });
            self.resources.len() - 1
        }))
    }

    /// The order of a file or a group: a word, or the name of a resource.
    fn order(&self, map: &tree::Node) -> Result<Order, Refusal> {
        let Some(entry) = map.get("order") else { return Ok(Order::Drf) };
        let mut words = vec![("drf", Order::Drf), ("fifo", Order::Fifo)];
        let names = self.resources.iter().enumerate();
        words.extend(names.map(|(index, it)| (it.name.as_str(), Order::Resource(index))));
        entry.value.one_of(&words)
    }

    /// Amounts of the resources under a key, `missing` for a resource without one.
    fn amounts<T: DeserializeOwned>(
        &self,
        (map, key): (&tree::Node, &str),
        missing: f64,
        of: impl Fn(T) -> f64,
    ) -> Result<Vec<f64>, Refusal> {
        let names = self.resources.iter().map(|resource| resource.name.as_str());
        let unknown = (Cause::Rule(UNKNOWN_RESOURCE), "add it to the capacity");
        by_name(map.get(key), names, unknown, missing, of)
    }

    /// Refuses more whole tasks than can be granted one by one.
    fn count_tasks(
        &self,
        tree: &tree::Node,
        problem: &Problem,
        cluster: Option<&Cluster>,
    ) -> Result<(), Refusal> {
        if !self.rule.is_whole() {
            return Ok(());
        }
        let machines = cluster.map_or(1, |cluster| cluster.names.len()) as f64;
        let granted = match cluster.and_then(|cluster| cluster.slots) {
            Some(slots) => slots as f64 * machines,
            None => tasks::most_tasks(problem),
        };
        let evicts = cluster.is_some_and(|cluster| cluster.nodes.evict);
        let tries = granted * machines * if evicts { machines } else { 1.0 };
        if granted <= tasks::MOST_TASKS && tries <= MOST_TRIES {
            return Ok(());
        }
        let span = tree.get("algorithm").map_or(tree.span(), |entry| entry.value.span());
        let message = "more tasks would be granted than can be listed one by one";
        let help = "`drf` divides among any number of tasks; or bound them with `tasks:`";
        Err(Refusal::new(Cause::Rule(WHOLE_TASKS), span, message).help(help))
    }

    /// The tenants in the order of the text, groups before their members.
    fn members<'t>(
        &self,
        tenants: &'t tree::Node,
        capacity: &[f64],
    ) -> Result<Members<'t>, Refusal> {
        let mut read = Members::default();
        let mut stack: Vec<(Option<usize>, &Entry)> = Vec::new();
        stack.extend(tenants.map()?.iter().rev().map(|entry| (None, entry)));
        while let Some((parent, entry)) = stack.pop() {
            if entry.key.is_empty() || entry.key.contains('/') {
                let message = "a name has at least one character, and no `/`";
                let refusal = Refusal::new(Cause::Rule(NAME), entry.span(), message);
                return Err(refusal.help("the answer names what is in a group `group/name`"));
            }
            let path = match parent {
                Some(parent) => format!("{}/{}", read.paths[parent], entry.key),
                None => entry.key.to_string(),
            };
            let tenant: Tenant = entry.read()?;
            let kind = kind(entry)?;
            check_tenant((self.rule, self.on_nodes), kind, &entry.value)?;
            if &*kind.key == "tenants" {
                let node = Some(read.nodes.len());
                stack.extend(kind.value.map()?.iter().rev().map(|entry| (node, entry)));
            }
            self.check_tasks(&tenant, &entry.value)?;
            read.paths.push(path);
            self.member((parent, &kind.key, entry), tenant, &mut read)?;
        }
        check_deadlines(&read.entries)?;
        weigh_by_deadlines(&mut read, capacity);
        Ok(read)
    }

    fn member<'t>(
        &self,
        (parent, kind, entry): (Option<usize>, &str, &'t Entry),
        tenant: Tenant,
        read: &mut Members<'t>,
    ) -> Result<(), Refusal> {
        let map = &entry.value;
        let amounts = |key| self.amounts((map, key), 0.0, |amount: Amount| amount.amount);
        let weight = match map.get("weight") {
            Some(weight) if !matches!(weight.value.kind, tree::Kind::Map(_)) => {
                vec![weight.read::<Number>()?.0; self.resources.len()]
            }
            _ => self.amounts((map, "weight"), 1.0, |weight: Number| weight.0)?,
        };
        let guarantee = amounts("guarantee")?;
        let limit = self.amounts((map, "limit"), f64::INFINITY, |limit: Limit| limit.0)?;
        let kind = match kind {
            "tenants" => Kind::Group(Bounds { guarantee, limit }),
            _ => {
                let default = if kind == "task" { f64::INFINITY } else { 1.0 };
                let tasks = tenant.tasks.map_or(default, |tasks| tasks.amount);
                Kind::Leaf(Demand { task: amounts(kind)?, tasks, guarantee, limit })
            }
        };
        read.nodes.push(Node { parent, weight, kind });
        read.entries.push(entry);
        read.claims.push(map.get("claim").map(|_| amounts("claim")).transpose()?);
        read.orders.push(self.order(map)?);
        let deadline = tenant.work.zip(tenant.deadline);
        let deadline =
            deadline.map(|(work, seconds)| Deadline { work: work.0, seconds: seconds.0 });
        read.deadlines.push(deadline);
        read.running.push(tenant.running.map(|running| running.0));
        read.allocations.push(tenant.allocations.map_or(0, |count| count.0 as u64));
        read.active.push(!tenant.inactive);
        Ok(())
    }

    /// Refuses a part of a task under rules for whole tasks.
    fn check_tasks(&self, tenant: &Tenant, map: &tree::Node) -> Result<(), Refusal> {
        let tasks =
            tenant.tasks.filter(|tasks| self.rule.is_whole() && tasks.amount.fract() != 0.0);
        let Some((tasks, entry)) = tasks.zip(map.get("tasks")) else { return Ok(()) };
        let message = format!("{} is not a whole number of tasks", tasks.amount);
        let refusal = Refusal::new(Cause::Rule(WHOLE_TASKS), entry.value.span(), message);
        Err(refusal.help("`drf` divides tasks, `drf-tasks` does not"))
    }
}

/// The one of `task`, `demand`, `usage` and `tenants` that defines the kind of a tenant.
fn kind(tenant: &Entry) -> Result<&Entry, Refusal> {
    let refusal = |entry: &Entry, message| Refusal::new(Cause::Rule(KIND), entry.span(), message);
    let kinds = ["task", "demand", "usage", "tenants"];
    let kinds: Vec<&Entry> = kinds.into_iter().filter_map(|key| tenant.value.get(key)).collect();
    let kind = match kinds[..] {
        [kind] => kind,
        [first, second, ..] => {
            let message = format!("a tenant has either `{}` or `{}`", first.key, second.key);
            return Err(refusal(second, message).also(first.span(), "already given here"));
        }
        [] => {
            let message = format!("`{}` does not say what it wants", shortened(&tenant.key));
            let help = "give exactly one: `task` (any number of them), `demand` (once) or \
                        `tenants` (a group)";
            return Err(refusal(tenant, message).help(help));
        }
    };
    if &*kind.key != "task" {
        let message = format!("`tasks` does not go with `{}`", kind.key);
        refuse_key(&tenant.value, "tasks", KIND, message, "`tasks` bounds the number of a `task`")?;
    }
    for (key, other) in [("work", "deadline"), ("deadline", "work")] {
        if tenant.value.get(other).is_none() {
            let message = format!("`{key}` without `{other}`");
            refuse_key(&tenant.value, key, CONFLICT, message, "give both, or none")?;
        }
    }
    Ok(kind)
}

/// Sets the weight of each tenant with a deadline: the part of the machine that it needs.
fn weigh_by_deadlines(read: &mut Members<'_>, capacity: &[f64]) {
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
