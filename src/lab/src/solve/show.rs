//! The output of a solution: a table for people, one JSON object for programs.

use std::io::{self, Write};

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

use super::task::{ALGORITHMS, Resource, Task};
use crate::json::write_line;
use crate::problem::word_of;
use crate::table::{self, CellAlignment};
use crate::text::visible;
use tenantd_core::units::Bytes;
use tenantd_fair::{Leaf, Solution, State};

/// Rows shown: a longer table is of no use.
const MOST_ROWS: usize = 200;

/// Grants shown.
const MOST_GRANTS: usize = 60;

/// Columns of a bar.
const BAR_WIDTH: usize = 10;

/// Writes the solution as one JSON object and a newline.
pub(super) fn json(out: &mut impl Write, task: &Task, solution: &Solution) -> io::Result<()> {
    write_line(out, &Output { task, solution })
}

/// Writes the solution as a table.
pub(super) fn table(out: &mut impl Write, task: &Task, solution: &Solution) -> anyhow::Result<()> {
    let mut table = table::plain();
    let mut header = vec!["tenant".to_string()];
    for resource in &task.resources {
        header.extend([visible(&resource.name), String::new(), String::new()]);
    }
    header.extend(["fraction".to_string(), "level".to_string(), "state".to_string()]);
    table.set_header(header);
    let mut leaves = solution.leaves.iter().peekable();
    for (node, path) in task.paths.iter().enumerate().take(MOST_ROWS) {
        let leaf = leaves.next_if(|leaf| leaf.node == node);
        table.add_row(row(task, solution, path, node, leaf));
    }
    // Numbers to the right; names, bars and states to the left.
    let of_resource = [CellAlignment::Right, CellAlignment::Right, CellAlignment::Left];
    let alignments = std::iter::once(CellAlignment::Left)
        .chain(task.resources.iter().flat_map(|_| of_resource))
        .chain([CellAlignment::Right, CellAlignment::Right, CellAlignment::Left]);
    for (column, alignment) in table.column_iter_mut().zip(alignments) {
        column.set_cell_alignment(alignment);
    }
    table::print(out, &table, task.paths.len(), MOST_ROWS)?;
    writeln!(out)?;
    footer(out, task, solution)?;
    Ok(())
}

/// One node: its amount of each resource, its dominant one marked, and its state.
fn row(
    task: &Task,
    solution: &Solution,
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
        row.push(shown(amount, resource));
        row.push(format!("{:.1}%{}", part * 100.0, if dominant { "*" } else { " " }));
        row.push(bar(part));
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
    let left = left.map(|((resource, &left), saturated)| match saturated {
        true => format!("{} none", visible(&resource.name)),
        false => format!("{} {}", visible(&resource.name), shown(left, resource)),
    });
    writeln!(out, "left: {}", left.collect::<Vec<_>>().join(", "))?;
    if !solution.order.is_empty() {
        let granted = solution.order.iter().take(MOST_GRANTS);
        let names: Vec<String> = granted.map(|&node| visible(&task.paths[node])).collect();
        let more = if solution.order.len() > MOST_GRANTS { " …" } else { "" };
        writeln!(out, "order: {}{more}", names.join(" "))?;
    }
    writeln!(out, "* dominant resource: the one of which a tenant has the largest weighted part")
}

/// An amount, at most four digits after the point.
fn shown(amount: f64, resource: &Resource) -> String {
    match resource.in_bytes {
        true => Bytes(amount.round() as u64).rounded(),
        false => rounded(amount),
    }
}

fn rounded(amount: f64) -> String {
    if amount != 0.0 && !(1e-3..1e9).contains(&amount) {
        return format!("{amount:.3e}");
    }
    let text = format!("{amount:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// A part of a whole in eighths of a column.
fn bar(part: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (part.clamp(0.0, 1.0) * (8 * BAR_WIDTH) as f64).round() as usize;
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
    solution: &'a Solution,
}

impl Serialize for Output<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Output { task, solution } = self;
        let resources = task.resources.as_slice();
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("algorithm", word_of(ALGORITHMS, task.algorithm))?;
        map.serialize_entry("tenants", &Tenants(*self))?;
        map.serialize_entry("unallocated", &Amounts { resources, amounts: &solution.unallocated })?;
        let saturated = resources.iter().zip(&solution.saturated).filter(|(_, full)| **full);
        let saturated: Vec<&str> = saturated.map(|(resource, _)| resource.name.as_str()).collect();
        map.serialize_entry("saturated", &saturated)?;
        if task.algorithm == tenantd_fair::Algorithm::DrfTasks {
            map.serialize_entry("order", &Order(*self))?;
        }
        map.end()
    }
}

/// The leaves by their paths.
struct Tenants<'a>(Output<'a>);

impl Serialize for Tenants<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Output { task, solution } = self.0;
        let mut map = serializer.serialize_map(Some(solution.leaves.len()))?;
        for leaf in &solution.leaves {
            map.serialize_entry(&task.paths[leaf.node], &Tenant { output: self.0, leaf })?;
        }
        map.end()
    }
}

struct Tenant<'a> {
    output: Output<'a>,
    leaf: &'a Leaf,
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
        map.end()
    }
}

/// An amount of each resource, by name.
struct Amounts<'a> {
    resources: &'a [Resource],
    amounts: &'a [f64],
}

impl Serialize for Amounts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let names = self.resources.iter().map(|resource| &resource.name);
        serializer.collect_map(names.zip(self.amounts))
    }
}

/// The grants, as the paths of their tenants.
struct Order<'a>(Output<'a>);

impl Serialize for Order<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Output { task, solution } = self.0;
        let mut list = serializer.serialize_seq(Some(solution.order.len()))?;
        for &node in &solution.order {
            list.serialize_element(&task.paths[node])?;
        }
        list.end()
    }
}
