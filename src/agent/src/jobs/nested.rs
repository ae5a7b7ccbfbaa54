//! Jobs submitted from within a job run at once, as part of that job.
//!
//! **Problem.** A script or makefile that runs as a job calls `tenantctl run` itself. The outer job holds the
//! slots that the inner one waits for, and ends only after it: a deadlock.
//!
//! **Rule.** A submission from the cgroup of a running job, or from a descendant of its first process, becomes
//! part of that job. It has no worker, slots or queue place of its own; it shares the width, CPUs, job server
//! and cgroup of the outer job. A request for another tenant, or for units of a counted resource, is refused
//! with the number of the outer job. A job that lingers holds nothing that others wait for, so submissions of
//! its daemons are ordinary jobs.

use super::listing;
use super::room::JobRoom;
use super::watch::is_alive;
use crate::backend::access::HostAccess;
use tenantd_admission::{JobId, Phase};
use tenantd_host::cgroup::Facet;
use tenantd_host::kernfs::KernFs;
use tenantd_host::process;
use tenantd_varlink::bridge::Submission;
use tenantd_varlink::error::CallError;
use tenantd_varlink::jobs::{Started, SubmitParameters, SubmitReply};

/// Most ancestors of a submitting process searched for the first process of a job.
const ANCESTORS_MAX: usize = 64;

pub(super) fn submit_inside<K: KernFs>(
    room: &JobRoom,
    host: &mut HostAccess<K>,
    submission: &Submission,
) -> Option<Result<SubmitReply, CallError>> {
    if submission.process.as_ref().is_some_and(|process| !is_alive(process)) {
        return None;
    }
    let job = job_around(room, host, submission.pid)?;
    let view = room.admission.job(job)?;
    let Phase::Running { dop, .. } = view.phase else { return None };
    let home = room.records.get(&job)?.home.as_ref()?;
    let parameters = &submission.parameters;
    let (tenant, held) = (&view.request.tenant, &view.request.units);
    if let Some(other) = parameters.tenant.as_ref().filter(|other| *other != tenant) {
        let reason = format!(
            "this process is part of job {job} of {tenant}, and so is what it runs: leave out --tenant {other}, or \
             run it outside of the job"
        );
        return Some(Err(CallError::Failed { reason }));
    }
    if parameters.after.is_some() || parameters.after_ok.is_some() {
        let reason = format!(
            "this process is part of job {job}, and what it runs starts at once: leave out --after, or submit it outside of \
             the job"
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
    let mut started = listing::started(room, &view, home, dop);
    started.ineffective = not_its_own(job, parameters, dop, view.request.memory_bytes);
    Some(Ok(reply(job, tenant, started)))
}

/// Returns the running job that a process is part of, by its cgroup or by an ancestor that is a job's first
/// process.
fn job_around<K: KernFs>(room: &JobRoom, host: &mut HostAccess<K>, pid: u32) -> Option<JobId> {
    let proc = host.proc();
    let (kernel, layout) = (&mut host.kernel, &host.layout);
    let tree = &layout.trees[layout.tree(Facet::Cpu)?];
    let dir = process::cgroup_dir(kernel, proc, layout, pid, Facet::Cpu);
    let runs = |job: &JobId| {
        let view = room.admission.job(*job);
        view.is_some_and(|view| matches!(view.phase, Phase::Running { .. }))
    };
    let mut homes = room.homes().filter(|(_, home)| home.cgroup.is_there());
    let is_around = |path: &str| dir.as_ref().is_some_and(|dir| dir.starts_with(tree.dir_of(path)));
    let around = homes.find(|(job, home)| is_around(&home.path) && runs(job));
    if let Some((job, _)) = around {
        return Some(job);
    }
    let mut next = Some(pid);
    for _ in 0..ANCESTORS_MAX {
        let pid = next.filter(|pid| *pid > 1)?;
        let birth = process::birth(kernel, proc, pid).ok().flatten()?;
        let job = room.records.of_process(pid, birth.start_ticks);
        let is_there = |job: &JobId| {
            let home = room.records.get(job).and_then(|record| record.home.as_ref());
            home.is_some() && !room.scopes.starting.contains_key(job)
        };
        if let Some(job) = job.filter(|job| runs(job) && is_there(job)) {
            return Some(job);
        }
        next = birth.parent;
    }
    None
}

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
    let (tenant, started) = (tenant.to_string(), Some(started));
    SubmitReply { id: job.0, tenant, started, inside: true, ..SubmitReply::default() }
}
