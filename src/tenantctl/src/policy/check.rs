//! `tenantctl check`: every finding of a policy, and each tenant's share of this machine or another one.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use serde::Serialize;

use crate::args::{CheckArgs, Colour};
use tenantd::args::colours;
use tenantd::exit::Exit;
use tenantd_control::share::target::fair_shares;
use tenantd_control::tree::{self, Row, TreeNode};
use tenantd_control::words::jobs::reason_of_slots;
use tenantd_core::resource::{CPU, PerResource};
use tenantd_dop::tenant;
use tenantd_lab::text::SHARE_IF_BUSY;
use tenantd_lab::{json, table};
use tenantd_policy::model::Amount;
use tenantd_policy::report::{Finding, Severity, Style};
use tenantd_policy::{HostFacts, Loaded, Policy, Report, check_input, check_path};

/// Most tenants shown: a longer table is of no use.
const MOST_ROWS: usize = 200;

pub(crate) fn run(args: &CheckArgs, colour: Colour) -> anyhow::Result<Exit> {
    if args.policies.iter().filter(|path| is_stdin(path)).count() > 1 {
        eprintln!("tenantctl: standard input is one policy: give `-` once");
        return Ok(Exit::Usage);
    }
    let host = match args.host {
        Some(size) => Ok(HostFacts::of_size(size.cpus, size.memory)),
        None => HostFacts::of_this_machine(),
    };
    let load = |path: &Path| {
        if is_stdin(path) {
            check_input("standard input", io::stdin().lock(), host.as_ref().ok())
        } else {
            check_path(path, host.as_ref().ok())
        }
    };
    let results: Vec<(&Path, Result<Loaded, Report>)> =
        args.policies.iter().map(|path| (path.as_path(), load(path))).collect();
    let mut out = io::stdout().lock();
    if args.json {
        json::write_line(&mut out, &output(&results, host.as_ref().ok()))?
    } else {
        print_text(&mut out, &results, &host, args, colour)?
    }
    let passes = |result: &Result<Loaded, Report>| {
        result.as_ref().is_ok_and(|loaded| !(args.strict && has_warnings(&loaded.report)))
    };
    if results.iter().all(|(_, result)| passes(result)) {
        Ok(Exit::Ok)
    } else {
        Ok(Exit::BadConfiguration)
    }
}

fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

fn has_warnings(report: &Report) -> bool {
    report.count(Severity::Warning) > 0 || report.left_out() > 0
}

#[derive(Serialize)]
pub(crate) struct Output {
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

pub(crate) fn output(
    results: &[(&Path, Result<Loaded, Report>)],
    host: Option<&HostFacts>,
) -> Output {
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
    Output { policies: policies.collect(), host }
}

/// Prints the findings of these policies, and the tenants of each.
pub(crate) fn print_text(
    out: &mut (impl Write + IsTerminal),
    results: &[(&Path, Result<Loaded, Report>)],
    host: &io::Result<HostFacts>,
    args: &CheckArgs,
    colour: Colour,
) -> io::Result<()> {
    let most = if args.all { usize::MAX } else { Style::PLAIN.most };
    let style = Style { colour: colours(colour, out), most, ..Style::PLAIN };
    for (index, (path, result)) in results.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        let name =
            if is_stdin(path) { "standard input".into() } else { path.display().to_string() };
        let report = match result {
            Ok(loaded) => &loaded.report,
            Err(report) => report,
        };
        if !report.findings().is_empty() {
            writeln!(out, "{}", report.render(style))?;
        }
        match result {
            Ok(loaded) => {
                let fails = args.strict && has_warnings(report);
                let strict = if fails { ": a failure with --strict" } else { "" };
                writeln!(out, "{name}: valid{}{strict}", counted(report))?;
                write!(out, "{}", summary(&loaded.policy, host.as_ref().ok()))?;
                let busy = "if all tenants want everything.";
                match (args.host, host) {
                    (Some(size), _) => {
                        let (cpus, memory) = (size.cpus, size.memory.rounded());
                        writeln!(out, "\nShare if busy: a tenant's part of a machine with")?;
                        writeln!(out, "{cpus} CPUs and {memory} {busy}")?;
                    }
                    (None, Ok(host)) => {
                        let (cpus, memory) = (host.cpus.len(), host.memory.rounded());
                        writeln!(
                            out,
                            "\nShare if busy: a tenant's part of this machine ({cpus} CPUs, {memory})\n{busy}"
                        )?;
                    }
                    (None, Err(_)) => writeln!(out)?,
                }
            }
            Err(_) => writeln!(out, "{name}: not valid{}", counted(report))?,
        }
    }
    if let Err(error) = host {
        writeln!(out, "This machine could not be read ({error}):")?;
        writeln!(out, "whether the policy fits it was not checked.")?;
    }
    Ok(())
}

/// `, 2 errors, 1 note`; empty without findings.
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

/// Tenants as a tree, each with its share of the machine if busy; one for each template.
fn summary(policy: &Policy, host: Option<&HostFacts>) -> String {
    let policy = &policy.with_one_of_each();
    let machine = host.map(HostFacts::machine);
    let nodes = match machine {
        Some(machine) => tree::on_machine(policy, machine),
        None => tree::flatten(policy),
    };
    let shares = machine.map(|machine| {
        let reserve = Amount::of_each(&policy.host.reserve, machine);
        let left = |resource| (machine[resource] - reserve[resource]).max(0.0);
        PerResource::from_fn(|resource| fair_shares(&nodes, left(resource), resource))
    });
    let of_disks = fair_shares(&nodes, 1.0, Row::Disk);
    let mut table = table::plain();
    table.set_header(["", "tenant", "weight", "guarantee", "limit", SHARE_IF_BUSY]);
    for (index, node) in nodes.iter().enumerate().take(MOST_ROWS) {
        let name = node.path.rsplit('/').next().unwrap_or_default();
        let share = shares.as_ref().map(|shares| {
            let figures = shares.iter().map(|(resource, amounts)| resource.figure(amounts[index]));
            let of_disk = node.disk.map(|_| format!("{:.0} % of disks", of_disks[index] * 100.0));
            figures.chain(of_disk).collect::<Vec<_>>().join(", ")
        });
        table.add_row([
            String::new(),
            format!("{}{name}", "  ".repeat(node.depth)),
            shown_weights(&node.weight),
            shown_guarantee(node),
            shown_limit(node),
            share.unwrap_or_else(|| "unknown".into()),
        ]);
    }
    table::align_right(&mut table, [2]);
    let mut text = table::text(&table);
    if nodes.len() > MOST_ROWS {
        text += &format!("  … and {} more\n", nodes.len() - MOST_ROWS);
    }
    if let Some(machine) = machine {
        let reserve = Amount::of_each(&policy.host.reserve, machine)[CPU];
        let oversubscription = policy.control.oversubscription;
        let slots = tenant::slots(machine[CPU] - reserve, oversubscription);
        let slots = slots.max(policy.admission.max_running.unwrap_or(0));
        let why = reason_of_slots(slots, machine[CPU], reserve, oversubscription);
        text += &format!("\nSlots for jobs: {slots} ({why}).\n");
    }
    text
}

fn shown_weights(weights: &PerResource<f64>) -> String {
    if weights.0.iter().all(|weight| *weight == weights.0[0]) {
        weights.0[0].to_string()
    } else {
        let each = weights.iter().map(|(resource, weight)| format!("{} {weight}", resource.name()));
        each.collect::<Vec<_>>().join(", ")
    }
}

fn shown_guarantee(node: &TreeNode) -> String {
    let amounts = shown_bound(&node.guarantee, &node.written.guarantee.amounts);
    let disk = node.written.guarantee.disk.map(|part| format!("{part} of disks"));
    match disk {
        None => amounts,
        Some(disk) if amounts == "-" => disk,
        Some(disk) => format!("{amounts}, {disk}"),
    }
}

fn shown_limit(node: &TreeNode) -> String {
    let amounts = shown_bound(&node.limit, &node.written.limit.amounts);
    let limit = &node.written.limit;
    let pids = limit.pids.map(|pids| format!("{pids} processes"));
    let disk = Some(limit.disk.shown()).filter(|disk| !disk.is_empty());
    let parts = [Some(amounts).filter(|it| it != "-"), pids, disk];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "-".into() } else { parts.join(", ") }
}

/// Bounds of a tenant; a percentage with its amount, if the machine is known.
fn shown_bound(bound: &PerResource<Option<f64>>, written: &PerResource<Option<Amount>>) -> String {
    let given = bound.iter().filter_map(|(resource, amount)| {
        let amount = amount.map(|amount| resource.shown(amount));
        match written[resource].filter(|written| written.is_percent()) {
            Some(percent) => {
                let percent = percent.notation(resource);
                Some(amount.map_or(percent.clone(), |amount| format!("{amount} ({percent})")))
            }
            None => amount,
        }
    });
    let parts: Vec<String> = given.collect();
    if parts.is_empty() { "-".into() } else { parts.join(", ") }
}
