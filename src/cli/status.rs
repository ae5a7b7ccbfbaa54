//! `tenantctl status` and `tenantctl watch`: the tenants now, once or each tick.

use std::io::{self, IsTerminal, Write};

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::args::{StatusArgs, WatchArgs};
use super::client::Endpoint;
use super::exit::Exit;
use super::text::{cores, memory, percent, shortened, wrapped};
use crate::control::status::{Status, TenantStatus};
use crate::varlink::interface::{Nothing, WatchReply, method};

/// Columns of a tenant's name.
const NAME_WIDTH: usize = 18;

/// Runs `status`.
///
/// # Errors
/// The daemon did not answer, or the output was not written.
pub(super) fn run(daemon: &Endpoint, args: &StatusArgs) -> anyhow::Result<Exit> {
    let reply = daemon.call::<method::GetStatus>(&Nothing {})?;
    let mut out = io::stdout().lock();
    match args.json {
        true => writeln!(out, "{}", serde_json::to_string(&reply.status)?)?,
        false => write!(out, "{}", shown(&reply.status))?,
    }
    Ok(Exit::Ok)
}

/// One line of `watch --json`: a status, and how many were left out before it.
#[derive(Serialize)]
struct Frame<'a> {
    lost: u64,
    #[serde(flatten)]
    status: &'a Status,
}

/// Runs `watch`, until the daemon ends or nobody reads any more.
///
/// # Errors
/// As [`run`]; that the daemon ended is one.
pub(super) fn watch(daemon: &Endpoint, args: &WatchArgs) -> anyhow::Result<Exit> {
    let mut frames = daemon.connect()?.watch()?;
    let mut out = io::stdout().lock();
    let redraws = out.is_terminal() && !args.json;
    let (mut nr_shown, mut drawn_lines) = (0, 0);
    while args.count.is_none_or(|count| nr_shown < count) {
        let WatchReply { status, lost } = frames.next_tick()?;
        if args.json {
            writeln!(out, "{}", serde_json::to_string(&Frame { lost, status: &status })?)?;
        } else {
            if drawn_lines > 0 && redraws {
                write!(out, "\x1b[{drawn_lines}A\x1b[J")?;
            } else if nr_shown > 0 {
                writeln!(out)?;
            }
            let text = shown(&status);
            drawn_lines = text.lines().count();
            write!(out, "{text}")?;
        }
        out.flush()?;
        nr_shown += 1;
    }
    Ok(Exit::Ok)
}

/// The status for a person, in lines of at most 80 columns.
pub(super) fn shown(status: &Status) -> String {
    let host = &status.host;
    let mut text = format!(
        "mode {}, tick {}, {}\n{:.2} of {} CPUs and {} of {} are divided; others use {} CPUs\n\n",
        status.mode.word(),
        status.tick,
        host.hierarchy,
        host.capacity_cores,
        host.cpus,
        memory(host.capacity_memory_bytes),
        memory(host.memory_bytes as f64),
        cores(host.outside_cores),
    );
    text += &table(&status.tenants);
    text += &format!("\n{}\n", fairness(status));
    for finding in &status.findings {
        text += &format!("{}\n", wrapped("note: ", finding));
    }
    text
}

fn table(tenants: &[TenantStatus]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "tenant", "used", "wants", "entitled", "memory", "entitled", "dominant", "dop", "waits",
    ]);
    for tenant in tenants {
        table.add_row(row(tenant));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
        column.set_padding((1, 0));
    }
    if let Some(column) = table.column_mut(0) {
        column.set_padding((0, 0));
    }
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

fn row(tenant: &TenantStatus) -> Vec<String> {
    vec![
        shortened(&tenant.name, NAME_WIDTH),
        cores(tenant.usage_cores),
        cores(Some(tenant.demand_cores)),
        cores(Some(tenant.allocation_cores)),
        tenant.usage_memory_bytes.map_or("-".to_string(), memory),
        memory(tenant.allocation_memory_bytes),
        tenant.dominant_resource.as_ref().map_or("-".to_string(), |resource| {
            format!("{resource} {:.0}%", tenant.dominant_share * 100.0)
        }),
        tenant.dop.map_or("-".to_string(), |dop| dop.to_string()),
        percent(tenant.cpu_pressure_ratio),
    ]
}

/// How fair it is, what others wrote, and what the agent costs: one or two lines.
fn fairness(status: &Status) -> String {
    let mut parts = Vec::new();
    if let Some(error) = status.max_share_error {
        parts.push(format!("largest share error {:.1} %", error * 100.0));
    }
    if let Some(jain) = status.jain_index {
        parts.push(format!("Jain's index {jain:.3}"));
    }
    if status.nr_drift > 0 {
        parts.push(format!("{} values written by others", status.nr_drift));
    }
    if status.nr_ineffective > 0 {
        parts.push(format!("{} values without effect", status.nr_ineffective));
    }
    let agent = &status.agent;
    let resident = agent.resident_bytes.map_or("-".to_string(), |bytes| memory(bytes as f64));
    parts.push(format!("tenantd uses {resident}, {:.1} ms a tick", agent.tick_seconds * 1e3));
    wrapped("", &parts.join("; "))
}
