//! Every metric there is: its name, its unit, what it means, and where in the status it is.
//!
//! Names follow the rules of Prometheus and OpenMetrics: base units, the unit at the end of the name, ratios
//! from 0 to 1, `_total` behind counters. docs/metrics.md is held to this table, and so are the dashboard and
//! the alert rules in packaging/monitoring (`tests/face/metrics.rs`).

use crate::control::status::{Status, TenantStatus};
use crate::policy::model::Mode;

/// What a value may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Go up and down.
    Gauge,
    /// Go up only, from 0 when the agent starts.
    Counter,
}

/// Where a value is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    /// Once in a status.
    Host(fn(&Status) -> Option<f64>),
    /// Once for each tenant, with the label `tenant`.
    Tenant(fn(&TenantStatus) -> Option<f64>),
}

/// One metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name without `tenantd_` before it, and without its unit and `_total` behind it.
    pub name: &'static str,
    /// Its unit; empty where it counts things.
    pub unit: &'static str,
    /// What its value may do.
    pub kind: Kind,
    /// What it means, in one sentence.
    pub help: &'static str,
    pub(super) source: Source,
}

impl Metric {
    /// The name under which its samples are found.
    pub fn full_name(&self) -> String {
        let mut name = format!("tenantd_{}", self.name);
        if !self.unit.is_empty() {
            name += &format!("_{}", self.unit);
        }
        if self.kind == Kind::Counter {
            name += "_total";
        }
        name
    }

    /// Whether there is one sample for each tenant.
    pub fn is_per_tenant(&self) -> bool {
        matches!(self.source, Source::Tenant(_))
    }
}

/// Whether the daemon answers: the one metric that is always there.
pub const UP: Metric =
    host("up", "", "Whether tenantd answers on its socket: 1, or 0 and no other metric.", |_| {
        Some(1.0)
    });

const fn host(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    read: fn(&Status) -> Option<f64>,
) -> Metric {
    Metric { name, unit, kind: Kind::Gauge, help, source: Source::Host(read) }
}

const fn tenant(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    read: fn(&TenantStatus) -> Option<f64>,
) -> Metric {
    Metric { name, unit, kind: Kind::Gauge, help, source: Source::Tenant(read) }
}

const fn counter(metric: Metric) -> Metric {
    Metric { kind: Kind::Counter, ..metric }
}

fn count(count: u64) -> Option<f64> {
    Some(count as f64)
}

fn flag(flag: bool) -> Option<f64> {
    count(u64::from(flag))
}

/// All but [`UP`], in the order of the text.
pub const METRICS: &[Metric] = &[
    counter(host("ticks", "", "Ticks since the agent started.", |s| count(s.tick))),
    host("interval", "seconds", "Time from tick to tick.", |s| Some(s.interval_seconds)),
    host("enforcing", "", "Whether values are written (1) or only computed (0).", |s| {
        flag(s.mode == Mode::Enforce)
    }),
    // The machine.
    host("host_cpus", "", "CPUs online.", |s| count(s.host.cpus.into())),
    host("host_memory", "bytes", "Memory of the machine.", |s| count(s.host.memory_bytes)),
    host("host_cpu_capacity", "cores", "CPUs that are divided among the tenants.", |s| {
        Some(s.host.capacity_cores)
    }),
    host("host_memory_capacity", "bytes", "Memory that is divided among the tenants.", |s| {
        Some(s.host.capacity_memory_bytes)
    }),
    host("host_cpu_outside", "cores", "CPUs that processes outside every tenant used.", |s| {
        s.host.outside_cores
    }),
    // The tenants.
    tenant("tenant_cpu_usage", "cores", "CPUs used since the last tick.", |t| t.usage_cores),
    tenant("tenant_memory_usage", "bytes", "Memory in use.", |t| t.usage_memory_bytes),
    tenant("tenant_cpu_demand", "cores", "CPUs that the tenant could use.", |t| {
        Some(t.demand_cores)
    }),
    tenant("tenant_memory_demand", "bytes", "Memory that the tenant could use.", |t| {
        Some(t.demand_memory_bytes)
    }),
    tenant("tenant_cpu_allocation", "cores", "CPUs that the tenant is entitled to now.", |t| {
        Some(t.allocation_cores)
    }),
    tenant(
        "tenant_memory_allocation",
        "bytes",
        "Memory that the tenant is entitled to now.",
        |t| Some(t.allocation_memory_bytes),
    ),
    tenant(
        "tenant_cpu_fair_share",
        "cores",
        "CPUs that the weight alone gives, within the limit.",
        |t| Some(t.fair_share_cores),
    ),
    tenant("tenant_cpu_guarantee", "cores", "CPUs that the policy guarantees.", |t| {
        t.guarantee_cores
    }),
    tenant("tenant_memory_guarantee", "bytes", "Memory that the policy guarantees.", |t| {
        t.guarantee_memory_bytes
    }),
    tenant("tenant_cpu_limit", "cores", "CPUs that are never exceeded.", |t| t.limit_cores),
    tenant("tenant_memory_limit", "bytes", "Memory that is never exceeded.", |t| {
        t.limit_memory_bytes
    }),
    tenant("tenant_weight", "", "CPU weight in the policy.", |t| Some(t.weight)),
    tenant(
        "tenant_cgroup_weight",
        "",
        "CPU weight that the cgroup holds, in the unit of cpu.weight.",
        |t| t.cpu_weight,
    ),
    tenant(
        "tenant_dop",
        "",
        "Degree of parallelism: how many CPUs wide the tenant should run.",
        |t| t.dop.map(f64::from),
    ),
    tenant(
        "tenant_cpu_pressure",
        "ratio",
        "Part of the time in which some task waited for a CPU.",
        |t| t.cpu_pressure_ratio,
    ),
    tenant(
        "tenant_memory_pressure",
        "ratio",
        "Part of the time in which some task waited for memory.",
        |t| t.memory_pressure_ratio,
    ),
    tenant(
        "tenant_dominant_share",
        "ratio",
        "Part of what is divided of its dominant resource that it is allocated, not weighted.",
        |t| Some(t.dominant_share),
    ),
    tenant(
        "tenant_level",
        "ratio",
        "Dominant share over weight when filling stopped: equal for siblings that one resource holds back.",
        |t| Some(t.level),
    ),
    tenant(
        "tenant_satisfied",
        "",
        "Whether the tenant is allocated all the CPU that it could use.",
        |t| flag(t.satisfied),
    ),
    tenant(
        "tenant_share_error",
        "ratio",
        "Part of the CPUs that are divided which it is entitled to, wants, and does not get.",
        |t| t.share_error,
    ),
    counter(tenant(
        "tenant_starvation",
        "seconds",
        "Time with less than half of the fair share while it wanted more.",
        |t| Some(t.starved_seconds),
    )),
    counter(tenant("tenant_oom_kills", "", "Processes killed for want of memory.", |t| {
        t.nr_oom_kills.and_then(count)
    })),
    // Fairness.
    host(
        "fairness_jain",
        "ratio",
        "Jain's index over CPUs got by CPUs due, of those that want more; 1 is as decided.",
        |s| s.jain_index,
    ),
    host("fairness_share_error_max", "ratio", "Largest share error of all tenants.", |s| {
        s.max_share_error
    }),
    host(
        "fairness_convergence",
        "seconds",
        "How long shares were wrong by more than 0.05, in the present spell or the last.",
        |s| s.convergence_seconds,
    ),
    counter(host("drift", "", "Writes of others that were found in files of ours.", |s| {
        count(s.nr_drift)
    })),
    host("ineffective_values", "", "Values that are set and cannot take effect.", |s| {
        count(s.nr_ineffective)
    }),
    host("findings", "", "What could not be read, written or take effect in the last tick.", |s| {
        count(s.findings.len() as u64)
    }),
    host("actions", "", "Values that the last tick wrote, or would have written.", |s| {
        count(s.actions.len() as u64)
    }),
    counter(host("reloads", "", "Policies that were taken up since the agent started.", |s| {
        count(s.nr_reloads)
    })),
    // The agent itself.
    counter(host("agent_cpu", "seconds", "CPU time of the agent.", |s| Some(s.agent.cpu_seconds))),
    host("agent_resident", "bytes", "Memory that the agent holds.", |s| {
        s.agent.resident_bytes.and_then(count)
    }),
    host("agent_tick_duration", "seconds", "How long the last tick took.", |s| {
        Some(s.agent.tick_seconds)
    }),
    host("agent_tick_late", "seconds", "How long after its time the last tick began.", |s| {
        Some(s.agent.tick_late_seconds)
    }),
];
