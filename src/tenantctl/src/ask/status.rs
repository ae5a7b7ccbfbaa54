//! `tenantctl status` and `tenantctl watch`: the tenants now, once or at each tick.
//!
//! A status that is older than its own threshold is marked as stale: the socket of an agent answers even
//! while its ticks do not run.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, SystemTime};

use serde::Serialize;

use crate::args::{StatusArgs, WatchArgs};
use crate::common::client::Endpoint;
use tenantd::exit::Exit;
use tenantd_control::report::status::{GroupStatus, Line, Status, TenantStatus};
use tenantd_control::words::jobs::{JobsStatus, WaitCount};
use tenantd_core::resource::{CPU, MEMORY};
use tenantd_lab::table;
use tenantd_lab::text::{age, cores, lacks, memory, percent, shortened, visible, wrapped};
use tenantd_varlink::interface::{Nothing, WatchReply, method};

const NAME_WIDTH: usize = 15;

const LACKING_MAX: usize = 5;
const TENANTS_WITH_JOBS_MAX: usize = 10;

pub(crate) fn run(daemon: &Endpoint, args: &StatusArgs) -> anyhow::Result<Exit> {
    let reply = daemon.call::<method::GetStatus>(&Nothing {})?;
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&reply.status)?)?
    } else {
        write!(out, "{}", shown(&reply.status))?
    }
    Ok(Exit::Ok)
}

/// A line of `watch --json`: a status, and the number of ticks skipped before it.
#[derive(Serialize)]
struct Frame<'a> {
    lost: u64,
    #[serde(flatten)]
    status: &'a Status,
}

/// Runs `watch`, until the daemon ends or the output is closed.
pub(crate) fn watch(daemon: &Endpoint, args: &WatchArgs) -> anyhow::Result<Exit> {
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

/// Status as text, in lines of at most 80 columns.
pub(crate) fn shown(status: &Status) -> String {
    let host = &status.host;
    let name = if host.name.is_empty() { "tenantd" } else { &host.name };
    let mut head = vec![format!("{}: mode {}", shortened(name, 30), status.mode.word())];
    if let Some(of_policy) = status.policy_mode.filter(|it| *it != status.mode) {
        head[0] += &format!(" (the policy says {}, from the next start on)", of_policy.word());
    }
    head.push(format!("tick {}", status.tick));
    head.extend(status.time.clone());
    if !status.version.is_empty() {
        head.push(format!("tenantd {}", status.version));
    }
    let mut text = wrapped("", &head.join(", ")) + "\n";
    if let Some(old) = stale(status, SystemTime::now()) {
        let since = format!("this is {} old: the ticks of tenantd do not come", age(old));
        text += &(wrapped("! ", &since) + "\n");
    }
    text += &format!(
        "{}\nto divide: {:.2} of {} CPUs, {} of {}; other processes use {} CPUs\n\n",
        host.hierarchy,
        host.capacity[CPU],
        host.cpus,
        memory(host.capacity[MEMORY]),
        memory(host.memory_bytes as f64),
        cores(host.outside_cores),
    );
    text += &table(status);
    text += &format!("\n{}\n", fairness(status));
    text += &lacking(status);
    for attached in &status.attached {
        text += &(wrapped("attached: ", &format!("{}: {attached}", attached.tenant)) + "\n");
    }
    text += &jobs(status);
    for finding in &status.findings {
        text += &format!("{}\n", wrapped("note: ", finding));
    }
    text
}

/// Age of `status` at `now`, if it is above the threshold of the status. A clock that was set back gives
/// `None`.
fn stale(status: &Status, now: SystemTime) -> Option<Duration> {
    let time = humantime::parse_rfc3339(status.time.as_deref()?).ok()?;
    let age = now.duration_since(time).ok()?;
    (age.as_secs_f64() > status.thresholds.stale_seconds).then_some(age)
}

fn table(status: &Status) -> String {
    let mut table = table::plain();
    table.set_header([
        "tenant", "used", "wants", "alloc", "could", "memory", "alloc", "dominant", "dop", "waits",
    ]);
    for line in status.lines() {
        table.add_row(match line {
            Line::Tenant(_, tenant) => row(tenant),
            Line::Group(group) => group_row(group),
        });
    }
    table::align_figures(&mut table);
    table::set_gap(&mut table, 1);
    if let Some(column) = table.column_mut(0) {
        column.set_padding((0, 0));
    }
    table::text(&table)
}

fn row(tenant: &TenantStatus) -> Vec<String> {
    vec![
        shortened(&tenant.name, NAME_WIDTH),
        cores(tenant.usage[CPU]),
        cores(Some(tenant.demand[CPU])),
        cores(Some(tenant.allocation[CPU])),
        cores(Some(tenant.would_get[CPU])),
        tenant.usage[MEMORY].map_or("-".to_string(), memory),
        memory(tenant.allocation[MEMORY]),
        tenant.dominant_resource.as_ref().map_or("-".to_string(), |resource| {
            format!("{resource} {:.0}%", tenant.dominant_share * 100.0)
        }),
        tenant.dop.map_or("-".to_string(), |dop| dop.to_string()),
        percent(tenant.cpu_pressure_ratio),
    ]
}

/// Sums of a group, marked by a slash behind its name.
fn group_row(group: &GroupStatus) -> Vec<String> {
    vec![
        shortened(&group.name, NAME_WIDTH - 1) + "/",
        cores(group.usage[CPU]),
        cores(Some(group.demand[CPU])),
        cores(Some(group.allocation[CPU])),
        cores(Some(group.would_get[CPU])),
        group.usage[MEMORY].map_or("-".to_string(), memory),
        memory(group.allocation[MEMORY]),
        String::new(),
        String::new(),
        String::new(),
    ]
}

/// Tenants with a shortfall, each with its first reason, in the order of the policy.
fn lacking(status: &Status) -> String {
    let lacking = || status.tenants.iter().filter(|tenant| !tenant.reasons.is_empty());
    let mut text = String::new();
    for tenant in lacking().take(LACKING_MAX) {
        let lacks = lacks(&tenant.missing);
        let why = &tenant.reasons[0].text;
        let more = match tenant.reasons.len() {
            1 => String::new(),
            _ => format!("; more reasons: tenantctl explain {}", tenant.name),
        };
        text += &(wrapped("! ", &format!("{} {lacks}: {why}{more}", tenant.name)) + "\n");
    }
    if let Some(more @ 1..) = lacking().count().checked_sub(LACKING_MAX) {
        text += &format!("! {more} more tenants lack something\n");
    }
    text
}

/// Jobs: all together, then of each tenant with any, and the reason of its first waiting one.
fn jobs(status: &Status) -> String {
    let Some(all) = &status.jobs else { return String::new() };
    let JobsStatus { nr_running, nr_waiting, slots, free_slots, slots_reason, .. } = all;
    let why = if slots_reason.is_empty() { String::new() } else { format!(" ({slots_reason})") };
    let mut told =
        format!("{nr_running} run, {nr_waiting} wait; {free_slots} of {slots} slots are free{why}");
    if !all.waiting_for.is_empty() {
        let kind = |it: &WaitCount| format!("{} {}", it.nr_jobs, it.kind.replace('_', " "));
        let kinds: Vec<String> = all.waiting_for.iter().map(kind).collect();
        told += &format!("; waiting for: {}", kinds.join(", "));
    }
    let mut text = wrapped("jobs: ", &told) + "\n";
    let with_jobs = || {
        let tenants = status.tenants.iter();
        tenants.filter_map(|tenant| {
            let jobs = tenant.jobs.as_ref()?;
            let words = jobs.in_words();
            (!words.is_empty()).then_some((&tenant.name, jobs, words))
        })
    };
    for (name, jobs, words) in with_jobs().take(TENANTS_WITH_JOBS_MAX) {
        let time = jobs.longest_wait_seconds.and_then(|s| Duration::try_from_secs_f64(s).ok());
        let since = time.map(|time| format!(" since {}", age(time))).unwrap_or_default();
        let why = jobs.reason.as_ref().map(|why| format!("{since}: {why}")).unwrap_or_default();
        let lead = format!("  {}: ", shortened(&visible(name), NAME_WIDTH));
        text += &(wrapped(&lead, &visible(&format!("{words}{why}"))) + "\n");
    }
    if let Some(more @ 1..) = with_jobs().count().checked_sub(TENANTS_WITH_JOBS_MAX) {
        text += &format!("  {more} more tenants have jobs: tenantctl jobs\n");
    }
    text
}

/// Fairness, writes of other programs, and the cost of the agent, in one or two lines.
fn fairness(status: &Status) -> String {
    let mut parts = Vec::new();
    if let Some(error) = status.max_share_error {
        parts.push(format!("largest share error {:.1} %", error * 100.0));
    }
    if let Some(jain) = status.jain_index {
        parts.push(format!("Jain's index {jain:.3}"));
    }
    if status.nr_drift > 0 {
        parts.push(format!("{} values overwritten by other programs", status.nr_drift));
    }
    if status.nr_contested > 0 {
        parts.push(format!("{} values left to programs that overwrite them", status.nr_contested));
    }
    if status.nr_ineffective > 0 {
        parts.push(format!("{} values without effect", status.nr_ineffective));
    }
    if status.nr_moves > 0 {
        parts.push(format!("{} processes moved", status.nr_moves));
    }
    let agent = &status.agent;
    let resident = agent.resident_bytes.map_or("-".to_string(), |bytes| memory(bytes as f64));
    parts.push(format!("tenantd uses {resident}, {:.1} ms per tick", agent.tick_seconds * 1e3));
    let mut text = wrapped("", &parts.join("; "));
    if !status.tenants.is_empty() {
        text += "\nalloc: entitled to now; could: what it would get if it wanted everything";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenantd_control::report::status::Thresholds;

    #[test]
    fn a_status_is_stale_beyond_its_own_threshold() {
        let stamp = |second| format!("2030-01-01T00:00:{second:02}Z");
        let thresholds = Thresholds::for_interval(5.0);
        let status = Status { time: Some(stamp(10)), thresholds, ..Status::default() };
        let at = |second| stale(&status, humantime::parse_rfc3339(&stamp(second)).unwrap());
        assert_eq!(thresholds.stale_seconds, 11.0);
        assert_eq!((at(21), at(22)), (None, Some(Duration::from_secs(12))));
        assert_eq!(at(5), None, "the clock of the reader is behind");
        assert_eq!(stale(&Status::default(), SystemTime::now()), None, "an older daemon");
    }

    #[test]
    fn a_group_precedes_its_tenants() {
        let tenant = |name: &str| TenantStatus { name: name.into(), ..TenantStatus::default() };
        let group = |name: &str| GroupStatus { name: name.into(), ..GroupStatus::default() };
        let status = Status {
            tenants: ["a", "ci/x/one", "ci/two", "ci2"].map(tenant).into(),
            groups: ["ci", "ci/x"].map(group).into(),
            ..Status::default()
        };
        let table = table(&status);
        let names: Vec<&str> =
            table.lines().skip(1).filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(names, ["a", "ci/", "ci/x/", "ci/x/one", "ci/two", "ci2"]);
    }
}
