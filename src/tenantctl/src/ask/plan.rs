//! `tenantctl plan`: the values that tenantd would write now, with reasons. Writes nothing.
//!
//! Without a policy on the command line this is the plan of the last tick of the running tenantd. Otherwise
//! an agent in mode observe samples the host for one interval and plans.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::thread;
use std::time::Instant;

use serde::Serialize;
use tracing::level_filters::LevelFilter;

use crate::args::{Colour, PlanArgs, SOCKET};
use crate::common::machine::{self, memory_of};
use tenantd::agent::{Agent, Options};
use tenantd::backend::claims;
use tenantd::command::load;
use tenantd::exit::Exit;
use tenantd::log;
use tenantd::service;
use tenantd_control::report::status::{
    ActionStatus, CreditPreview, GroupStatus, HostStatus, Line, MoveStatus, Status, TenantStatus,
};
use tenantd_core::resource::{CPU, MEMORY};
use tenantd_host::kernfs::RealKernFs;
use tenantd_lab::replay;
use tenantd_lab::text::{SHARE_IF_BUSY, SHARE_NOW, memory};
use tenantd_policy::accounts::people::People;
use tenantd_varlink::client::{Client, ClientError, Endpoint};
use tenantd_varlink::interface::{Nothing, StatusReply, method};

const INSTALLED: &str = "/etc/tenantd";

#[derive(Debug, Serialize)]
struct Plan<'a> {
    time: Option<&'a str>,
    version: &'a str,
    host: &'a HostStatus,
    tenants: &'a [TenantStatus],
    groups: &'a [GroupStatus],
    actions: &'a [ActionStatus],
    moves: &'a [MoveStatus],
    findings: Vec<&'a str>,
}

pub(crate) fn run(daemon: &Endpoint, args: &PlanArgs, colour: Colour) -> anyhow::Result<Exit> {
    log::start(LevelFilter::ERROR);
    if let (Some(recording), Some(policy)) = (&args.replay, &args.policy) {
        let wanted =
            replay::Wanted { json: args.json, report: args.report.as_deref(), utc: args.utc };
        return replay::run(recording, policy, &wanted, colour);
    }
    let path = match &args.policy {
        Some(path) => path,
        None => match daemon.connect() {
            Ok(client) => return of_daemon(client, args),
            Err(ClientError::NotRunning(_)) if daemon.path == Path::new(SOCKET) => {
                Path::new(INSTALLED)
            }
            Err(error) => return Err(error.into()),
        },
    };
    let Some(policy) = load(path, colour) else { return Ok(Exit::BadConfiguration) };
    let interval = policy.control.interval;
    let rules = claims::rules(&policy);
    let people: Option<fn() -> People> = Some(People::of_this_machine);
    // A policy with credits is planned with the credit that the running tenantd has stored.
    let credits_of = daemon.path.parent().map(Path::to_path_buf);
    let options = Options {
        observe: true,
        root: args.root.clone(),
        people,
        credits_of,
        ..Options::default()
    };
    let mut agent = Agent::start(RealKernFs::new(), policy, rules, &options)?;
    // A rate takes two samples, an interval apart.
    let begin = Instant::now();
    agent.tick(begin.elapsed());
    thread::sleep(interval);
    agent.tick(begin.elapsed());
    service::run::stamp(&mut agent);
    let status = agent.status().clone();
    let findings = status.findings.iter().map(String::as_str).collect();
    let map = machine::lines(agent.topology(), &status);
    show(args, &status, findings, &map)
}

fn of_daemon(mut client: Client, args: &PlanArgs) -> anyhow::Result<Exit> {
    let StatusReply { status } = client.call::<method::GetStatus>(&Nothing {})?;
    let findings = status.findings.iter().map(String::as_str).collect();
    show(args, &status, findings, &[])
}

fn show(
    args: &PlanArgs,
    status: &Status,
    findings: Vec<&str>,
    map: &[String],
) -> anyhow::Result<Exit> {
    let mut out = io::stdout().lock();
    if args.json {
        let plan = Plan {
            time: status.time.as_deref(),
            version: &status.version,
            host: &status.host,
            tenants: &status.tenants,
            groups: &status.groups,
            actions: &status.actions,
            moves: &status.moves,
            findings,
        };
        writeln!(out, "{}", serde_json::to_string(&plan)?)?;
        return Ok(Exit::Ok);
    }
    print(&mut out, status, &findings)?;
    for line in map {
        writeln!(out, "{line}")?;
    }
    Ok(Exit::Ok)
}

fn print(out: &mut impl Write, status: &Status, findings: &[&str]) -> io::Result<()> {
    let host = &status.host;
    writeln!(
        out,
        "{}\nto divide: {:.2} of {} CPUs and {} of {}\n",
        host.hierarchy,
        host.capacity[CPU],
        host.cpus,
        memory(host.capacity[MEMORY]),
        memory_of(host),
    )?;
    for tenant in &status.tenants {
        writeln!(out, "{}", tenant.name)?;
        let used =
            tenant.usage[CPU].map_or("uses -".to_string(), |cores| format!("uses {cores:.2} CPUs"));
        writeln!(
            out,
            "  {used}, wants {:.2}\n  \
             {SHARE_NOW} {:.2} CPUs and {}, {SHARE_IF_BUSY} {:.2} CPUs and {}",
            tenant.demand[CPU],
            tenant.allocation[CPU],
            memory(tenant.allocation[MEMORY]),
            tenant.fair_share_cores,
            memory(tenant.fair_share_memory_bytes),
        )?;
        print_credit(out, Line::Tenant(0, tenant))?;
        print_actions(out, status, &tenant.name)?;
        for moved in status.moves.iter().filter(|moved| moved.tenant == tenant.name) {
            let processes = if moved.nr_processes == 1 { "process" } else { "processes" };
            writeln!(out, "  moved into it: {} {processes} of {}", moved.nr_processes, moved.from)?;
        }
    }
    let has_credit = |group: &&GroupStatus| {
        let line = Line::Group(group);
        line.credit().is_some_and(|it| it.0 >= 1.0) || line.credit_preview().is_some()
    };
    for group in status.groups.iter().filter(has_credit) {
        writeln!(out, "{} (group)", group.name)?;
        print_credit(out, Line::Group(group))?;
        print_actions(out, status, &group.name)?;
    }
    let groups =
        status.actions.iter().filter(|a| status.tenants.iter().all(|t| t.name != a.tenant));
    let groups = groups
        .filter(|a| status.groups.iter().filter(has_credit).all(|group| group.name != a.tenant));
    let mut last = "-";
    for action in groups {
        if action.tenant != last {
            match &*action.tenant {
                "" => writeln!(out, "settings of disks")?,
                group => writeln!(out, "{group} (group)")?,
            }
            print_actions(out, status, &action.tenant)?;
            last = &action.tenant;
        }
    }
    if status.actions.is_empty() {
        writeln!(out, "\nnothing to write: every file holds its value")?;
    }
    for finding in findings {
        writeln!(out, "\nnote: {finding}")?;
    }
    writeln!(out)
}

/// Credit of a tenant or group, or the effect that credits would have.
fn print_credit(out: &mut impl Write, line: Line<'_>) -> io::Result<()> {
    if let Some((seconds, factor)) = line.credit().filter(|it| it.0 >= 1.0 || it.1 > 1.0) {
        writeln!(out, "  credit: {seconds:.0} s of its share, weight times {factor:.1}")?;
    }
    let Some(preview) = line.credit_preview() else { return Ok(()) };
    let CreditPreview { seconds, factor, fair_share_cores, kept_cores } = preview;
    if factor > 1.0 {
        writeln!(
            out,
            "  with control.credits: {seconds:.0} s of its share, weight times {factor:.1} until a burst has spent that"
        )?;
    } else if seconds >= 1.0 {
        writeln!(
            out,
            "  with control.credits: {seconds:.0} s of its share, weight not raised now"
        )?;
    }
    if factor <= 1.0 && kept_cores < fair_share_cores * 0.99 {
        writeln!(
            out,
            "  with control.credits: {kept_cores:.2} of its fair share of {fair_share_cores:.2} CPUs during bursts of siblings"
        )?;
    }
    Ok(())
}

fn print_actions(out: &mut impl Write, status: &Status, tenant: &str) -> io::Result<()> {
    for action in status.actions.iter().filter(|action| action.tenant == tenant) {
        let file = action.path.rsplit('/').next().unwrap_or(&action.path);
        // The agent does not read the files of a cgroup without processes.
        let held = || Some(fs::read_to_string(&action.path).ok()?.trim_end().to_string());
        let from = action.from.clone().or_else(held).unwrap_or_else(|| "not made yet".to_string());
        // The file of a unit with `CPUWeight=idle` reads 0.
        let is_idle = (file, &*from) == ("cpu.weight", "0");
        let from = if is_idle { "idle until now".to_string() } else { from };
        writeln!(out, "  {file}: {from} -> {}", action.to)?;
        writeln!(out, "    {}", action.reason)?;
    }
    Ok(())
}
