//! The demo's measurements, and its final figures.

use std::borrow::Cow;

use serde::Serialize;

use super::reading::Reading;
use super::scene::{CACHE, TENANTS, wanted_memory};
use crate::load::Want;
use tenantd_control::demand::Demand;
use tenantd_control::status::{HostStatus, Status, TenantStatus};
use tenantd_control::target;
use tenantd_control::tree::TreeNode;
use tenantd_core::resource::{CPU, MEMORY, PerResource, wire};
use tenantd_fair::measure::jain_index;
use tenantd_policy::model::Allocation;

/// Sums over the measured ticks of one half.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    nr_ticks: u32,
    used: Vec<f64>,
    entitled: Vec<f64>,
    outside: f64,
    /// Of the loads: at the first measured tick, and at the last.
    readings: Option<[Vec<Option<Reading>>; 2]>,
}

impl Window {
    /// Adds a tick, in which the tenants were entitled to `entitled` CPUs.
    ///
    /// A tick without a reading for some tenant is left out: shares need all readings.
    pub(super) fn add(
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

    /// The figures of the half that ended with `last`.
    pub(super) fn phase(&self, title: &str, last: &Status) -> Phase {
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

/// The CPUs that each tenant is entitled to, given the true demand of its load.
///
/// The agent has to estimate demand; the demo knows it. A comparison with the agent's own allocations would
/// only show that the kernel obeys, not that the estimates are right.
pub(super) fn entitled_cores(nodes: &[TreeNode], wants: &[Want], host: &HostStatus) -> Vec<f64> {
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

/// Each value's part of their sum; all zero where the sum is.
fn shares(values: &[f64]) -> Vec<f64> {
    let total: f64 = values.iter().sum();
    values.iter().map(|value| if total > 0.0 { value / total } else { 0.0 }).collect()
}

/// What each load used between two readings of all.
fn since(first: &[Option<Reading>], last: &[Option<Reading>]) -> Vec<Reading> {
    let used = |(first, last): (&Option<Reading>, &Option<Reading>)| {
        Some(last.as_ref()?.since(first.as_ref()?))
    };
    first.iter().zip(last).map(|pair| used(pair).unwrap_or_default()).collect()
}

/// CPU time of the loads of the first half before the agent started.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Without {
    pub(super) measured_seconds: f64,
    /// The tenants, in the order of the policy.
    pub(super) tenants: Vec<Plain>,
}

/// One tenant without an agent.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Plain {
    pub(super) tenant: &'static str,
    pub(super) usage_cores: f64,
    /// Of the CPU time that the tenants used together.
    pub(super) measured_share: f64,
    /// The part of the files that it read which was in memory; absent where it read none.
    pub(super) cached_ratio: Option<f64>,
}

impl Without {
    /// The figures of `seconds` between two readings of the loads.
    pub(super) fn new(
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

/// One half of the demo.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Phase {
    /// The demands of the tenants, as text.
    pub(super) title: String,
    /// Ticks that were measured.
    pub(super) measured_ticks: u32,
    /// CPUs that processes outside every tenant used; the mean over the measured ticks.
    pub(super) outside_cores: f64,
    /// The tenants, in the order of the policy.
    pub(super) tenants: Vec<Figure>,
}

/// One tenant in one half: means over the measured ticks, except where they are the last tick's.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figure {
    pub(super) tenant: String,
    pub(super) weight: f64,
    /// At the last tick.
    #[serde(flatten, with = "wire::demand")]
    pub(super) demand: PerResource<f64>,
    /// At the last tick, by the agent's estimate of the demands.
    #[serde(flatten, with = "wire::allocation")]
    pub(super) allocation: PerResource<f64>,
    /// At the last tick.
    pub(super) dominant_resource: Option<Cow<'static, str>>,
    /// At the last tick.
    pub(super) dominant_share: f64,
    /// The width published at the last tick.
    pub(super) dop: Option<u32>,
    /// At the last tick; absent where it is not pinned.
    pub(super) cpus: Option<String>,
    /// In the file at the last tick.
    pub(super) cpu_weight: Option<f64>,
    pub(super) usage_cores: f64,
    /// Of the CPU time that the tenants used together.
    pub(super) measured_share: f64,
    /// Of the CPU time that the tenants are entitled to together, by the true demands of their loads.
    pub(super) entitled_share: f64,
    /// Measured less entitled.
    pub(super) error: f64,
    /// The part of the files that its load read which was in memory; absent where it read none.
    pub(super) cached_ratio: Option<f64>,
}

/// The final figures.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Outcome {
    pub(super) hierarchy: &'static str,
    pub(super) simulated: bool,
    /// Largest distance of a measured from an entitled CPU share, over tenants and halves.
    pub(super) max_share_error: f64,
    /// Jain's index over measured share by entitled share; 1 where every tenant got exactly its own. The
    /// smaller of the two halves.
    pub(super) jain_index: f64,
    /// Whether the host holds the same values as before.
    pub(super) clean: bool,
    pub(super) interrupted: bool,
    /// Absent where the demo was interrupted before it was measured.
    pub(super) without: Option<Without>,
    pub(super) phases: Vec<Phase>,
    /// The smaller of the two halves' `cached_ratio` of the tenant that depends on its cache.
    pub(super) cached_ratio: Option<f64>,
}

/// How the demo ran, and how it ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Played {
    pub(super) hierarchy: &'static str,
    pub(super) simulated: bool,
    pub(super) without: Option<Without>,
    pub(super) phases: Vec<Phase>,
    pub(super) clean: bool,
    pub(super) interrupted: bool,
}

impl Outcome {
    /// The figures of the whole run.
    pub(super) fn new(played: Played) -> Outcome {
        let Played { hierarchy, simulated, without, phases, clean, interrupted } = played;
        let errors = phases.iter().flat_map(|p| &p.tenants).map(|figure| figure.error.abs());
        // Without a measurement there is no outcome, not a fair one.
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
