//! `tenantctl plan`: what tenantd would write now, and why. Writes nothing.

use std::io::{self, Write};
use std::thread;
use std::time::Instant;

use serde::Serialize;
use tracing::level_filters::LevelFilter;

use super::args::PlanArgs;
use super::daemon::load;
use super::exit::Exit;
use super::{log, machine};
use crate::control::status::{ActionStatus, HostStatus, Status, TenantStatus};
use crate::daemon::agent::{Agent, Options};
use crate::daemon::claims;
use crate::host::kernfs::RealKernFs;
use crate::units::Bytes;

/// The JSON of a plan.
#[derive(Debug, Serialize)]
struct Plan<'a> {
    host: &'a HostStatus,
    tenants: &'a [TenantStatus],
    actions: &'a [ActionStatus],
    findings: Vec<&'a str>,
}

/// Runs the command.
///
/// # Errors
/// The host could not be read, or the output not written.
pub(super) fn run(args: &PlanArgs) -> anyhow::Result<Exit> {
    log::start(LevelFilter::ERROR);
    let Some(policy) = load(&args.policy) else { return Ok(Exit::BadConfiguration) };
    let interval = policy.control.interval;
    let rules = claims::rules(&policy);
    let options = Options { observe: true, root: args.root.clone(), state_dir: None };
    let mut agent = Agent::start(RealKernFs::new(), policy, rules.rules, &options)?;
    // Rates take two samples, an interval apart.
    let begin = Instant::now();
    agent.tick(begin.elapsed());
    thread::sleep(interval);
    let status = agent.tick(begin.elapsed()).clone();
    let findings = rules.findings.iter().chain(&status.findings).map(String::as_str).collect();
    let mut out = io::stdout().lock();
    match args.json {
        true => {
            let plan = Plan {
                host: &status.host,
                tenants: &status.tenants,
                actions: &status.actions,
                findings,
            };
            writeln!(out, "{}", serde_json::to_string(&plan)?)?;
        }
        false => {
            print(&mut out, &status, &findings)?;
            for line in machine::lines(agent.topology(), &status) {
                writeln!(out, "{line}")?;
            }
        }
    }
    Ok(Exit::Ok)
}

fn print(out: &mut impl Write, status: &Status, findings: &[&str]) -> io::Result<()> {
    let host = &status.host;
    writeln!(
        out,
        "{}\n{:.2} of {} CPUs and {} of {} to divide\n",
        host.hierarchy,
        host.capacity_cores,
        host.cpus,
        Bytes(host.capacity_memory_bytes as u64).rounded(),
        Bytes(host.memory_bytes).rounded(),
    )?;
    for tenant in &status.tenants {
        writeln!(out, "{}", tenant.name)?;
        let used = tenant
            .usage_cores
            .map_or("not there yet".to_string(), |cores| format!("uses {cores:.2} CPUs"));
        writeln!(
            out,
            "  {used}, could use {:.2}, is allocated {:.2} and {}, {} wide",
            tenant.demand_cores,
            tenant.allocation_cores,
            Bytes(tenant.allocation_memory_bytes as u64).rounded(),
            tenant.dop.unwrap_or(1),
        )?;
        print_actions(out, status, &tenant.name)?;
    }
    let groups =
        status.actions.iter().filter(|a| status.tenants.iter().all(|t| t.name != a.tenant));
    let mut last = "";
    for action in groups {
        if action.tenant != last {
            writeln!(out, "{} (group)", action.tenant)?;
            print_actions(out, status, &action.tenant)?;
            last = &action.tenant;
        }
    }
    if status.actions.is_empty() {
        writeln!(out, "\nnothing to write: every file holds what it should")?;
    }
    for finding in findings {
        writeln!(out, "\nnote: {finding}")?;
    }
    writeln!(out)
}

fn print_actions(out: &mut impl Write, status: &Status, tenant: &str) -> io::Result<()> {
    for action in status.actions.iter().filter(|action| action.tenant == tenant) {
        let file = action.path.rsplit('/').next().unwrap_or(&action.path);
        let from = action.from.as_deref().unwrap_or("not made yet");
        writeln!(out, "  {file}: {from} -> {}", action.to)?;
        writeln!(out, "    {}", action.reason)?;
    }
    Ok(())
}
