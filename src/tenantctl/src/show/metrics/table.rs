//! Table of all metrics, in their order.
//!
//! Names follow the rules of Prometheus and OpenMetrics: base units, the unit at the end of the name,
//! ratios from 0 to 1, `_total` after counters. Tests compare docs/metrics.md, the dashboard and the alert
//! rules in packaging/monitoring with this table (`tests/face/metrics.rs`).

use std::sync::LazyLock;
use std::time::SystemTime;

use super::metric::{
    FOUND_SERIES_MAX, Metric, Read, Source, count, counter, each, each_group, each_tenant, fault,
    flag, group, host, info, metric, tenant,
};
use super::{credits, disks};
use tenantd_control::report::status::Status;
use tenantd_core::resource::{MEMORY, PerResource};
use tenantd_policy::model::Mode;

/// State of the daemon: the only metric that is never left out.
pub static UP: Metric =
    host("up", "", "Whether tenantd answers on its socket: 1, or 0 and no other metric.", |_| {
        Some(1.0)
    });

fn unix_seconds(time: Option<&str>) -> Option<f64> {
    let time = humantime::parse_rfc3339(time?).ok()?;
    Some(time.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs_f64())
}

/// All metrics except [`UP`], in the order of the text.
pub static METRICS: LazyLock<Vec<Metric>> = LazyLock::new(|| {
    let tenants = [
        amounts_of_tenants(),
        of_tenants(),
        credits::of_tenants(),
        waits_of_tenants(),
        disks::of_tenants(),
        faults_of_tenants(),
        pids_of_tenants(),
        jobs_of_tenants(),
    ];
    let tenants = tenants.concat();
    [of_host(), disks::of_host(), of_jobs(), tenants, of_groups(), of_fairness(), of_agent()]
        .concat()
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

fn of_jobs() -> Vec<Metric> {
    let waiting_for = |s: &Status| {
        let jobs = s.jobs.iter().flat_map(|jobs| &jobs.waiting_for);
        jobs.map(|it| (it.kind.to_string(), it.nr_jobs as f64)).collect()
    };
    vec![
        host("jobs_waiting", "", "Jobs that wait.", |s| count(s.jobs.as_ref()?.nr_waiting)),
        host("jobs_running", "", "Jobs that run.", |s| count(s.jobs.as_ref()?.nr_running)),
        metric(
            "jobs_waiting_for",
            "",
            "Jobs that wait, by the kind of what keeps them.",
            Source::Each("kind", waiting_for),
        ),
        host("jobs_slots", "", "Slots that are divided among the jobs that run.", |s| {
            count(s.jobs.as_ref()?.slots.into())
        }),
        host("jobs_slots_free", "", "Slots that no running job needs.", |s| {
            count(s.jobs.as_ref()?.free_slots.into())
        }),
    ]
}

/// Jobs of each tenant that ever had one.
fn jobs_of_tenants() -> Vec<Metric> {
    vec![
        tenant("tenant_jobs_waiting", "", "Jobs that wait.", |t| {
            count(t.jobs.as_ref()?.nr_waiting)
        }),
        tenant("tenant_jobs_running", "", "Jobs that run.", |t| count(t.jobs.as_ref()?.nr_running)),
        tenant("tenant_jobs_lingering", "", "Jobs that have ended and left daemons.", |t| {
            count(t.jobs.as_ref()?.nr_lingering)
        }),
        tenant(
            "tenant_jobs_dop",
            "",
            "The widths that the running jobs were told, together.",
            |t| count(t.jobs.as_ref()?.dop),
        ),
        tenant(
            "tenant_jobs_longest_wait",
            "seconds",
            "How long the job that has waited longest has waited; 0 where none waits.",
            |t| Some(t.jobs.as_ref()?.longest_wait_seconds.unwrap_or(0.0)),
        ),
        counter(tenant("tenant_jobs_started", "", "Jobs that started.", |t| {
            count(t.jobs.as_ref()?.nr_started)
        })),
        counter(tenant(
            "tenant_jobs_wait",
            "seconds",
            "How long the jobs that started had waited, together.",
            |t| Some(t.jobs.as_ref()?.waited_seconds),
        )),
    ]
}

fn amounts_of_tenants() -> Vec<Metric> {
    let amounts = [
        each_tenant("tenant_{}_usage", "{} in use.", |t| t.usage),
        each_tenant("tenant_{}_demand", "{} that the tenant could use.", |t| t.demand.map(Some)),
        each_tenant("tenant_{}_allocation", "{} of the share now.", |t| t.allocation.map(Some)),
        each_tenant(
            "tenant_{}_would_get",
            "{} of the share now if this tenant wanted everything.",
            |t| t.would_get.map(Some),
        ),
        each_tenant("tenant_{}_fair_share", "{} of the share if busy.", |t| {
            PerResource([Some(t.fair_share_cores), Some(t.fair_share_memory_bytes)])
        }),
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
        tenant("tenant_weight", "", "CPU weight in the policy.", |t| Some(t.weight)),
        tenant(
            "tenant_memory_guarantee_void",
            "",
            "Whether the memory guarantee is not kept, because protection does not reach the processes (1).",
            |t| t.guarantee[MEMORY].and_then(|_| flag(t.memory_guarantee_void)),
        ),
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
            "Part of the divided CPUs that it wants, within its share now, and does not get.",
            |t| t.share_error,
        ),
        counter(tenant(
            "tenant_starvation",
            "seconds",
            "Time with less than half of the share if busy while it wanted more.",
            |t| Some(t.starved_seconds),
        )),
        counter(tenant("tenant_oom_kills", "", "Processes killed by the OOM killer.", |t| {
            t.nr_oom_kills.and_then(count)
        })),
        counter(tenant(
            "tenant_deaths",
            "",
            "Deaths for lack of memory, each of one or more processes.",
            |t| count(t.nr_deaths),
        )),
    ]
}

/// Number and length of each tenant's faults. The length of starvation is older than the others, and is above.
fn faults_of_tenants() -> Vec<Metric> {
    let missing = each_tenant(
        "tenant_{}_missing",
        "{} that the tenant wants, within its share, and does not get.",
        |t| t.missing,
    );
    let [_, starvation] =
        fault("tenant_starvation", "it had less than half of its share if busy.", |t| {
            t.faults.cpu_starved
        });
    let faults = [
        fault("tenant_cpu_shortage", "it lacked CPUs of its share.", |t| t.faults.cpu_short),
        fault("tenant_throttling", "a CPU limit held it back.", |t| t.faults.cpu_throttled),
        fault(
            "tenant_memory_shortage",
            "it lacked memory of its share, or waited at its memory limit.",
            |t| t.faults.memory_short,
        ),
        fault("tenant_protection_broken", "reclaim took memory that is protected.", |t| {
            t.faults.memory_reclaimed
        }),
    ];
    [missing, vec![starvation], faults.concat()].concat()
}

fn pids_of_tenants() -> Vec<Metric> {
    vec![
        tenant("tenant_pids", "", "Processes and threads, where the policy limits them.", |t| {
            t.usage_pids.and_then(count)
        }),
        tenant(
            "tenant_pids_limit",
            "",
            "Processes and threads that the policy allows at most.",
            |t| t.limit_pids.and_then(count),
        ),
        counter(tenant(
            "tenant_refused_forks",
            "",
            "Forks that a limit of processes refused.",
            |t| t.nr_refused_forks.and_then(count),
        )),
    ]
}

fn of_groups() -> Vec<Metric> {
    let amounts = [
        each_group("group_{}_usage", "{} in use by its tenants.", |g| g.usage),
        each_group("group_{}_demand", "{} that its tenants could use.", |g| g.demand.map(Some)),
        each_group("group_{}_allocation", "{} of the share now of its tenants.", |g| {
            g.allocation.map(Some)
        }),
        each_group(
            "group_{}_would_get",
            "{} of the share now if all its tenants wanted everything.",
            |g| g.would_get.map(Some),
        ),
        each_group("group_{}_fair_share", "{} of the share if busy.", |g| {
            PerResource([Some(g.fair_share_cores), Some(g.fair_share_memory_bytes)])
        }),
        each_group("group_{}_guarantee", "{} that the policy guarantees the group.", |g| {
            g.guarantee
        }),
        each_group("group_{}_limit", "{} that the policy allows the group at most.", |g| g.limit),
    ];
    let others = vec![
        group("group_tenants", "", "Tenants below the group, at any depth.", |g| {
            count(g.nr_tenants)
        }),
        group(
            "group_tenants_without_series",
            "",
            "Tenants that each of the group found and that are in the series of the group only.",
            |g| count(g.nr_found.saturating_sub(FOUND_SERIES_MAX as u64)),
        ),
        group("group_weight", "", "CPU weight of the group in the policy.", |g| Some(g.weight)),
        group(
            "group_cgroup_weight",
            "",
            "CPU weight that the cgroup of the group holds, in the unit of cpu.weight.",
            |g| g.cpu_weight,
        ),
        group(
            "group_pids",
            "",
            "Processes and threads of the group, where the policy limits them.",
            |g| g.usage_pids.and_then(count),
        ),
        group(
            "group_pids_limit",
            "",
            "Processes and threads that the policy allows the group at most.",
            |g| g.limit_pids.and_then(count),
        ),
        counter(group(
            "group_refused_forks",
            "",
            "Forks that a limit of processes of the group refused.",
            |g| g.nr_refused_forks.and_then(count),
        )),
    ];
    [amounts.concat(), others, credits::of_groups()].concat()
}

fn of_fairness() -> Vec<Metric> {
    vec![
        host(
            "fairness_jain",
            "ratio",
            "Jain's index of CPU usage over the share now of the tenants that want more; 1 is as decided.",
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
        counter(host(
            "yields",
            "",
            "Values left to another program for a time because it kept overwriting them.",
            |s| count(s.nr_yields),
        )),
        host("contested_values", "", "Values that are left to such programs now.", |s| {
            count(s.nr_contested)
        }),
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
        host("agent_longest_tick", "seconds", "Duration of its longest tick.", |s| {
            Some(s.agent.longest_tick_seconds)
        }),
        host("agent_tick_late", "seconds", "Delay of the last tick.", |s| {
            Some(s.agent.tick_late_seconds)
        }),
        counter(host(
            "agent_skipped_ticks",
            "",
            "Ticks that never came or decided nothing, because the one before was late or took too long.",
            |s| count(s.agent.nr_skipped_ticks),
        )),
    ]
}
