//! `tenantctl check`: every finding of a policy, and what it gives each tenant on this machine.

use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use super::args::{CheckArgs, Colour};
use super::exit::Exit;
use super::text::colours;
use super::{json, table};
use crate::control::target::fair_shares;
use crate::control::tree;
use crate::policy::report::{Finding, Severity, Style};
use crate::policy::{HostFacts, Loaded, Policy, Report, load, load_with_host};
use crate::resource::PerResource;

/// Tenants shown: a longer table is of no use.
const MOST_ROWS: usize = 200;

/// Runs the command.
///
/// # Errors
/// The output could not be written. A bad policy is no error but an exit code.
pub(super) fn run(args: &CheckArgs, colour: Colour) -> anyhow::Result<Exit> {
    let host = HostFacts::of_this_machine();
    let results: Vec<(&Path, Result<Loaded, Report>)> = args
        .policies
        .iter()
        .map(|path| match &host {
            Ok(host) => (path.as_path(), load_with_host(path, host)),
            Err(_) => (path.as_path(), load(path)),
        })
        .collect();
    let mut out = io::stdout().lock();
    match args.json {
        true => print_json(&mut out, &results, host.as_ref().ok())?,
        false => {
            let style = Style { colour: colours(colour, &out), ..Style::PLAIN };
            print_text(&mut out, &results, &host, style)?;
        }
    }
    match results.iter().all(|(_, result)| result.is_ok()) {
        true => Ok(Exit::Ok),
        false => Ok(Exit::BadConfiguration),
    }
}

#[derive(Serialize)]
struct Output {
    policies: Vec<PolicyOutput>,
    host: Option<HostOutput>,
}

#[derive(Serialize)]
struct PolicyOutput {
    path: String,
    valid: bool,
    tenants: usize,
    findings: Vec<Finding>,
    findings_left_out: usize,
}

#[derive(Serialize)]
struct HostOutput {
    cpus: usize,
    memory_bytes: u64,
}

fn print_json(
    out: &mut impl Write,
    results: &[(&Path, Result<Loaded, Report>)],
    host: Option<&HostFacts>,
) -> io::Result<()> {
    let policies = results.iter().map(|(path, result)| {
        let (valid, tenants, report) = match result {
            Ok(loaded) => (true, loaded.policy.leaves().len(), &loaded.report),
            Err(report) => (false, 0, report),
        };
        PolicyOutput {
            path: path.display().to_string(),
            valid,
            tenants,
            findings: report.findings().iter().map(|finding| finding.to_finding()).collect(),
            findings_left_out: report.left_out(),
        }
    });
    let host = host.map(|host| HostOutput { cpus: host.cpus.len(), memory_bytes: host.memory.0 });
    json::write_line(out, &Output { policies: policies.collect(), host })
}

fn print_text(
    out: &mut impl Write,
    results: &[(&Path, Result<Loaded, Report>)],
    host: &io::Result<HostFacts>,
    style: Style,
) -> io::Result<()> {
    for (index, (path, result)) in results.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        let report = match result {
            Ok(loaded) => &loaded.report,
            Err(report) => report,
        };
        if !report.findings().is_empty() {
            writeln!(out, "{}", report.render(style))?;
        }
        match result {
            Ok(loaded) => {
                writeln!(out, "{}: valid{}", path.display(), counted(report))?;
                writeln!(out, "{}", summary(&loaded.policy, host.as_ref().ok()))?;
            }
            Err(_) => writeln!(out, "{}: not valid{}", path.display(), counted(report))?,
        }
    }
    if let Err(error) = host {
        writeln!(out, "This machine could not be read ({error}):")?;
        writeln!(out, "whether the policy fits it was not checked.")?;
    }
    Ok(())
}

/// `, 2 errors, 1 note`; nothing where there was no finding.
fn counted(report: &Report) -> String {
    let mut text = String::new();
    for (severity, name) in
        [(Severity::Error, "error"), (Severity::Warning, "warning"), (Severity::Note, "note")]
    {
        match report.count(severity) {
            0 => {}
            1 => text += &format!(", 1 {name}"),
            count => text += &format!(", {count} {name}s"),
        }
    }
    match report.left_out() {
        0 => text,
        more => text + &format!(" and {more} more"),
    }
}

/// The tenants as a tree, each with its fair share of this machine.
fn summary(policy: &Policy, host: Option<&HostFacts>) -> String {
    let nodes = tree::flatten(policy);
    let shares = host.map(|host| {
        PerResource::from_fn(|resource| {
            let left = host.capacity(resource).saturating_sub(policy.host.reserve[resource]);
            fair_shares(&nodes, resource.amount(left), resource)
        })
    });
    let mut table = table::plain();
    table.set_header(["", "tenant", "weight", "guarantee", "limit", "fair share"]);
    for (index, node) in nodes.iter().enumerate().take(MOST_ROWS) {
        let name = node.path.rsplit('/').next().unwrap_or_default();
        let share = shares.as_ref().map(|shares| {
            let figures = shares.iter().map(|(resource, amounts)| resource.figure(amounts[index]));
            figures.collect::<Vec<_>>().join(", ")
        });
        table.add_row([
            String::new(),
            format!("{}{name}", "  ".repeat(node.depth)),
            shown_weights(&node.weight),
            shown_bound(&node.guarantee),
            shown_bound(&node.limit),
            share.unwrap_or_else(|| "unknown".into()),
        ]);
    }
    table::align_right(&mut table, [2]);
    let mut text = table::text(&table);
    if nodes.len() > MOST_ROWS {
        text += &format!("  … and {} more\n", nodes.len() - MOST_ROWS);
    }
    if let Some(host) = host {
        text += &format!(
            "\nFair share: what a tenant gets of this machine ({} CPUs, {}) while all are busy.",
            host.cpus.len(),
            host.memory.rounded()
        );
    }
    text
}

fn shown_weights(weights: &PerResource<f64>) -> String {
    match weights.0.iter().all(|weight| *weight == weights.0[0]) {
        true => weights.0[0].to_string(),
        false => {
            let each =
                weights.iter().map(|(resource, weight)| format!("{} {weight}", resource.name()));
            each.collect::<Vec<_>>().join(", ")
        }
    }
}

fn shown_bound(bound: &PerResource<Option<f64>>) -> String {
    let given = bound.iter().filter_map(|(resource, amount)| Some(resource.shown((*amount)?)));
    let parts: Vec<String> = given.collect();
    match parts.is_empty() {
        true => "-".into(),
        false => parts.join(", "),
    }
}
