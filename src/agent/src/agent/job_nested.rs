//! A job that is submitted from within a job: it runs there at once.
//!
//! **Problem.** A script or a makefile that runs as a job calls `tenantctl run` itself. Its job holds the slots that the
//! inner one would wait for, and ends only after it: both wait for ever.
//!
//! **Rule.** What is submitted by a process in the cgroup of a running job, or by a descendant of its first process, is a
//! part of that job: it has no worker, slots or place in the queue of its own, its width, CPUs and job server are those
//! of the job, and it stays in the cgroup that it is in. What the job does not have it cannot get in this way: another
//! tenant, or units of a counted resource, are refused with the number of the job. A job that lingers holds
//! nothing that anyone waits for: what its daemons submit is a job as any other.

use super::start::Agent;
use crate::jobs::listing;
use crate::jobs::watch::is_alive;
use tenantd_admission::{JobId, Phase};
use tenantd_host::cgroup::Facet;
use tenantd_host::kernfs::KernFs;
use tenantd_host::process;
use tenantd_varlink::bridge::Submission;
use tenantd_varlink::error::CallError;
use tenantd_varlink::jobs::{Started, SubmitParameters, SubmitReply};

/// Processes from one that submits upwards among which the first process of a job is looked for.
const ANCESTORS_MAX: usize = 64;

impl<K: KernFs> Agent<K> {
    /// The answer to a process that is part of a running job; `None` where it is not.
    pub(super) fn submit_inside(
        &mut self,
        submission: &Submission,
    ) -> Option<Result<SubmitReply, CallError>> {
        if submission.process.as_ref().is_some_and(|process| !is_alive(process)) {
            return None;
        }
        let job = self.job_around(submission.pid)?;
        let view = self.jobs.admission.job(job)?;
        let Phase::Running { dop, .. } = view.phase else { return None };
        let home = self.jobs.records.get(&job)?.home.as_ref()?;
        let parameters = &submission.parameters;
        let (tenant, held) = (&view.request.tenant, &view.request.units);
        if let Some(other) = parameters.tenant.as_ref().filter(|other| *other != tenant) {
            let reason = format!(
                "this process is part of job {job} of {tenant}, and so is what it runs: leave out --tenant {other}, or \
                 run it outside of the job"
            );
            return Some(Err(CallError::Failed { reason }));
        }
        let has = |name: &str| {
            let of_name = held.iter().filter(|(of, _)| of == name);
            of_name.map(|(_, count)| *count).fold(0, u32::saturating_add)
        };
        let units = parameters.units.as_deref().unwrap_or_default();
        if let Some(more) = units.iter().find(|it| it.count > has(&it.name)) {
            let reason = format!(
                "this process is part of job {job}, which has {} of {}, and {} are asked for: ask for them when that \
                 job is submitted",
                has(&more.name),
                more.name,
                more.count
            );
            return Some(Err(CallError::Failed { reason }));
        }
        let mut started = listing::started(home, dop);
        started.ineffective = not_its_own(job, parameters, dop, view.request.memory_bytes);
        Some(Ok(reply(job, tenant, started)))
    }

    /// The running job that a process is part of: that in whose cgroup it is, or whose first process is above it.
    fn job_around(&mut self, pid: u32) -> Option<JobId> {
        let proc = self.host.proc();
        let (kernel, layout) = (&mut self.host.kernel, &self.host.layout);
        let tree = &layout.trees[layout.tree(Facet::Cpu)?];
        let dir = process::cgroup_dir(kernel, proc, layout, pid, Facet::Cpu);
        let runs = |job: &JobId| {
            let view = self.jobs.admission.job(*job);
            view.is_some_and(|view| matches!(view.phase, Phase::Running { .. }))
        };
        let mut homes = self.jobs.homes().filter(|(_, home)| home.cgroup.is_there());
        let is_around =
            |path: &str| dir.as_ref().is_some_and(|dir| dir.starts_with(tree.dir_of(path)));
        let around = homes.find(|(job, home)| is_around(&home.path) && runs(job));
        if let Some((job, _)) = around {
            return Some(job);
        }
        let mut next = Some(pid);
        for _ in 0..ANCESTORS_MAX {
            let pid = next.filter(|pid| *pid > 1)?;
            let birth = process::birth(kernel, proc, pid).ok().flatten()?;
            let job = self.jobs.records.of_process(pid, birth.start_ticks);
            let is_there = |job: &JobId| {
                let home = self.jobs.records.get(job).and_then(|record| record.home.as_ref());
                home.is_some() && !self.jobs.scopes.starting.contains_key(job)
            };
            if let Some(job) = job.filter(|job| runs(job) && is_there(job)) {
                return Some(job);
            }
            next = birth.parent;
        }
        None
    }
}

/// What was asked for and is as it is for the job.
fn not_its_own(
    job: JobId,
    parameters: &SubmitParameters,
    dop: u32,
    memory_bytes: u64,
) -> Vec<String> {
    let mut all = Vec::new();
    if parameters.dop.is_some_and(|wanted| wanted != dop) {
        all.push(format!("it is part of job {job}, and as wide as that"));
    }
    if parameters.memory_bytes.is_some_and(|wanted| wanted > memory_bytes) {
        all.push(format!("it is part of job {job}, and no memory is reserved beside that job's"));
    }
    all
}

fn reply(job: JobId, tenant: &str, started: Started) -> SubmitReply {
    SubmitReply { id: job.0, tenant: tenant.to_string(), waiting: None, started: Some(started) }
}
