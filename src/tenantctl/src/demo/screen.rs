//! Output of the demo: bars that move, a table at the end, a verdict.
//!
//! On a terminal the bars are drawn in place; elsewhere one line is printed every few seconds. With
//! `--verbose` the agent's findings are shown as well: hierarchy, demands, allocations, weights. With
//! `--json` only the one object at the end is printed. Nothing is wider than 80 columns.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use super::measure::{Figure, Outcome, Phase, Without};
use super::scene::{CACHE, MEMORY, Size, TENANTS};
use crate::args::DemoArgs;
use tenantd::agent::Agent;
use tenantd_control::report::status::Status;
use tenantd_core::resource::{CPU, Resource};
use tenantd_core::units::Bytes;
use tenantd_host::kernfs::KernFs;
use tenantd_lab::table::{self, CellAlignment, Table};
use tenantd_lab::text::{self, SHARE_NOW};

/// Activities of the tenants in their order, and those with files under contended memory.
const ABOUT: [[&str; 2]; 3] = [
    ["takes all the CPU it can get", ", and scans a large file"],
    ["wants little CPU", ", and reads the same files again and again"],
    ["wants all CPUs", ""],
];

const BAR_WIDTH: usize = 40;

/// Printed if shares are off, the agent found no obstacle, and its own shares were off too.
const MISJUDGED: &str = "\
tenantd found no obstacle, but its estimates of the demands were off as well.
Run it again; `--verbose` shows the demands, the weights and the shares.";

const NOT_MEASURED: &str = "not measured";

const QUIET_TICKS: u64 = 3;

#[derive(Debug)]
pub(crate) struct Screen {
    json: bool,
    verbose: bool,
    live: bool,
    cpus: f64,
    uncontended: Option<String>,
    drawn_lines: usize,
    nr_phases: u32,
    nr_drawn: u64,
    findings: Vec<String>,
    record: Option<File>,
}

struct Bar<'a> {
    name: &'a str,
    used_cores: Option<f64>,
    entitled_cores: Option<f64>,
}

impl Screen {
    /// Creates a screen for people, or for programs.
    pub(crate) fn new(args: &DemoArgs) -> io::Result<Screen> {
        let json = args.json;
        Ok(Screen {
            json,
            verbose: args.verbose && !json,
            live: !json && io::stdout().is_terminal(),
            cpus: 1.0,
            uncontended: None,
            drawn_lines: 0,
            nr_phases: 0,
            nr_drawn: 0,
            findings: Vec::new(),
            record: args.record.as_ref().map(File::create).transpose()?,
        })
    }

    pub(crate) fn begin(&mut self, note: &str, size: &Size, length: Duration) -> io::Result<()> {
        (self.cpus, self.uncontended) = (f64::from(size.cpus), size.uncontended.clone());
        if self.json {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        writeln!(out, "tenantd demo on {note}\n")?;
        writeln!(
            out,
            "Three tenants share {} CPUs and {MEMORY} of memory by weight:\n",
            size.cpus
        )?;
        for ((name, weight), [what, files]) in TENANTS.iter().zip(ABOUT) {
            let files = if size.uncontended.is_none() { files } else { "" };
            writeln!(out, "  {name:<8}weight {weight}   {what}{files}")?;
        }
        writeln!(
            out,
            "\nTheir programs only use up CPU and memory. It takes {} seconds.",
            length.as_secs()
        )
    }

    pub(crate) fn agent<K: KernFs>(&self, agent: &Agent<K>) -> io::Result<()> {
        if self.verbose {
            writeln!(io::stdout(), "\ntenantd starts: {}", agent.layout().describe())?;
        }
        Ok(())
    }

    pub(crate) fn phase(&mut self, how: &str, title: &str) -> io::Result<()> {
        (self.drawn_lines, self.nr_drawn, self.nr_phases) = (0, 0, self.nr_phases + 1);
        if !self.json {
            writeln!(io::stdout(), "\n{}. {how}: {title}", self.nr_phases)?;
        }
        Ok(())
    }

    pub(crate) fn plain(&mut self, now: &Without) -> io::Result<()> {
        let bars: Vec<Bar<'_>> = now
            .tenants
            .iter()
            .map(|plain| Bar {
                name: plain.tenant,
                used_cores: Some(plain.usage_cores),
                entitled_cores: None,
            })
            .collect();
        self.bars(&bars)
    }

    pub(crate) fn tick(&mut self, status: &Status) -> io::Result<()> {
        self.notes(status);
        if let Some(record) = &mut self.record {
            writeln!(record, "{}", serde_json::to_string(status).map_err(io::Error::other)?)?;
        }
        let bars: Vec<Bar<'_>> = status
            .tenants
            .iter()
            .map(|tenant| Bar {
                name: &tenant.name,
                used_cores: tenant.usage[CPU],
                entitled_cores: Some(tenant.allocation[CPU]),
            })
            .collect();
        self.bars(&bars)
    }

    fn bars(&mut self, bars: &[Bar<'_>]) -> io::Result<()> {
        self.nr_drawn += 1;
        if self.json {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        if !self.live {
            if self.nr_drawn.is_multiple_of(QUIET_TICKS) {
                writeln!(out, "  {}", line(bars))?;
            }
            return Ok(());
        }
        if self.drawn_lines > 0 {
            write!(out, "\x1b[{}A", self.drawn_lines)?;
        }
        for bar in bars {
            writeln!(out, "\x1b[2K  {}", drawn(bar, self.cpus))?;
        }
        let entitled = bars.iter().any(|bar| bar.entitled_cores.is_some());
        let legend = if entitled { "█ used  · share now, in CPUs" } else { "█ used, in CPUs" };
        writeln!(out, "\x1b[2K  {:<8}{legend}", "")?;
        self.drawn_lines = bars.len() + 1;
        out.flush()
    }

    /// Keeps each obstacle once. Printed at once with `--verbose`; on standard error, so that it never
    /// breaks the JSON.
    fn notes(&mut self, status: &Status) {
        for finding in &status.findings {
            if !self.findings.contains(finding) {
                if self.verbose || self.json {
                    eprintln!("note: {finding}");
                    self.drawn_lines = 0;
                }
                self.findings.push(finding.clone());
            }
        }
    }

    /// True if the agent found an obstacle.
    pub(crate) fn has_findings(&self) -> bool {
        !self.findings.is_empty()
    }

    /// Prints the figures of a half from the agent's status, and the machine with the tenants on it.
    pub(crate) fn details(&self, phase: &Phase, map: &[String]) -> io::Result<()> {
        if !self.verbose {
            return Ok(());
        }
        let mut table = table::plain();
        table.set_header([
            "tenant", "weight", "demand", SHARE_NOW, "dominant", "dop", "written", "used", "share",
            "error",
        ]);
        for figure in &phase.tenants {
            table.add_row(row(figure));
        }
        let mut out = io::stdout().lock();
        writeln!(out, "\n{}\n", aligned(table, 1))?;
        map.iter().try_for_each(|line| writeln!(out, "{line}"))
    }

    pub(crate) fn outcome(
        &self,
        outcome: &Outcome,
        error_max: f64,
        cached_min: f64,
    ) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if self.json {
            let text = serde_json::to_string(outcome).map_err(io::Error::other)?;
            return writeln!(out, "{text}");
        }
        writeln!(out, "\n{}\n", comparison(outcome))?;
        if self.uncontended.is_none() {
            writeln!(out, "{}\n", files(outcome, cached_min))?;
        }
        self.outside(&mut out, outcome, error_max)?;
        if let Some(reason) = &self.uncontended {
            writeln!(out, "Memory was not contended here: {reason}.")?;
        }
        verdict(&mut out, outcome, error_max, cached_min)?;
        if !outcome.fair && outcome.no_verdict.is_none() {
            if !self.verbose {
                self.findings.iter().try_for_each(|finding| writeln!(out, "note: {finding}"))?;
            }
            if self.findings.is_empty() {
                writeln!(out, "{MISJUDGED}")?;
            }
        }
        let state = if outcome.clean {
            "The host is as it was: all cgroups removed, all values restored."
        } else {
            "NOT CLEAN: something was left behind, see above."
        };
        writeln!(out, "{state}")
    }

    /// Sentence about outside usage of the machine; a part without effect on a share is not reported.
    fn outside(&self, out: &mut impl Write, outcome: &Outcome, error_max: f64) -> io::Result<()> {
        let most = outcome.phases.iter().map(|phase| phase.outside_cores).fold(0.0, f64::max);
        if most < error_max * self.cpus || outcome.no_verdict.is_some() {
            return Ok(());
        }
        writeln!(
            out,
            "Other work on this machine took {most:.1} of its {} CPUs; the tenants shared the rest.",
            self.cpus
        )
    }
}

fn verdict(
    out: &mut impl Write,
    outcome: &Outcome,
    error_max: f64,
    cached_min: f64,
) -> io::Result<()> {
    let (error, most) = (percent(outcome.max_share_error), error_max * 100.0);
    let verdict = match &outcome.no_verdict {
        Some(reason) if outcome.is_measured() && !outcome.interrupted => format!(
            "No verdict: {reason}. The largest part of the CPU time that was off is {error} (at most {most:.0} % is \
             fair); run it again, with --strict to fail then."
        ),
        Some(reason) => return writeln!(out, "No verdict: {reason}."),
        None => format!(
            "{}: no tenant's part of the CPU time under tenantd was off by more than {error} (at most {most:.0} % is \
             fair).",
            if outcome.fair { "Fair" } else { "NOT FAIR" }
        ),
    };
    writeln!(out, "{}", text::wrapped("", &verdict))?;
    match outcome.cached_ratio {
        Some(ratio) if ratio < cached_min => writeln!(
            out,
            "NOT PROTECTED: {} found only {} of its files in memory.",
            TENANTS[CACHE].0,
            percent(ratio)
        ),
        _ => Ok(()),
    }
}

fn percent(ratio: f64) -> String {
    format!("{:.1} %", ratio * 100.0)
}

fn measured(ratio: Option<f64>) -> String {
    ratio.map_or(NOT_MEASURED.to_string(), percent)
}

/// Final table of the demo: a row for each tenant in each half. Only the first half also ran without an agent. The
/// largest figure of its last column is that of the verdict.
fn comparison(outcome: &Outcome) -> Table {
    let mut table = table::plain();
    let with = ["CPU time:\nwithout", "\nwith", "\nshare now", "\noff by"];
    table.set_header(["\nhalf", "\ntenant", "\nweight"].into_iter().chain(with));
    for (number, half) in ["first", "second"].into_iter().enumerate() {
        let phase = outcome.phases.get(number).filter(|phase| phase.measured_ticks > 0);
        let without = outcome.without.as_ref().filter(|_| number == 0);
        for (index, (tenant, weight)) in TENANTS.iter().enumerate() {
            let figure = phase.and_then(|phase| phase.tenants.get(index));
            let before = without.and_then(|without| without.tenants.get(index));
            table.add_row(vec![
                if index == 0 { half.to_string() } else { String::new() },
                (*tenant).to_string(),
                weight.to_string(),
                measured(before.map(|before| before.measured_share)),
                measured(figure.map(|figure| figure.measured_share)),
                measured(figure.map(|figure| figure.entitled_share)),
                measured(figure.map(|figure| figure.error.abs())),
            ]);
        }
    }
    let mut table = aligned(table, 2);
    if let Some(tenant) = table.column_mut(1) {
        tenant.set_cell_alignment(CellAlignment::Left);
    }
    table
}

/// The part of its files that the tenant with a cache found in memory.
fn files(outcome: &Outcome, cached_min: f64) -> Table {
    let mut table = table::plain();
    table.set_header(["files in memory", "without", "first half", "second half", "at least"]);
    let of_half = |half: usize| outcome.phases.get(half)?.tenants.get(CACHE)?.cached_ratio;
    let without = outcome.without.as_ref().and_then(|it| it.tenants.get(CACHE)?.cached_ratio);
    table.add_row(vec![
        TENANTS[CACHE].0.to_string(),
        measured(without),
        measured(of_half(0)),
        measured(of_half(1)),
        percent(cached_min),
    ]);
    aligned(table, 2)
}

/// Aligns all columns but the first right, with a gap before each.
fn aligned(mut table: Table, gap: u16) -> Table {
    table::align_figures(&mut table);
    table::set_gap(&mut table, gap);
    table
}

fn drawn(bar: &Bar<'_>, cpus: f64) -> String {
    let cells = |cores: f64| ((cores / cpus * BAR_WIDTH as f64).round() as usize).min(BAR_WIDTH);
    let used = cells(bar.used_cores.unwrap_or(0.0));
    let entitled = cells(bar.entitled_cores.unwrap_or(0.0));
    let drawn: String = (0..BAR_WIDTH)
        .map(|cell| match (cell < used, cell < entitled) {
            (true, _) => '█',
            (false, true) => '·',
            (false, false) => ' ',
        })
        .collect();
    let used = bar.used_cores.map_or("-".to_string(), |cores| format!("{cores:.2}"));
    let entitled = bar.entitled_cores.map_or(String::new(), |cores| format!(" of {cores:.2}"));
    format!("{:<8}{drawn} {used}{entitled}", bar.name)
}

fn line(bars: &[Bar<'_>]) -> String {
    let bars = bars.iter().map(|bar| {
        let used = bar.used_cores.map_or("-".to_string(), |cores| format!("{cores:.2}"));
        let entitled = bar.entitled_cores.map_or(String::new(), |cores| format!(" of {cores:.2}"));
        format!("{} {used}{entitled}", bar.name)
    });
    format!("CPUs used: {}", bars.collect::<Vec<_>>().join(", "))
}

fn row(figure: &Figure) -> Vec<String> {
    let memory = |bytes: f64| Bytes(bytes as u64).rounded();
    vec![
        figure.tenant.clone(),
        format!("{}", figure.weight),
        format!("{:.2} {}", figure.demand[CPU], memory(figure.demand[Resource::Memory])),
        format!("{:.2} {}", figure.allocation[CPU], memory(figure.allocation[Resource::Memory])),
        figure.dominant_resource.as_ref().map_or("-".to_string(), |resource| {
            format!("{resource} {:.0}%", figure.dominant_share * 100.0)
        }),
        figure.dop.map_or("-".to_string(), |dop| dop.to_string()),
        figure.cpu_weight.map_or("-".to_string(), |weight| format!("{weight:.0}")),
        format!("{:.1}%", figure.measured_share * 100.0),
        format!("{:.1}%", figure.entitled_share * 100.0),
        format!("{:+.1}", figure.error * 100.0),
    ]
}
