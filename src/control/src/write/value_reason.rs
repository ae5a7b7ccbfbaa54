//! Reasons for desired values, as text.
//!
//! Texts are not kept: they follow from a node's target, and are made for values that are written or asked
//! about.

use crate::share::target::Target;
use crate::share::weight;
use crate::tree::TreeNode;
use crate::words::knob::{Knob, Purpose, Value};
use tenantd_core::resource::{CPU, MEMORY};
use tenantd_core::units::Limit;
use tenantd_policy::model::Amount;

/// Reason for the desired value of a node's knob.
pub fn reason(knob: Knob, wanted: &Value, node: &TreeNode, target: &Target) -> String {
    let amount = match wanted {
        Value::Amount(_, Limit::Finite(amount)) => Some(*amount as f64),
        _ => None,
    };
    match (knob.purpose(), amount) {
        (Purpose::Weight, _) => weight_reason(target),
        (Purpose::Share, _) => DISK.to_string(),
        (Purpose::Guarantee, Some(bytes)) => min_reason(node, target, bytes),
        (Purpose::Protection, Some(bytes)) => low_reason(node, target, bytes),
        (Purpose::Bound, None) => NO_BOUND.to_string(),
        (Purpose::Bound, _) if target.is_probed => PROBED.to_string(),
        (Purpose::Bound, _) => {
            let allocated = MEMORY.figure(target.allocation[MEMORY]);
            format!("allocated {allocated}, and others lack what they are entitled to")
        }
        _ => limit_reason(node, target, knob),
    }
}

const PROBED: &str =
    "probed: some is taken, as long as tasks hardly wait for memory, to see what it needs";
/// Reason for a weight on disks.
pub(crate) const DISK: &str = "its part of the disks by the weights of the policy";
const NO_BOUND: &str = "no tenant lacks memory that it could give";

/// Reason for an ancestor's value.
pub fn reason_above(knob: Knob, target: &Target) -> String {
    if knob.is_protection() {
        return "what is protected below it, in addition to what it had".to_string();
    }
    let (cores, lent) = (target.allocation[CPU], lent(target));
    let credit_and_trim = raised(target) + &trimmed(target);
    format!(
        "what the tenants and the other work below it should have, {cores:.2} CPUs{lent}{credit_and_trim}"
    )
}

fn limit_reason(node: &TreeNode, target: &Target, knob: Knob) -> String {
    if target.limit_of(knob) != node.limit_of(knob) {
        return "its part of the policy's limit, by what the tenant's cgroups could use"
            .to_string();
    }
    match knob.resource().and_then(|resource| node.written.limit[resource]) {
        Some(Amount::Percent(percent)) => format!("the policy's limit, {percent} of the machine"),
        _ => "the policy's limit".to_string(),
    }
}

fn weight_reason(target: &Target) -> String {
    open_weight_reason(target) + &lent(target) + &raised(target) + &trimmed(target)
}

/// Part of a weight that waiting siblings lend; empty without one.
fn lent(target: &Target) -> String {
    let (cores, due) = (target.lent_cores, target.due_cores());
    if cores == 0.0 && due < target.allocation[CPU] * 0.99 {
        format!(
            "; {due:.2} of them are due beside siblings with credit, or with jobs that others wait for"
        )
    } else if cores > 0.0 {
        format!("; and by {cores:.2} CPUs of tenants whose jobs wait for its slots")
    } else if cores < 0.0 {
        format!("; less {:.2} CPUs of tenants whose jobs wait for slots of others", -cores)
    } else {
        String::new()
    }
}

/// Effect of credit on a weight; empty without one.
fn raised(target: &Target) -> String {
    let Some(plain) = target.plain_cpu_weight else { return String::new() };
    let weight = target.open_cpu_weight.unwrap_or(target.cpu_weight);
    let ratio = weight / plain.max(f64::MIN_POSITIVE);
    if ratio > 1.0 {
        format!("; raised from {plain:.1} to {ratio:.1} times as much by its credit")
    } else {
        format!("; lowered from {plain:.1} beside siblings with credit")
    }
}

/// Trim of a weight and its reason; empty if it is not trimmed.
fn trimmed(target: &Target) -> String {
    let Some(open) = target.open_cpu_weight else { return String::new() };
    let percent = (target.cpu_weight / open.max(f64::MIN_POSITIVE) - 1.0) * 100.0;
    format!(
        "; trimmed by {percent:+.1} % from {open:.1}, because the kernel divides otherwise than by weight"
    )
}

fn open_weight_reason(target: &Target) -> String {
    let (allocation, burst) = (target.allocation[CPU], target.burst[CPU]);
    if weight::is_reported(target.cpu_weight, target.exact_cpu_weight) {
        let exact = target.exact_cpu_weight;
        return format!("as near to {exact:.2} as the kernel's weights come");
    }
    if !target.satisfied {
        format!("wants more than its {allocation:.2} CPUs: weighed by them")
    } else if allocation > burst {
        format!("satisfied with {allocation:.2} CPUs, {:.2} of them lent", allocation - burst)
    } else {
        format!("satisfied: keeps the weight of its fair share, {burst:.2} CPUs")
    }
}

fn min_reason(node: &TreeNode, target: &Target, kept: f64) -> String {
    let (shown, promised) = (MEMORY.figure(kept), target.guarantee[MEMORY].unwrap_or(0.0));
    if !node.is_leaf {
        format!("what is guaranteed below it, {shown}")
    } else if kept + 1.0 < promised {
        let promised = MEMORY.figure(promised);
        format!("{shown} of the guaranteed {promised}: more would leave nothing to reclaim")
    } else {
        format!("guaranteed {shown}")
    }
}

fn low_reason(node: &TreeNode, target: &Target, protection: f64) -> String {
    let shown = MEMORY.figure(protection);
    if target.bounded_protection_bytes.is_some() && node.is_leaf {
        let wanted = MEMORY.figure(target.wanted_protection());
        return format!("{shown} of {wanted}: more would leave nothing to reclaim");
    }
    match (node.is_leaf, protection > target.allocation[MEMORY]) {
        (false, _) => format!("what is protected below it, {shown}"),
        (true, true) => format!("guaranteed {shown}"),
        (true, false) => format!("allocated {shown}"),
    }
}
