//! The answer, as a table or as one JSON object.

use std::collections::BTreeSet;
use std::io::{self, Write};

use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};

use super::credits::Credit;
use super::evictions::EvictionsRow;
use super::measure::{Bounded, Figures, Outcome, quantile};
use super::moments::Moments;
use super::scenario::{Scenario, Tenant};
use crate::json::write_line;
use crate::table;
use crate::text::{self, plain, short};
use tenantd_queue::indices::Indices;
use tenantd_queue::{TenantId, multilevel};

/// Rows and dispatches shown.
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
    latency: LatencyRow,
    costs: Spread,
    #[serde(skip_serializing_if = "Option::is_none")]
    level_selected: Option<[u64; multilevel::LEVELS]>,
    killed: Vec<KilledRow<'a>>,
    nr_charged: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    jobs: Vec<JobRow<'a>>,
}

#[derive(Serialize)]
struct LatencyRow {
    mean: Option<f64>,
    max: Option<f64>,
}

#[derive(Serialize)]
struct Spread {
    min: Option<f64>,
    p01: Option<f64>,
    p50: Option<f64>,
    p99: Option<f64>,
    max: Option<f64>,
    /// Orders of magnitude between the first and the last percentile.
    orders: Option<f64>,
}

impl Spread {
    fn new(costs: &[f64]) -> Spread {
        let part = |part| quantile(costs, part).map(plain);
        let (p01, p99) = (part(0.01), part(0.99));
        let orders = p01.zip(p99).filter(|(low, _)| *low > 0.0);
        let orders = orders.map(|(low, high)| plain((high / low).log10()));
        Spread { min: part(0.0), p01, p50: part(0.5), p99, max: part(1.0), orders }
    }
}

#[derive(Serialize)]
struct KilledRow<'a> {
    tenant: &'a str,
    request: u64,
    time: f64,
    resource: &'a str,
    declared: f64,
    wanted: f64,
}

#[derive(Serialize)]
struct JobRow<'a> {
    name: &'a str,
    ready: Option<f64>,
    started: Option<f64>,
    finished: Option<f64>,
}

struct Dispatches<'a>(&'a Scenario, &'a Outcome);

#[derive(Serialize)]
struct DispatchRow<'a> {
    time: f64,
    worker: u32,
    tenant: &'a str,
    request: u64,
    cost: f64,
    #[serde(skip_serializing_if = "Indices::is_empty")]
    indices: &'a Indices,
    #[serde(skip_serializing_if = "is_false")]
    evicted: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_false(value: &bool) -> bool {
    !value
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
                indices: &dispatch.indices,
                evicted: dispatch.is_evicted,
            })?;
        }
        rows.end()
    }
}

struct Tenants<'a>(&'a Scenario, &'a [Figures]);

/// Service of all tenants; 1 without any, so that shares are 0.
pub(super) fn served_in_all(tenants: &[Figures]) -> f64 {
    let whole: f64 = tenants.iter().map(|figures| figures.served).sum();
    if whole > 0.0 { whole } else { 1.0 }
}

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
    share: f64,
    latency_mean: Option<f64>,
    most_running: u32,
    dropped: u64,
    timed_out: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    charged: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    estimate: Option<f64>,
    /// Credit at the end and all fees, in seconds of the whole machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    bank: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fee: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    evictions: Option<EvictionsRow>,
}

impl Serialize for Tenants<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut rows = serializer.serialize_map(Some(self.1.len()))?;
        let whole = served_in_all(self.1);
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
                    share: plain(figures.served / whole),
                    latency_mean: figures.latency_mean().map(plain),
                    most_running: figures.most_running,
                    dropped: figures.dropped,
                    timed_out: figures.timed_out,
                    charged: figures.charged.map(|(charged, _)| plain(charged)),
                    estimate: figures.charged.map(|(_, estimate)| plain(estimate)),
                    bank: figures.credit.map(|credit| plain(credit.bank)),
                    fee: figures.credit.map(|credit| plain(credit.fees)),
                    evictions: figures.evictions.as_ref().map(EvictionsRow::new),
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
        latency: LatencyRow {
            mean: outcome.latency().map(|(mean, _)| plain(mean)),
            max: outcome.latency().map(|(_, max)| plain(max)),
        },
        costs: Spread::new(&outcome.costs),
        level_selected: outcome.level_selected,
        killed: killed(scenario, outcome).collect(),
        nr_charged: outcome.nr_charged,
        jobs: jobs(scenario, outcome).collect(),
    };
    write_line(out, &answer)
}

fn killed<'a>(scenario: &'a Scenario, outcome: &'a Outcome) -> impl Iterator<Item = KilledRow<'a>> {
    outcome.killed.iter().map(|killed| {
        let tenant = &scenario.tenants[killed.tenant.0 as usize];
        let of = |amounts: &[f64]| plain(amounts.get(killed.resource).copied().unwrap_or(0.0));
        KilledRow {
            tenant: &tenant.name,
            request: killed.request,
            time: plain(killed.time),
            resource: scenario.resources.get(killed.resource).map_or("", String::as_str),
            declared: of(&tenant.holds),
            wanted: of(&tenant.uses),
        }
    })
}

fn jobs<'a>(scenario: &'a Scenario, outcome: &'a Outcome) -> impl Iterator<Item = JobRow<'a>> {
    scenario.jobs.iter().zip(&outcome.jobs).map(|(job, course)| JobRow {
        name: &job.name,
        ready: course.ready.map(plain),
        started: course.started.map(plain),
        finished: course.finished.map(plain),
    })
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
    table.set_header(HEADER);
    let whole = served_in_all(&outcome.tenants);
    for (tenant, figures) in scenario.tenants.iter().zip(&outcome.tenants).take(MOST_ROWS) {
        let name = text::shortened(&text::visible(&tenant.name), 20);
        table.add_row(figures_row(name, tenant.terms.weight, figures, whole, "-"));
    }
    table::align_figures(&mut table);
    table::print(out, &table, scenario.tenants.len(), MOST_ROWS)?;
    courses(out, scenario, outcome)?;
    evicted(out, scenario, outcome)?;
    writeln!(out)?;
    for sentence in sentences(scenario, outcome) {
        writeln!(out, "{sentence}")?;
    }
    sentence(out, "largest lag behind GPS", scenario, &outcome.lag)?;
    sentence(out, "largest difference of two backlogged tenants", scenario, &outcome.difference)
}

/// The columns of [`figures_row`].
pub(super) const HEADER: [&str; 10] =
    ["tenant", "weight", "served", "share", "lag", "σ lag", "mean", "p50", "p99", "gap"];

fn courses(out: &mut impl Write, scenario: &Scenario, outcome: &Outcome) -> io::Result<()> {
    if scenario.jobs.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let time =
        |time: Option<f64>| time.map_or("-".to_string(), |time| format!("{} s", short(time)));
    let mut table = table::plain();
    table.set_header(["job", "ready", "started", "finished"]);
    for job in jobs(scenario, outcome).take(MOST_ROWS) {
        let name = text::shortened(&text::visible(job.name), 20);
        table.add_row([name, time(job.ready), time(job.started), time(job.finished)]);
    }
    table::align_figures(&mut table);
    table::print(out, &table, scenario.jobs.len(), MOST_ROWS)
}

/// The columns of [`evictions_rows`].
pub(super) const EVICTIONS: [&str; 7] = [
    "evictions",
    "runs",
    "CPU time lost",
    "mean wait",
    "longest",
    "mean without",
    "longest without",
];

/// Rows of the table of evictions; none if no request may be evicted.
pub(super) fn evictions_rows(
    scenario: &Scenario,
    outcome: &Outcome,
    none: &str,
) -> Vec<Vec<String>> {
    let tenants = scenario.tenants.iter().zip(&outcome.tenants);
    let row = |(tenant, figures): (&Tenant, &Figures)| {
        let of = figures.evictions.as_ref()?;
        let seconds = |time: Option<f64>| time.map_or(none.to_string(), text::seconds);
        let waits = [&of.waits, &of.waits_without].map(Moments::mean_and_max);
        let waits = waits.into_iter().flat_map(|it| [it.map(|it| it.0), it.map(|it| it.1)]);
        let name = text::shortened(&text::visible(&tenant.name), 20);
        let first = [name, short(of.count as f64), text::seconds(of.lost_cpu_seconds)];
        Some(first.into_iter().chain(waits.map(seconds)).collect())
    };
    tenants.filter_map(row).collect()
}

fn evicted(out: &mut impl Write, scenario: &Scenario, outcome: &Outcome) -> io::Result<()> {
    let rows = evictions_rows(scenario, outcome, "-");
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let mut table = table::plain();
    table.set_header(EVICTIONS);
    let count = rows.len();
    for row in rows.into_iter().take(MOST_ROWS) {
        table.add_row(row);
    }
    table::align_figures(&mut table);
    table::print(out, &table, count, MOST_ROWS)
}

/// Figures beside the tables, one a line.
pub(super) fn sentences(scenario: &Scenario, outcome: &Outcome) -> Vec<String> {
    let mut sentences = Vec::new();
    if let Some((mean, max)) = outcome.latency() {
        let (mean, max) = (text::seconds(mean), text::seconds(max));
        sentences.push(format!("latency: {mean} in the mean, {max} at most"));
    }
    let costs = Spread::new(&outcome.costs);
    if let (Some(p01), Some(p50), Some(p99), Some(orders)) =
        (costs.p01, costs.p50, costs.p99, costs.orders)
        && orders > 0.0
    {
        let (p01, p50, p99) = (short(p01), short(p50), short(p99));
        let orders = short((orders * 10.0).round() / 10.0);
        sentences.push(format!(
            "costs: median {p50}, 1st percentile {p01}, 99th percentile {p99}, orders of magnitude between them {orders}"
        ));
    }
    if let Some(levels) = outcome.levels {
        let parts: Vec<String> = levels.iter().map(|level| short(*level)).collect();
        sentences.push(format!("seconds at levels 0 to 4: {}", parts.join(", ")));
    }
    if let Some(selected) = outcome.level_selected {
        let counts = selected.map(|count| count.to_string()).join(", ");
        sentences.push(format!("selections of levels 0 to 4: {counts}"));
    }
    if outcome.nr_charged > 0 {
        let nr_charged = outcome.nr_charged;
        sentences.push(format!("charges of running requests: {nr_charged}"));
    }
    for (tenant, figures) in scenario.tenants.iter().zip(&outcome.tenants).take(MOST_ROWS) {
        let name = text::visible(&tenant.name);
        for (count, what) in [(figures.dropped, "dropped"), (figures.timed_out, "timed out")] {
            if count > 0 {
                let requests = if count == 1 { "request" } else { "requests" };
                sentences.push(format!("{name}: {count} {requests} {what}"));
            }
        }
        // Only for a few tenants; the JSON answer has all of them.
        if let Some((charged, estimate)) = figures.charged.filter(|_| outcome.tenants.len() <= 8) {
            let (charged, estimate) = (short(charged), short(estimate));
            sentences.push(format!("{name}: charged {charged}, estimate {estimate}"));
        }
        let credit = figures.credit.filter(|it| it.fees > 0.0 || it.bank > 0.0);
        if let Some(Credit { bank, fees }) = credit {
            let (bank, fees) = (text::seconds(bank), text::seconds(fees));
            sentences.push(format!(
                "{name}: paid {fees} of the whole machine for early starts, and has {bank} of credit left"
            ));
        }
    }
    sentences.extend(killed(scenario, outcome).take(MOST_ROWS).map(|killed| {
        let KilledRow { request, resource, .. } = killed;
        let (name, resource) = (text::visible(killed.tenant), text::visible(resource));
        let (time, declared) = (short(killed.time), short(killed.declared));
        let wanted = short(killed.wanted);
        format!(
            "{name}: request {request} was killed at {time} s, when it used all of the {declared} of {resource} that it \
             declared; it needs {wanted}: declare `holds: {{ {resource}: {wanted} }}`"
        )
    }));
    sentences
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

/// A tenant and the number of its request: `A1`, or `t0.1` where the name ends with a digit.
pub(super) fn request_label(tenant: &str, request: u64) -> String {
    let point = if tenant.ends_with(|c: char| c.is_ascii_digit()) { "." } else { "" };
    format!("{}{point}{request}", text::visible(tenant))
}

/// Indices that a request holds: `[0,2]`, those of several resources joined by `;`.
fn units(indices: &Indices) -> String {
    let of = |(_, indices): (&str, &BTreeSet<u32>)| {
        indices.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
    };
    let all: Vec<String> = indices.iter().map(of).collect();
    if all.is_empty() { String::new() } else { format!("[{}]", all.join(";")) }
}

/// The first dispatches, a line for each worker: `W0  A1@0 C1@1`, with the units of numbered resources, and with the end of
/// an evicted run (`A1@0–130`).
fn schedule(out: &mut impl Write, scenario: &Scenario, outcome: &Outcome) -> io::Result<()> {
    if outcome.dispatches.is_empty() || scenario.machine.workers > 16 {
        return Ok(());
    }
    for worker in 0..scenario.machine.workers {
        let of_worker = outcome.dispatches.iter().filter(|dispatch| dispatch.worker == worker);
        let mut line = format!("W{worker} ");
        for dispatch in of_worker {
            let label = request_label(name(scenario, dispatch.tenant), dispatch.request);
            let end = dispatch.time + dispatch.cost / scenario.machine.rate;
            let end =
                if dispatch.is_evicted { format!("–{}", short(end)) } else { String::new() };
            let (start, units) = (short(dispatch.time), units(&dispatch.indices));
            let entry = format!(" {label}@{start}{end}{units}");
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

/// The cells of a tenant in both tables of figures; `none` if nothing was measured.
pub(super) fn figures_row(
    name: String,
    weight: f64,
    figures: &Figures,
    whole: f64,
    none: &str,
) -> Vec<String> {
    let seconds = |time: Option<f64>| time.map_or(none.to_string(), text::seconds);
    vec![
        name,
        short(weight),
        short(figures.served),
        format!("{} %", short((figures.served / whole * 1000.0).round() / 10.0)),
        text::seconds(figures.lag.mean),
        text::seconds(figures.lag.stddev()),
        seconds(figures.latency_mean()),
        seconds(figures.latency(0.5)),
        seconds(figures.latency(0.99)),
        seconds(figures.longest_gap),
    ]
}
