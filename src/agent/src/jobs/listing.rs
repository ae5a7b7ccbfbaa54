//! The jobs as readers see them.

use std::collections::HashMap;

use super::evict;
use super::records::{Home, Record};
use super::reply::waiting;
use super::room::JobRoom;
use super::starts;
use tenantd_admission::{JobId, JobView, Phase};
use tenantd_varlink::class::remaining;
use tenantd_varlink::jobs::{
    Assigned, Job, JobState, ListReply, Pool, Requirement, Started, TaskSums, Tasks, Units, Valve,
    Waiting,
};

/// State of a started job.
pub(crate) fn started(jobs: &JobRoom, view: &JobView<'_>, home: &Home, dop: u32) -> Started {
    let resources = &jobs.policy.host.resources;
    let assigned = view.indices.iter().map(|(name, indices)| Assigned {
        name: name.to_string(),
        indices: indices.iter().copied().collect(),
        env: resources.iter().find(|it| it.name == name).map_or(Vec::new(), |it| it.env.clone()),
    });
    Started {
        assigned: assigned.collect(),
        dop,
        cpus: home.cpus.as_ref().map(ToString::to_string),
        cgroup: home.path.clone(),
        valve: home.valve.as_ref().map(|valve| Valve {
            fifo: valve.fifo().display().to_string(),
            tokens: valve.target(),
        }),
        ineffective: home.ineffective.clone(),
    }
}

/// All jobs, running ones first.
pub(crate) fn list(jobs: &JobRoom, now: f64) -> ListReply {
    let admission = &jobs.admission;
    let mut listed = Vec::new();
    for view in admission.active() {
        listed.extend(jobs.records.get(&view.job).map(|record| job(jobs, &view, record, now)));
    }
    let places: HashMap<u64, usize> =
        listed.iter().enumerate().map(|(place, job)| (job.id, place)).collect();
    let outlooks = admission.outlooks(now);
    let starts = starts::forecasts(admission, &jobs.finished, now);
    for outlook in &outlooks {
        let starts = starts.get(&outlook.job).copied();
        let waiting = Some(Waiting { starts, ..waiting(outlook, outlooks.len()) });
        if let Some(place) = places.get(&outlook.job.0) {
            listed[*place].waiting = waiting;
            continue;
        }
        let (view, record) = (admission.job(outlook.job), jobs.records.get(&outlook.job));
        if let (Some(view), Some(record)) = (view, record) {
            listed.push(Job { waiting, ..job(jobs, &view, record, now) });
        }
    }
    let (all, free) = (admission.resources(), admission.free());
    let pool = Pool {
        max_running: admission.workers(),
        slots: admission.slots(),
        free_slots: free.slots,
        memory_bytes: all.memory_bytes,
        free_memory_bytes: free.memory_bytes,
        units: units(&all.units),
        free_units: units(&free.units),
    };
    ListReply { jobs: listed, pool, own_only: false }
}

fn job(jobs: &JobRoom, view: &JobView<'_>, record: &Record, now: f64) -> Job {
    let (state, since, dop) = match view.phase {
        Phase::Waiting { .. } => (JobState::Waiting, None, 0),
        Phase::Running { since, .. } if evict::is_between(view) => {
            (JobState::Waiting, Some(since), 0)
        }
        Phase::Running { since, dop } => (JobState::Running, Some(since), dop),
        Phase::Lingering { since } => (JobState::Lingering, Some(since), 0),
    };
    let JobId(id) = view.job;
    let request = view.request;
    let ran_seconds = since.map(|since| (now - since).max(0.0));
    let is_first = request.tasks.is_none() || evict::run_of(view) == Some(1);
    let class = request.class.as_deref().filter(|_| is_first);
    let ends = match state {
        JobState::Running => class.zip(ran_seconds),
        JobState::Waiting | JobState::Lingering => None,
    };
    let is_running = matches!(state, JobState::Running);
    let rho = is_running.then(|| record.seen.finish_time.rho(view, now));
    Job {
        id,
        tenant: view.request.tenant.clone(),
        uid: view.request.user,
        pid: record.process.pid,
        class: view.request.class.clone(),
        command: record.command.clone(),
        state,
        waited_seconds: (since.unwrap_or(now) - view.submitted).max(0.0),
        ran_seconds,
        cpu_seconds: since.map(|_| view.cpu_seconds),
        memory_bytes: (view.request.memory_bytes > 0).then_some(view.request.memory_bytes),
        used_memory_bytes: view.used_bytes,
        units: units(&view.request.units),
        waiting: None,
        frozen: jobs.preemption.is_frozen(view.job),
        idle: view.is_idle,
        outside: record.home.as_ref().is_some_and(|home| home.is_left),
        started: record.home.as_ref().map(|home| started(jobs, view, home, dop)),
        tasks: tasks(view, record.seen.tasks),
        run: evict::run_of(view),
        eviction: evict::shown(view),
        after: jobs.admission.requirements(view.job).map(requirement).collect(),
        rho: rho.and_then(Result::ok),
        rho_unknown: rho.and_then(Result::err).map(str::to_string),
        ends: ends.and_then(|(class, ran)| {
            let runs = jobs.finished.runs(request.user, class);
            remaining(runs.map(|run| run.seconds), ran)
        }),
    }
}

fn requirement(of: tenantd_admission::Requirement) -> Requirement {
    Requirement { id: of.job.0, must_succeed: of.must_succeed }
}

/// Tasks of a set; the sums of its client tell the ended ones apart. A job that may be evicted shows none: its runs are no
/// tasks of the user.
pub(super) fn tasks(view: &JobView<'_>, sums: TaskSums) -> Option<Tasks> {
    let set = view.set.filter(|_| view.request.requeue.is_none())?;
    let tenantd_admission::Tasks { count, at_once } = set.tasks();
    let TaskSums { succeeded, failed, .. } = sums;
    Some(Tasks { count, at_once, running: set.running(), succeeded, failed })
}

fn units(units: &[(String, u32)]) -> Vec<Units> {
    units.iter().map(|(name, count)| Units { name: name.clone(), count: *count }).collect()
}
