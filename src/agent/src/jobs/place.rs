//! CPUs of each running job, and its weight within its tenant.

use std::collections::BTreeMap;

use tracing::debug;

use super::cgroup::may_confine;
use super::room::{JobRoom, Placed};
use crate::backend::access::HostAccess;
use crate::tenants::state::Tenants;
use tenantd_admission::{JobId, Phase, weights};
use tenantd_control::words::knob::{Knob, Value};
use tenantd_dop::placement::{Request, Want, place};
use tenantd_dop::{CpuSet, Topology};
use tenantd_host::kernfs::KernFs;
use tenantd_policy::types::RunningShares;

/// Least relative change of a weight that is written.
const DEAD_BAND: f64 = 0.05;
/// Largest weight that the kernel takes.
const WEIGHT_MAX: f64 = 10_000.0;

impl JobRoom {
    pub(super) fn place<K: KernFs>(&mut self, tenants: &mut Tenants<K>) {
        let Some(topology) = tenants.control.topology().cloned() else { return };
        // Jobs of pinned tenants use the CPUs of their tenant only.
        let mut groups: Vec<(Option<CpuSet>, Vec<Wide>)> = Vec::new();
        for (job, home) in self.homes() {
            let Some(view) = self.admission.job(job) else { continue };
            let Phase::Running { dop, .. } = view.phase else { continue };
            // A set without a running task keeps its CPUs.
            if dop == 0 {
                continue;
            }
            let node = tenants.id_of(&view.request.tenant);
            let of_tenant =
                node.and_then(|node| tenants.control.state(node)?.width.cpus()).cloned();
            let is_confinable = home.cgroup.can_be_confined(&tenants.host.layout);
            if !is_confinable || !may_confine(&tenants.host.layout, of_tenant.is_some()) {
                continue;
            }
            let entry = Wide { job, dop, previous: home.cpus.clone() };
            match groups.iter_mut().find(|(cpus, _)| *cpus == of_tenant) {
                Some((_, jobs)) => jobs.push(entry),
                None => groups.push((of_tenant, vec![entry])),
            }
        }
        // Unless a job came, went or changed its width, all keep their CPUs.
        let placed = |(cpus, jobs): &(Option<CpuSet>, Vec<Wide>)| {
            let widths = jobs.iter().map(|wide| (wide.job, wide.dop)).collect();
            (cpus.clone().unwrap_or_else(|| topology.usable().clone()), widths)
        };
        let now: Vec<Placed> = groups.iter().map(placed).collect();
        let before = std::mem::replace(&mut self.placed, now.clone());
        for ((cpus, jobs), placed) in groups.into_iter().zip(now) {
            if before.contains(&placed) && jobs.iter().all(|wide| wide.previous.is_some()) {
                continue;
            }
            let restricted = cpus.and_then(|cpus| topology.restricted_to(&cpus).ok());
            for (job, cpus) in assigned(&jobs, restricted.as_ref().unwrap_or(&topology)) {
                self.confine(&mut tenants.host, job, cpus);
            }
        }
    }

    fn confine<K: KernFs>(&mut self, host: &mut HostAccess<K>, job: JobId, cpus: CpuSet) {
        let home = self.records.get(&job).and_then(|record| record.home.as_ref());
        if home.is_none_or(|home| home.cpus.as_ref() == Some(&cpus)) {
            return;
        }
        let outcome = self.set(host, job, Knob::Cpus, &Value::CpuList(cpus.clone()));
        let record = self.records.get_mut(&job);
        let Some(home) = record.and_then(|record| record.home.as_mut()) else { return };
        match outcome {
            Ok(()) => {
                home.cpus = Some(cpus);
                self.unkept.insert(job);
            }
            Err(error) => {
                let what = format!("it is not confined to CPUs: {error}");
                if !home.ineffective.contains(&what) {
                    home.ineffective.push(what);
                }
            }
        }
    }

    pub(super) fn weigh<K: KernFs>(&mut self, tenants: &mut Tenants<K>) {
        for (job, weight) in changed_weights(self, tenants.base.written.admission.running) {
            // A job without the controller has no weight; the write is not tried again.
            if let Err(error) =
                self.set(&mut tenants.host, job, Knob::CpuWeight, &Value::Weight(weight))
            {
                debug!("job {job} has no weight: {error}");
            }
            let record = self.records.get_mut(&job);
            if let Some(home) = record.and_then(|record| record.home.as_mut()) {
                home.weight = Some(weight);
            }
        }
    }
}

#[derive(Clone, Debug)]
struct Wide {
    job: JobId,
    dop: u32,
    previous: Option<CpuSet>,
}

fn assigned(jobs: &[Wide], topology: &Topology) -> Vec<(JobId, CpuSet)> {
    let request = |wide: &Wide| Request {
        previous: wide.previous.clone(),
        ..Request::new(Want::Dop(wide.dop))
    };
    let requests: Vec<Request> = jobs.iter().map(request).collect();
    let placement = place(topology, &requests);
    jobs.iter().map(|wide| wide.job).zip(placement.sets).collect()
}

fn changed_weights(jobs: &JobRoom, shares: RunningShares) -> Vec<(JobId, f64)> {
    let mut of_tenants: BTreeMap<&str, Vec<(JobId, f64)>> = BTreeMap::new();
    let mut nr_tasks = BTreeMap::new();
    for view in jobs.admission.active() {
        // A set weighs as much as its running tasks.
        let count = view.set.map_or(1, |set| set.running().max(1));
        nr_tasks.insert(view.job, f64::from(count));
        let of_tenant = of_tenants.entry(view.request.tenant.as_str()).or_default();
        of_tenant.push((view.job, view.cpu_seconds / f64::from(count)));
    }
    let mut changed = Vec::new();
    for of_tenant in of_tenants.into_values() {
        let seconds: Vec<f64> = of_tenant.iter().map(|(_, seconds)| *seconds).collect();
        let weights = match shares {
            RunningShares::Multilevel => weights(&seconds),
            RunningShares::Equal => vec![weights(&[f64::MAX])[0]; seconds.len()],
        };
        let weighed = of_tenant.iter().map(|(job, _)| *job).zip(weights);
        let weighed = weighed.map(|(job, weight)| (job, (weight * nr_tasks[&job]).min(WEIGHT_MAX)));
        changed.extend(weighed.filter(|(job, weight)| {
            let home = jobs.records.get(job).and_then(|record| record.home.as_ref());
            let is_new = |old: f64| (weight - old).abs() > old * DEAD_BAND;
            home.is_some_and(|home| home.weight.is_none_or(is_new))
        }));
    }
    changed
}
