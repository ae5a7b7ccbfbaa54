//! The answer, as tables or as one JSON object.

use std::io::{self, Write};

use serde::Serialize;

use super::findings::findings;
use super::measure::{Figures, Outcome, Run, Series, Wanted};
use super::scenario::Scenario;
use crate::json::write_line;
use crate::table;
use crate::text::{self, SHARE_NOW, plain, short};
use tenantd_core::resource::{CPU, MEMORY, Resource, wire};
use tenantd_policy::model::Tenant;

const MOST_ROWS: usize = 40;

/// The widest name in a table.
const NAME_WIDTH: usize = 18;

#[derive(Serialize)]
struct Answer {
    cpus: u32,
    memory_bytes: u64,
    interval_seconds: f64,
    nr_ticks: u32,
    tenants: Vec<TenantRow>,
    tenantd: RunRow,
    #[serde(rename = "static")]
    by_policy: RunRow,
    none: RunRow,
    series: SeriesRow,
    findings: Vec<String>,
}

#[derive(Serialize)]
struct RunRow {
    share_error_mean: f64,
    share_error_max: f64,
    /// Absent if no tenant ever wants anything.
    jain_index: Option<f64>,
    cpu_seconds: f64,
    outside_cpu_seconds: f64,
    #[serde(serialize_with = "wire::bytes")]
    refault_bytes: f64,
    nr_kills: u64,
    changes: Vec<ChangeRow>,
}

#[derive(Serialize)]
struct ChangeRow {
    at_seconds: f64,
    /// Absent if the division was not fair before the next change.
    fair_after_seconds: Option<f64>,
}

#[derive(Serialize)]
struct TenantRow {
    name: String,
    weight: f64,
    demand_cores: f64,
    #[serde(serialize_with = "wire::bytes")]
    demand_memory_bytes: f64,
    entitled_cores: f64,
    #[serde(serialize_with = "wire::bytes")]
    entitled_memory_bytes: f64,
    /// Parts of the disk; absent if no work reads from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    demand_disk_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    entitled_disk_ratio: Option<f64>,
    tenantd: FiguresRow,
    #[serde(rename = "static")]
    by_policy: FiguresRow,
    none: FiguresRow,
}

#[derive(Serialize)]
struct FiguresRow {
    usage_cores: f64,
    #[serde(serialize_with = "wire::bytes")]
    memory_bytes: f64,
    /// Part of the disk; absent if no work reads from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    disk_ratio: Option<f64>,
    cpu_seconds: f64,
    share_error_mean: f64,
    share_error_max: f64,
    #[serde(serialize_with = "wire::bytes")]
    refault_bytes: f64,
    nr_kills: u64,
}

/// Points over time: means since the point before.
#[derive(Serialize)]
struct SeriesRow {
    seconds: Vec<f64>,
    /// In the order of the tenants.
    tenants: Vec<PointsRow>,
}

#[derive(Serialize)]
struct PointsRow {
    name: String,
    demand: Points,
    entitled: Points,
    tenantd: Points,
    #[serde(rename = "static")]
    by_policy: Points,
    none: Points,
}

#[derive(Serialize)]
struct Points {
    cores: Vec<f64>,
    memory_bytes: Vec<i64>,
}

impl From<&Series> for Points {
    fn from(series: &Series) -> Points {
        let cores = series.points.iter().map(|point| plain(point[CPU])).collect();
        let bytes = series.points.iter().map(|point| point[MEMORY].round() as i64);
        Points { cores, memory_bytes: bytes.collect() }
    }
}

impl FiguresRow {
    fn of(figures: &Figures, has_disk: bool) -> FiguresRow {
        FiguresRow {
            disk_ratio: has_disk.then(|| plain(figures.disk_ratio)),
            usage_cores: plain(figures.got.mean[CPU]),
            memory_bytes: plain(figures.got.mean[MEMORY]),
            cpu_seconds: plain(figures.cpu_seconds),
            share_error_mean: plain(figures.share_error_mean),
            share_error_max: plain(figures.share_error_max),
            refault_bytes: figures.refault_bytes,
            nr_kills: figures.nr_kills,
        }
    }
}

impl From<&Run> for RunRow {
    fn from(run: &Run) -> RunRow {
        let changes = run.settled.iter().map(|settled| ChangeRow {
            at_seconds: settled.change.as_secs_f64(),
            fair_after_seconds: settled.after.map(|after| plain(after.as_secs_f64())),
        });
        RunRow {
            share_error_mean: plain(run.share_error_mean),
            share_error_max: plain(run.share_error_max),
            jain_index: run.jain_mean.map(plain),
            cpu_seconds: plain(run.cpu_seconds()),
            outside_cpu_seconds: plain(run.outside_seconds),
            refault_bytes: run.refault_bytes(),
            nr_kills: run.nr_kills(),
            changes: changes.collect(),
        }
    }
}

/// Prints one JSON object.
///
/// # Errors
/// The output could not be written.
pub(super) fn json(out: &mut impl Write, scenario: &Scenario, outcome: &Outcome) -> io::Result<()> {
    let leaves = scenario.policy().leaves();
    let [tenantd, by_policy, none] = &outcome.runs;
    let tenants = leaves.iter().zip(&outcome.tenants).enumerate();
    let has_disk = scenario.has_disk();
    let row = |run: &Run, index: usize| FiguresRow::of(&run.tenants[index], has_disk);
    let [demand_disk, entitled_disk] =
        [0, 1].map(|at| move |wanted: &Wanted| has_disk.then(|| plain(wanted.disk[at])));
    let tenants = tenants.map(|(index, ((name, tenant), wanted))| TenantRow {
        name: name.clone(),
        weight: tenant.weight[CPU].get(),
        demand_cores: plain(wanted.demand.mean[CPU]),
        demand_memory_bytes: plain(wanted.demand.mean[MEMORY]),
        entitled_cores: plain(wanted.entitled.mean[CPU]),
        entitled_memory_bytes: plain(wanted.entitled.mean[MEMORY]),
        demand_disk_ratio: demand_disk(wanted),
        entitled_disk_ratio: entitled_disk(wanted),
        tenantd: row(tenantd, index),
        by_policy: row(by_policy, index),
        none: row(none, index),
    });
    let points = leaves.iter().zip(&outcome.tenants).enumerate();
    let points = points.map(|(index, ((name, _), wanted))| PointsRow {
        name: name.clone(),
        demand: (&wanted.demand).into(),
        entitled: (&wanted.entitled).into(),
        tenantd: (&tenantd.tenants[index].got).into(),
        by_policy: (&by_policy.tenants[index].got).into(),
        none: (&none.tenants[index].got).into(),
    });
    let answer = Answer {
        cpus: scenario.host.cpus,
        memory_bytes: scenario.host.memory_bytes,
        interval_seconds: scenario.interval().as_secs_f64(),
        nr_ticks: scenario.nr_ticks,
        tenants: tenants.collect(),
        series: SeriesRow { seconds: outcome.times.clone(), tenants: points.collect() },
        tenantd: tenantd.into(),
        by_policy: by_policy.into(),
        none: none.into(),
        findings: findings(scenario, outcome),
    };
    write_line(out, &answer)
}

/// Prints tables for people.
///
/// # Errors
/// The output could not be written.
pub(super) fn table(
    out: &mut impl Write,
    scenario: &Scenario,
    outcome: &Outcome,
) -> io::Result<()> {
    writeln!(out, "{}\n", text::wrapped("", &summary(scenario)))?;
    for table in tables(scenario, outcome) {
        table.print(out)?;
    }
    let nr_tenants = outcome.tenants.len();
    if nr_tenants > MOST_ROWS {
        writeln!(out, "… and {} more tenants; --json shows all\n", nr_tenants - MOST_ROWS)?;
    }
    for finding in findings(scenario, outcome) {
        writeln!(out, "{}", text::wrapped("", &finding))?;
    }
    Ok(())
}

/// The comparison in a sentence or two.
pub(super) fn summary(scenario: &Scenario) -> String {
    format!(
        "{} CPUs and {} of memory, simulated for {} ticks of {} s: with tenantd, with the weights, guarantees and \
         limits of the policy written once (static), and with neither (none).",
        scenario.host.cpus,
        text::memory(scenario.host.memory_bytes as f64),
        scenario.nr_ticks,
        short(scenario.interval().as_secs_f64()),
    )
}

/// A table of figures: rows begin with a name.
pub(super) struct FigureTable {
    pub(super) header: Vec<&'static str>,
    pub(super) rows: Vec<Vec<String>>,
}

impl FigureTable {
    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let mut table = table::plain();
        table.set_header(&self.header);
        for row in self.rows.iter().take(MOST_ROWS) {
            table.add_row(row.iter().map(|cell| text::shortened(cell, 2 * NAME_WIDTH)));
        }
        table::align_figures(&mut table);
        writeln!(out, "{}", table::text(&table))
    }
}

/// The tables of the answer: CPUs, memory and shortage of each tenant, and the three machines.
pub(super) fn tables(scenario: &Scenario, outcome: &Outcome) -> Vec<FigureTable> {
    let leaves = scenario.policy().leaves();
    let name = |path: &str| text::shortened(&text::visible(path), NAME_WIDTH);
    let rows = |cells: &dyn Fn(usize, &Tenant, &Wanted) -> Vec<String>| {
        let tenants = leaves.iter().zip(&outcome.tenants).enumerate();
        let row = |(index, ((path, tenant), wanted)): (usize, (&(String, &Tenant), &Wanted))| {
            [vec![name(path)], cells(index, tenant, wanted)].concat()
        };
        tenants.map(row).collect::<Vec<Vec<String>>>()
    };
    let runs = |of: &dyn Fn(&Run) -> String| outcome.runs.iter().map(of).collect::<Vec<String>>();
    let amounts = |r: Resource, shown: &dyn Fn(f64) -> String| {
        rows(&|index, tenant, wanted| {
            let weight = tenant.weight[r].get();
            let first =
                [short(weight), shown(wanted.demand.mean[r]), shown(wanted.entitled.mean[r])];
            [first.to_vec(), runs(&|run| shown(run.tenants[index].got.mean[r]))].concat()
        })
    };
    let header = |first| vec![first, "weight", "wanted", SHARE_NOW, "tenantd", "static", "none"];
    let of_runs = |shown: &dyn Fn(&Figures) -> String| {
        rows(&|index, _, _| runs(&|run| shown(&run.tenants[index])))
    };
    let lacked = of_runs(&|figures| text::percent(Some(figures.share_error_mean)));
    let mut tables = vec![
        FigureTable { header: header("CPUs"), rows: amounts(CPU, &|cores| format!("{cores:.2}")) },
        FigureTable { header: header("memory"), rows: amounts(MEMORY, &text::memory) },
        FigureTable { header: of_machines("CPUs lacked, mean"), rows: lacked },
    ];
    if scenario.has_disk() {
        let shown = |ratio: f64| text::percent(Some(ratio));
        let rows = rows(&|index, tenant, wanted| {
            let weight = short(tenant.weight.disk.get());
            let first = [weight, shown(wanted.disk[0]), shown(wanted.disk[1])];
            [first.to_vec(), runs(&|run| shown(run.tenants[index].disk_ratio))].concat()
        });
        tables.insert(2, FigureTable { header: header("disk"), rows });
    }
    if outcome.runs.iter().any(|run| run.refault_bytes() > 0.0) {
        let rows = of_runs(&|figures| text::memory(figures.refault_bytes));
        tables.push(FigureTable { header: of_machines("read again from disk"), rows });
    }
    tables.push(FigureTable { header: of_machines("all tenants"), rows: run_rows(outcome) });
    tables
}

fn of_machines(first: &'static str) -> Vec<&'static str> {
    vec![first, "tenantd", "static", "none"]
}

fn run_rows(outcome: &Outcome) -> Vec<Vec<String>> {
    let row = |name: &str, of: &dyn Fn(&Run) -> String| {
        [vec![name.to_string()], outcome.runs.iter().map(of).collect()].concat()
    };
    vec![
        row("share error, mean", &|run| text::percent(Some(run.share_error_mean))),
        row("share error, largest", &|run| text::percent(Some(run.share_error_max))),
        row("Jain's index of dominant shares", &|run| {
            run.jain_mean.map_or("-".to_string(), |jain| format!("{jain:.3}"))
        }),
        row("fair after a change, slowest", &settled),
        row("work done, CPU seconds", &|run| short(run.cpu_seconds())),
        row("read again from disk", &|run| text::memory(run.refault_bytes())),
        row("killed for want of memory", &|run| run.nr_kills().to_string()),
    ]
}

/// The slowest change; `never` if a change was not followed by a fair division.
fn settled(run: &Run) -> String {
    let times = run.settled.iter().map(|settled| settled.after).collect::<Option<Vec<_>>>();
    let slowest = times.map(|times| times.into_iter().max().unwrap_or_default());
    slowest.map_or("never".to_string(), |slowest| format!("{} s", short(slowest.as_secs_f64())))
}
