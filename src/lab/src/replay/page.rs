//! The comparison as a page.

use super::forecast::Forecasts;
use super::measure::{Both, Comparison, POINTS_MAX, Point};
use super::show;
use crate::simulate::report::{Curve, Lines, Page};
use crate::time::Clock;
use tenantd_core::resource::{CPU, MEMORY, Resource};

/// Tenants with pictures of their own: those with the largest changes of entitlement.
const TENANTS_MAX: usize = 12;
const HOUR: f64 = 3600.0;

/// The whole page.
///
/// # Errors
/// A picture could not be drawn.
pub(super) fn page(
    comparison: &Comparison,
    forecasts: &Forecasts<'_>,
    clock: &Clock,
) -> anyhow::Result<String> {
    let mut page =
        Page::new("Another policy over what was recorded", &show::headline(comparison, clock));
    for note in &comparison.notes {
        page.sentence(note);
    }
    let row = |(name, tenant): (&String, &Both)| show::row(name, tenant, forecasts.mean(name));
    let rows: Vec<Vec<String>> = comparison.tenants.iter().map(row).collect();
    page.table("Means: as it was -> with the other policy", &show::HEADER, &rows);
    for resource in Resource::ALL {
        for (name, tenant) in changed(comparison, resource) {
            let legend = ["share now, with the other policy", "share now, as it was", "used"];
            let heading = format!("{name}: {}", resource.noun());
            let caption = match resource {
                MEMORY => "Memory in GiB, over hours since the beginning.",
                _ => "CPUs, over hours since the beginning.",
            };
            let legend = legend.map(str::to_string);
            page.picture(&heading, caption, &over_time(tenant, resource)?, &legend);
        }
    }
    Ok(page.finish())
}

/// The tenants to show, in their order.
fn changed(comparison: &Comparison, resource: Resource) -> Vec<(&String, &Both)> {
    let change = |tenant: &Both| {
        let [was, would] = &tenant.sides;
        (tenant.mean(was.entitled[resource]) - tenant.mean(would.entitled[resource])).abs()
    };
    let mut tenants: Vec<(&String, &Both)> = comparison.tenants.iter().collect();
    tenants.sort_by(|a, b| change(b.1).total_cmp(&change(a.1)));
    tenants.truncate(TENANTS_MAX);
    tenants.sort_by_key(|(name, _)| *name);
    tenants
}

fn over_time(tenant: &Both, resource: Resource) -> anyhow::Result<String> {
    let unit = if resource == MEMORY { f64::from(1 << 30) } else { 1.0 };
    let step = tenant.points.len().div_ceil(POINTS_MAX).max(1);
    let curve = |series: usize, of: &dyn Fn(&Point) -> f64| {
        let points = tenant.points.iter().step_by(step);
        let points = points.map(|point| (point.seconds() / HOUR, of(point) / unit)).collect();
        Curve { series, is_ideal: series == 2, points }
    };
    let curves = vec![
        curve(0, &|point| point.entitled[1][resource]),
        curve(1, &|point| point.entitled[0][resource]),
        curve(2, &|point| point.used[resource]),
    ];
    let y = if resource == CPU { "CPUs" } else { "GiB" };
    Lines { x: "hours", y, curves, is_log: false, top: None }.svg()
}
