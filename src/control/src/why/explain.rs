//! Explains each value of a tenant: the last tick for one node, step by step.
//!
//! **Problem.** A weight of 214 explains nothing. The answer to "why is my job slow?" is the chain from the
//! kernel's counters to the value in the file, with the number and the reason of each step. It describes
//! the tick that ran, not a recomputation.
//!
//! **Data.** A tick leaves a [`Trace`] of its intermediate values, a few hundred bytes per node.
//! [`explain`] makes the text on request, so the cost per tick is small. [`crate::report::explanation`] defines the
//! form.
//!
//! **Properties** (`tests/control/explain.rs`, `tests/agent/explain.rs`): the last step of an explanation
//! equals the file contents; every step has a reason, and reasons agree with the numbers beside them.

use std::borrow::Cow;
use std::time::Duration;

use super::explain_credit::credit_step;
use super::explain_disk::disk_step;
use super::explain_shares::Shares;
use super::explain_usage::{counters, demand_step, usage_step};
pub use crate::report::explanation::{
    AboveStep, AllocationBound, AllocationStep, Counter, CreditStep, DemandStep, Explanation,
    MemberStep, Outcome, PlacementStep, UsageStep, ValueStep, WeightStep, WidthStep,
};
use crate::report::status::{FaultsStatus, Status};
use crate::report::trace::{Record, Trace};
use crate::share::demand::Demand;
use crate::share::target::{self, Target};
use crate::tree::{Row, TreeNode};
use tenantd_core::resource::{CPU, PerResource, Resource};
use tenantd_dop::band;
use tenantd_policy::hint;
use tenantd_policy::model::{Allocation, CpusPolicy, DopPolicy};

/// Explains the last tick for the node at `path`; `None` if the policy has no such node.
pub fn explain(trace: &Trace, status: &Status, path: &str) -> Option<Explanation> {
    let of = trace.tree.named(path)?;
    let (node, record) = (of.policy()?, trace.records.get(of.at())?);
    let shares = Shares::new(trace);
    let leaf = node.is_leaf.then_some(());
    // Its own, and those of its members.
    let own = |finding: &&String| {
        let rest = finding.strip_prefix(path);
        rest.is_some_and(|rest| rest.starts_with(": ") || rest.starts_with('['))
    };
    let tenant = status.tenants.iter().find(|tenant| tenant.name == path);
    Some(Explanation {
        tenant: path.to_string(),
        tick: status.tick,
        mode: status.mode,
        elapsed_seconds: trace.elapsed.map(|elapsed| elapsed.as_secs_f64()),
        sample: counters(trace, record),
        usage: trace.usage(record).map(|usage| usage_step(trace, &usage, record)),
        disk: tenant.and_then(|tenant| disk_step(status, tenant)),
        demand: leaf.map(|()| demand_step(trace, node, record)),
        allocation: AllocationStep {
            huge_pages_bytes: status.host.huge_pages_bytes,
            ..allocation_step(trace, node, record)
        },
        weight: shares.weight_step(of, (node, record)),
        credit: credit_step(trace, of.at()),
        width: leaf.map(|()| width_step(trace, node, record)),
        placement: leaf.map(|()| placement_step(trace, node, record)),
        values: shares.values(of),
        members: shares.members(of),
        above: shares.above(of),
        missing: tenant.map_or_else(PerResource::default, |tenant| tenant.missing),
        reasons: tenant.map_or_else(Vec::new, |tenant| tenant.reasons.clone()),
        faults: tenant.map_or_else(FaultsStatus::default, |tenant| tenant.faults),
        nr_oom_kills: tenant.and_then(|tenant| tenant.nr_oom_kills),
        deaths: tenant.map_or_else(Vec::new, |tenant| tenant.deaths.clone()),
        attached: status.attached.iter().find(|it| it.tenant == path).cloned(),
        findings: status.findings.iter().filter(own).cloned().collect(),
    })
}

/// Paths of which `path` may be a misspelling, nearest first, at most `max`; all paths if there are no more.
pub fn names_near(trace: &Trace, path: &str, max: usize) -> Vec<String> {
    let nodes = trace.tree.nodes();
    let paths = || nodes.iter().map(|node| node.path.as_str());
    let mut near = hint::near_paths(path, paths(), max);
    if nodes.len() <= max {
        let others: Vec<&str> = paths().filter(|path| !near.contains(path)).collect();
        near.extend(others);
    }
    near.into_iter().map(str::to_string).collect()
}

fn allocation_step(trace: &Trace, node: &TreeNode, record: &Record) -> AllocationStep {
    let target = &record.target;
    let bound = bound(trace.rule, node, record);
    let dominant = target.dominant.map(Row::name);
    let reason = match bound {
        _ if !node.is_leaf => "the sum of its tenants".to_string(),
        AllocationBound::Nothing => "no demand".to_string(),
        AllocationBound::Demand => "its whole demand".to_string(),
        AllocationBound::Limit => "its limit".to_string(),
        AllocationBound::Weight => "by weight alone: control.allocation is static".into(),
        AllocationBound::Level => held_back(target),
    };
    AllocationStep {
        amount: target.allocation,
        capacity: trace.capacity,
        fair_share_cores: target.burst[CPU],
        guarantee: node.guarantee,
        limit: node.limit,
        written: node.written.settings(),
        dominant_resource: dominant.map(Cow::Borrowed),
        dominant_share: target.dominant_share,
        level: target.level,
        bound,
        reason,
        ..AllocationStep::default()
    }
}

/// Bound of the resource that the tenant wants more of, which need not be its dominant resource.
fn held_back(target: &Target) -> String {
    let up_to = format!("at a level of {:.4}", target.level);
    let of_host = target.scarce.iter().filter(|(_, scarce)| **scarce).map(|(r, _)| r.name());
    let of_disk = target.disk.filter(|disk| disk.is_scarce).map(|_| Row::Disk.name());
    let scarce: Vec<&str> = of_host.chain(of_disk).collect();
    match scarce.len() {
        0 => format!("held back {up_to}"),
        1 => format!("held back: {} is used up {up_to}", scarce[0]),
        _ => format!("held back: {} are used up {up_to}", scarce.join(" and ")),
    }
}

fn bound(rule: Allocation, node: &TreeNode, record: &Record) -> AllocationBound {
    let target = &record.target;
    if !node.is_leaf {
        let met = [AllocationBound::Level, AllocationBound::Demand];
        return met[usize::from(target.satisfied)];
    }
    let demand = record.demand.unwrap_or(Demand::UNKNOWN).amount;
    let reaches = |r: Resource, amount: f64| target::meets(target.allocation[r], amount);
    let unmet = |r: &Resource| !reaches(*r, demand[*r]);
    let is_limited = |r: Resource| node.limit[r].is_some_and(|limit| reaches(r, limit));
    if target.disk.is_some_and(|disk| disk.is_scarce) {
        AllocationBound::Level
    } else if Resource::ALL.iter().all(|r| demand[*r] <= r.noise()) {
        AllocationBound::Nothing
    } else if rule == Allocation::Static {
        AllocationBound::Weight
    } else if !Resource::ALL.iter().any(unmet) {
        // The limit satisfies a demand that it cut down.
        if Resource::ALL.into_iter().any(is_limited) {
            AllocationBound::Limit
        } else {
            AllocationBound::Demand
        }
    } else if Resource::ALL.into_iter().filter(unmet).any(is_limited) {
        AllocationBound::Limit
    } else {
        AllocationBound::Level
    }
}

fn width_step(trace: &Trace, node: &TreeNode, record: &Record) -> WidthStep {
    let (width, aim) = (&record.width, record.width.aim);
    let used = trace.usage(record).map(|usage| usage.cpu_cores);
    let changed = width.changed.map(|at| trace.now.saturating_sub(at));
    WidthStep {
        dop: width.dop,
        slots: trace.slots,
        claim: aim.as_ref().map(|aim| aim.target),
        floor: aim.as_ref().map(|aim| aim.floor),
        ceiling: aim.as_ref().map(|aim| aim.ceiling),
        utilisation_ratio: used.zip(width.dop).map(|(used, dop)| used / f64::from(dop)),
        asleep: width.asleep,
        changed_seconds: changed.map(|changed| changed.as_secs_f64()),
        reason: width_reason(node, record, changed),
    }
}

fn width_reason(node: &TreeNode, record: &Record, changed: Option<Duration>) -> String {
    let width = &record.width;
    let Some(dop) = width.dop else { return "not decided yet".to_string() };
    if let DopPolicy::Manual(dop) = node.dop {
        return format!("set by the policy: {dop}");
    }
    if width.asleep {
        return "idle: its CPUs are lent, its width is that of its share if busy".to_string();
    }
    let Some(aim) = width.aim else { return "initial: that of its share if busy".to_string() };
    if aim.target == dop {
        return match node.dop {
            DopPolicy::Imci => "the slots divided by the number of tenants with demand".to_string(),
            _ => "its part of the slots, by allocation".to_string(),
        };
    }
    if changed.is_some_and(|changed| changed < band::DWELL) {
        return format!("the target is {}, but it changed less than 10 s ago", aim.target);
    }
    let margin = (f64::from(dop) * band::MARGIN_RATIO).max(1.0);
    if f64::from(aim.target.abs_diff(dop)) < margin {
        format!("within the band: the target {} is less than a fifth away", aim.target)
    } else {
        match width.outside_ticks {
            0 => format!("the target is {}, but its utilisation is within the band", aim.target),
            ticks => {
                format!(
                    "the target has been {} for {ticks} ticks: waits for it to last",
                    aim.target
                )
            }
        }
    }
}

fn placement_step(trace: &Trace, node: &TreeNode, record: &Record) -> PlacementStep {
    let width = &record.width;
    let moved = width.moved.map(|at| trace.now.saturating_sub(at));
    let reason = match (&node.cpus, &width.cpus) {
        (CpusPolicy::Shared, None) => "cpus: shared, so it is not pinned",
        (CpusPolicy::Shared, Some(_)) => "cpus: shared, kept off the exclusive CPUs of others",
        (_, None) => "not placed yet",
        (CpusPolicy::Fixed(_), _) => "the policy's list",
        (CpusPolicy::Exclusive, _) => "cpus: exclusive, as many as its DOP, shared with no tenant",
        (CpusPolicy::Dop, _) if width.asleep => "idle: it keeps its CPUs and lends them",
        (CpusPolicy::Dop, _) => "cpus: dop, as many as its DOP, close together",
    };
    PlacementStep {
        cpus: width.cpus.as_ref().map(ToString::to_string),
        moved_seconds: moved.map(|moved| moved.as_secs_f64()),
        reason: reason.to_string(),
    }
}
