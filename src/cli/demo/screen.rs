//! What a person sees of the demo: a line for the machine, bars that move, a table for each half, a verdict.
//!
//! On a terminal the bars are drawn over themselves; elsewhere one line a few seconds tells how it goes.
//! With `--json` nothing is printed but the one object at the end. Nothing is wider than 80 columns.

use std::io::{self, IsTerminal, Write};

use comfy_table::{CellAlignment, Table, presets};

use super::measure::{Figure, Outcome, Phase};
use super::stage::Size;
use crate::control::status::{Status, TenantStatus};
use crate::daemon::agent::Agent;
use crate::host::kernfs::KernFs;
use crate::units::Bytes;

/// Width of a bar that stands for all CPUs.
const BAR_WIDTH: usize = 40;

/// Where there is no terminal, every so many ticks a line.
const QUIET_TICKS: u64 = 5;

/// Standard output, drawn in the way that suits it.
#[derive(Debug)]
pub(super) struct Screen {
    json: bool,
    live: bool,
    drawn_lines: usize,
    said: Vec<String>,
}

impl Screen {
    /// A screen for people, or for programs.
    pub(super) fn new(json: bool) -> Screen {
        Screen { json, live: !json && io::stdout().is_terminal(), drawn_lines: 0, said: Vec::new() }
    }

    /// Says what is about to happen, and where.
    pub(super) fn begin<K: KernFs>(
        &self,
        note: &str,
        agent: &Agent<K>,
        size: &Size,
    ) -> io::Result<()> {
        if self.json {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        writeln!(out, "tenantd demo on {note}:\n{}", agent.layout().describe())?;
        writeln!(
            out,
            "{} CPUs; three tenants share them and {} of memory, weights 1:2:4",
            size.cpus,
            super::MEMORY
        )
    }

    /// Begins a half.
    pub(super) fn phase(&mut self, title: &str) -> io::Result<()> {
        self.drawn_lines = 0;
        if !self.json {
            writeln!(io::stdout(), "\n{title}")?;
        }
        Ok(())
    }

    /// Says what stands in the way, once each; on standard error, so that it never breaks the JSON.
    fn notes(&mut self, status: &Status) {
        for finding in &status.findings {
            if !self.said.contains(finding) {
                eprintln!("note: {finding}");
                self.drawn_lines = 0;
                self.said.push(finding.clone());
            }
        }
    }

    /// Shows how it goes.
    pub(super) fn tick(&mut self, status: &Status) -> io::Result<()> {
        self.notes(status);
        if self.json {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        if !self.live {
            if status.tick.is_multiple_of(QUIET_TICKS) {
                writeln!(out, "  {}", line(status))?;
            }
            return Ok(());
        }
        if self.drawn_lines > 0 {
            write!(out, "\x1b[{}A", self.drawn_lines)?;
        }
        for tenant in &status.tenants {
            writeln!(out, "\x1b[2K  {}", bar(tenant, f64::from(status.host.cpus)))?;
        }
        writeln!(out, "\x1b[2K  {:<8}█ used  · entitled to  (of all CPUs)", "")?;
        self.drawn_lines = status.tenants.len() + 1;
        out.flush()
    }

    /// Shows the figures of a half.
    pub(super) fn table(&mut self, phase: &Phase) -> io::Result<()> {
        if self.json {
            return Ok(());
        }
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header([
            "tenant",
            "weight",
            "demand",
            "allocated",
            "dominant",
            "dop",
            "written",
            "used",
            "fair",
            "error",
        ]);
        for figure in &phase.tenants {
            table.add_row(row(figure));
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
            column.set_padding((1, 0));
        }
        writeln!(io::stdout(), "\n{table}")
    }

    /// Draws the machine with the tenants on it.
    pub(super) fn map(&self, lines: &[String]) -> io::Result<()> {
        if self.json {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        writeln!(out)?;
        lines.iter().try_for_each(|line| writeln!(out, "{line}"))
    }

    /// Ends the demo.
    pub(super) fn verdict(&self, outcome: &Outcome, error_max: f64) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if self.json {
            let text = serde_json::to_string(outcome).map_err(io::Error::other)?;
            return writeln!(out, "{text}");
        }
        let verdict = match (outcome.interrupted, outcome.max_share_error <= error_max) {
            (true, _) => "interrupted",
            (false, true) => "fair",
            (false, false) => "NOT FAIR",
        };
        writeln!(
            out,
            "\n{verdict}: the largest error of a share is {:.3} (at most {error_max} is fair),\n\
             Jain's index is {:.3}",
            outcome.max_share_error, outcome.jain_index
        )?;
        match outcome.clean {
            true => {
                writeln!(out, "the host is as it was: all cgroups removed, all values put back")
            }
            false => writeln!(out, "NOT CLEAN: something was left behind, see above"),
        }
    }
}

fn bar(tenant: &TenantStatus, cpus: f64) -> String {
    let cells = |cores: f64| ((cores / cpus * BAR_WIDTH as f64).round() as usize).min(BAR_WIDTH);
    let used = cells(tenant.usage_cores.unwrap_or(0.0));
    let entitled = cells(tenant.allocation_cores);
    let drawn: String = (0..BAR_WIDTH)
        .map(|cell| match (cell < used, cell < entitled) {
            (true, _) => '█',
            (false, true) => '·',
            (false, false) => ' ',
        })
        .collect();
    let used = tenant.usage_cores.map_or("-".to_string(), |cores| format!("{cores:.2}"));
    format!("{:<8}{drawn} {used} of {:.2}", tenant.name, tenant.allocation_cores)
}

fn line(status: &Status) -> String {
    let tenants = status.tenants.iter().map(|tenant| {
        let used = tenant.usage_cores.map_or("-".to_string(), |cores| format!("{cores:.2}"));
        format!("{} {used}/{:.2}", tenant.name, tenant.allocation_cores)
    });
    format!("CPUs used/entitled: {}", tenants.collect::<Vec<_>>().join("  "))
}

fn row(figure: &Figure) -> Vec<String> {
    let memory = |bytes: f64| Bytes(bytes as u64).rounded();
    vec![
        figure.tenant.clone(),
        format!("{}", figure.weight),
        format!("{:.2} {}", figure.demand_cores, memory(figure.demand_memory_bytes)),
        format!("{:.2} {}", figure.allocation_cores, memory(figure.allocation_memory_bytes)),
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
