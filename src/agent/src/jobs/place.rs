//! CPUs of each running job, and its weight within its tenant.

use std::collections::BTreeMap;

use super::room::Jobs;
use tenantd_admission::{JobId, weights};
use tenantd_dop::placement::{Request, Want, place};
use tenantd_dop::{CpuSet, Topology};
use tenantd_policy::types::RunningShares;

/// Least relative change of a weight that is written.
const DEAD_BAND: f64 = 0.05;

#[derive(Clone, Debug)]
pub(crate) struct Wide {
    pub(crate) job: JobId,
    pub(crate) dop: u32,
    pub(crate) previous: Option<CpuSet>,
}

pub(crate) fn cpus(jobs: &[Wide], topology: &Topology) -> Vec<(JobId, CpuSet)> {
    let request = |wide: &Wide| Request {
        previous: wide.previous.clone(),
        ..Request::new(Want::Dop(wide.dop))
    };
    let requests: Vec<Request> = jobs.iter().map(request).collect();
    let placement = place(topology, &requests);
    jobs.iter().map(|wide| wide.job).zip(placement.sets).collect()
}

pub(crate) fn changed_weights(jobs: &Jobs, shares: RunningShares) -> Vec<(JobId, f64)> {
    let mut of_tenants: BTreeMap<&str, Vec<(JobId, f64)>> = BTreeMap::new();
    for view in jobs.admission.active() {
        let of_tenant = of_tenants.entry(view.request.tenant.as_str()).or_default();
        of_tenant.push((view.job, view.cpu_seconds));
    }
    let mut changed = Vec::new();
    for of_tenant in of_tenants.into_values() {
        let seconds: Vec<f64> = of_tenant.iter().map(|(_, seconds)| *seconds).collect();
        let weights = match shares {
            RunningShares::Multilevel => weights(&seconds),
            RunningShares::Equal => vec![weights(&[f64::MAX])[0]; seconds.len()],
        };
        let weighed = of_tenant.iter().map(|(job, _)| *job).zip(weights);
        changed.extend(weighed.filter(|(job, weight)| {
            let home = jobs.records.get(job).and_then(|record| record.home.as_ref());
            let is_new = |old: f64| (weight - old).abs() > old * DEAD_BAND;
            home.is_some_and(|home| home.weight.is_none_or(is_new))
        }));
    }
    changed
}
