//! The answer, as a table or as one JSON object.

use std::io::{self, Write};

use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};

use super::measure::{Bounded, Figures, Outcome};
use super::scenario::Scenario;
use crate::json::write_line;
use crate::table;
use crate::text::{self, plain, short};
use tenantd_queue::{TenantId, multilevel};

/// Rows and dispatches shown; a longer table is of no use.
const MOST_ROWS: usize = 40;

#[derive(Serialize)]
struct Answer<'a> {
    dispatches: Dispatches<'a>,
    tenants: Tenants<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finished: Option<Vec<FinishedRow<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    levels: Option<[f64; multilevel::LEVELS]>,
    discipline: &'static str,
    nr_dispatched: u64,
    difference: BoundedRow<'a>,
    lag: BoundedRow<'a>,
}

struct Dispatches<'a>(&'a Scenario, &'a Outcome);

#[derive(Serialize)]
struct DispatchRow<'a> {
    time: f64,
    worker: u32,
    tenant: &'a str,
    request: u64,
    cost: f64,
}

impl Serialize for Dispatches<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut rows = serializer.serialize_seq(Some(self.1.dispatches.len()))?;
        for dispatch in &self.1.dispatches {
            rows.serialize_element(&DispatchRow {
                time: plain(dispatch.time),
                worker: dispatch.worker,
                tenant: name(self.0, dispatch.tenant),
                request: dispatch.request,
                cost: plain(dispatch.cost),
            })?;
        }
        rows.end()
    }
}

struct Tenants<'a>(&'a Scenario, &'a [Figures]);

#[derive(Serialize)]
struct TenantRow {
    served: f64,
    gps: f64,
    lag_mean: f64,
    lag_stddev: f64,
    lag_max: f64,
    latency_p50: Option<f64>,
    latency_p99: Option<f64>,
    longest_gap: Option<f64>,
    completed: usize,
}

impl Serialize for Tenants<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut rows = serializer.serialize_map(Some(self.1.len()))?;
        for (tenant, figures) in self.0.tenants.iter().zip(self.1) {
            rows.serialize_entry(
                &tenant.name,
                &TenantRow {
                    served: plain(figures.served),
                    gps: plain(figures.gps),
                    lag_mean: plain(figures.lag.mean),
                    lag_stddev: plain(figures.lag.stddev()),
                    lag_max: plain(figures.lag.max),
                    latency_p50: figures.latency(0.5).map(plain),
                    latency_p99: figures.latency(0.99).map(plain),
                    longest_gap: figures.longest_gap.map(plain),
                    completed: figures.latencies.len(),
                },
            )?;
        }
        rows.end()
    }
}

#[derive(Serialize)]
struct FinishedRow<'a> {
    tenant: &'a str,
    request: u64,
    cost: f64,
    arrival: f64,
    finish: f64,
}

#[derive(Serialize)]
struct BoundedRow<'a> {
    largest: f64,
    tenants: Vec<&'a str>,
    bound: Option<f64>,
    theorem: Option<&'static str>,
}

impl<'a> BoundedRow<'a> {
    fn new(scenario: &'a Scenario, bounded: &Bounded) -> BoundedRow<'a> {
        BoundedRow {
            largest: plain(bounded.largest),
            tenants: bounded.tenants.iter().map(|tenant| name(scenario, *tenant)).collect(),
            bound: bounded.bound.map(|(bound, _)| plain(bound)),
            theorem: bounded.bound.map(|(_, theorem)| theorem),
        }
    }
}

fn name(scenario: &Scenario, tenant: TenantId) -> &str {
    &scenario.tenants[tenant.0 as usize].name
}

/// Prints one JSON object.
///
/// # Errors
/// The output could not be written.
pub(super) fn json(out: &mut impl Write, scenario: &Scenario, outcome: &Outcome) -> io::Result<()> {
    let finished = outcome.finished.iter().map(|finished| FinishedRow {
        tenant: name(scenario, finished.tenant),
        request: finished.request,
        cost: plain(finished.cost),
        arrival: plain(finished.arrival),
        finish: plain(finished.finish),
    });
    let finished: Vec<FinishedRow<'_>> = finished.collect();
    let answer = Answer {
        dispatches: Dispatches(scenario, outcome),
        tenants: Tenants(scenario, &outcome.tenants),
        finished: (!finished.is_empty()).then_some(finished),
        levels: outcome.levels.map(|levels| levels.map(plain)),
        discipline: scenario.kind.name(),
        nr_dispatched: outcome.nr_dispatched,
        difference: BoundedRow::new(scenario, &outcome.difference),
        lag: BoundedRow::new(scenario, &outcome.lag),
    };
    write_line(out, &answer)
}

/// Prints a table for people.
///
/// # Errors
/// The output could not be written.
pub(super) fn table(
    out: &mut impl Write,
    scenario: &Scenario,
    outcome: &Outcome,
) -> io::Result<()> {
    schedule(out, scenario, outcome)?;
    let mut table = table::plain();
    let header = ["tenant", "weight", "served", "gps", "lag", "σ lag", "p50", "p99", "gap"];
    table.set_header(header);
    for (tenant, figures) in scenario.tenants.iter().zip(&outcome.tenants).take(MOST_ROWS) {
        let name = text::shortened(&text::visible(&tenant.name), 20);
        table.add_row(figures_row(name, tenant.terms.weight, figures, "-"));
    }
    table::align_figures(&mut table);
    table::print(out, &table, scenario.tenants.len(), MOST_ROWS)?;
    if let Some(levels) = outcome.levels {
        let parts: Vec<String> = levels.iter().map(|level| short(*level)).collect();
        writeln!(out, "\nseconds at levels 0 to 4: {}", parts.join(", "))?;
    }
    writeln!(out)?;
    sentence(out, "largest lag behind GPS", scenario, &outcome.lag)?;
    sentence(out, "largest difference of two backlogged tenants", scenario, &outcome.difference)
}

/// `largest lag behind GPS: 4 (C), at most 8 by 2DFQ theorem 1, N·Lmax`.
fn sentence(
    out: &mut impl Write,
    what: &str,
    scenario: &Scenario,
    bounded: &Bounded,
) -> io::Result<()> {
    let names = bounded.tenants.iter().map(|tenant| text::visible(name(scenario, *tenant)));
    let names = names.collect::<Vec<_>>().join(", ");
    let names = if names.is_empty() { names } else { format!(" ({names})") };
    let bound = match bounded.bound {
        Some((bound, theorem)) => format!(", at most {} by theory ({theorem})", short(bound)),
        None => String::new(),
    };
    writeln!(out, "{what}: {}{names}{bound}", short(bounded.largest))
}

/// The first dispatches, a line for each worker: `W0  A1@0 C1@1`.
fn schedule(out: &mut impl Write, scenario: &Scenario, outcome: &Outcome) -> io::Result<()> {
    if outcome.dispatches.is_empty() || scenario.machine.workers > 16 {
        return Ok(());
    }
    for worker in 0..scenario.machine.workers {
        let of_worker = outcome.dispatches.iter().filter(|dispatch| dispatch.worker == worker);
        let mut line = format!("W{worker} ");
        for dispatch in of_worker {
            let name = text::visible(name(scenario, dispatch.tenant));
            let entry = format!(" {name}{}@{}", dispatch.request, short(dispatch.time));
            if line.chars().count() + entry.chars().count() + 2 > text::WIDTH {
                line.push_str(" …");
                break;
            }
            line.push_str(&entry);
        }
        writeln!(out, "{line}")?;
    }
    writeln!(out)
}

/// The cells of a tenant in both tables of figures; `none` stands where nothing was measured.
pub(super) fn figures_row(name: String, weight: f64, figures: &Figures, none: &str) -> Vec<String> {
    let seconds = |time: Option<f64>| time.map_or(none.to_string(), text::seconds);
    vec![
        name,
        short(weight),
        short(figures.served),
        short(figures.gps),
        text::seconds(figures.lag.mean),
        text::seconds(figures.lag.stddev()),
        seconds(figures.latency(0.5)),
        seconds(figures.latency(0.99)),
        seconds(figures.longest_gap),
    ]
}
