//! Price of the time of slots.

use std::collections::BTreeMap;

use tenantd_admission::{Admission, Capacity, JobId, Measured, Request, Rules, Terms};

/// CPU time of each job.
const JOB_SECONDS: f64 = 2.0;

/// Jobs of two tenants of the same weight share two slots for 200 seconds. Those of "slow" use `slow_cores` each, and its other
/// processes `other_cores`; those of "fast" use a CPU. Returns the time of slots that each tenant had, as a ratio.
fn slot_time_ratio(slow_cores: f64, other_cores: f64) -> f64 {
    let capacity = Capacity { slots: 2, ..Capacity::default() };
    let mut admission = Admission::new(Rules::default(), capacity);
    let terms = ["slow", "fast"].map(|path| Terms::new(path, 100.0)).to_vec();
    admission.policy(Rules::default(), terms, 0.0);
    let mut used: BTreeMap<JobId, (bool, f64)> = BTreeMap::new();
    let (mut slot_seconds, mut cpu_seconds) = ([0.0; 2], 0.0);
    for second in 0..200 {
        let now = f64::from(second);
        let mut ended = Vec::new();
        for (job, (is_slow, seconds)) in &mut used {
            *seconds += if *is_slow { slow_cores } else { 1.0 };
            slot_seconds[usize::from(!*is_slow)] += 1.0;
            cpu_seconds += if *is_slow { slow_cores } else { 0.0 };
            admission.charge(*job, *seconds, None, now);
            ended.extend((*seconds >= JOB_SECONDS).then_some(*job));
        }
        cpu_seconds += other_cores;
        let total = |tenant: &str| (tenant == "slow").then_some(cpu_seconds);
        admission.charge_others(total, now);
        for job in ended {
            used.remove(&job);
            admission.ended(job, now);
        }
        for (user, tenant) in ["slow", "fast"].into_iter().enumerate() {
            while admission.jobs().filter(|view| view.request.tenant == tenant).count() < 4 {
                admission.submit(Request::new(tenant, user as u32 + 1), now).unwrap();
            }
        }
        for start in admission.dispatch(Measured::default(), now).starts {
            let is_slow = admission.job(start.job).unwrap().request.tenant == "slow";
            used.insert(start.job, (is_slow, 0.0));
        }
    }
    slot_seconds[0] / slot_seconds[1]
}

/// Its other processes would have the CPU time that its jobs lack, and the jobs of the other tenant would wait for slots.
#[test]
fn a_tenant_that_slows_its_own_jobs_pays_for_their_slots() {
    for (slow_cores, other_cores) in [(0.1, 1.9), (0.25, 0.75), (0.5, 4.0)] {
        let ratio = slot_time_ratio(slow_cores, other_cores);
        assert!((0.9..=1.1).contains(&ratio), "{slow_cores} and {other_cores}: {ratio}");
    }
}

/// Jobs that wait for a disk, or that others slow, pay for their CPU time.
#[test]
fn a_job_without_others_of_its_tenant_pays_for_its_cpu_time() {
    let ratio = slot_time_ratio(0.5, 0.0);
    assert!((1.8..=2.2).contains(&ratio), "{ratio}");
}

/// Their CPU time is at most part of what the slots could give.
#[test]
fn little_use_beside_jobs_costs_little() {
    let (alone, beside) = (slot_time_ratio(0.5, 0.0), slot_time_ratio(0.5, 0.05));
    assert!(beside > 0.85 * alone, "{beside} and {alone}");
}
