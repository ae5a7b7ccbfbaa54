//! `tenantctl explain`: the steps to each value of a tenant.

use std::collections::BTreeSet;
use std::io::{self, Write};

use super::me;
use crate::args::ExplainArgs;
use crate::show::disk;
use tenantd::exit::Exit;
use tenantd_control::why::explain::{
    AllocationStep, Counter, CreditStep, Explanation, MemberStep, Outcome, UsageStep, ValueStep,
    WeightStep, WidthStep,
};
use tenantd_core::resource::{CPU, PerResource, Resource};
use tenantd_lab::text::{SHARE_IF_BUSY, SHARE_NOW, memory, missing, percent, times, wrapped};
use tenantd_policy::outline::Setting;
use tenantd_varlink::client::{ClientError, Endpoint};
use tenantd_varlink::error::CallError;
use tenantd_varlink::interface::{ExplainParameters, ExplainReply, Nothing, method};

/// Columns before the text of a step.
const INDENT: usize = 12;

pub(crate) fn run(daemon: &Endpoint, args: &ExplainArgs) -> anyhow::Result<Exit> {
    match &args.tenant {
        Some(tenant) => explain(daemon, tenant, args.json),
        None => explain_own(daemon, args.json),
    }
}

/// Explains the tenants of the caller. A user who may not read gets the own view.
fn explain_own(daemon: &Endpoint, is_json: bool) -> anyhow::Result<Exit> {
    let view = daemon.call::<method::GetOwnView>(&Nothing {})?.view;
    if view.tenants.is_empty() {
        eprintln!(
            "tenantctl: no tenant of the policy is yours; name one, as in `tenantctl explain web`"
        );
        return Ok(Exit::Failed);
    }
    for (index, tenant) in view.tenants.iter().enumerate() {
        if index > 0 && !is_json {
            writeln!(io::stdout().lock())?;
        }
        match explain(daemon, &tenant.name, is_json) {
            Err(error) if is_no_reader(&error) => return me::instead(daemon, is_json),
            Ok(Exit::Ok) => {}
            outcome => return outcome,
        }
    }
    Ok(Exit::Ok)
}

fn is_no_reader(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(ClientError::NotReader { .. }))
}

fn explain(daemon: &Endpoint, tenant: &str, is_json: bool) -> anyhow::Result<Exit> {
    let parameters = ExplainParameters { tenant: tenant.to_string() };
    let reply: ExplainReply = match daemon.call::<method::Explain>(&parameters) {
        Err(ClientError::Refused(CallError::NoSuchTenant { tenant, tenants, .. })) => {
            eprintln!("tenantctl: the policy has no tenant `{tenant}`");
            if !tenants.is_empty() {
                eprintln!("{}", wrapped("similar names: ", &tenants.join(", ")));
            }
            return Ok(Exit::Failed);
        }
        outcome => outcome?,
    };
    let mut out = io::stdout().lock();
    if is_json {
        writeln!(out, "{}", serde_json::to_string(&reply.explanation)?)?
    } else {
        write!(out, "{}", shown(&reply.explanation))?
    }
    Ok(Exit::Ok)
}

/// Part of an explanation.
pub(crate) enum Part {
    /// Head of the parts that follow.
    Title(String),
    /// Name and text; a step of several lines has its name in the first.
    Line(String, String),
}

/// Explanation as text: the steps of the chain in order, in lines of at most 80 columns.
pub(crate) fn shown(explanation: &Explanation) -> String {
    let mut lines = Vec::new();
    for part in parts(explanation) {
        lines.push(match part {
            Part::Title(text) if text.is_empty() => text,
            Part::Title(text) => wrapped("", &text),
            Part::Line(name, text) if name.ends_with(": ") => wrapped(&name, &text),
            Part::Line(name, text) => wrapped(&format!("{name:<INDENT$}"), &text),
        });
    }
    lines.join("\n") + "\n"
}

/// Explanation in parts: the chain, after an empty title the values in files, then attached work and findings.
pub(crate) fn parts(explanation: &Explanation) -> Vec<Part> {
    let since = explanation
        .elapsed_seconds
        .map_or("the first sample".to_string(), |s| format!("{s:.2} s after the last"));
    let mut parts = vec![Part::Title(format!(
        "{}: tick {}, mode {}, {since}",
        explanation.tenant,
        explanation.tick,
        explanation.mode.word()
    ))];
    let chain = steps(explanation).into_iter().chain(shortfall(explanation));
    parts.extend(chain.map(|(name, text)| Part::Line(name.to_string(), text)));
    parts.push(Part::Title(String::new()));
    parts.extend(explanation.values.iter().map(value_line));
    for member in &explanation.members {
        parts.push(Part::Title(shown_member(member)));
        parts.extend(member.values.iter().map(value_line));
    }
    // Members of one tenant are often in the same slice.
    let mut units = BTreeSet::new();
    let of_members = explanation.members.iter().flat_map(|member| &member.above);
    for above in explanation.above.iter().chain(of_members) {
        if !above.values.is_empty() && units.insert(&above.unit) {
            let share = percent(Some(above.sibling_share));
            parts.push(Part::Title(format!("in {} ({share} of its siblings)", above.unit)));
            parts.extend(above.values.iter().map(value_line));
        }
    }
    let note = |name: &str, text: String| Part::Line(name.to_string(), text);
    parts.extend(explanation.attached.iter().map(|it| note("attached: ", it.to_string())));
    parts.extend(explanation.findings.iter().map(|finding| note("note: ", finding.clone())));
    parts
}

fn steps(explanation: &Explanation) -> Vec<(&'static str, String)> {
    let mut steps = Vec::new();
    if !explanation.sample.is_empty() {
        let counters: Vec<String> = explanation.sample.iter().filter_map(counter).collect();
        steps.push(("sample", counters.join(", ")));
    }
    if let Some(usage) = &explanation.usage {
        steps.push(("usage", shown_usage(usage)));
    }
    if let Some(disk) = &explanation.disk {
        steps.push(("disk", disk::explained(disk)));
    }
    if let Some(demand) = &explanation.demand {
        for (resource, amount) in demand.amount.iter() {
            let name = if resource == CPU { "demand" } else { "" };
            let reason = &demand.reason[resource];
            steps.push((name, format!("{}: {reason}", resource.figure(*amount))));
        }
    }
    steps.push((SHARE_NOW, shown_allocation(&explanation.allocation)));
    steps.push(("", shown_bounds(&explanation.allocation)));
    steps.push(("weight", shown_weight(&explanation.weight)));
    steps.extend(
        explanation
            .credit
            .as_ref()
            .filter(|it| matters(it))
            .map(|it| ("credit", it.reason.clone())),
    );
    if let Some(width) = &explanation.width {
        steps.push(("width", shown_width(width)));
    }
    if let Some(placement) = &explanation.placement {
        let cpus = placement.cpus.as_ref().map_or("any CPU".into(), |list| format!("CPUs {list}"));
        steps.push(("placement", format!("{cpus}: {}", placement.reason)));
    }
    steps
}

fn shortfall(explanation: &Explanation) -> Vec<(&'static str, String)> {
    let lacks = explanation.reasons.iter().map(|reason| reason.text.clone());
    let mut lines: Vec<(&str, String)> = Vec::new();
    let missing = missing(&explanation.missing);
    if !explanation.reasons.is_empty() {
        lines.push(("lacks", missing.unwrap_or_else(|| "an unknown amount".to_string())));
        lines.extend(lacks.enumerate().map(|(n, why)| (if n == 0 { "because" } else { "" }, why)));
    } else if missing.is_none() && explanation.missing[CPU].is_some() {
        lines.push(("lacks", "nothing of its share".to_string()));
    }
    let counted = explanation.faults.each().filter(|(_, fault)| fault.count > 0);
    let mut faults: Vec<String> = counted
        .map(|(name, fault)| format!("{name} {}, {:.0} s", times(fault.count), fault.seconds))
        .collect();
    if let Some(kills @ 1..) = explanation.nr_oom_kills {
        faults.push(format!("{kills} processes killed for want of memory"));
    }
    if !faults.is_empty() {
        lines.push(("faults", format!("{} since the agent started", faults.join("; "))));
    }
    lines.extend(me::deaths(&explanation.deaths).map(|death| ("death", death)));
    lines
}

/// Increase of a cumulative counter with two samples, else the value. A cumulative counter of 0 is left out.
fn counter(counter: &Counter) -> Option<String> {
    let name = &counter.name;
    let grows = !name.ends_with("_bytes") && name != "populated";
    match (counter.before, counter.now) {
        (_, Some(0)) if grows => None,
        (Some(before), Some(now)) if grows && now >= before => {
            Some(format!("{name} +{}", now - before))
        }
        (_, Some(now)) if name.ends_with("_bytes") => {
            Some(format!("{} {}", name.trim_end_matches("_bytes"), memory(now as f64)))
        }
        (_, Some(now)) => Some(format!("{name} {now}")),
        (_, None) => Some(format!("{name} could not be read")),
    }
}

fn shown_usage(usage: &UsageStep) -> String {
    let held = usage.working_set_bytes.map_or("memory unknown".to_string(), memory);
    format!("{:.2} CPUs, {held}; {}", usage.cpu_cores, usage.reason)
}

fn shown_member(member: &MemberStep) -> String {
    let all = |amounts: &PerResource<f64>| {
        let each: Vec<String> = amounts.iter().map(|(r, amount)| r.figure(*amount)).collect();
        each.join(", ")
    };
    let used: Vec<String> =
        member.usage.iter().filter_map(|(r, amount)| Some(r.figure((*amount)?))).collect();
    let used = if used.is_empty() { "not measured".to_string() } else { used.join(", ") };
    let wants = all(&member.demand);
    let attached = if member.is_attached { " (attached)" } else { "" };
    let gets = all(&member.allocation);
    format!("{}{attached}: {used}; could use {wants}; gets {gets}", member.cgroup)
}

fn shown_allocation(step: &AllocationStep) -> String {
    let of = |(resource, amount): (Resource, &f64)| {
        let capacity = resource.figure(step.capacity[resource]);
        format!("{} of {}", resource.figure(*amount), capacity.trim_end_matches(" CPUs"))
    };
    format!("{}: {}", step.amount.iter().map(of).collect::<Vec<_>>().join(" and "), step.reason)
}

fn shown_bounds(step: &AllocationStep) -> String {
    let mut parts = vec![format!("{SHARE_IF_BUSY} {:.2} CPUs", step.fair_share_cores)];
    if let Some(resource) = &step.dominant_resource {
        let share = percent(Some(step.dominant_share));
        parts.push(format!("dominant {resource} {share}"));
    }
    for (name, bound) in [("guarantee", step.guarantee), ("limit", step.limit)] {
        let given = bound.iter().filter_map(|(resource, amount)| {
            let key = format!("{name}.{}", resource.name());
            let is_percent = |it: &&Setting| it.key == key && it.value.ends_with('%');
            let percent = step.written.iter().find(is_percent);
            let percent = percent.map_or(String::new(), |it| format!(" ({})", it.value));
            Some(resource.shown((*amount)?) + &percent)
        });
        let bounds: Vec<String> = given.collect();
        if !bounds.is_empty() {
            parts.push(format!("{name} {}", bounds.join(" and ")));
        }
    }
    if step.huge_pages_bytes > 0 {
        let huge = memory(step.huge_pages_bytes as f64);
        parts.push(format!("the host has huge pages of {huge}, which no tenant gets"));
    }
    parts.join(", ")
}

/// The three weights as one chain, each with its part of the siblings' sum: in the policy, computed, in the
/// file.
fn shown_weight(step: &WeightStep) -> String {
    let share = |share: f64| percent(Some(share));
    format!(
        "policy {} ({}) -> computed {:.1} ({}) -> file {}: {}",
        (step.policy_weight * 1000.0).round() / 1000.0,
        share(step.policy_share),
        step.cpu_weight,
        share(step.sibling_share),
        step.file_value.as_deref().unwrap_or("unknown"),
        step.reason
    )
}

/// True if the policy has credits, or if they would change something now.
fn matters(credit: &CreditStep) -> bool {
    credit.is_on || credit.offered_factor > 1.0
}

fn shown_width(width: &WidthStep) -> String {
    let dop = width.dop.map_or("none yet".to_string(), |dop| dop.to_string());
    let mut text = format!("{dop} of {} slots", width.slots);
    if let (Some(claim), Some(floor), Some(ceiling)) = (width.claim, width.floor, width.ceiling) {
        text += &format!(", {claim} would be right within {floor} to {ceiling}");
    }
    if let Some(ratio) = width.utilisation_ratio {
        text += &format!(", {} used", percent(Some(ratio)));
    }
    format!("{text}: {}", width.reason)
}

/// Value of a file, its outcome and its reason, unless an earlier step has that reason.
fn value_line(value: &ValueStep) -> Part {
    let file = value.path.rsplit('/').next().unwrap_or(&value.path);
    let held = value.held.as_deref().unwrap_or("unknown");
    let change = match value.outcome {
        Outcome::Settled => held.to_string(),
        _ => format!("{held} -> {}", value.wanted),
    };
    let wanted = match value.outcome {
        Outcome::Settled if held != value.wanted => format!(" (wanted {})", value.wanted),
        _ => String::new(),
    };
    let why = match file {
        "cpu.weight" | "cpu.shares" => String::new(),
        _ => format!("; {}", value.reason),
    };
    // The longest names of the legacy hierarchy do not fit before the text.
    Part::Line(format!("{file} "), format!("{change}{wanted}: {}{why}", value.detail))
}
