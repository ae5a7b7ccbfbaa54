//! The output of queries over time: a line for each with a strip of its widths, or one JSON object.

use std::io::{self, Write};

use serde::Serialize;

use super::read::RULES;
use crate::problem::word_of;
use crate::table::MOST_ROWS;
use crate::text::short;
use crate::{json, table};
use tenantd_dop::rounds::{Course, Outcome, Record, Rule};

/// Columns of a strip.
const STRIP: usize = 40;

#[derive(Serialize)]
struct Output {
    algorithm: &'static str,
    completed: usize,
    most_running: usize,
    slots_used: f64,
    mean_wait: Option<f64>,
    mean_time: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queries: Option<Vec<Query>>,
}

#[derive(Serialize)]
struct Query {
    query: usize,
    arrived: f64,
    started: Option<f64>,
    ended: Option<f64>,
    dop: Vec<(f64, u64)>,
}

pub(super) fn json(
    out: &mut impl Write,
    rule: Rule,
    course: &Course,
    outcome: &Outcome,
    lists: bool,
) -> io::Result<()> {
    let query = |(index, record): (usize, &Record)| Query {
        query: index + 1,
        arrived: record.arrived,
        started: record.started,
        ended: record.ended,
        dop: record.dop.clone(),
    };
    let queries = outcome.queries.iter().enumerate().map(query);
    let output = Output {
        algorithm: word_of(RULES, rule),
        completed: ended(outcome).count(),
        most_running: outcome.most_running,
        slots_used: slots_used(course, outcome),
        mean_wait: mean(waits(outcome)),
        mean_time: mean(ended(outcome)),
        queries: lists.then(|| queries.collect()),
    };
    json::write_line(out, &output)
}

/// Writes a line for each query, and the sums.
pub(super) fn table(
    out: &mut impl Write,
    course: &Course,
    outcome: &Outcome,
    lists: bool,
) -> io::Result<()> {
    if lists {
        let mut table = table::plain();
        table.set_header(["query", "arrived", "started", "ended", "widths"]);
        let time = |time: Option<f64>| time.map_or("-".to_string(), short);
        for (index, record) in outcome.queries.iter().enumerate().take(MOST_ROWS) {
            table.add_row([
                (index + 1).to_string(),
                short(record.arrived),
                time(record.started),
                time(record.ended),
                strip(course, outcome, record),
            ]);
        }
        table::align_right(&mut table, [0, 1, 2, 3]);
        table::print(out, &table, outcome.queries.len(), MOST_ROWS)?;
        writeln!(out)?;
    }
    let (completed, all) = (ended(outcome).count(), outcome.queries.len());
    let mean = |mean: Option<f64>| mean.map_or("-".to_string(), short);
    let (end, most) = (short(outcome.end), outcome.most_running);
    writeln!(out, "{completed} of {all} ended in {end} s; at most {most} ran at once")?;
    let (wait, total) = (mean(self::mean(waits(outcome))), mean(self::mean(ended(outcome))));
    let used = short(slots_used(course, outcome) * 100.0);
    writeln!(out, "mean wait {wait} s, mean time {total} s, {used}% of the slots used")
}

/// Seconds that each started query waited.
fn waits(outcome: &Outcome) -> impl Iterator<Item = f64> + '_ {
    outcome.queries.iter().filter_map(|it| it.started.map(|started| started - it.arrived))
}

/// Seconds from arrival to end of each query that has ended.
fn ended(outcome: &Outcome) -> impl Iterator<Item = f64> + '_ {
    outcome.queries.iter().filter_map(|it| it.ended.map(|ended| ended - it.arrived))
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.fold((0_usize, 0.0), |(count, sum), value| (count + 1, sum + value));
    (count > 0).then(|| sum / count as f64)
}

fn slots_used(course: &Course, outcome: &Outcome) -> f64 {
    let all = course.supply().slots as f64 * outcome.end;
    if all > 0.0 { outcome.slot_seconds / all } else { 0.0 }
}

/// The widths of a query over the whole run: a dot while it waits, else a bar as high as its part of the
/// slots.
fn strip(course: &Course, outcome: &Outcome, record: &Record) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let column = |column: usize| {
        let time = (column as f64 + 0.5) / STRIP as f64 * outcome.end;
        if time < record.arrived || record.ended.is_some_and(|ended| ended <= time) {
            return ' ';
        }
        let width = record.dop.iter().take_while(|(from, _)| *from <= time).last();
        width.map_or('·', |(_, dop)| {
            let eighths = (dop * 8).div_ceil(course.supply().slots).clamp(1, 8);
            BARS[eighths as usize - 1]
        })
    };
    let strip: String = (0..STRIP).map(column).collect();
    strip.trim_end().to_string()
}
