//! Sums of the jobs in the status of a tick.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::evict;
use super::finish_time::fairness;
use super::room::JobRoom;
use crate::recovery::credit_store::unix_seconds;
use tenantd_admission::{Admission, JobView, Phase};
use tenantd_control::report::status::Status;
use tenantd_control::words::jobs::{HeldUnits, JobsStatus, TenantJobs, UnitsStatus, WaitCount};

/// Time for which ended jobs count in the fairness of finish times.
const HOUR_SECONDS: f64 = 3600.0;

pub(crate) fn tell(jobs: &JobRoom, slots_reason: String, status: &mut Status, now: f64) {
    let (all, mut of_tenants) = sums(jobs, now);
    status.jobs = Some(JobsStatus { slots_reason, ..all });
    for tenant in &mut status.tenants {
        tenant.jobs = of_tenants.remove(&*tenant.name).map(Box::new);
    }
}

/// Counted resources, and the jobs that hold units of them.
fn units(admission: &Admission) -> Vec<UnitsStatus> {
    let all = admission.resources().units.iter().zip(admission.free().units);
    let of_one = |((name, count), (_, free)): (&(String, u32), (String, u32))| {
        let held = admission.active().map(|view| HeldUnits {
            job: view.job.0,
            tenant: view.request.tenant.clone(),
            uid: view.request.user,
            indices: view.indices.of(name).collect(),
        });
        let held = held.filter(|it| !it.indices.is_empty()).collect();
        UnitsStatus { name: name.clone(), count: *count, free, held }
    };
    all.map(of_one).collect()
}

fn sums(jobs: &JobRoom, now: f64) -> (JobsStatus, BTreeMap<&str, TenantJobs>) {
    let admission = &jobs.admission;
    let free = admission.free();
    let fairness = fairness(jobs.finished.rhos(unix_seconds() - HOUR_SECONDS));
    let mut all = JobsStatus {
        slots: admission.slots(),
        free_slots: free.slots,
        nr_waiting: admission.nr_waiting() as u64,
        units: units(admission),
        finish_time_jain: fairness.map(|it| it.0),
        nr_finish_times: fairness.map_or(0, |it| it.1),
        ..JobsStatus::default()
    };
    let mut of_tenants: BTreeMap<&str, TenantJobs> = BTreeMap::new();
    for (tenant, tally) in &jobs.tallies {
        let (nr_started, waited_seconds) = (tally.nr_started, tally.waited_seconds);
        let told = TenantJobs { nr_started, waited_seconds, ..TenantJobs::default() };
        of_tenants.insert(tenant, told);
    }
    for view in admission.jobs() {
        let of_tenant = of_tenants.entry(&view.request.tenant).or_default();
        match view.phase {
            Phase::Waiting { .. } => of_tenant.nr_waiting += 1,
            Phase::Running { .. } if evict::is_between(&view) => of_tenant.nr_waiting += 1,
            Phase::Running { dop, .. } => {
                (of_tenant.nr_running, all.nr_running) =
                    (of_tenant.nr_running + 1, all.nr_running + 1);
                of_tenant.dop += u64::from(dop);
            }
            Phase::Lingering { .. } => {
                (of_tenant.nr_lingering, all.nr_lingering) =
                    (of_tenant.nr_lingering + 1, all.nr_lingering + 1);
            }
        }
    }
    let mut kinds: BTreeMap<&'static str, u64> = BTreeMap::new();
    for (job, reason) in admission.reasons() {
        *kinds.entry(reason.kind()).or_default() += 1;
        let Some(JobView { request, submitted, phase, .. }) = admission.job(job) else { continue };
        // The next task of a set that has begun has waited for a part of that time.
        if !matches!(phase, Phase::Waiting { .. }) {
            continue;
        }
        let of_tenant = of_tenants.entry(&request.tenant).or_default();
        // The first one has waited longest.
        if of_tenant.reason.is_none() {
            of_tenant.longest_wait_seconds = Some((now - submitted).max(0.0));
            of_tenant.reason = Some(reason.to_string());
        }
    }
    let count = |(kind, nr_jobs)| WaitCount { kind: Cow::Borrowed(kind), nr_jobs };
    all.waiting_for = kinds.into_iter().map(count).collect();
    (all, of_tenants)
}
