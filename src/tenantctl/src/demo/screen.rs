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
use tenantd_lab::table::{self, Table};
use tenantd_lab::text::SHARE_NOW;

/// Activities of the tenants in their order, and those with files under contended memory.
const ABOUT: [[&str; 2]; 3] = [
    ["takes all the CPU it can get", ", and scans a large file"],
    ["wants little CPU", ", and reads the same files again and again"],
    ["wants all CPUs", ""],
];

const BAR_WIDTH: usize = 40;

/// Printed if shares are off and the agent found no obstacle.
const UNEVEN: &str = "\
tenantd found no obstacle: it wrote the weights, and the kernel's balance of load over
CPUs divided otherwise. Run it again; `--verbose` shows the weights and the shares.";

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
        if let (Some(without), Some(with)) = (&outcome.without, outcome.phases.first())
            && with.measured_ticks > 0
        {
            writeln!(out, "\n{}\n", comparison(without, with, outcome.cached_ratio.is_some()))?;
        }
        if let Some(later) = outcome.phases.get(1).filter(|later| later.measured_ticks > 0) {
            writeln!(out, "{}", shares(later))?;
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
                writeln!(out, "{UNEVEN}")?;
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
        if most < error_max * self.cpus {
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
    let (error, most) = (outcome.max_share_error * 100.0, error_max * 100.0);
    match &outcome.no_verdict {
        Some(reason) if outcome.is_measured() && !outcome.interrupted => writeln!(
            out,
            "No verdict: {reason}. A tenant's part of the CPU time was off by {error:.1} %\n\
             (at most {most:.0} % is fair)."
        )?,
        Some(reason) => return writeln!(out, "\nNo verdict: {reason}."),
        None => writeln!(
            out,
            "{}: no tenant's part of the CPU time under tenantd was off by more than\n\
             {error:.1} % (at most {most:.0} % is fair).",
            if outcome.fair { "Fair" } else { "NOT FAIR" }
        )?,
    }
    match outcome.cached_ratio {
        Some(ratio) if ratio < cached_min => writeln!(
            out,
            "NOT PROTECTED: {} found only {:.0} % of its files in memory.",
            TENANTS[CACHE].0,
            ratio * 100.0
        ),
        _ => Ok(()),
    }
}

fn shares(later: &Phase) -> String {
    let share = |figure: &Figure| {
        let (used, due) = (figure.measured_share * 100.0, figure.entitled_share * 100.0);
        format!("{} {used:.0} of {due:.0} %", figure.tenant)
    };
    let shares: Vec<String> = later.tenants.iter().map(share).collect();
    format!("Second half, CPU time used of the {SHARE_NOW}:\n{}.", shares.join(", "))
}

/// Final table of the demo: the first half, which also ran without an agent.
fn comparison(without: &Without, with: &Phase, is_contended: bool) -> Table {
    let percent = |ratio: f64| format!("{:.0} %", ratio * 100.0);
    let mut table = table::plain();
    let mut header = vec!["\ntenant", "\nweight", "CPU time:\nwithout", "\nwith", "share\nnow"];
    if is_contended {
        header.extend(["files in memory:\nwithout", "\nwith", "\nexpected"]);
    }
    table.set_header(header);
    for (index, (before, after)) in without.tenants.iter().zip(&with.tenants).enumerate() {
        let mut cells = vec![
            after.tenant.clone(),
            format!("{}", after.weight),
            percent(before.measured_share),
            percent(after.measured_share),
            percent(after.entitled_share),
        ];
        if is_contended {
            let of_cache = |ratio: Option<f64>| {
                ratio.filter(|_| index == CACHE).map_or(String::new(), percent)
            };
            let all = Some(1.0);
            cells.extend([before.cached_ratio, after.cached_ratio, all].map(of_cache));
        }
        table.add_row(cells);
    }
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
