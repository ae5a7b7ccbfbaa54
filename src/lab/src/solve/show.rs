//! The output of a solution: a table for people, one JSON object for programs.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::Range;

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

use super::amounts::{Amounts, rounded, shown};
use super::audit;
use super::steps::{self, Steps};
use super::task::{Answer, Cluster, Task};
use crate::json::write_line;
use crate::table::{self, CellAlignment, MOST_ROWS, Table};
use crate::text::{WIDTH, visible, wrapped};
use tenantd_fair::{Leaf, Placed, Solution, State};
use tenantd_policy::types::Words;

const MOST_GRANTS: usize = 60;

/// Columns beside the amount of a resource, the first that fit: true for its part of the capacity, and the
/// width of a bar.
const DETAILS: [(bool, usize); 6] =
    [(true, 10), (true, 8), (true, 6), (true, 4), (true, 0), (false, 0)];

/// Writes the solution as one JSON object and a newline.
pub(super) fn json(out: &mut impl Write, task: &Task, answer: &Answer) -> io::Result<()> {
    write_line(out, &Output { task, answer, solution: &answer.solution })
}

/// Writes the leaves in the order of their turns, one name a line.
pub(super) fn order(
    out: &mut impl Write,
    task: &Task,
    order: &[usize],
    json: bool,
) -> io::Result<()> {
    if json {
        let order: Vec<&str> = order.iter().map(|&node| task.paths[node].as_str()).collect();
        return write_line(
            out,
            &serde_json::json!({ "algorithm": task.rule.word(), "order": order }),
        );
    }
    order.iter().try_for_each(|&node| writeln!(out, "{}", visible(&task.paths[node])))
}

pub(super) fn table(out: &mut impl Write, task: &Task, answer: &Answer) -> anyhow::Result<()> {
    let solution = &answer.solution;
    if answer.lists_steps {
        steps::table(out, task, solution)?;
    }
    let fits = |it: &Table| it.lines().all(|line| line.trim_end().chars().count() <= WIDTH);
    let mut tables = DETAILS.into_iter().map(|detail| rows(task, solution, detail));
    let table = tables.find(fits).unwrap_or_else(|| {
        let mut amounts = rows(task, solution, (false, 0));
        table::fit(&mut amounts);
        amounts
    });
    table::print(out, &table, task.paths.len(), MOST_ROWS)?;
    writeln!(out)?;
    footer(out, task, solution)?;
    for leaf in &solution.leaves {
        sentences(out, task, answer, leaf)?;
    }
    machines(out, task, solution)?;
    if let Some(audit) = &answer.audit {
        audit::sentences(out, task, audit)?;
    }
    Ok(())
}

/// The table of the nodes. Numbers are to the right; names, bars and states to the left.
fn rows(task: &Task, solution: &Solution, detail: (bool, usize)) -> Table {
    use CellAlignment::{Left, Right};
    let mut table = table::plain();
    let of_resource =
        &[Right, Right, Left][..1 + usize::from(detail.0) + usize::from(detail.1 > 0)];
    let mut header = vec!["tenant".to_string()];
    for resource in &task.resources {
        header.push(visible(&resource.name));
        header.extend(of_resource[1..].iter().map(|_| String::new()));
    }
    header.extend(["fraction", "level", "state"].map(str::to_string));
    table.set_header(header);
    let mut leaves = solution.leaves.iter().peekable();
    for (node, path) in task.paths.iter().enumerate().take(MOST_ROWS) {
        let leaf = leaves.next_if(|leaf| leaf.node == node);
        table.add_row(row((task, solution, detail), path, node, leaf));
    }
    let of_resources = task.resources.iter().flat_map(|_| of_resource).copied();
    let alignments = std::iter::once(Left).chain(of_resources).chain([Right, Right, Left]);
    for (column, alignment) in table.column_iter_mut().zip(alignments) {
        column.set_cell_alignment(alignment);
    }
    table
}

/// One node: its amount of each resource, its dominant one marked, and its state.
fn row(
    (task, solution, (has_part, bar_width)): (&Task, &Solution, (bool, usize)),
    path: &str,
    node: usize,
    leaf: Option<&Leaf>,
) -> Vec<String> {
    let (above, name) = path.rsplit_once('/').map_or(("", path), |(above, name)| (above, name));
    let depth = if above.is_empty() { 0 } else { above.matches('/').count() + 1 };
    let mut row = vec![format!("{}{}", "  ".repeat(depth), visible(name))];
    for (r, (resource, &amount)) in task.resources.iter().zip(solution.allocation(node)).enumerate()
    {
        let capacity = task.problem.capacity()[r];
        let part = if capacity > 0.0 { amount / capacity } else { 0.0 };
        let dominant = leaf.is_some_and(|leaf| leaf.dominant_resource == Some(r));
        let mark = if dominant { "*" } else { " " };
        if has_part {
            row.extend([shown(amount, resource), format!("{:.1}%{mark}", part * 100.0)]);
        } else {
            row.push(shown(amount, resource) + mark);
        }
        row.extend((bar_width > 0).then(|| bar(part, bar_width)));
    }
    match leaf {
        Some(leaf) => {
            let level = format!("{:.4}", leaf.level);
            row.extend([rounded(leaf.fraction), level, state_name(leaf.state).to_string()]);
        }
        None => row.extend([String::new(), String::new(), "group".to_string()]),
    }
    row
}

/// The leftovers, the saturated resources, and the order of grants.
fn footer(out: &mut impl Write, task: &Task, solution: &Solution) -> io::Result<()> {
    let left = task.resources.iter().zip(&solution.unallocated).zip(&solution.saturated);
    let left = left.map(|((resource, &left), saturated)| {
        if *saturated {
            format!("{} none", visible(&resource.name))
        } else {
            format!("{} {}", visible(&resource.name), shown(left, resource))
        }
    });
    writeln!(out, "left: {}", left.collect::<Vec<_>>().join(", "))?;
    if !solution.order.is_empty() {
        let granted = solution.order.iter().take(MOST_GRANTS);
        let names: Vec<String> = granted.map(|&node| visible(&task.paths[node])).collect();
        let more = if solution.order.len() > MOST_GRANTS { " …" } else { "" };
        writeln!(out, "{}", wrapped("order: ", &format!("{}{more}", names.join(" "))))?;
    }
    writeln!(out, "* dominant resource: the one of which a tenant has the largest weighted part")
}

/// Facts about a tenant beside its row: its finish, the changes, the gain of its claim.
fn sentences(out: &mut impl Write, task: &Task, answer: &Answer, leaf: &Leaf) -> io::Result<()> {
    let name = visible(&task.paths[leaf.node]);
    if let Some(deadline) = task.deadlines[leaf.node] {
        let done = match deadline.finish(leaf.fraction) {
            Some(finish) => format!("done at {} s", rounded(finish)),
            None => "never done".to_string(),
        };
        let met = if deadline.is_met(leaf.fraction) { "in time" } else { "too late" };
        writeln!(out, "{name}: {done}, {met} for {} s", rounded(deadline.seconds))?;
    }
    if let Some(running) = task.running[leaf.node] {
        match leaf.fraction - running {
            0.0 => writeln!(out, "{name}: keeps its {}", rounded(running))?,
            more if more > 0.0 => writeln!(out, "{name}: start {}", rounded(more))?,
            less => writeln!(out, "{name}: abort {}", rounded(-less))?,
        }
    }
    if let Some((honest, useful)) = claim_of(answer, leaf) {
        let (honest, useful) = (rounded(honest), rounded(useful));
        writeln!(out, "{name}: {useful} of its true tasks, {honest} if all told the truth")?;
    }
    if let Some(useful) = useful_of(task, answer, leaf) {
        writeln!(out, "{name}: {} useful tasks", rounded(useful))?;
    }
    Ok(())
}

/// Tasks of a tenant with true claims of all, and the true tasks that it runs.
pub(super) fn claim_of(answer: &Answer, leaf: &Leaf) -> Option<(f64, f64)> {
    let place = answer.solution.leaves.iter().position(|it| it.node == leaf.node)?;
    answer.claims.as_ref().map(|claims| claims[place])
}

/// The tasks of a tenant with slots, each counted with the speed of its machine.
fn useful_of(task: &Task, answer: &Answer, leaf: &Leaf) -> Option<f64> {
    let cluster = task.cluster.as_ref().filter(|cluster| cluster.slots.is_some())?;
    answer.solution.placed.as_ref().map(|placed| placed.useful(&cluster.nodes, leaf.node))
}

/// The machines and their utilization.
fn machines(out: &mut impl Write, task: &Task, solution: &Solution) -> anyhow::Result<()> {
    let (Some(cluster), Some(placed)) = (&task.cluster, &solution.placed) else { return Ok(()) };
    let m = task.resources.len();
    let mut table = table::plain();
    let names = task.resources.iter().map(|resource| visible(&resource.name));
    table.set_header(["node".to_string(), "tasks".to_string()].into_iter().chain(names));
    let groups = alike(cluster, placed, m);
    for machines in groups.iter().take(MOST_ROWS) {
        let machine = machines.start;
        let row = machine * m..(machine + 1) * m;
        let used = placed.used[row.clone()].iter().zip(&cluster.nodes.capacity[row]);
        let used = used.zip(&task.resources);
        let used =
            used.map(|((used, has), it)| format!("{} of {}", shown(*used, it), shown(*has, it)));
        let count: u64 = placed.tasks[machine].values().sum();
        let first = visible(&cluster.names[machine]);
        let name = match machines.len() {
            1 => first,
            count => {
                format!("{first} … {} ({count} nodes)", visible(&cluster.names[machines.end - 1]))
            }
        };
        table.add_row([name, count.to_string()].into_iter().chain(used));
    }
    table::align_figures(&mut table);
    table::fit(&mut table);
    writeln!(out)?;
    table::print(out, &table, groups.len(), MOST_ROWS)?;
    let parts = utilization(cluster, placed, m);
    let parts = parts.iter().zip(&task.resources);
    let parts = parts.map(|(part, it)| format!("{} {:.1}%", visible(&it.name), part * 100.0));
    writeln!(out, "\nused: {}", parts.collect::<Vec<_>>().join(", "))?;
    if cluster.nodes.evict {
        writeln!(out, "moved: {} tasks", placed.evicted)?;
    }
    if cluster.slots.is_some() {
        writeln!(out, "overcommitted: {} nodes", overcommitted(cluster, placed))?;
    }
    Ok(())
}

/// Runs of three or more neighbouring machines with the same capacity, tasks and usage; other machines alone.
fn alike(cluster: &Cluster, placed: &Placed, m: usize) -> Vec<Range<usize>> {
    let row = |of: &[f64], machine: usize| of[machine * m..(machine + 1) * m].to_vec();
    let same = |a: usize, b: usize| {
        let [has, used] = [&cluster.nodes.capacity, &placed.used];
        placed.tasks[a] == placed.tasks[b]
            && row(has, a) == row(has, b)
            && row(used, a) == row(used, b)
    };
    let mut groups = Vec::new();
    let mut start = 0;
    while start < cluster.names.len() {
        let alike = (start + 1..cluster.names.len()).take_while(|&other| same(start, other));
        let end = start + 1 + alike.count();
        if end - start > 2 {
            groups.push(start..end);
        } else {
            groups.extend((start..end).map(|machine| machine..machine + 1));
        }
        start = end;
    }
    groups
}

/// The used part of each resource of all machines, at most the capacity of each.
fn utilization(cluster: &Cluster, placed: &Placed, m: usize) -> Vec<f64> {
    let part = |r: usize| {
        let rows = placed.used.iter().zip(&cluster.nodes.capacity).skip(r).step_by(m);
        let (used, has) = rows.fold((0.0, 0.0), |sum, (u, has)| (sum.0 + u.min(*has), sum.1 + has));
        if has > 0.0 { used / has } else { 0.0 }
    };
    (0..m).map(part).collect()
}

fn overcommitted(cluster: &Cluster, placed: &Placed) -> usize {
    (0..placed.tasks.len()).filter(|&it| placed.speed(&cluster.nodes, it) < 1.0).count()
}

/// A part of a whole in eighths of a column.
fn bar(part: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (part.clamp(0.0, 1.0) * (8 * width) as f64).round() as usize;
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

fn state_name(state: State) -> &'static str {
    match state {
        State::Satisfied => "satisfied",
        State::Limited => "limited",
        State::Blocked => "blocked",
        State::NoDemand => "no-demand",
    }
}

/// The object of the contract. Serialized during the walk: there may be a million tenants.
#[derive(Clone, Copy)]
struct Output<'a> {
    task: &'a Task,
    answer: &'a Answer,
    solution: &'a Solution,
}

impl Serialize for Output<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Output { task, answer, solution } = self;
        let resources = task.resources.as_slice();
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("algorithm", task.rule.word())?;
        map.serialize_entry("tenants", &Tenants(*self))?;
        map.serialize_entry("unallocated", &Amounts { resources, amounts: &solution.unallocated })?;
        let saturated = resources.iter().zip(&solution.saturated).filter(|(_, full)| **full);
        let saturated: Vec<&str> = saturated.map(|(resource, _)| resource.name.as_str()).collect();
        map.serialize_entry("saturated", &saturated)?;
        if task.rule.is_whole() {
            map.serialize_entry("order", &Order(*self))?;
        }
        if let (Some(cluster), Some(placed)) = (&task.cluster, &solution.placed) {
            self.machines(&mut map, cluster, placed)?;
        }
        if answer.lists_steps {
            map.serialize_entry("steps", &Steps { task, solution })?;
        }
        if let Some(audit) = &answer.audit {
            map.serialize_entry("audit", &audit::json(task, audit))?;
        }
        map.end()
    }
}

impl Output<'_> {
    fn machines<M: SerializeMap>(
        &self,
        map: &mut M,
        cluster: &Cluster,
        placed: &Placed,
    ) -> Result<(), M::Error> {
        let (task, resources) = (self.task, self.task.resources.as_slice());
        let m = resources.len();
        let sum = |r: usize| placed.used.iter().skip(r).step_by(m).sum::<f64>();
        let used: Vec<f64> = (0..m).map(sum).collect();
        map.serialize_entry("used", &Amounts { resources, amounts: &used })?;
        let amounts = &utilization(cluster, placed, m);
        map.serialize_entry("utilization", &Amounts { resources, amounts })?;
        if cluster.nodes.evict {
            map.serialize_entry("evicted", &placed.evicted)?;
        }
        if cluster.slots.is_some() {
            map.serialize_entry("overcommitted_nodes", &overcommitted(cluster, placed))?;
        }
        let node = |machine: usize| {
            let row = machine * m..(machine + 1) * m;
            let used = &placed.used[row.clone()];
            let has = cluster.nodes.capacity[row].iter().zip(used);
            let free: Vec<f64> = has.map(|(has, used)| (has - used).max(0.0)).collect();
            let tasks =
                placed.tasks[machine].iter().map(|(&leaf, n)| (task.paths[leaf].as_str(), n));
            let tasks: BTreeMap<&str, &u64> = tasks.collect();
            let (used, free) =
                (Amounts { resources, amounts: used }, Amounts { resources, amounts: &free });
            serde_json::json!({
                "name": cluster.names[machine], "tasks": tasks, "used": used, "free": free,
            })
        };
        let nodes: Vec<serde_json::Value> = (0..cluster.names.len()).map(node).collect();
        map.serialize_entry("nodes", &nodes)
    }
}

/// The leaves by their paths.
struct Tenants<'a>(Output<'a>);

impl Serialize for Tenants<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Output { task, solution, .. } = self.0;
        let mut map = serializer.serialize_map(Some(solution.leaves.len()))?;
        for (index, leaf) in solution.leaves.iter().enumerate() {
            let claim = self.0.answer.claims.as_ref().map(|claims| claims[index]);
            map.serialize_entry(&task.paths[leaf.node], &Tenant { output: self.0, leaf, claim })?;
        }
        map.end()
    }
}

struct Tenant<'a> {
    output: Output<'a>,
    leaf: &'a Leaf,
    claim: Option<(f64, f64)>,
}

impl Serialize for Tenant<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let resources = self.output.task.resources.as_slice();
        let amounts = self.output.solution.allocation(self.leaf.node);
        let dominant = self.leaf.dominant_resource.map(|r| resources[r].name.as_str());
        let mut map = serializer.serialize_map(Some(6))?;
        map.serialize_entry("allocation", &Amounts { resources, amounts })?;
        map.serialize_entry("fraction", &self.leaf.fraction)?;
        map.serialize_entry("dominant_resource", &dominant)?;
        map.serialize_entry("dominant_share", &self.leaf.dominant_share)?;
        map.serialize_entry("level", &self.leaf.level)?;
        map.serialize_entry("state", state_name(self.leaf.state))?;
        let (task, leaf) = (self.output.task, self.leaf);
        if let Some(deadline) = task.deadlines[leaf.node] {
            map.serialize_entry("finish", &deadline.finish(leaf.fraction))?;
            map.serialize_entry("deadline_met", &deadline.is_met(leaf.fraction))?;
        }
        if let Some(running) = task.running[leaf.node] {
            map.serialize_entry("change", &(leaf.fraction - running))?;
        }
        if let Some((honest, useful)) = self.claim {
            map.serialize_entry("honest", &honest)?;
            map.serialize_entry("useful", &useful)?;
            map.serialize_entry("gain", &(useful - honest + 0.0))?;
        }
        if let Some(useful) = useful_of(task, self.output.answer, leaf) {
            map.serialize_entry("useful", &useful)?;
        }
        map.end()
    }
}

/// The grants, as the paths of their tenants.
struct Order<'a>(Output<'a>);

impl Serialize for Order<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Output { task, solution, .. } = self.0;
        let mut list = serializer.serialize_seq(Some(solution.order.len()))?;
        for &node in &solution.order {
            list.serialize_element(&task.paths[node])?;
        }
        list.end()
    }
}
