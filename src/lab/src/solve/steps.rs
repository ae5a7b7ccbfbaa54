//! The grants of whole tasks, one by one: NSDI'11's table 1 for any problem.

use std::io::{self, Write};

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

use super::amounts::{Amounts, rounded};
use super::task::Task;
use crate::table;
use crate::text::visible;
use tenantd_fair::Solution;
use tenantd_fair::steps::{Step, steps};

/// Grants shown as a table.
const MOST_STEPS: usize = 60;

/// The grants of a solution, as JSON. Serialized during the walk: there may be ten million.
pub(super) struct Steps<'a> {
    pub(super) task: &'a Task,
    pub(super) solution: &'a Solution,
}

impl Serialize for Steps<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.solution.order.len()))?;
        for step in steps(&self.task.problem, &self.solution.order) {
            list.serialize_element(&StepOf { task: self.task, step })?;
        }
        list.end()
    }
}

struct StepOf<'a> {
    task: &'a Task,
    step: Step,
}

impl Serialize for StepOf<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let resources = self.task.resources.as_slice();
        let step = &self.step;
        let mut map = serializer.serialize_map(Some(6))?;
        map.serialize_entry("tenant", &self.task.paths[step.leaf])?;
        let mut entry =
            |key, amounts: &[f64]| map.serialize_entry(key, &Amounts { resources, amounts });
        entry("allocation", &step.allocation)?;
        entry("shares", &step.shares)?;
        map.serialize_entry("dominant_share", &step.dominant_share)?;
        let mut entry =
            |key, amounts: &[f64]| map.serialize_entry(key, &Amounts { resources, amounts });
        entry("used", &step.used)?;
        entry("used_shares", &step.used_shares)?;
        map.end()
    }
}

/// Writes a row for each grant, with the shares and the dominant share of each tenant.
pub(super) fn table(out: &mut impl Write, task: &Task, solution: &Solution) -> io::Result<()> {
    let leaves: Vec<usize> = solution.leaves.iter().map(|leaf| leaf.node).collect();
    let mut table = table::plain();
    let names =
        leaves.iter().map(|&leaf| format!("{}: shares, dominant", visible(&task.paths[leaf])));
    let header = std::iter::once("grant to".to_string()).chain(names);
    table.set_header(header.chain(["all".to_string()]));
    let shares = |shares: &[f64]| {
        let shares: Vec<String> = shares.iter().map(|share| rounded(*share)).collect();
        shares.join(" ")
    };
    let mut latest = vec![String::from("0"); leaves.len()];
    for step in steps(&task.problem, &solution.order).take(MOST_STEPS) {
        let place = leaves.iter().position(|leaf| *leaf == step.leaf).unwrap_or(0);
        latest[place] = format!("{}, {}", shares(&step.shares), rounded(step.dominant_share));
        let row = std::iter::once(visible(&task.paths[step.leaf])).chain(latest.iter().cloned());
        table.add_row(row.chain([shares(&step.used_shares)]));
    }
    table::fit(&mut table);
    table::print(out, &table, solution.order.len(), MOST_STEPS)?;
    writeln!(out)
}
