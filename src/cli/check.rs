//! `tenantctl check`: every finding of a policy, and what the policy comes to on this machine.

use std::io::{self, Write};
use std::path::Path;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;

use super::args::{CheckArgs, Colour};
use super::exit::Exit;
use super::text::colours;
use crate::policy::model::{Bound, Tenant, Weights};
use crate::policy::report::{Finding, Severity, Style};
use crate::policy::{HostFacts, Loaded, Policy, Report, load, load_with_host};
use crate::units::{Bytes, MilliCpus};

/// Tenants shown; a longer table is not read.
const MOST_ROWS: usize = 200;

/// Runs the command.
///
/// # Errors
/// What could not be printed. A bad policy is no error but an exit code.
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
) -> anyhow::Result<()> {
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
    serde_json::to_writer(&mut *out, &Output { policies: policies.collect(), host })?;
    writeln!(out)?;
    Ok(())
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

/// The tenants as a tree, each with what it is entitled to on this machine.
fn summary(policy: &Policy, host: Option<&HostFacts>) -> String {
    let mut rows = Vec::new();
    let share = host.map(|host| {
        let reserve = policy.host.reserve;
        Share {
            cpu: host.cpu_capacity().0.saturating_sub(reserve.cpu.0) as f64,
            memory: host.memory.0.saturating_sub(reserve.memory.0) as f64,
        }
    });
    add_rows(&policy.tenants, share, 0, &mut rows);
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(["", "tenant", "weight", "guarantee", "limit", "fair share"]);
    let count = rows.len();
    for row in rows.into_iter().take(MOST_ROWS) {
        table.add_row(row);
    }
    if let Some(column) = table.column_mut(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut text: String = table.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    if count > MOST_ROWS {
        text += &format!("  … and {} more\n", count - MOST_ROWS);
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

/// CPU in thousandths and memory in bytes.
#[derive(Clone, Copy)]
struct Share {
    cpu: f64,
    memory: f64,
}

fn add_rows(tenants: &[Tenant], share: Option<Share>, depth: usize, rows: &mut Vec<Vec<String>>) {
    let shares = share.map(|share| {
        let cpu = divide(share.cpu, tenants, |t| t.weight.cpu.get(), |b| b.cpu.map(|c| c.0));
        let memory =
            divide(share.memory, tenants, |t| t.weight.memory.get(), |b| b.memory.map(|m| m.0));
        (cpu, memory)
    });
    for (index, tenant) in tenants.iter().enumerate() {
        let own =
            shares.as_ref().map(|(cpu, memory)| Share { cpu: cpu[index], memory: memory[index] });
        rows.push(vec![
            String::new(),
            format!("{}{}", "  ".repeat(depth), tenant.name),
            shown_weights(&tenant.weight),
            shown_bound(&tenant.guarantee),
            shown_bound(&tenant.limit),
            own.map(shown_share).unwrap_or_else(|| "unknown".into()),
        ]);
        add_rows(&tenant.tenants, own, depth + 1, rows);
    }
}

/// Divides `capacity` among siblings that all want everything: by weight, each between what it is
/// guaranteed and its limit.
///
/// The common level is found by bisection; 64 halvings leave no error that a table could show.
fn divide(
    capacity: f64,
    tenants: &[Tenant],
    weight: fn(&Tenant) -> f64,
    amount: fn(&Bound) -> Option<u64>,
) -> Vec<f64> {
    let bounds: Vec<(f64, f64, f64)> = tenants
        .iter()
        .map(|tenant| {
            let limit = amount(&tenant.limit).map_or(capacity, |limit| limit as f64);
            (weight(tenant), guaranteed(tenant, amount).min(limit), limit)
        })
        .collect();
    let at = |level: f64| {
        bounds.iter().map(move |(weight, low, high)| (level * weight).max(*low).min(*high))
    };
    let lightest = bounds.iter().map(|(weight, ..)| *weight).fold(f64::INFINITY, f64::min);
    let (mut low, mut high) = (0.0, capacity / lightest);
    for _ in 0..64 {
        let middle = (low + high) / 2.0;
        match at(middle).sum::<f64>() <= capacity {
            true => low = middle,
            false => high = middle,
        }
    }
    at(low).collect()
}

/// What a tenant is guaranteed; a group, what those below it are.
fn guaranteed(tenant: &Tenant, amount: fn(&Bound) -> Option<u64>) -> f64 {
    match tenant.is_group() {
        true => tenant.tenants.iter().map(|below| guaranteed(below, amount)).sum(),
        false => amount(&tenant.guarantee).unwrap_or(0) as f64,
    }
}

fn shown_weights(weights: &Weights) -> String {
    match weights.cpu == weights.memory {
        true => weights.cpu.get().to_string(),
        false => format!("cpu {}, memory {}", weights.cpu.get(), weights.memory.get()),
    }
}

fn shown_bound(bound: &Bound) -> String {
    let parts: Vec<String> =
        [bound.cpu.map(shown_cpus), bound.memory.map(|memory| memory.rounded())]
            .into_iter()
            .flatten()
            .collect();
    match parts.is_empty() {
        true => "-".into(),
        false => parts.join(", "),
    }
}

fn shown_cpus(cpus: MilliCpus) -> String {
    match cpus {
        MilliCpus(1000) => "1 CPU".into(),
        _ => format!("{} CPUs", cpus.cores()),
    }
}

fn shown_share(share: Share) -> String {
    format!("{:.2} CPUs, {}", share.cpu / 1000.0, Bytes(share.memory as u64).rounded())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::load_text;

    fn cpu_shares(capacity: f64, tenants: &str) -> Vec<f64> {
        let text = format!("version: 1\ntenants:\n{tenants}");
        let policy = load_text("test", &text).unwrap_or_else(|report| panic!("{report}")).policy;
        let shares =
            divide(capacity, &policy.tenants, |t| t.weight.cpu.get(), |b| b.cpu.map(|c| c.0));
        shares.into_iter().map(f64::round).collect()
    }

    #[test]
    fn shares_follow_weights_between_guarantee_and_limit() {
        let weights = "  a: { weight: 3 }\n  b: { weight: 1 }\n";
        assert_eq!(cpu_shares(8000.0, weights), [6000.0, 2000.0]);
        let limit =
            "  a: { weight: 3, limit: { cpu: 2 } }\n  b: { weight: 1 }\n  c: { weight: 2 }\n";
        assert_eq!(cpu_shares(8000.0, limit), [2000.0, 2000.0, 4000.0]);
        let guarantee = "  a: { weight: 1, guarantee: { cpu: 4 } }\n  b: { weight: 3 }\n";
        assert_eq!(cpu_shares(8000.0, guarantee), [4000.0, 4000.0]);
        let below = "  a:\n    weight: 1\n    tenants: { x: { guarantee: { cpu: 6 } }, y: {} }\n  b: { weight: 1 }\n";
        assert_eq!(cpu_shares(8000.0, below), [6000.0, 2000.0]);
    }

    #[test]
    fn what_limits_leave_over_is_given_to_nobody() {
        let limits = "  a: { limit: { cpu: 1 } }\n  b: { limit: { cpu: 2 } }\n";
        assert_eq!(cpu_shares(8000.0, limits), [1000.0, 2000.0]);
    }
}
