//! Why each value of a tenant is what it is: the last tick for one node, link by link.
//!
//! **Problem.** A weight of 214 explains nothing. The answer to "why is my job slow?" is the chain from the
//! kernel's counters to the value in the file, with the number and the reason of each step. It describes the
//! tick that ran, not a recomputation.
//!
//! **What is kept.** A tick leaves a [`Trace`]: its intermediate values, a few hundred bytes a node. The text
//! is made only on request ([`explain`]), so an explainable tick costs next to nothing. The form is that of
//! [`super::explanation`].
//!
//! **Properties** (`tests/control/explain.rs`, `tests/agent/explain.rs`): the last step of an explanation is
//! what the files hold; every step has its reason, and reasons agree with the numbers beside them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use super::demand::Demand;
use super::explain_usage::{counters, demand_step, percent, usage_step};
pub use super::explanation::{
    AboveStep, AllocationBound, AllocationStep, Counter, DemandStep, Explanation, Outcome,
    PlacementStep, UsageStep, ValueStep, WeightStep, WidthStep,
};
use super::plan::{self, Knob};
use super::status::Status;
use super::target::{self, Target};
use super::trace::{Record, Trace, ValueRecord};
use super::tree::{CgroupParent, TreeNode};
use super::width;
use crate::dop::band;
use crate::policy::model::{Allocation, CpusPolicy, DopPolicy};
use crate::resource::{CPU, Resource};
use crate::units::Bytes;

/// The last tick for the node at `path`; `None` where the policy has no such node.
pub fn explain(trace: &Trace, status: &Status, path: &str) -> Option<Explanation> {
    let index = trace.nodes.iter().position(|node| node.path == path)?;
    let (node, record) = (&trace.nodes[index], trace.records.get(index)?);
    let leaf = node.is_leaf.then_some(());
    let prefix = format!("{path}: ");
    let own = |finding: &&String| finding.starts_with(&prefix);
    Some(Explanation {
        tenant: path.to_string(),
        tick: status.tick,
        mode: status.mode,
        elapsed_seconds: trace.elapsed.map(|elapsed| elapsed.as_secs_f64()),
        sample: counters(record),
        usage: record.usage().map(|usage| usage_step(&usage, record)),
        demand: leaf.map(|()| demand_step(trace, node, record)),
        allocation: allocation_step(trace, node, record),
        weight: weight_step(trace, index),
        width: leaf.map(|()| width_step(trace, node, record)),
        placement: leaf.map(|()| placement_step(trace, node, record)),
        values: record
            .values
            .iter()
            .map(|v| value_step(trace, path, v, reason(node, record, v)))
            .collect(),
        above: above_steps(trace, index),
        findings: status.findings.iter().filter(own).cloned().collect(),
    })
}

/// The names most like `path`, the nearest first, at most `max`.
pub fn names_near(trace: &Trace, path: &str, max: usize) -> Vec<String> {
    let mut names: Vec<(usize, &str)> =
        trace.nodes.iter().map(|node| (distance(&node.path, path), node.path.as_str())).collect();
    names.sort_by_key(|(distance, _)| *distance);
    names.into_iter().take(max).map(|(_, name)| name.to_string()).collect()
}

/// How many letters have to be changed, added or dropped; the last name of a path alone may be meant.
fn distance(known: &str, given: &str) -> usize {
    let last = known.rsplit('/').next().unwrap_or(known);
    edits(known, given).min(edits(last, given))
}

/// The edit distance of Levenshtein; names are short, and given ones are cut to what could match.
fn edits(known: &str, given: &str) -> usize {
    let given: Vec<char> = given.chars().take(200).collect();
    let mut row: Vec<usize> = (0..=given.len()).collect();
    for (i, a) in known.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in given.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[given.len()]
}

fn allocation_step(trace: &Trace, node: &TreeNode, record: &Record) -> AllocationStep {
    let target = &record.target;
    let bound = bound(trace.rule, node, record);
    let dominant = target.dominant.map(Resource::name);
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
        fair_share_cores: target.burst_cores,
        guarantee: node.guarantee,
        limit: node.limit,
        written: node.written.settings(),
        dominant_resource: dominant.map(Cow::Borrowed),
        dominant_share: target.dominant_share,
        level: target.level,
        bound,
        reason,
    }
}

/// What is used up of what a tenant wants more of, which need not be its dominant resource.
fn held_back(target: &Target) -> String {
    let up_to = format!("at a level of {:.4}", target.level);
    let scarce: Vec<&str> =
        target.scarce.iter().filter(|(_, scarce)| **scarce).map(|(r, _)| r.name()).collect();
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
    if Resource::ALL.iter().all(|r| demand[*r] <= r.noise()) {
        AllocationBound::Nothing
    } else if rule == Allocation::Static {
        AllocationBound::Weight
    } else if !Resource::ALL.iter().any(unmet) {
        // A demand that was cut down to the limit is met by the limit.
        match Resource::ALL.into_iter().any(is_limited) {
            true => AllocationBound::Limit,
            false => AllocationBound::Demand,
        }
    } else if Resource::ALL.into_iter().filter(unmet).any(is_limited) {
        AllocationBound::Limit
    } else {
        AllocationBound::Level
    }
}

/// What is above the cgroup of a node, the nearest first.
fn above_steps(trace: &Trace, index: usize) -> Vec<AboveStep> {
    let shares = Shares::new(trace);
    let step = |number: usize| {
        let (unit, record) = (trace.tree.name(number), trace.records.get(number)?);
        let reason = |value: &ValueRecord| target::reason_above(value.knob, &record.target);
        let values = record.values.iter().map(|v| value_step(trace, unit, v, reason(v)));
        let (unit, sibling_share) = (unit.to_string(), shares.among_siblings(number));
        Some(AboveStep { unit, sibling_share, values: values.collect() })
    };
    let ups = shares.path(index).filter(|number| *number >= trace.nodes.len());
    ups.filter_map(step).collect()
}

/// What weights are among siblings, in the tree of cgroups.
struct Shares<'a> {
    trace: &'a Trace,
    sums: BTreeMap<CgroupParent, f64>,
}

impl<'a> Shares<'a> {
    fn new(trace: &'a Trace) -> Shares<'a> {
        let mut sums = BTreeMap::new();
        for (parent, record) in trace.tree.parents().iter().zip(&trace.records) {
            *sums.entry(*parent).or_default() += record.target.cpu_weight;
        }
        Shares { trace, sums }
    }

    /// The number itself, and those of the governed cgroups above its own.
    fn path(&self, number: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(number), |number| match self.trace.tree.parents().get(*number) {
            Some(CgroupParent::Governed(above)) => Some(*above),
            _ => None,
        })
    }

    /// The part of its governed siblings' weights that its own is.
    fn among_siblings(&self, number: usize) -> f64 {
        let parent = self.trace.tree.parents().get(number);
        let sum = parent.and_then(|parent| self.sums.get(parent)).copied().unwrap_or(0.0);
        let weight = self.trace.records.get(number).map_or(0.0, |it| it.target.cpu_weight);
        weight / sum.max(f64::MIN_POSITIVE)
    }

    /// The part of all CPU time of what is governed that it has while everybody is busy.
    fn of_all(&self, number: usize) -> f64 {
        self.path(number).map(|number| self.among_siblings(number)).product()
    }
}

fn weight_step(trace: &Trace, index: usize) -> WeightStep {
    let node = &trace.nodes[index];
    let siblings = trace.nodes.iter().enumerate().filter(|(_, other)| other.parent == node.parent);
    let shares = Shares::new(trace);
    let (mut sum, mut policy_sum) = (0.0, 0.0);
    for (number, sibling) in siblings {
        sum += shares.of_all(number);
        policy_sum += sibling.weight[CPU];
    }
    let record = &trace.records[index];
    let is_weight = |value: &&ValueRecord| value.knob == Knob::CpuWeight;
    let weight = record.values.iter().find(is_weight);
    let reason = weight.map(|value| reason(node, record, value));
    let file = weight.and_then(|value| match value.outcome {
        Outcome::Written => Some(&value.wanted),
        _ => value.held.as_ref(),
    });
    WeightStep {
        policy_weight: node.weight[CPU],
        policy_share: node.weight[CPU] / policy_sum.max(f64::MIN_POSITIVE),
        file_value: file.map(|value| (trace.spelling.text)(Knob::CpuWeight, value)),
        cpu_weight: record.target.cpu_weight,
        sibling_share: shares.of_all(index) / sum.max(f64::MIN_POSITIVE),
        reason: reason.unwrap_or_else(|| "it has no weight in a file".to_string()),
    }
}

fn width_step(trace: &Trace, node: &TreeNode, record: &Record) -> WidthStep {
    let (width, aim) = (&record.width, record.width.aim);
    let used = record.usage().map(|usage| usage.cpu_cores);
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
        return "idle: its CPUs are lent, its width is that of its fair share".to_string();
    }
    let Some(aim) = width.aim else { return "initial: that of its fair share".to_string() };
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
    match f64::from(aim.target.abs_diff(dop)) < margin {
        true => format!("within the band: the target {} is less than a fifth away", aim.target),
        false => match width.outside_ticks {
            0 => format!("the target is {}, but its utilisation is within the band", aim.target),
            ticks => {
                format!(
                    "the target has been {} for {ticks} ticks: waits for it to last",
                    aim.target
                )
            }
        },
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

/// Why a file shall hold a value.
fn reason(node: &TreeNode, record: &Record, value: &ValueRecord) -> String {
    match value.knob {
        Knob::Cpus => {
            let nr_cpus = record.width.cpus.as_ref().map_or(0, |cpus| cpus.len());
            width::cpus_reason(record.width.dop, nr_cpus)
        }
        knob => target::reason(knob, &value.wanted, node, &record.target),
    }
}

fn value_step(trace: &Trace, name: &str, value: &ValueRecord, reason: String) -> ValueStep {
    let text = |of| (trace.spelling.text)(value.knob, of);
    // What was written in this tick is newer than what was held before.
    let held = value.held.as_ref().filter(|_| value.outcome != Outcome::Written);
    let age = held.map(|_| trace.now.saturating_sub(value.held_at));
    ValueStep {
        path: (trace.spelling.path)(value.knob, name),
        held: value.held.as_ref().map(text),
        held_seconds: age.map(|age| age.as_secs_f64()),
        wanted: text(&value.wanted),
        outcome: value.outcome,
        reason,
        detail: value.detail.as_deref().map_or_else(|| outcome_detail(value, age), String::from),
    }
}

fn outcome_detail(value: &ValueRecord, age: Option<Duration>) -> String {
    let is_exact = value.held.as_ref() == Some(&value.wanted);
    match (value.outcome, value.knob) {
        (Outcome::Settled, _) if is_exact => match age.map_or(0, |age| age.as_secs()) {
            0 => "the file holds it".to_string(),
            seconds => format!("the file held it {seconds} s ago, when it was read last"),
        },
        (Outcome::Settled, Knob::CpuWeight) => format!(
            "close enough: within the dead band of {}",
            percent(plan::WEIGHT_DEAD_BAND_RATIO)
        ),
        (Outcome::Settled, Knob::MemoryLow) => format!(
            "close enough: within the dead band of {} or {}",
            percent(plan::MEMORY_DEAD_BAND_RATIO),
            Bytes(plan::MEMORY_DEAD_BAND_BYTES).rounded()
        ),
        (Outcome::Settled, _) => "the file holds it, rounded by the kernel".to_string(),
        (Outcome::Written, _) => "written in this tick".to_string(),
        (Outcome::Planned, _) => "would be written in mode enforce".to_string(),
        (Outcome::Deferred, _) => "deferred: it would do harm now".to_string(),
        (Outcome::Failed, _) => "the kernel refused".to_string(),
        (Outcome::Missing, _) => "the cgroup does not exist, or has no such file".to_string(),
        (Outcome::Ineffective, _) => "the file holds it, but it has no effect".to_string(),
    }
}
