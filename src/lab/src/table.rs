//! Tables for a terminal: columns without lines between them.

use std::io::{self, Write};

use comfy_table::ContentArrangement;
use comfy_table::presets::NOTHING;
pub use comfy_table::{CellAlignment, Table};

use super::text::{WIDTH, visible};

/// Rows that are shown of a problem.
pub(crate) const MOST_ROWS: usize = 200;

/// Returns a table without rows.
pub fn plain() -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table
}

/// Aligns some columns to the right.
pub fn align_right(table: &mut Table, columns: impl IntoIterator<Item = usize>) {
    for index in columns {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

/// Aligns all columns but the first, which has names, to the right.
pub fn align_figures(table: &mut Table) {
    let columns = 1..table.column_count();
    align_right(table, columns);
}

/// Sets the gap before each column but the first, and none behind the last.
pub fn set_gap(table: &mut Table, gap: u16) {
    for column in table.column_iter_mut().skip(1) {
        column.set_padding((gap, 0));
    }
}

/// Wraps cells, so that the table is at most as wide as a terminal.
pub(crate) fn fit(table: &mut Table) {
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH as u16);
}

/// The table as text, without spaces at the ends of its lines and without control characters.
pub fn text(table: &Table) -> String {
    table.lines().map(|line| format!("{}\n", visible(line.trim_end()))).collect()
}

/// Prints a table of the first `most` of `count` rows, and the number of rows left out.
pub fn print(out: &mut impl Write, table: &Table, count: usize, most: usize) -> io::Result<()> {
    write!(out, "{}", text(table))?;
    match count.saturating_sub(most) {
        0 => Ok(()),
        more => writeln!(out, "… and {more} more; --json shows all"),
    }
}
