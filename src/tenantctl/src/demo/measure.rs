//! Measurements of the demo, and its final figures.

use std::borrow::Cow;

use serde::Serialize;

use super::reading::Reading;
use super::scene::{CACHE, TENANTS, wanted_memory};
use crate::demo::load::Want;
use tenantd_control::report::status::{HostStatus, Status, TenantStatus};
use tenantd_control::share::demand::Demand;
use tenantd_control::share::target;
use tenantd_control::tree::TreeNode;
use tenantd_core::resource::{CPU, MEMORY, PerResource, wire};
use tenantd_fair::measure::jain_index;
use tenantd_policy::model::Allocation;

#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    nr_ticks: u32,
    used: Vec<f64>,
    entitled: Vec<f64>,
    outside: f64,
    /// Readings of the loads at the first and the last measured tick.
    readings: Option<[Vec<Option<Reading>>; 2]>,
}

impl Window {
    /// Adds a tick, in which the tenants were entitled to `entitled` CPUs.
    ///
    /// A tick without a reading for some tenant is left out: shares need all readings.
    pub(crate) fn add(
        &mut self,
        status: &Status,
        entitled: &[f64],
        readings: Vec<Option<Reading>>,
    ) {
        match &mut self.readings {
            Some([_, last]) => *last = readings,
            none => *none = Some([readings.clone(), readings]),
        }
        let used: Option<Vec<f64>> = status.tenants.iter().map(|t| t.usage[CPU]).collect();
        let Some(used) = used else { return };
        self.nr_ticks += 1;
        self.outside += status.host.outside_cores.unwrap_or(0.0);
        self.used.resize(used.len(), 0.0);
        self.entitled.resize(used.len(), 0.0);
        self.used.iter_mut().zip(used).for_each(|(sum, cores)| *sum += cores);
        self.entitled.iter_mut().zip(entitled).for_each(|(sum, cores)| *sum += cores);
    }

    pub(crate) fn phase(&self, title: &str, last: &Status) -> Phase {
        let (used, entitled) = (shares(&self.used), shares(&self.entitled));
        let ticks = f64::from(self.nr_ticks.max(1));
        let used_of_loads = self.readings.as_ref().map(|[first, last]| since(first, last));
        let figure = |(index, tenant): (usize, &TenantStatus)| {
            let at = |values: &[f64]| values.get(index).copied().unwrap_or(0.0);
            Figure {
                tenant: tenant.name.to_string(),
                weight: tenant.weight,
                demand: tenant.demand,
                allocation: tenant.allocation,
                dominant_resource: tenant.dominant_resource.clone(),
                dominant_share: tenant.dominant_share,
                dop: tenant.dop,
                cpus: tenant.cpus.clone(),
                cpu_weight: tenant.cpu_weight,
                usage_cores: at(&self.used) / ticks,
                measured_share: at(&used),
                entitled_share: at(&entitled),
                error: at(&used) - at(&entitled),
                cached_ratio: used_of_loads
                    .as_ref()
                    .and_then(|loads| loads.get(index)?.cached_ratio()),
            }
        };
        Phase {
            title: title.to_string(),
            measured_ticks: self.nr_ticks,
            outside_cores: self.outside / ticks,
            tenants: last.tenants.iter().enumerate().map(figure).collect(),
        }
    }
}

/// CPUs that each tenant is entitled to, by the true demand of its load.
///
/// The agent has to estimate demand; the demo knows it. A comparison with the agent's own allocations would
/// only test the kernel, not the estimates.
pub(crate) fn entitled_cores(nodes: &[TreeNode], wants: &[Want], host: &HostStatus) -> Vec<f64> {
    let demand = |want: &Want| Demand {
        amount: PerResource::only(&[
            (CPU, (f64::from(want.threads) * want.duty).min(f64::from(host.cpus))),
            (MEMORY, wanted_memory(want) as f64),
        ]),
        ..Demand::UNKNOWN
    };
    let demands: Vec<Demand> = wants.iter().map(demand).collect();
    let targets = target::targets(nodes, &demands, host.capacity, Allocation::Drf);
    targets.iter().map(|target| target.allocation[CPU]).collect()
}

fn shares(values: &[f64]) -> Vec<f64> {
    let total: f64 = values.iter().sum();
    values.iter().map(|value| if total > 0.0 { value / total } else { 0.0 }).collect()
}

fn since(first: &[Option<Reading>], last: &[Option<Reading>]) -> Vec<Reading> {
    let used = |(first, last): (&Option<Reading>, &Option<Reading>)| {
        Some(last.as_ref()?.since(first.as_ref()?))
    };
    first.iter().zip(last).map(|pair| used(pair).unwrap_or_default()).collect()
}

/// CPU time of the loads of the first half before the agent started.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Without {
    pub(crate) measured_seconds: f64,
    pub(crate) tenants: Vec<Plain>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Plain {
    pub(crate) tenant: &'static str,
    pub(crate) usage_cores: f64,
    /// Part of the CPU time of all tenants.
    pub(crate) measured_share: f64,
    /// Part of its file reads served from memory; absent without reads.
    pub(crate) cached_ratio: Option<f64>,
}

impl Without {
    pub(crate) fn new(
        seconds: f64,
        first: &[Option<Reading>],
        last: &[Option<Reading>],
    ) -> Without {
        let used = since(first, last);
        let shares = shares(&used.iter().map(|load| load.cpu_sec).collect::<Vec<_>>());
        let tenants = TENANTS.iter().zip(&used).zip(shares);
        Without {
            measured_seconds: seconds,
            tenants: tenants
                .map(|(((tenant, _), load), share)| Plain {
                    tenant,
                    usage_cores: if seconds > 0.0 { load.cpu_sec / seconds } else { 0.0 },
                    measured_share: share,
                    cached_ratio: load.cached_ratio(),
                })
                .collect(),
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Phase {
    pub(crate) title: String,
    pub(crate) measured_ticks: u32,
    /// Mean CPUs used by processes outside every tenant.
    pub(crate) outside_cores: f64,
    pub(crate) tenants: Vec<Figure>,
}

/// One tenant in one half: means over the measured ticks, unless marked as the last tick's.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    pub(crate) tenant: String,
    pub(crate) weight: f64,
    /// At the last tick.
    #[serde(flatten, with = "wire::demand")]
    pub(crate) demand: PerResource<f64>,
    /// At the last tick, by the agent's estimates.
    #[serde(flatten, with = "wire::allocation")]
    pub(crate) allocation: PerResource<f64>,
    /// At the last tick.
    pub(crate) dominant_resource: Option<Cow<'static, str>>,
    /// At the last tick.
    pub(crate) dominant_share: f64,
    /// Published width at the last tick.
    pub(crate) dop: Option<u32>,
    /// At the last tick; absent if it is not pinned.
    pub(crate) cpus: Option<String>,
    /// In the file at the last tick.
    pub(crate) cpu_weight: Option<f64>,
    pub(crate) usage_cores: f64,
    /// Part of the CPU time of all tenants.
    pub(crate) measured_share: f64,
    /// Entitled part of the CPU time, by the true demands of all loads.
    pub(crate) entitled_share: f64,
    pub(crate) error: f64,
    /// Part of its load's file reads served from memory; absent without reads.
    pub(crate) cached_ratio: Option<f64>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) hierarchy: &'static str,
    pub(crate) simulated: bool,
    /// Largest distance of a measured from an entitled CPU share, over tenants and halves.
    pub(crate) max_share_error: f64,
    /// Jain's index over measured by entitled share, 1 if exact; the smaller one of the halves.
    pub(crate) jain_index: f64,
    /// True if the host has the same values as before.
    pub(crate) clean: bool,
    pub(crate) interrupted: bool,
    /// Absent if the demo was interrupted before this measurement.
    pub(crate) without: Option<Without>,
    pub(crate) phases: Vec<Phase>,
    /// Smaller one of the two halves' `cached_ratio` of the tenant that depends on its cache.
    pub(crate) cached_ratio: Option<f64>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Played {
    pub(crate) hierarchy: &'static str,
    pub(crate) simulated: bool,
    pub(crate) without: Option<Without>,
    pub(crate) phases: Vec<Phase>,
    pub(crate) clean: bool,
    pub(crate) interrupted: bool,
}

impl Outcome {
    pub(crate) fn new(played: Played) -> Outcome {
        let Played { hierarchy, simulated, without, phases, clean, interrupted } = played;
        let errors = phases.iter().flat_map(|p| &p.tenants).map(|figure| figure.error.abs());
        // Without a measurement the outcome must not count as fair.
        let measured = !phases.is_empty()
            && phases.iter().all(|phase| phase.measured_ticks > 0 && !phase.tenants.is_empty());
        let max_share_error = if measured { errors.fold(0.0, f64::max) } else { 1.0 };
        let jain = |phase: &Phase| {
            let tenants = phase.tenants.iter().filter(|figure| figure.entitled_share > 0.0);
            let delivered: Vec<f64> =
                tenants.map(|figure| figure.measured_share / figure.entitled_share).collect();
            jain_index(delivered)
        };
        let jain_index = phases.iter().map(jain).fold(1.0, f64::min);
        let cached = phases.iter().filter_map(|phase| phase.tenants.get(CACHE)?.cached_ratio);
        Outcome {
            hierarchy,
            simulated,
            max_share_error,
            jain_index,
            clean,
            interrupted,
            cached_ratio: cached.reduce(f64::min),
            without,
            phases,
        }
    }
}
