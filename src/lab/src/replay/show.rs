//! The comparison as a table of a terminal.

use std::io::{self, Write};
use std::time::Duration;

use super::forecast::{Forecast, Forecasts};
use super::measure::{Both, Comparison};
use crate::time::{self, Clock};
use crate::{table, text};
use tenantd_core::resource::{CPU, MEMORY};

/// Most characters of a name.
const NAME_CHARS: usize = 14;

/// The columns of the tables: each value as recorded and under the other policy.
pub(super) const HEADER: [&str; 6] =
    ["TENANT", "CPUS", "WANTED", "SHARE NOW", "SHORT OF CPU", "MEMORY"];

/// Prints the tables, at most 80 columns wide.
pub(super) fn print(
    out: &mut impl Write,
    comparison: &Comparison,
    forecasts: &Forecasts<'_>,
    clock: &Clock,
) -> io::Result<()> {
    writeln!(out, "{}", headline(comparison, clock))?;
    writeln!(out, "was -> with the other policy\n")?;
    let mut table = table::plain();
    let sides = |tenant: &Both| [0, 1].map(|side| tenant.credit(&tenant.sides[side]));
    let has_credit = |tenant: &Both| sides(tenant).iter().any(Option::is_some);
    let has_credits = comparison.tenants.values().any(has_credit);
    table.set_header(HEADER.into_iter().chain(has_credits.then_some("CREDIT")));
    let all = comparison.tenants.iter();
    let (busy, idle): (Vec<_>, Vec<_>) = all.partition(|(_, tenant)| tenant.has_use());
    for (name, tenant) in busy {
        let mut cells = row(&text::shortened(name, NAME_CHARS), tenant, forecasts.mean(name));
        let [was, would] = sides(tenant).map(text::credit);
        cells.extend(has_credits.then(|| pair(was, would)));
        table.add_row(cells);
    }
    table::align_figures(&mut table);
    table::set_gap(&mut table, 1);
    write!(out, "{}", table::text(&table))?;
    if !idle.is_empty() {
        let idle = text::names(idle.iter().map(|(name, _)| name));
        writeln!(out, "{}", text::wrapped("used nothing: ", &idle))?;
    }
    let [was, would] = comparison.nr_writes;
    writeln!(out, "\nvalues to write: {was} -> {would}")?;
    for note in &comparison.notes {
        write!(out, "\n{}", text::wrapped("note: ", note))?;
    }
    Ok(())
}

/// Host, time and number of ticks of the recording.
pub(super) fn headline(comparison: &Comparison, clock: &Clock) -> String {
    format!(
        "{}, {} to {}, {} ticks",
        comparison.host,
        clock.show(comparison.first),
        clock.with_zone(comparison.last),
        comparison.nr_ticks
    )
}

fn pair(was: String, would: String) -> String {
    if was == would { was } else { format!("{was} -> {would}") }
}

/// One tenant: CPUs used and the interval of the forecast, CPUs demanded, then both sides of its share now.
pub(super) fn row(name: &str, tenant: &Both, forecast: Forecast) -> Vec<String> {
    let [was, would] = &tenant.sides;
    let short = |time: Duration| if time.is_zero() { "-".into() } else { time::length(time) };
    let cores = |cores: f64| format!("{:.2}", tenant.mean(cores));
    let memory = |bytes: f64| text::memory(tenant.mean(bytes));
    vec![
        name.to_string(),
        format!(
            "{} -> {:.2}-{:.2}",
            cores(tenant.used[CPU]),
            forecast.low_cores,
            forecast.high_cores
        ),
        cores(tenant.wanted[CPU]),
        pair(cores(was.entitled[CPU]), cores(would.entitled[CPU])),
        pair(short(was.short[CPU]), short(would.short[CPU])),
        pair(memory(was.entitled[MEMORY]), memory(would.entitled[MEMORY])),
    ]
}
