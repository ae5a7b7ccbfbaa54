//! The report of a host's simulation: its contents, as pictures.

use super::findings::findings;
use super::measure::{Outcome, Series};
use super::scenario::Scenario;
use super::show::{summary, tables};
use super::world::Regime;
use crate::simulate::report::{Curve, Lines, Page};
use tenantd_core::resource::{CPU, MEMORY, Resource};

/// Tenants in a picture: those with the largest demand.
const TENANTS_MAX: usize = 8;

/// The whole page.
///
/// # Errors
/// A picture could not be drawn.
pub(super) fn page(scenario: &Scenario, outcome: &Outcome) -> anyhow::Result<String> {
    let leaves = scenario.policy().leaves();
    let title = format!("{} tenants on {} CPUs", leaves.len(), scenario.host.cpus);
    let mut page = Page::new(&title, &summary(scenario));
    for finding in findings(scenario, outcome) {
        page.sentence(&finding);
    }
    for (resource, heading, caption) in [
        (CPU, "CPUs", "CPUs that each tenant used; thin, its share now by weighted DRF."),
        (MEMORY, "Memory", "Memory that each tenant held, in GiB; thin, its share now."),
    ] {
        let watched = watched(outcome, resource);
        let names: Vec<String> = watched.iter().map(|tenant| leaves[*tenant].0.clone()).collect();
        for (number, regime) in Regime::ALL.into_iter().enumerate() {
            let svg = over_time(outcome, &watched, number, resource)?;
            page.picture(&format!("{heading} {}", regime.words()), caption, &svg, &names);
        }
    }
    for table in tables(scenario, outcome) {
        page.table(table.header[0], &table.header, &table.rows);
    }
    Ok(page.finish())
}

/// The tenants to show, in their order.
fn watched(outcome: &Outcome, resource: Resource) -> Vec<usize> {
    let size = |tenant: &usize| outcome.tenants[*tenant].demand.mean[resource];
    let mut tenants: Vec<usize> = (0..outcome.tenants.len()).collect();
    tenants.sort_by(|a, b| size(b).total_cmp(&size(a)));
    tenants.truncate(TENANTS_MAX);
    tenants.sort_unstable();
    tenants
}

fn over_time(
    outcome: &Outcome,
    watched: &[usize],
    run: usize,
    resource: Resource,
) -> anyhow::Result<String> {
    let unit = if resource == MEMORY { f64::from(1 << 30) } else { 1.0 };
    let points = |series: &Series| {
        let points = outcome.times.iter().zip(&series.points);
        points.map(|(time, point)| (*time, point[resource] / unit)).collect()
    };
    let mut curves = Vec::new();
    for (series, tenant) in watched.iter().enumerate() {
        let entitled = points(&outcome.tenants[*tenant].entitled);
        curves.push(Curve { series, is_ideal: true, points: entitled });
        let got = points(&outcome.runs[run].tenants[*tenant].got);
        curves.push(Curve { series, is_ideal: false, points: got });
    }
    let y = if resource == MEMORY { "GiB" } else { "CPUs" };
    // One scale for all machines.
    let runs = outcome.runs.iter().flat_map(|run| watched.iter().map(|it| &run.tenants[*it].got));
    let wanted = watched.iter().map(|it| &outcome.tenants[*it].entitled);
    let points = runs.chain(wanted).flat_map(|series| &series.points);
    let top = points.map(|point| point[resource] / unit).reduce(f64::max);
    Lines { x: "seconds", y, curves, is_log: false, top }.svg()
}
