//! The status as text: the machine, the tenants, shortages with reasons, jobs, findings.
//!
//! Text is as wide as the terminal, or 80 columns in a pipe or file. Lists are shortened on a terminal only.
//! A status that is older than its own threshold is marked as stale: the socket of an agent answers even
//! while its ticks do not run.

use std::time::{Duration, SystemTime};

use super::{disk, tenants};
use crate::common::machine::memory_of;
use crate::common::output::Output;
use crate::common::readers::owner;
use crate::common::rows::{Choice, is_chosen, lacks as is_lacking};
use crate::common::stale::stale;
use tenantd_control::report::status::{Status, TenantStatus};
use tenantd_control::words::jobs::{JobsStatus, WaitCount};
use tenantd_core::resource::{CPU, MEMORY};
use tenantd_core::units::Bytes;
use tenantd_lab::text::{age, cores, lacks, memory, wrapped_at};
use tenantd_policy::model::Mode;

/// Name of a machine or of a tenant before its jobs.
const NAME_WIDTH: usize = 30;
const LACKING_MAX: usize = 5;
const TENANTS_WITH_JOBS_MAX: usize = 10;
const LEGEND: &str = "share now: with the present demands and other load; if busy: if all want all";

/// Parts of a status to be shown, and their place.
#[derive(Clone, Debug)]
pub struct Look {
    /// Rows of the table, and the tenants of the other parts.
    pub choice: Choice,
    /// Place of the text.
    pub output: Output,
    /// All columns.
    pub is_verbose: bool,
}

/// Returns the status as text.
pub fn shown(status: &Status, look: &Look) -> String {
    let Look { choice, output, is_verbose } = look;
    let columns = output.columns();
    let is_whole = choice.name.is_none() && !choice.lacking;
    let mut text = head(status, *output);
    let has_rows = status.tenants.iter().any(|it| {
        is_chosen(&it.name, choice) && (!choice.lacking || is_lacking(it, &status.thresholds))
    });
    if choice.lacking && !has_rows {
        return text + "no tenant lacks a part of its share\n";
    }
    text += &tenants::table(status, choice, *output, *is_verbose);
    if has_rows {
        text += &(wrapped_at(columns, "", LEGEND) + "\n");
    }
    text += "\n";
    if !choice.lacking {
        for line in disk::lines(status, choice) {
            text += &(wrapped_at(columns, "disk ", &line) + "\n");
        }
    }
    if is_whole {
        text += &(wrapped_at(columns, "", &fairness(status)) + "\n");
    }
    text += &lacking(status, look);
    for attached in status.attached.iter().filter(|it| is_chosen(&it.tenant, choice)) {
        let line = format!("{}: {attached}", attached.tenant);
        text += &(wrapped_at(columns, "attached: ", &line) + "\n");
    }
    if !choice.lacking {
        text += &jobs(status, look);
        if let Some(victim) = victim(status, choice) {
            text += &(wrapped_at(columns, "if memory runs out: ", &victim) + "\n");
        }
        for finding in findings(status, choice) {
            text += &(wrapped_at(columns, "note: ", &finding) + "\n");
        }
    }
    text
}

/// Machine, tick, and the capacity to divide.
fn head(status: &Status, output: Output) -> String {
    let host = &status.host;
    let columns = output.columns();
    let name = if host.name.is_empty() { "tenantd" } else { &host.name };
    let name = output.shortened(name, NAME_WIDTH);
    let mut parts = vec![format!("{name}: mode {}", status.mode.word())];
    if let Some(of_policy) = status.policy_mode.filter(|it| *it != status.mode) {
        parts[0] += &format!(" (the policy says {}, from the next start on)", of_policy.word());
    }
    parts.push(format!("tick {}", status.tick));
    parts.extend(status.time.clone());
    if !status.version.is_empty() {
        parts.push(format!("tenantd {}", status.version));
    }
    let mut text = wrapped_at(columns, "", &parts.join(", ")) + "\n";
    let stale_seconds = status.thresholds.stale_seconds;
    if let Some(old) = stale(status.time.as_deref(), stale_seconds, SystemTime::now()) {
        let since = format!("this is {} old: the ticks of tenantd do not come", age(old));
        text += &(wrapped_at(columns, "! ", &since) + "\n");
    }
    let divided = format!(
        "to divide: {:.2} of {} CPUs, {} of {}; other processes use {} CPUs",
        host.capacity[CPU],
        host.cpus,
        memory(host.capacity[MEMORY]),
        memory_of(host),
        cores(host.outside_cores),
    );
    text + &format!("{}\n{}\n\n", host.hierarchy, wrapped_at(columns, "", &divided))
}

/// Tenants with a shortfall, in the order of the policy: each with its first reason, and those chosen by it or
/// by name with all reasons.
fn lacking(status: &Status, look: &Look) -> String {
    let Look { choice, output, .. } = look;
    let lacking: Vec<&TenantStatus> = status
        .tenants
        .iter()
        .filter(|tenant| !tenant.reasons.is_empty() && is_chosen(&tenant.name, choice))
        .collect();
    let most = if choice.lacking { usize::MAX } else { output.at_most(LACKING_MAX) };
    let mut text = String::new();
    for tenant in lacking.iter().take(most) {
        let has_all = choice.name.is_some() || choice.lacking;
        let nr_shown = if has_all { tenant.reasons.len() } else { 1 };
        for reason in &tenant.reasons[..nr_shown] {
            let mut line = format!("{} {}: {}", tenant.name, lacks(&tenant.missing), reason.text);
            if nr_shown < tenant.reasons.len() {
                line += &format!("; more reasons: tenantctl explain {}", tenant.name);
            }
            text += &(wrapped_at(output.columns(), "! ", &line) + "\n");
        }
    }
    if let Some(more @ 1..) = lacking.len().checked_sub(most) {
        let more = format!("{more} more tenants lack something: tenantctl status --lacking");
        text += &(wrapped_at(output.columns(), "! ", &more) + "\n");
    }
    text
}

/// Jobs: all together, then of each tenant with any, and the reason of its first waiting one.
fn jobs(status: &Status, look: &Look) -> String {
    let Look { choice, output, .. } = look;
    let (columns, most) = (output.columns(), output.at_most(TENANTS_WITH_JOBS_MAX));
    let Some(all) = &status.jobs else { return String::new() };
    let mut text = String::new();
    if choice.name.is_none() {
        text += &(wrapped_at(columns, "jobs: ", &all_jobs(all)) + "\n");
        for units in &all.units {
            let words = units.in_words(owner);
            text += &(wrapped_at(columns, &format!("  {}: ", units.name), &words) + "\n");
        }
    }
    let with_jobs = status.tenants.iter().filter(|it| is_chosen(&it.name, choice));
    let with_jobs = with_jobs.filter_map(|tenant| {
        let jobs = tenant.jobs.as_ref()?;
        let words = jobs.in_words();
        (!words.is_empty()).then_some((&tenant.name, jobs, words))
    });
    let with_jobs: Vec<_> = with_jobs.collect();
    for (name, jobs, words) in with_jobs.iter().take(most) {
        let time = jobs.longest_wait_seconds.and_then(|s| Duration::try_from_secs_f64(s).ok());
        let since = time.map(|time| format!(" since {}", age(time))).unwrap_or_default();
        let why = jobs.reason.as_ref().map(|why| format!("{since}: {why}")).unwrap_or_default();
        let name = output.shortened(name, NAME_WIDTH);
        text += &(wrapped_at(columns, "  ", &format!("{name}: {words}{why}")) + "\n");
    }
    if let Some(more @ 1..) = with_jobs.len().checked_sub(most) {
        text += &format!("  {more} more tenants have jobs: tenantctl jobs\n");
    }
    text
}

fn all_jobs(all: &JobsStatus) -> String {
    let JobsStatus { nr_running, nr_waiting, slots, free_slots, slots_reason, .. } = all;
    let why = if slots_reason.is_empty() { String::new() } else { format!(" ({slots_reason})") };
    let mut words =
        format!("{nr_running} run, {nr_waiting} wait; {free_slots} of {slots} slots are free{why}");
    if !all.waiting_for.is_empty() {
        let kind = |it: &WaitCount| format!("{} {}", it.nr_jobs, it.kind.replace('_', " "));
        let kinds: Vec<String> = all.waiting_for.iter().map(kind).collect();
        words += &format!("; waiting for: {}", kinds.join(", "));
    }
    if let Some(jain) = all.finish_time_jain {
        words += &format!(
            "; finish-time fairness {jain:.2} (Jain, {} jobs of the last hour)",
            all.nr_finish_times
        );
    }
    words
}

/// The work that ends first when memory runs out.
fn victim(status: &Status, choice: &Choice) -> Option<String> {
    let victim = status.victim.as_ref().filter(|it| is_chosen(&it.tenant, choice))?;
    let tenant = &victim.tenant;
    let who = match victim.job {
        Some(job) => format!("job {job} of {tenant}"),
        None => format!("work of {tenant}"),
    };
    let verb = if status.mode == Mode::Enforce { "ends" } else { "would end" };
    let bytes = |bytes: u64| Bytes(bytes).rounded();
    Some(format!(
        "{who} {verb} first ({}); {tenant} holds {} of its share of {}",
        bytes(victim.held_bytes),
        bytes(victim.tenant_held_bytes),
        bytes(victim.tenant_share_bytes)
    ))
}

/// Findings, those of the chosen tenants only if any were chosen.
fn findings(status: &Status, choice: &Choice) -> Vec<String> {
    if choice.name.is_none() {
        return status.findings.clone();
    }
    let of_tenant =
        |tenant: &Option<String>| tenant.as_ref().is_some_and(|it| is_chosen(it, choice));
    let records = status.finding_records.iter().filter(|record| of_tenant(&record.tenant));
    records.map(ToString::to_string).collect()
}

/// Fairness, writes of other programs, and the cost of the agent.
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
    // A recording has no cost of the agent.
    if let Some(bytes) = agent.resident_bytes {
        let resident = memory(bytes as f64);
        parts.push(format!("tenantd uses {resident}, {:.1} ms per tick", agent.tick_seconds * 1e3));
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenantd_control::report::status::Thresholds;

    #[test]
    fn a_status_is_stale_beyond_its_own_threshold() {
        let stamp = |second| format!("2030-01-01T00:00:{second:02}Z");
        let thresholds = Thresholds::for_interval(5.0);
        let (time, most) = (stamp(10), thresholds.stale_seconds);
        let at =
            |second| stale(Some(&time), most, humantime::parse_rfc3339(&stamp(second)).unwrap());
        assert_eq!(thresholds.stale_seconds, 11.0);
        assert_eq!((at(21), at(22)), (None, Some(Duration::from_secs(12))));
        assert_eq!(at(5), None, "the clock of the reader is behind");
        assert_eq!(stale(None, most, SystemTime::now()), None, "an older daemon");
    }
}
