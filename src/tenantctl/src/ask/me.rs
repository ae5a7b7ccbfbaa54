//! `tenantctl me`: the tenants of the calling user, with shares, use, reasons and jobs.
//!
//! The daemon shows it to every user of the host. `status`, `jobs` and `explain` print it, too, for users who may not read
//! about others ([`instead`]). It has no table of other tenants, so it is read from the top: shares, use, shortage, jobs.

use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use serde::{Serialize, Serializer};

use super::{finished, jobs};
use crate::args::MeArgs;
use crate::common::readers;
use crate::common::stale::stale;
use tenantd::exit::Exit;
use tenantd_control::report::status::DeathStatus;
use tenantd_core::resource::{CPU, MEMORY, PerResource};
use tenantd_lab::text::{age, cores, lacks, memory, percent, short, times, visible, wrapped};
use tenantd_lab::{json, table};
use tenantd_policy::model::Mode;
use tenantd_varlink::client::{ClientError, Endpoint};
use tenantd_varlink::interface::{Nothing, method};
use tenantd_varlink::jobs::{FinishedJob, FinishedParameters, ListReply};
use tenantd_varlink::own_view::{OwnBasis, OwnTenant, OwnView};

/// Finished jobs shown as text.
const FINISHED_MAX: usize = 5;
/// Deaths shown as text.
const DEATHS_MAX: usize = 3;
/// Time for the line at a login.
const LINE_TIME: Duration = Duration::from_secs(1);

/// View, jobs and finished jobs of the caller.
#[derive(Serialize)]
struct Own {
    #[serde(flatten)]
    view: OwnView,
    #[serde(rename = "jobs", serialize_with = "jobs_of")]
    list: ListReply,
    finished: Vec<FinishedJob>,
}

fn jobs_of<S: Serializer>(list: &ListReply, to: S) -> Result<S::Ok, S::Error> {
    list.jobs.serialize(to)
}

impl Own {
    fn ask(daemon: &Endpoint) -> Result<Own, ClientError> {
        let mut client = daemon.connect()?;
        let view = client.call::<method::GetOwnView>(&Nothing {})?.view;
        let mut list = client.call::<method::List>(&Nothing {})?;
        let mut finished = client.call::<method::Finished>(&FinishedParameters { id: None })?.jobs;
        // Readers get the jobs of others as well.
        list.jobs.retain(|job| job.uid == view.uid);
        finished.retain(|job| job.uid == view.uid);
        Ok(Own { view, list, finished })
    }
}

pub(crate) fn run(daemon: &Endpoint, args: &MeArgs) -> anyhow::Result<Exit> {
    if args.line {
        line(daemon)?;
        return Ok(Exit::Ok);
    }
    print(&mut io::stdout().lock(), &Own::ask(daemon)?, args.json)?;
    Ok(Exit::Ok)
}

/// Prints the own view in place of an output that this user may not see, and the way to see it.
pub(super) fn instead(daemon: &Endpoint, is_json: bool) -> anyhow::Result<Exit> {
    let own = Own::ask(daemon)?;
    let mut out = io::stdout().lock();
    readers::print_note(&mut out, &daemon.path, is_json)?;
    print(&mut out, &own, is_json)?;
    Ok(Exit::Ok)
}

fn print(out: &mut impl Write, own: &Own, is_json: bool) -> io::Result<()> {
    if is_json {
        return json::write_line(out, own);
    }
    write!(out, "{}", shown(&own.view, SystemTime::now()))?;
    if !own.list.jobs.is_empty() {
        writeln!(out)?;
        jobs::print(out, &own.list)?;
    }
    if !own.finished.is_empty() {
        let (nr, first) = (own.finished.len(), own.finished.len().saturating_sub(FINISHED_MAX));
        writeln!(out)?;
        finished::print(out, &own.finished[first..])?;
        if first > 0 {
            writeln!(out, "the last {FINISHED_MAX} of {nr} finished jobs; tenantctl jobs --all")?;
        }
    }
    Ok(())
}

fn shown(view: &OwnView, now: SystemTime) -> String {
    let head = format!(
        "{}: mode {}, tick {}",
        tenantd_varlink::readers::user_name(),
        view.mode.word(),
        view.tick
    );
    let mut text = wrapped("", &head) + "\n";
    if let Some(old) = age_of(view, now) {
        let since = format!("this is {} old: the ticks of tenantd do not come", age(old));
        text += &(wrapped("! ", &since) + "\n");
    }
    if view.mode == Mode::Observe {
        text += "! mode observe writes nothing: the shares are computed and not enforced\n";
    }
    if view.tenants.is_empty() {
        let none = "no tenant of the policy is yours: no `match` names you, you have no job, and this process is in no \
                    tenant; an administrator can name you in a `match` or an `allow`";
        text += &(wrapped("", none) + "\n");
    }
    for tenant in &view.tenants {
        text += &format!("\n{}", shown_tenant(tenant));
    }
    text
}

/// Age of a view above its threshold.
fn age_of(view: &OwnView, now: SystemTime) -> Option<Duration> {
    stale(view.time.as_deref(), view.stale_seconds, now)
}

fn shown_tenant(tenant: &OwnTenant) -> String {
    let bases: Vec<&str> = tenant.basis.iter().map(|basis| why_own(*basis)).collect();
    let mut text = wrapped("tenant ", &format!("{}: {}", tenant.name, bases.join(", "))) + "\n";
    text += &figures(tenant);
    let mut lines = Vec::new();
    if let (Some(all), 2..) = (tenant.shared_cores, tenant.nr_sharing) {
        lines.push(("shared", format!("{} {} now", sharers(tenant), cpus(all))));
    }
    if tenant.memory_guarantee_void {
        let what = "the guarantee of memory is not kept on this host: an administrator finds the reason in `tenantctl status`";
        lines.push(("memory", what.to_string()));
    }
    lines.extend(tenant.cpus.as_ref().map(|cpus| ("cpus", cpus.clone())));
    if let Some(most) = tenant.limit_pids {
        let now = tenant.usage_pids.map_or_else(|| "-".to_string(), |now| now.to_string());
        lines.push(("tasks", format!("{now} of {most} processes and threads")));
    }
    lines.extend(
        tenant.limit_disk.map(|limit| ("disks", format!("limit {} on each", limit.shown()))),
    );
    if tenant.cpu_pressure_ratio.is_some() || tenant.memory_pressure_ratio.is_some() {
        let (cpu, memory) =
            (percent(tenant.cpu_pressure_ratio), percent(tenant.memory_pressure_ratio));
        lines.push(("waits", format!("for a CPU {cpu} of the time, for memory {memory}")));
    }
    if tenant.reasons.is_empty() {
        let is_known = tenant.missing[CPU].is_some();
        lines.extend(is_known.then(|| ("lacks", "nothing that it is due and wants".to_string())));
    } else {
        lines.push(("lacks", lacks(&tenant.missing).trim_start_matches("lacks ").to_string()));
        lines.extend(tenant.reasons.iter().map(|reason| ("because", reason.text.clone())));
    }
    let counted = tenant.faults.each().filter(|(_, fault)| fault.count > 0);
    let mut faults: Vec<String> = counted
        .map(|(name, fault)| format!("{name} {}, {:.0} s", times(fault.count), fault.seconds))
        .collect();
    if let Some(kills @ 1..) = tenant.nr_oom_kills {
        faults.push(format!("processes killed for lack of memory {}", times(kills)));
    }
    if !faults.is_empty() {
        lines.push(("faults", format!("{} since tenantd started", faults.join("; "))));
    }
    lines.extend(deaths(&tenant.deaths).map(|death| ("death", death)));
    for (name, value) in lines {
        text += &(wrapped(&format!("{name:<9}"), &value) + "\n");
    }
    text
}

/// The last deaths as sentences, newest first.
pub(super) fn deaths(all: &[DeathStatus]) -> impl Iterator<Item = String> {
    all.iter().rev().take(DEATHS_MAX).map(|death| {
        let ago = Duration::try_from_secs_f64(death.age_seconds).unwrap_or_default();
        format!("{} ago: {}", age(ago), visible(&death.to_string()))
    })
}

/// Table of the two shares, the use and the bounds.
fn figures(tenant: &OwnTenant) -> String {
    let mut table = table::plain();
    table.set_header(["", "CPUs", "memory"]);
    let some = |amounts: &PerResource<f64>| PerResource::from_fn(|r| Some(amounts[r]));
    for (name, amounts) in [
        ("share now", some(&tenant.share_now)),
        ("share if busy", tenant.share_if_busy),
        ("used", tenant.usage),
        ("guarantee", tenant.guarantee),
        ("limit", tenant.limit),
    ] {
        let held = amounts[MEMORY].map_or_else(|| "-".to_string(), memory);
        table.add_row([name.to_string(), cores(amounts[CPU]), held]);
    }
    table::align_figures(&mut table);
    table::set_gap(&mut table, 3);
    if let Some(column) = table.column_mut(0) {
        column.set_padding((0, 0));
    }
    table::text(&table)
}

fn why_own(basis: OwnBasis) -> &'static str {
    match basis {
        OwnBasis::User => "its match names you",
        OwnBasis::Group => "its match names a group of yours",
        OwnBasis::Job => "it has a job of yours",
        OwnBasis::Process => "this process is in it",
    }
}

/// `12 users share 4 CPUs`, without the figure.
fn sharers(tenant: &OwnTenant) -> String {
    let kind = if tenant.is_one_user { "users" } else { "tenants" };
    format!("{} {kind} share", tenant.nr_sharing)
}

fn cpus(amount: f64) -> String {
    match short_cores(amount).as_str() {
        "1" => "1 CPU".to_string(),
        amount => format!("{amount} CPUs"),
    }
}

/// CPUs with two digits at most.
fn short_cores(cores: f64) -> String {
    short((cores * 100.0).round() / 100.0)
}

/// Prints one line for a login. Without an answer in time, an enforced share or a tenant of the user it prints nothing: a
/// login must not fail or become noisy.
fn line(daemon: &Endpoint) -> io::Result<()> {
    let timeout = Some(daemon.timeout.unwrap_or(LINE_TIME));
    let daemon = Endpoint { timeout, ..daemon.clone() };
    let Ok(reply) = daemon.call::<method::GetOwnView>(&Nothing {}) else { return Ok(()) };
    match line_of(&reply.view, SystemTime::now()) {
        Some(line) => writeln!(io::stdout().lock(), "{line}"),
        None => Ok(()),
    }
}

fn line_of(view: &OwnView, now: SystemTime) -> Option<String> {
    if view.mode == Mode::Observe || age_of(view, now).is_some() {
        return None;
    }
    let tenant = view.tenants.first()?;
    let mut line = format!("you have {} now", cpus(tenant.share_now[CPU]));
    if let (Some(all), 2..) = (tenant.shared_cores, tenant.nr_sharing) {
        line += &format!("; {} {}", sharers(tenant), short_cores(all));
    }
    Some(visible(&line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenantd_control::report::status::{FaultStatus, FaultsStatus, ReasonStatus};

    fn view(tenants: Vec<OwnTenant>) -> OwnView {
        OwnView { mode: Mode::Enforce, tick: 7, tenants, ..OwnView::default() }
    }

    fn tenant() -> OwnTenant {
        OwnTenant {
            name: "users/ana".into(),
            basis: vec![OwnBasis::User, OwnBasis::Process],
            is_one_user: true,
            share_now: PerResource([0.5, 1e9]),
            share_if_busy: PerResource([Some(1.0 / 3.0), None]),
            nr_sharing: 12,
            shared_cores: Some(4.0),
            ..OwnTenant::default()
        }
    }

    #[test]
    fn a_line_at_a_login_has_the_share_and_the_sharers() {
        let line = |tenant| line_of(&view(vec![tenant]), SystemTime::now()).unwrap();
        assert_eq!(line(tenant()), "you have 0.5 CPUs now; 12 users share 4");
        let of_group = OwnTenant { is_one_user: false, ..tenant() };
        assert_eq!(line(of_group), "you have 0.5 CPUs now; 12 tenants share 4");
        let share_now = PerResource([1.0, 0.0]);
        let alone = OwnTenant { nr_sharing: 1, share_now, ..tenant() };
        assert_eq!(line(alone), "you have 1 CPU now");
        assert_eq!(line_of(&view(Vec::new()), SystemTime::now()), None);
        let observed = OwnView { mode: Mode::Observe, ..view(vec![tenant()]) };
        assert_eq!(line_of(&observed, SystemTime::now()), None, "nothing is enforced");
        let time = Some("2020-01-01T00:00:00Z".to_string());
        let old = OwnView { time, stale_seconds: 3.0, ..view(vec![tenant()]) };
        assert_eq!(line_of(&old, SystemTime::now()), None, "no tick comes");
    }

    #[test]
    fn a_view_has_both_shares_and_the_reasons() {
        let reason = ReasonStatus {
            text: "work of no tenant uses 1.50 CPUs beyond the reserve, as always ".repeat(3),
            ..ReasonStatus::default()
        };
        let fault = Some(FaultStatus { count: 2, seconds: 9.0 });
        let full = OwnTenant {
            name: "customers/a-very-long-name-of-a-tenant/another-very-long-name-of-it".into(),
            missing: PerResource([Some(0.25), Some(0.0)]),
            reasons: vec![reason],
            faults: FaultsStatus { cpu_short: fault, ..FaultsStatus::default() },
            limit: PerResource([Some(2.0), Some(4e9)]),
            usage: PerResource([Some(0.25), None]),
            limit_pids: Some(200),
            usage_pids: Some(12),
            ..tenant()
        };
        let text = shown(&view(vec![tenant(), full]), SystemTime::now());
        for words in [
            "share now",
            "share if busy",
            "0.50",
            "0.33",
            "12 users share 4 CPUs now",
            "lacks    0.25 CPUs",
            "because  work of no tenant",
            "short of CPU 2 times, 9 s",
            "12 of 200 processes",
            "its match names you, this process is in it",
        ] {
            assert!(text.contains(words), "{words:?} is not in:\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let none = shown(&view(Vec::new()), SystemTime::now());
        assert!(none.contains("no tenant of the policy is yours"), "{none}");
        let observed = OwnView { mode: Mode::Observe, ..view(vec![tenant()]) };
        assert!(shown(&observed, SystemTime::now()).contains("not enforced"));
    }
}
