//! Measurements of the demo, and its final figures.

use std::borrow::Cow;

use serde::Serialize;

use super::reading::Reading;
use super::scene::{CACHE, TENANTS};
use crate::demo::load::Want;
use tenantd_control::report::status::{HostStatus, Status, TenantStatus};
use tenantd_control::tree::TreeNode;
use tenantd_core::resource::{CPU, MEMORY, PerResource, wire};
use tenantd_fair::measure::jain_index;
use tenantd_lab::simulate::host::entitled;

/// Part of the machine that other programs may use without an effect on the verdict.
const OUTSIDE_RATIO: f64 = 0.1;

/// Reason for a division that is off although the agent's shares were right and nothing hindered it.
const KERNEL_BALANCE: &str = "the kernel's balance of load over CPUs divided otherwise than the shares that tenantd computed and wrote";

#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    nr_ticks: u32,
    used: Vec<f64>,
    entitled: Vec<f64>,
    allocated: Vec<f64>,
    outside: f64,
    /// Readings of the loads at the first and the last measured tick.
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
        self.allocated.resize(used.len(), 0.0);
        self.used.iter_mut().zip(used).for_each(|(sum, cores)| *sum += cores);
        self.entitled.iter_mut().zip(entitled).for_each(|(sum, cores)| *sum += cores);
        let allocated = status.tenants.iter().map(|tenant| tenant.allocation[CPU]);
        self.allocated.iter_mut().zip(allocated).for_each(|(sum, cores)| *sum += cores);
    }

    pub(super) fn phase(&self, title: &str, last: &Status) -> Phase {
        let (used, entitled) = (shares(&self.used), shares(&self.entitled));
        let allocated = shares(&self.allocated);
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
                allocation_error: at(&allocated) - at(&entitled),
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
pub(super) fn entitled_cores(nodes: &[TreeNode], wants: &[Want], host: &HostStatus) -> Vec<f64> {
    let demand = |want: &Want| {
        let cores = (f64::from(want.threads) * want.duty).min(f64::from(host.cpus));
        let bytes = want.memory_bytes + want.hot_bytes + want.scan_bytes;
        PerResource::only(&[(CPU, cores), (MEMORY, bytes as f64)])
    };
    let demands: Vec<PerResource<f64>> = wants.iter().map(demand).collect();
    entitled(nodes, &demands, host.capacity).iter().map(|amounts| amounts[CPU]).collect()
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
pub(super) struct Without {
    pub(super) measured_seconds: f64,
    pub(super) tenants: Vec<Plain>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Plain {
    pub(super) tenant: &'static str,
    pub(super) usage_cores: f64,
    /// Part of the CPU time of all tenants.
    pub(super) measured_share: f64,
    /// Part of its file reads served from memory; absent without reads.
    pub(super) cached_ratio: Option<f64>,
}

impl Without {
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

#[derive(Clone, Debug, Serialize)]
pub(super) struct Phase {
    pub(super) title: String,
    pub(super) measured_ticks: u32,
    /// Mean CPUs used by processes outside every tenant.
    pub(super) outside_cores: f64,
    pub(super) tenants: Vec<Figure>,
}

/// One tenant in one half: means over the measured ticks, unless marked as the last tick's.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figure {
    pub(super) tenant: String,
    pub(super) weight: f64,
    /// At the last tick.
    #[serde(flatten, with = "wire::demand")]
    pub(super) demand: PerResource<f64>,
    /// At the last tick, by the agent's estimates.
    #[serde(flatten, with = "wire::allocation")]
    pub(super) allocation: PerResource<f64>,
    /// At the last tick.
    pub(super) dominant_resource: Option<Cow<'static, str>>,
    /// At the last tick.
    pub(super) dominant_share: f64,
    /// Published width at the last tick.
    pub(super) dop: Option<u32>,
    /// At the last tick; absent if it is not pinned.
    pub(super) cpus: Option<String>,
    /// In the file at the last tick.
    pub(super) cpu_weight: Option<f64>,
    pub(super) usage_cores: f64,
    /// Part of the CPU time of all tenants.
    pub(super) measured_share: f64,
    /// Entitled part of the CPU time, by the true demands of all loads.
    pub(super) entitled_share: f64,
    pub(super) error: f64,
    /// Error of the part that the agent computed for it, by its estimates.
    pub(super) allocation_error: f64,
    /// Part of its load's file reads served from memory; absent without reads.
    pub(super) cached_ratio: Option<f64>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Outcome {
    pub(super) hierarchy: &'static str,
    pub(super) simulated: bool,
    /// Largest distance of a measured from an entitled CPU share, over tenants and halves; 1 if a half was not
    /// measured.
    pub(super) max_share_error: f64,
    /// True if that error counts as fair.
    pub(super) fair: bool,
    /// Largest error of the parts that the agent computed, over tenants and halves.
    pub(super) max_allocation_error: f64,
    /// Reason for which the shares do not judge the agent; absent if there is a verdict.
    pub(super) no_verdict: Option<String>,
    /// Jain's index over measured by entitled share, 1 if exact; the smaller one of the halves.
    pub(super) jain_index: f64,
    /// True if the host has the same values as before.
    pub(super) clean: bool,
    pub(super) interrupted: bool,
    /// Absent if the demo was interrupted before this measurement.
    pub(super) without: Option<Without>,
    pub(super) phases: Vec<Phase>,
    /// Smaller one of the two halves' `cached_ratio` of the tenant that depends on its cache.
    pub(super) cached_ratio: Option<f64>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Played {
    pub(super) cpus: u32,
    /// Largest error of a share that counts as fair.
    pub(super) error_max: f64,
    pub(super) hierarchy: &'static str,
    pub(super) simulated: bool,
    pub(super) without: Option<Without>,
    pub(super) phases: Vec<Phase>,
    /// True if the agent found an obstacle.
    pub(super) has_findings: bool,
    pub(super) clean: bool,
    pub(super) interrupted: bool,
}

impl Outcome {
    pub(super) fn is_measured(&self) -> bool {
        is_measured(&self.phases)
    }

    pub(super) fn new(played: Played) -> Outcome {
        let Played { cpus, error_max, hierarchy, simulated, without, phases, .. } = played;
        let Played { has_findings, clean, interrupted, .. } = played;
        let errors = phases.iter().flat_map(|p| &p.tenants).map(|figure| figure.error.abs());
        // Without a measurement the outcome must not count as fair.
        let measured = is_measured(&phases);
        let max_share_error = if measured { errors.fold(0.0, f64::max) } else { 1.0 };
        let fair = max_share_error <= error_max;
        let allocations = phases.iter().flat_map(|phase| &phase.tenants);
        let max_allocation_error =
            allocations.map(|figure| figure.allocation_error.abs()).fold(0.0, f64::max);
        let outside = phases.iter().map(|phase| phase.outside_cores).fold(0.0, f64::max);
        let no_verdict = if interrupted {
            Some("it was interrupted".to_string())
        } else if !measured {
            Some("CPU shares were not measured".to_string())
        } else if fair {
            None
        } else if outside > OUTSIDE_RATIO * f64::from(cpus) {
            Some(format!("other programs took {outside:.1} of {cpus} CPUs"))
        } else {
            let is_of_kernel = !has_findings && max_allocation_error <= error_max;
            is_of_kernel.then(|| KERNEL_BALANCE.to_string())
        };
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
            fair,
            max_allocation_error,
            no_verdict,
            jain_index,
            clean,
            interrupted,
            cached_ratio: cached.reduce(f64::min),
            without,
            phases,
        }
    }
}

fn is_measured(phases: &[Phase]) -> bool {
    let is_measured = |phase: &Phase| phase.measured_ticks > 0 && !phase.tenants.is_empty();
    !phases.is_empty() && phases.iter().all(is_measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(error: f64, outside_cores: f64) -> Phase {
        phase_of(error, 0.2, outside_cores)
    }

    fn phase_of(error: f64, allocation_error: f64, outside_cores: f64) -> Phase {
        let figure = |error| Figure {
            tenant: "a".to_string(),
            weight: 1.0,
            demand: PerResource::all(0.0),
            allocation: PerResource::all(0.0),
            dominant_resource: None,
            dominant_share: 0.0,
            dop: None,
            cpus: None,
            cpu_weight: None,
            usage_cores: 1.0,
            measured_share: 0.5 + error,
            entitled_share: 0.5,
            error,
            allocation_error,
            cached_ratio: None,
        };
        let tenants = vec![figure(error), figure(-error)];
        Phase { title: String::new(), measured_ticks: 5, outside_cores, tenants }
    }

    fn outcome(phases: Vec<Phase>) -> Outcome {
        Outcome::new(Played { cpus: 2, error_max: 0.05, phases, ..Played::default() })
    }

    #[test]
    fn one_figure_is_over_both_halves() {
        let played = outcome(vec![phase(0.01, 0.0), phase(0.04, 0.0)]);
        assert_eq!((played.max_share_error, played.fair, played.no_verdict), (0.04, true, None));
        for phases in [[phase(0.01, 0.0), phase(0.1, 0.1)], [phase(0.1, 0.1), phase(0.01, 0.0)]] {
            let played = outcome(phases.to_vec());
            assert_eq!(
                (played.max_share_error, played.fair, played.no_verdict),
                (0.1, false, None)
            );
        }
    }

    #[test]
    fn there_is_no_verdict_beside_other_programs() {
        let played = outcome(vec![phase(0.01, 0.0), phase(0.1, 1.6)]);
        assert!(!played.fair && played.is_measured());
        assert_eq!(played.no_verdict.as_deref(), Some("other programs took 1.6 of 2 CPUs"));
        let played = outcome(vec![phase(0.01, 1.6), phase(0.01, 1.6)]);
        assert_eq!((played.fair, played.no_verdict), (true, None));
    }

    #[test]
    fn the_balance_of_the_kernel_is_no_fault_of_the_agent() {
        let phases = vec![phase_of(0.01, 0.01, 0.0), phase_of(0.1, 0.02, 0.1)];
        let of_kernel = outcome(phases.clone());
        assert!(
            !of_kernel.fair && of_kernel.no_verdict.unwrap().starts_with("the kernel's balance")
        );
        assert_eq!((of_kernel.max_share_error, of_kernel.max_allocation_error), (0.1, 0.02));
        // A wrong estimate of the agent, and an obstacle that it found.
        let estimate = outcome(vec![phase_of(0.1, 0.06, 0.0)]);
        assert_eq!((estimate.fair, estimate.no_verdict), (false, None));
        let (cpus, error_max, has_findings) = (2, 0.05, true);
        let played = Played { cpus, error_max, has_findings, phases, ..Played::default() };
        assert_eq!(Outcome::new(played).no_verdict, None);
    }

    #[test]
    fn an_unmeasured_half_is_no_verdict() {
        let unmeasured = Phase { measured_ticks: 0, ..phase(0.0, 0.0) };
        for phases in [vec![], vec![phase(0.0, 0.0), unmeasured]] {
            let played = outcome(phases);
            assert!(!played.fair && !played.is_measured());
            assert_eq!(played.no_verdict.as_deref(), Some("CPU shares were not measured"));
        }
    }
}
