//! Measured usage and demand of a tenant with reasons: the first steps of an explanation.

use std::borrow::Cow;

use crate::measure::sample::TenantSample;
use crate::measure::usage::Usage;
use crate::report::explanation::{Counter, DemandStep, UsageStep};
use crate::report::trace::{Record, Seen, Trace};
use crate::share::demand::{self, Context, CpuBasis, Demand, MemoryBasis};
use crate::tree::TreeNode;
use tenantd_core::resource::{CPU, MEMORY, PerResource, Resource};

pub(crate) fn counters(trace: &Trace, record: &Record) -> Vec<Counter> {
    type Read = fn(&TenantSample) -> Option<u64>;
    let all: [(&'static str, Read); 9] = [
        ("populated", |sample| sample.populated.map(u64::from)),
        ("usage_usec", |sample| sample.usage_usec),
        ("nr_throttled", |sample| sample.nr_throttled),
        ("cpu_some_usec", |sample| sample.cpu_some_usec),
        ("memory_current_bytes", |sample| sample.memory.map(|memory| memory.current_bytes)),
        ("inactive_file_bytes", |sample| sample.memory.map(|memory| memory.inactive_file_bytes)),
        ("refaults", |sample| sample.memory.and_then(|memory| memory.refaults)),
        ("memory_some_usec", |sample| sample.memory_some_usec),
        ("nr_oom_kills", |sample| sample.memory.and_then(|memory| memory.nr_oom_kills)),
    ];
    let Some(counters) = trace.counters(record) else {
        // An empty cgroup is not sampled further.
        let is_known = matches!(record.seen, Some(Seen::Empty));
        let populated = Counter { name: "populated".into(), before: None, now: Some(0) };
        return if is_known { vec![populated] } else { Vec::new() };
    };
    all.into_iter()
        .map(|(name, of)| Counter {
            name: Cow::Borrowed(name),
            before: counters.before.as_ref().and_then(of),
            now: of(&counters.now),
        })
        .filter(|counter| counter.before.is_some() || counter.now.is_some())
        .collect()
}

pub(crate) fn percent(ratio: f64) -> String {
    format!("{:.1} %", ratio * 100.0)
}

pub(crate) fn usage_step(trace: &Trace, usage: &Usage, record: &Record) -> UsageStep {
    let context = trace.counters(record).and_then(|counters| counters.context);
    let allocation = context.map_or(0.0, |context| context.allocation_cores);
    let reason = match (usage.populated, usage.throttled, usage.cpu_some_ratio) {
        (false, ..) => "no processes".to_string(),
        (_, true, _) => "pressed: throttled by its quota".to_string(),
        (_, _, Some(ratio)) if ratio > demand::PRESSED_RATIO => {
            format!("pressed: some task waited {} of the time", percent(ratio))
        }
        (_, _, Some(ratio)) => format!(
            "not pressed: tasks waited {} of the time, at most {}",
            percent(ratio),
            percent(demand::PRESSED_RATIO)
        ),
        (_, _, None) if demand::is_pressed(usage, allocation) => {
            "assumed pressed: it uses nearly all of its allocation, and the kernel has no PSI"
                .to_string()
        }
        (_, _, None) => "assumed not pressed: it uses less than its allocation".to_string(),
    };
    UsageStep {
        cpu_cores: usage.cpu_cores,
        cpu_pressure_ratio: usage.cpu_some_ratio,
        throttled: usage.throttled,
        wanted_cores: usage.wanted_cores,
        working_set_bytes: usage.used(MEMORY),
        memory_pressure_ratio: usage.memory_some_ratio,
        refaults_per_sec: usage.refaults_per_sec,
        populated: usage.populated,
        reason,
    }
}

const NOT_MEASURED: &str = "not measured yet";

pub(crate) fn demand_step(trace: &Trace, node: &TreeNode, record: &Record) -> DemandStep {
    let known = trace.counters(record).and_then(|counters| counters.context);
    let (demand, last) =
        (record.demand.unwrap_or(Demand::UNKNOWN), known.and_then(|known| known.last));
    let max = node.at_most(trace.machine);
    let usage = trace.usage(record);
    let reason = PerResource::from_fn(|resource| match resource {
        CPU => {
            let reason = cpu_demand_reason(record, &demand, usage.as_ref(), known.as_ref());
            let is_bounded = known.is_some() && demand.amount[CPU] >= max[CPU] - 1e-9;
            reason + if is_bounded { "; capped at its limit and the machine" } else { "" }
        }
        held => {
            let fresh = usage.and_then(|usage| usage.used(held));
            match record.demand {
                None if fresh.is_none() => NOT_MEASURED.to_string(),
                _ => held_demand_reason(held, &demand, fresh),
            }
        }
    });
    DemandStep {
        amount: demand.amount,
        cpu_basis: demand.cpu_basis,
        memory_basis: demand.memory_basis,
        last: PerResource::from_fn(|resource| last.map(|last| last.amount[resource])),
        max,
        reason,
    }
}

fn cpu_demand_reason(
    record: &Record,
    demand: &Demand,
    usage: Option<&Usage>,
    known: Option<&Context>,
) -> String {
    match (usage, known, &record.seen) {
        (_, _, Some(Seen::Empty)) if demand.amount[CPU] > 0.0 => {
            "no processes: halves every 2 s".to_string()
        }
        (_, _, Some(Seen::Empty)) => "no processes".to_string(),
        (None, ..) | (_, None, _) if record.demand.is_none() => NOT_MEASURED.to_string(),
        (Some(_), _, Some(Seen::Members(_))) => "what its cgroups could use together".to_string(),
        (None, ..) | (_, None, _) => "no rates in this tick: the last demand is kept".to_string(),
        (Some(usage), Some(context), _) => cpu_reason(demand, usage, context),
    }
}

fn held_demand_reason(held: Resource, demand: &Demand, fresh: Option<f64>) -> String {
    if fresh.is_none() {
        return format!("{} could not be read: the last demand is kept", held.title());
    }
    match demand.memory_basis {
        MemoryBasis::Unknown => NOT_MEASURED.to_string(),
        MemoryBasis::WorkingSet => "its working set".to_string(),
        MemoryBasis::Probed => {
            "its working set, of which some was taken and not missed".to_string()
        }
        MemoryBasis::Refaulting => "all that it holds, and what came back".to_string(),
        MemoryBasis::Waiting => {
            "1.2 times what it holds: it refaults, and tasks wait for memory".to_string()
        }
        MemoryBasis::Decaying => "its working set shrank: halves every 15 s".to_string(),
        MemoryBasis::AfterKill => {
            "1.2 times the most it was seen to hold, 100 MiB more at least, since a process was killed for \
             want of memory: halves every 2 min"
                .to_string()
        }
    }
}

fn cpu_reason(demand: &Demand, usage: &Usage, context: &Context) -> String {
    match demand.cpu_basis {
        CpuBasis::Unknown => NOT_MEASURED.to_string(),
        CpuBasis::Idle => "no processes".to_string(),
        CpuBasis::Unpressed => format!("{:.2} used, plus a tenth", usage.cpu_cores),
        CpuBasis::Threads => "what its threads would use if none had to wait".to_string(),
        CpuBasis::Pressure => {
            format!("{:.2} used, raised by the time that tasks waited", usage.cpu_cores)
        }
        CpuBasis::Exploring => format!(
            "pressed at its allocation of {:.2}: grows by a fifth per tick",
            context.allocation_cores
        ),
        CpuBasis::Decaying => format!(
            "decays from {:.2}: halves every 2 s",
            context.last.map_or(0.0, |last| last.amount[CPU])
        ),
    }
}
