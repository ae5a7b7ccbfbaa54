//! Table of the tenants: columns by the width of the output.
//!
//! On a terminal, columns are left out in a fixed order until the others fit, and only then names lose their
//! middle. In a pipe or file, the table has all columns and whole names.

use crate::common::output::Output;
use crate::common::rows::{Choice, Fold, Row, rows};
use tenantd_control::report::status::{Line, Status, TenantStatus};
use tenantd_core::resource::{CPU, MEMORY};
use tenantd_lab::text::{SHARE_HEADS, cores, memory, percent, shortened, visible};

/// Least width of the names on a terminal, if they are not shorter.
const NAME_MIN: usize = 15;

/// Column of figures.
struct Column {
    head: [&'static str; 2],
    cell: fn(Line<'_>) -> String,
    /// Order in which columns are left out, the largest first; 0 for those that stay.
    rank: u8,
}

const fn column(head: [&'static str; 2], cell: fn(Line<'_>) -> String, rank: u8) -> Column {
    Column { head, cell, rank }
}

const COLUMNS: [Column; 8] = [
    column(["CPUs", "used"], |line| cores(line.usage()[CPU]), 0),
    column(["CPUs", "wanted"], |line| cores(Some(line.demand()[CPU])), 4),
    column(SHARE_HEADS[0], |line| cores(Some(line.allocation()[CPU])), 0),
    column(SHARE_HEADS[1], |line| cores(Some(line.share_if_busy()[CPU])), 0),
    column(["memory", "used"], memory_used, 0),
    column(SHARE_HEADS[0], |line| memory(line.allocation()[MEMORY]), 2),
    column(SHARE_HEADS[1], |line| memory(line.share_if_busy()[MEMORY]), 3),
    column(["CPU", "waits"], |line| of_tenant(line, |it| percent(it.cpu_pressure_ratio)), 1),
];

/// Columns that only `--verbose` adds.
const VERBOSE: [Column; 3] = [
    column(["CPUs at", "most"], |line| of_tenant(line, |it| cores(Some(it.would_get[CPU]))), 5),
    column(["dominant", "share"], |line| of_tenant(line, dominant_share), 6),
    column(["", "DOP"], |line| of_tenant(line, dop), 7),
];

fn of_tenant(line: Line<'_>, cell: impl Fn(&TenantStatus) -> String) -> String {
    line.tenant().map_or_else(String::new, cell)
}

fn dominant_share(tenant: &TenantStatus) -> String {
    tenant.dominant_resource.as_ref().map_or("-".to_string(), |resource| {
        format!("{resource} {:.0}%", tenant.dominant_share * 100.0)
    })
}

fn dop(tenant: &TenantStatus) -> String {
    tenant.dop.map_or("-".to_string(), |dop| dop.to_string())
}

/// Memory in use, and memory of moved processes that is charged to other cgroups.
pub(crate) fn memory_used(line: Line<'_>) -> String {
    let used = line.usage()[MEMORY].map_or("-".to_string(), memory);
    match line.tenant().and_then(|tenant| tenant.memory_elsewhere_bytes) {
        Some(bytes @ 1..) => format!("{used} (+{} elsewhere)", memory(bytes as f64)),
        _ => used,
    }
}

/// Name of a row; a group has a slash behind it.
pub(crate) fn name_of(line: Line<'_>) -> String {
    match line {
        Line::Tenant(_, tenant) => tenant.name.to_string(),
        Line::Group(group) => format!("{}/", group.name),
    }
}

/// Idle tenants in words: `12 idle tenants in users, 1.2GiB`.
pub(crate) fn fold_in_words(fold: &Fold<'_>) -> String {
    let held = memory(fold.memory_bytes);
    format!("{} idle tenants in {}, {held}", fold.nr_tenants, fold.group)
}

/// Returns the table in lines, its head first.
pub(crate) fn table(status: &Status, choice: &Choice, output: Output, is_verbose: bool) -> String {
    let rows = rows(status, choice);
    let more = if is_verbose { &VERBOSE[..] } else { &[] };
    let mut columns: Vec<(&Column, usize)> =
        COLUMNS.iter().chain(more).map(|column| (column, width(column, &rows))).collect();
    let names = rows.iter().filter_map(|row| match row {
        Row::Line(line) => Some(visible(&name_of(*line)).chars().count()),
        Row::Fold(_) => None,
    });
    let longest = names.max().unwrap_or(0).max("tenant".len());
    let name_width = match output {
        Output::Stream => longest,
        Output::Terminal { columns: width, .. } => {
            leave_out(&mut columns, width, longest.min(NAME_MIN));
            longest.min(width.saturating_sub(figures_width(&columns))).max(1)
        }
    };
    let mut text = String::new();
    for part in [0, 1] {
        let title = if part == 0 { "" } else { "tenant" };
        let mut line = format!("{title:<name_width$}");
        for (column, width) in &columns {
            line += &format!(" {:>width$}", column.head[part]);
        }
        text += &(line.trim_end().to_string() + "\n");
    }
    for row in &rows {
        let line = match row {
            Row::Line(line) => drawn(*line, &columns, name_width),
            Row::Fold(fold) => {
                output.shortened(&format!("  {}", fold_in_words(fold)), output.columns())
            }
        };
        text += &(line.trim_end().to_string() + "\n");
    }
    text
}

fn drawn(row: Line<'_>, columns: &[(&Column, usize)], name_width: usize) -> String {
    let mut line = format!("{:<name_width$}", short_name(row, name_width));
    for (column, width) in columns {
        line += &format!(" {:>width$}", (column.cell)(row));
    }
    line
}

/// Name in at most `width` characters; the slash of a group stays.
fn short_name(row: Line<'_>, width: usize) -> String {
    match row {
        Line::Tenant(..) => shortened(&name_of(row), width),
        Line::Group(group) => shortened(&group.name, width.saturating_sub(1).max(1)) + "/",
    }
}

fn width(column: &Column, rows: &[Row<'_>]) -> usize {
    let of_row = |row: &Row<'_>| match row {
        Row::Line(line) => (column.cell)(*line).chars().count(),
        Row::Fold(_) => 0,
    };
    let cells = rows.iter().map(of_row).max().unwrap_or(0);
    cells.max(column.head[0].len()).max(column.head[1].len())
}

fn figures_width(columns: &[(&Column, usize)]) -> usize {
    columns.iter().map(|(_, width)| width + 1).sum()
}

/// Leaves out columns until the others fit into `width` beside names of `name_width`.
fn leave_out(columns: &mut Vec<(&Column, usize)>, width: usize, name_width: usize) {
    while figures_width(columns) + name_width > width {
        let last = columns.iter().map(|(column, _)| column.rank).max().unwrap_or(0);
        if last == 0 {
            return;
        }
        columns.retain(|(column, _)| column.rank != last);
    }
}
