//! The report of a queue's simulation: its contents, as pictures.

use super::measure::{Bounded, Figures, Outcome, Sample, quantile};
use super::scenario::{Scenario, Tenant};
use super::show::{
    EVICTIONS, HEADER, evictions_rows, figures_row, request_label, sentences, served_in_all,
};
use crate::simulate::report::{Bar, Curve, Gantt, Lines, Page};
use crate::text::short;

/// Bars of a Gantt chart.
const BARS_MAX: usize = 600;
/// Points of a share over time.
const SHARES_MAX: usize = 60;
/// Points of a distribution.
const POINTS_MAX: usize = 400;
/// Rows of the table of figures.
const ROWS_MAX: usize = 400;

/// The whole page.
///
/// # Errors
/// A picture could not be drawn.
pub(super) fn page(scenario: &Scenario, outcome: &Outcome) -> anyhow::Result<String> {
    let title = format!("{} on {} workers", scenario.kind.name(), scenario.machine.workers);
    let note = format!(
        "{} tenants, {} s, {} dispatches. Service is compared with GPS, the ideal in which all backlogged tenants are \
         served at once, by their weights.",
        scenario.tenants.len(),
        short(scenario.horizon),
        outcome.nr_dispatched
    );
    let mut page = Page::new(&title, &note);
    let watched: Vec<String> = outcome
        .watched
        .iter()
        .map(|tenant| scenario.tenants[tenant.0 as usize].name.clone())
        .collect();
    if !outcome.dispatches.is_empty() {
        let caption = "Each row is a worker, each bar a request, by its tenant and number.";
        page.picture("Schedule", caption, &schedule(scenario, outcome)?, &watched);
    }
    if outcome.series.len() > 2 {
        let caption = "Part of the machine that each tenant had, averaged; thin, what GPS would have given it.";
        page.picture("Share over time", caption, &shares(scenario, outcome)?, &watched);
        let caption = "Seconds of its fair rate by which GPS is ahead of a tenant; below 0 the tenant is ahead.";
        page.picture("Lag against GPS", caption, &lags(scenario, outcome)?, &watched);
    }
    if outcome.watched.iter().any(|t| outcome.tenants[t.0 as usize].latencies.len() > 1) {
        let caption =
            "Part of the requests that took at most so many seconds, from arrival to completion.";
        page.picture("Latency", caption, &latencies(outcome)?, &watched);
    }
    if outcome.costs.first() < outcome.costs.last() {
        let caption = "Part of the requests that cost at most so much, on a logarithmic scale.";
        page.picture("Costs", caption, &costs(outcome)?, &[]);
    }
    sentences(scenario, outcome).iter().for_each(|sentence| page.sentence(&format!("{sentence}.")));
    page.sentence(&bounded("Largest lag behind GPS, in cost units", &outcome.lag));
    page.sentence(&bounded("Largest difference of two backlogged tenants", &outcome.difference));
    figures(&mut page, scenario, outcome);
    let rows = evictions_rows(scenario, outcome, "–");
    if !rows.is_empty() {
        page.table("Evictions", &EVICTIONS, &rows[..rows.len().min(ROWS_MAX)]);
    }
    Ok(page.finish())
}

fn bounded(what: &str, bounded: &Bounded) -> String {
    match bounded.bound {
        Some((bound, theorem)) => {
            format!(
                "{what}: {}; by theory at most {} ({theorem}).",
                short(bounded.largest),
                short(bound)
            )
        }
        None => format!("{what}: {}.", short(bounded.largest)),
    }
}

fn schedule(scenario: &Scenario, outcome: &Outcome) -> anyhow::Result<String> {
    let rate = scenario.machine.rate;
    let shown = &outcome.dispatches[..outcome.dispatches.len().min(BARS_MAX)];
    let end = if shown.len() < outcome.dispatches.len() {
        shown.last().map_or(scenario.horizon, |last| last.time)
    } else {
        scenario.horizon
    };
    let bar = |dispatch: &super::measure::Dispatch| {
        let place = outcome.watched.iter().position(|tenant| *tenant == dispatch.tenant);
        let name = &scenario.tenants[dispatch.tenant.0 as usize].name;
        Bar {
            row: dispatch.worker,
            series: place.unwrap_or(7),
            time: (dispatch.time, dispatch.time + dispatch.cost / rate),
            label: request_label(name, dispatch.request),
        }
    };
    let bars = shown.iter().filter(|dispatch| dispatch.worker < 32).map(bar).collect();
    Gantt { rows: scenario.machine.workers.min(32), end: end.max(1e-9), bars }.svg()
}

fn shares(scenario: &Scenario, outcome: &Outcome) -> anyhow::Result<String> {
    let speed = scenario.machine.speed();
    let mut curves = Vec::new();
    for series in 0..outcome.watched.len() {
        let share = |of: fn(&Sample) -> &Vec<f64>| {
            // Over several samples, because in one sample a worker serves only one tenant.
            let step = (outcome.series.len() / SHARES_MAX).max(1);
            let ends = (step..outcome.series.len()).step_by(step);
            let pairs = ends.map(|end| (&outcome.series[end - step], &outcome.series[end]));
            let point = |(from, to): (&Sample, &Sample)| {
                let done = of(to)[series] - of(from)[series];
                (to.time, done / (speed * (to.time - from.time)))
            };
            pairs.filter(|(from, to)| to.time > from.time).map(point).collect()
        };
        curves.push(Curve { series, is_ideal: false, points: share(|sample| &sample.got) });
        curves.push(Curve { series, is_ideal: true, points: share(|sample| &sample.ideal) });
    }
    Lines { x: "seconds", y: "share of the machine", curves, is_log: false, top: None }.svg()
}

fn lags(scenario: &Scenario, outcome: &Outcome) -> anyhow::Result<String> {
    let rates = scenario.fair_rates();
    let curve = |(series, tenant): (usize, &tenantd_queue::TenantId)| {
        let rate = rates[tenant.0 as usize];
        let point =
            |sample: &Sample| (sample.time, (sample.ideal[series] - sample.got[series]) / rate);
        Curve { series, is_ideal: false, points: outcome.series.iter().map(point).collect() }
    };
    let curves = outcome.watched.iter().enumerate().map(curve).collect();
    Lines { x: "seconds", y: "lag, seconds", curves, is_log: false, top: None }.svg()
}

fn latencies(outcome: &Outcome) -> anyhow::Result<String> {
    let mut curves = Vec::new();
    for (series, tenant) in outcome.watched.iter().enumerate() {
        let figures = &outcome.tenants[tenant.0 as usize];
        let part = |index: usize| index as f64 / POINTS_MAX as f64;
        let points = (1..=POINTS_MAX).filter_map(|i| Some((figures.latency(part(i))?, part(i))));
        curves.push(Curve { series, is_ideal: false, points: points.collect() });
    }
    Lines { x: "seconds", y: "part of the requests", curves, is_log: true, top: None }.svg()
}

fn costs(outcome: &Outcome) -> anyhow::Result<String> {
    let part = |index: usize| index as f64 / POINTS_MAX as f64;
    let point = |i: usize| Some((quantile(&outcome.costs, part(i))?, part(i)));
    let points = (0..=POINTS_MAX).filter_map(point).collect();
    let curves = vec![Curve { series: 0, is_ideal: false, points }];
    Lines { x: "cost", y: "part of the requests", curves, is_log: true, top: None }.svg()
}

fn figures(page: &mut Page, scenario: &Scenario, outcome: &Outcome) {
    let whole = served_in_all(&outcome.tenants);
    let tenants = scenario.tenants.iter().zip(&outcome.tenants);
    let row = |(tenant, figures): (&Tenant, &Figures)| {
        figures_row(tenant.name.clone(), tenant.terms.weight, figures, whole, "–")
    };
    let rows: Vec<Vec<String>> = tenants.take(ROWS_MAX).map(row).collect();
    page.table("Figures", &HEADER, &rows);
}
