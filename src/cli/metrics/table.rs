//! The table of all metrics: name, unit, meaning, and place in the status.
//!
//! Names follow the rules of Prometheus and OpenMetrics: base units, the unit at the end of the name, ratios
//! from 0 to 1, `_total` after counters. Tests compare docs/metrics.md, the dashboard and the alert rules in
//! packaging/monitoring with this table (`tests/face/metrics.rs`).

use std::borrow::Cow;
use std::sync::LazyLock;
use std::time::SystemTime;

use crate::control::status::{GroupStatus, Status, TenantStatus};
use crate::policy::model::Mode;
use crate::resource::{PerResource, Resource};

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The value goes up and down.
    Gauge,
    /// The value only goes up, from 0 when the agent starts.
    Counter,
    /// The value is 1, and the label holds a text.
    Info,
}

/// The place of a value in the status.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// One value.
    Host(Read<Status>),
    /// One value for each tenant, with the label `tenant`.
    Tenant(Read<TenantStatus>),
    /// One value for each group, with the label `group`.
    Group(Read<GroupStatus>),
    /// A text, as the value of a label with this name.
    Info(&'static str, fn(&Status) -> &str),
}

/// A value of `T`, or of one resource of it.
#[derive(Clone, Debug)]
pub(super) enum Read<T> {
    One(fn(&T) -> Option<f64>),
    Of(Resource, fn(&T) -> PerResource<Option<f64>>),
}

impl<T> Read<T> {
    /// The value; none where it is not finite: that is no measurement, and the text spells it otherwise.
    pub(super) fn from(&self, status: &T) -> Option<f64> {
        let value = match self {
            Read::One(read) => read(status),
            Read::Of(resource, read) => read(status)[*resource],
        };
        value.filter(|value| value.is_finite())
    }
}

/// One metric.
#[derive(Clone, Debug)]
pub struct Metric {
    /// The name without the prefix `tenantd_`, and without the unit and `_total` or `_info`.
    pub name: Cow<'static, str>,
    /// The unit; empty for a count.
    pub unit: &'static str,
    /// The type.
    pub kind: Kind,
    /// The meaning, in one sentence.
    pub help: Cow<'static, str>,
    pub(super) source: Source,
}

impl Metric {
    /// The name of the samples.
    pub fn full_name(&self) -> String {
        let mut name = format!("tenantd_{}", self.name);
        if !self.unit.is_empty() {
            name += &format!("_{}", self.unit);
        }
        name += match self.kind {
            Kind::Gauge => "",
            Kind::Counter => "_total",
            Kind::Info => "_info",
        };
        name
    }

    /// The name of the label of the samples; empty where there is one sample without a label.
    pub fn label(&self) -> &'static str {
        match self.source {
            Source::Host(_) => "",
            Source::Tenant(_) => "tenant",
            Source::Group(_) => "group",
            Source::Info(label, _) => label,
        }
    }
}

/// Whether the daemon answers: the only metric that is never left out.
pub static UP: Metric =
    host("up", "", "Whether tenantd answers on its socket: 1, or 0 and no other metric.", |_| {
        Some(1.0)
    });

const fn metric(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    source: Source,
) -> Metric {
    let (name, help) = (Cow::Borrowed(name), Cow::Borrowed(help));
    Metric { name, unit, kind: Kind::Gauge, help, source }
}

const fn host(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    read: fn(&Status) -> Option<f64>,
) -> Metric {
    metric(name, unit, help, Source::Host(Read::One(read)))
}

fn tenant(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    read: fn(&TenantStatus) -> Option<f64>,
) -> Metric {
    metric(name, unit, help, Source::Tenant(Read::One(read)))
}

fn group(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    read: fn(&GroupStatus) -> Option<f64>,
) -> Metric {
    metric(name, unit, help, Source::Group(Read::One(read)))
}

fn info(
    name: &'static str,
    label: &'static str,
    help: &'static str,
    read: fn(&Status) -> &str,
) -> Metric {
    Metric { kind: Kind::Info, ..metric(name, "", help, Source::Info(label, read)) }
}

fn counter(metric: Metric) -> Metric {
    Metric { kind: Kind::Counter, ..metric }
}

/// A metric for each resource: `{}` is its name in `name`, and its noun in `help`.
fn each(name: &str, help: &str, source: impl Fn(Resource) -> Source) -> Vec<Metric> {
    let metric = |resource: Resource| Metric {
        name: name.replace("{}", resource.name()).into(),
        unit: resource.unit(),
        kind: Kind::Gauge,
        help: help.replace("{}", resource.noun()).into(),
        source: source(resource),
    };
    Resource::ALL.map(metric).into()
}

fn each_tenant(
    name: &str,
    help: &str,
    read: fn(&TenantStatus) -> PerResource<Option<f64>>,
) -> Vec<Metric> {
    each(name, help, |resource| Source::Tenant(Read::Of(resource, read)))
}

fn each_group(
    name: &str,
    help: &str,
    read: fn(&GroupStatus) -> PerResource<Option<f64>>,
) -> Vec<Metric> {
    each(name, help, |resource| Source::Group(Read::Of(resource, read)))
}

fn count(count: u64) -> Option<f64> {
    Some(count as f64)
}

fn flag(flag: bool) -> Option<f64> {
    count(u64::from(flag))
}

/// A wall clock time in seconds since 1970.
fn unix_seconds(time: Option<&str>) -> Option<f64> {
    let time = humantime::parse_rfc3339(time?).ok()?;
    Some(time.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs_f64())
}

/// All metrics except [`UP`], in the order of the text.
pub static METRICS: LazyLock<Vec<Metric>> = LazyLock::new(|| {
    let tenants = [amounts_of_tenants(), of_tenants(), waits_of_tenants()].concat();
    [of_host(), tenants, of_groups(), of_fairness(), of_agent()].concat()
});

fn of_host() -> Vec<Metric> {
    let capacity = each("host_{}_capacity", "{} to divide among the tenants.", |resource| {
        Source::Host(Read::Of(resource, |s| s.host.capacity.map(Some)))
    });
    let others = vec![
        info("build", "version", "Version of the running tenantd; the value is 1.", |s| &s.version),
        counter(host("ticks", "", "Ticks since the agent started.", |s| count(s.tick))),
        host(
            "last_tick_timestamp",
            "seconds",
            "Wall clock time of the last tick, in seconds since 1970.",
            |s| unix_seconds(s.time.as_deref()),
        ),
        host("interval", "seconds", "Time from tick to tick.", |s| Some(s.interval_seconds)),
        host("enforcing", "", "Whether values are written (1) or only computed (0).", |s| {
            flag(s.mode == Mode::Enforce)
        }),
        host("host_cpus", "", "CPUs online.", |s| count(s.host.cpus.into())),
        host("host_memory", "bytes", "Memory of the machine.", |s| count(s.host.memory_bytes)),
        host(
            "host_cpu_outside",
            "cores",
            "CPUs used by processes that belong to no tenant.",
            |s| s.host.outside_cores,
        ),
    ];
    [others, capacity].concat()
}

/// What each tenant uses and gets of each resource.
fn amounts_of_tenants() -> Vec<Metric> {
    let amounts = [
        each_tenant("tenant_{}_usage", "{} in use.", |t| t.usage),
        each_tenant("tenant_{}_demand", "{} that the tenant could use.", |t| t.demand.map(Some)),
        each_tenant("tenant_{}_allocation", "{} that the tenant is entitled to now.", |t| {
            t.allocation.map(Some)
        }),
        each_tenant(
            "tenant_{}_would_get",
            "{} that the tenant would be allocated now if it wanted everything.",
            |t| t.would_get.map(Some),
        ),
        each_tenant("tenant_{}_guarantee", "{} that the policy guarantees.", |t| t.guarantee),
        each_tenant("tenant_{}_limit", "{} that the policy allows at most.", |t| t.limit),
    ];
    amounts.concat()
}

fn of_tenants() -> Vec<Metric> {
    vec![
        counter(tenant(
            "tenant_cpu_usage",
            "seconds",
            "CPU time used, summed over re-created cgroups.",
            |t| t.cpu_usage_seconds,
        )),
        tenant(
            "tenant_cpu_fair_share",
            "cores",
            "CPUs that the weight alone gives, within the limit.",
            |t| Some(t.fair_share_cores),
        ),
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
            "Degree of parallelism: the number of CPUs that the tenant should use.",
            |t| t.dop.map(f64::from),
        ),
    ]
}

fn waits_of_tenants() -> Vec<Metric> {
    vec![
        tenant(
            "tenant_cpu_pressure",
            "ratio",
            "Part of the last interval in which some task waited for a CPU.",
            |t| t.cpu_pressure_ratio,
        ),
        tenant(
            "tenant_memory_pressure",
            "ratio",
            "Part of the last interval in which some task waited for memory.",
            |t| t.memory_pressure_ratio,
        ),
        counter(tenant(
            "tenant_cpu_pressure",
            "seconds",
            "Time in which some task waited for a CPU, summed over re-created cgroups.",
            |t| t.cpu_pressure_seconds,
        )),
        counter(tenant(
            "tenant_memory_pressure",
            "seconds",
            "Time in which some task waited for memory, summed over re-created cgroups.",
            |t| t.memory_pressure_seconds,
        )),
        tenant(
            "tenant_dominant_share",
            "ratio",
            "Allocated part of its dominant resource, not weighted.",
            |t| Some(t.dominant_share),
        ),
        tenant(
            "tenant_level",
            "ratio",
            "Dominant share over weight when progressive filling stopped; equal for siblings that one resource holds back.",
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
            "Part of the divided CPUs that it is entitled to, wants, and does not get.",
            |t| t.share_error,
        ),
        counter(tenant(
            "tenant_starvation",
            "seconds",
            "Time with less than half of the fair share while it wanted more.",
            |t| Some(t.starved_seconds),
        )),
        counter(tenant("tenant_oom_kills", "", "Processes killed by the OOM killer.", |t| {
            t.nr_oom_kills.and_then(count)
        })),
    ]
}

fn of_groups() -> Vec<Metric> {
    let amounts = [
        each_group("group_{}_usage", "{} in use by its tenants.", |g| g.usage),
        each_group("group_{}_demand", "{} that its tenants could use.", |g| g.demand.map(Some)),
        each_group("group_{}_allocation", "{} that its tenants are entitled to now.", |g| {
            g.allocation.map(Some)
        }),
        each_group(
            "group_{}_would_get",
            "{} that the group would be allocated now if all its tenants wanted everything.",
            |g| g.would_get.map(Some),
        ),
    ];
    let others = vec![
        group("group_tenants", "", "Tenants below the group, at any depth.", |g| {
            count(g.nr_tenants)
        }),
        group("group_cpu_fair_share", "cores", "CPUs that its weight alone gives.", |g| {
            Some(g.fair_share_cores)
        }),
        group("group_weight", "", "CPU weight of the group in the policy.", |g| Some(g.weight)),
        group(
            "group_cgroup_weight",
            "",
            "CPU weight that the cgroup of the group holds, in the unit of cpu.weight.",
            |g| g.cpu_weight,
        ),
    ];
    [amounts.concat(), others].concat()
}

fn of_fairness() -> Vec<Metric> {
    vec![
        host(
            "fairness_jain",
            "ratio",
            "Jain's index of CPU usage over entitlement of the tenants that want more; 1 is as decided.",
            |s| s.jain_index,
        ),
        host("fairness_share_error_max", "ratio", "Largest share error of all tenants.", |s| {
            s.max_share_error
        }),
        host(
            "fairness_convergence",
            "seconds",
            "Length of the present or the last episode with a share error above its threshold.",
            |s| s.convergence_seconds,
        ),
        counter(host("drift", "", "Values of the agent that another program overwrote.", |s| {
            count(s.nr_drift)
        })),
        host("ineffective_values", "", "Values that are set and cannot take effect.", |s| {
            count(s.nr_ineffective)
        }),
        host(
            "findings",
            "",
            "Values that could not be read, written or take effect in the last tick.",
            |s| count(s.findings.len() as u64),
        ),
        host(
            "actions",
            "",
            "Values that were written since the tick before the last, or would have been.",
            |s| count(s.actions.len() as u64),
        ),
        counter(host(
            "moved_processes",
            "",
            "Processes moved into the tenants that claim them.",
            |s| count(s.nr_moves),
        )),
        counter(host("reloads", "", "Reloads of the policy since the agent started.", |s| {
            count(s.nr_reloads)
        })),
    ]
}

fn of_agent() -> Vec<Metric> {
    vec![
        counter(host("agent_cpu", "seconds", "CPU time of the agent.", |s| {
            Some(s.agent.cpu_seconds)
        })),
        host("agent_resident", "bytes", "Resident memory of the agent.", |s| {
            s.agent.resident_bytes.and_then(count)
        }),
        host("agent_tick_duration", "seconds", "Duration of the last tick.", |s| {
            Some(s.agent.tick_seconds)
        }),
        host("agent_tick_late", "seconds", "Delay of the last tick.", |s| {
            Some(s.agent.tick_late_seconds)
        }),
    ]
}
