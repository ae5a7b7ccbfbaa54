//! Sets of tasks: starts, ends and charges of tasks, which share one cgroup.
//!
//! A running task is a job with a number of its own, which is not shown: it has a worker, slots, memory and units as any
//! job. The set itself only waits, or is parked ([`State::Parked`]) while no other task may start. The starter of the
//! tasks reports sums ([`tenantd_queue::sets`]). The CPU time and the memory of the common cgroup are divided equally
//! among the running tasks; CPU time between two tasks is charged to the next one.

use super::job::{Job, Kind, SetRuns, State};
use super::state::Admission;
use super::types::{JobId, JobView, Phase};
use tenantd_queue::TenantId;
use tenantd_queue::indices::Indices;
use tenantd_queue::sets::Sums;

/// First number of a task, above those of all jobs.
const TASKS_FROM: u64 = 1 << 62;

impl Admission {
    /// The job itself, or the set of a task.
    pub(super) fn job_of(&self, id: JobId) -> JobId {
        match self.jobs.get(&id).map(|job| &job.kind) {
            Some(Kind::Task(set)) => *set,
            _ => id,
        }
    }

    /// Makes the next task of a set whose entry had its turn, and gives the set its next entry.
    pub(super) fn begin_task(&mut self, id: JobId, payer: TenantId, now: f64) -> JobId {
        let task = self.add_task(id);
        let Some(Job { kind: Kind::Set(runs), state, .. }) = self.jobs.get_mut(&id) else {
            return task;
        };
        runs.set.start();
        runs.since.get_or_insert(now);
        *state = State::Waiting { overtaken: 0 };
        let wants_turn = runs.set.wants_turn();
        let tenant = self.jobs[&id].need.tenant;
        if !wants_turn {
            self.queue.withdraw(tenant, id.0, now);
            self.waits_no_more(id);
        } else if payer == tenant {
            self.enqueue(id, now);
        }
        // The entry of a donor is renewed behind the other requests of that tenant.
        task
    }

    fn add_task(&mut self, id: JobId) -> JobId {
        let task = JobId(TASKS_FROM + self.nr_tasks);
        self.nr_tasks += 1;
        self.nr_changes += 1;
        let mut job = self.jobs[&id].clone();
        job.request.tasks = None;
        (job.kind, job.cpu_seconds, job.used_bytes) = (Kind::Task(id), 0.0, None);
        job.indices = Indices::default();
        self.jobs.insert(task, job);
        self.active.insert(task);
        if let Some(Job { kind: Kind::Set(runs), .. }) = self.jobs.get_mut(&id) {
            runs.running.insert(task);
        }
        task
    }

    /// Releases the resources of a task.
    pub(super) fn end_task(&mut self, id: JobId, task: JobId, now: f64) {
        self.release(task, now);
        self.active.remove(&task);
        self.jobs.remove(&task);
        if let Some(Job { kind: Kind::Set(runs), .. }) = self.jobs.get_mut(&id) {
            runs.running.remove(&task);
        }
    }

    /// Takes the sums of the starter of a set, after the last charge. Tasks that have ended release their resources, and
    /// the set enters the queue again if another task may start. Returns false if no such set runs, or the sums are
    /// impossible after a restart.
    pub fn report_tasks(&mut self, id: JobId, sums: Sums, now: f64) -> bool {
        let workers = self.workers();
        let Some(Job { kind: Kind::Set(runs), state, .. }) = self.jobs.get_mut(&id) else {
            return false;
        };
        // Of a set that lingers the resources are released.
        if matches!(state, State::Lingering { .. }) {
            return false;
        }
        let (nr_ended, was_unsure) = (runs.set.ended(), std::mem::take(&mut runs.is_unsure));
        if was_unsure && !runs.set.resume(sums) {
            runs.is_unsure = true;
            return false;
        }
        if !was_unsure {
            runs.set.report(sums);
        }
        let has_returned = runs.set.ended() > nr_ended && !runs.set.is_closed();
        let nr_running = runs.set.running();
        let excess = runs.running.len().saturating_sub(nr_running as usize);
        let ended: Vec<JobId> = runs.running.iter().take(excess).copied().collect();
        // A starter that claims more than the machine runs at once gets no more.
        let missing = nr_running.min(workers).saturating_sub(runs.running.len() as u32);
        ended.into_iter().for_each(|task| self.end_task(id, task, now));
        for _ in 0..missing {
            let task = self.add_task(id);
            self.run_at_once(task, now, now);
        }
        self.keep_indices(id);
        if nr_running == 0 {
            self.has_left(id, has_returned, now);
        }
        self.enter_again(id, now);
        true
    }

    /// Starts no further task of a set. Returns false for others, and for a set of which no task has started.
    pub fn close(&mut self, id: JobId, now: f64) -> bool {
        match self.jobs.get_mut(&id) {
            Some(job) if job.has_begun() => {
                if let Kind::Set(runs) = &mut job.kind {
                    runs.set.close();
                }
                self.leave_queue(id, now);
                true
            }
            _ => false,
        }
    }

    /// Brings the entry of a set in line with its wish for a turn.
    fn enter_again(&mut self, id: JobId, now: f64) {
        let Some(job) = self.jobs.get(&id) else { return };
        let wants_turn = job.set().is_some_and(|runs| runs.set.wants_turn());
        let (state, user) = (job.state, job.request.user);
        if state == State::Parked && wants_turn && self.terms(job.need.tenant).is_some() {
            self.waits(user);
            if let Some(job) = self.jobs.get_mut(&id) {
                job.state = State::Waiting { overtaken: 0 };
            }
            self.enqueue(id, now);
            if self.jobs[&id].request.requeue.is_some() {
                self.queue.restore_place(self.jobs[&id].need.tenant, id.0, now);
            }
        } else if !wants_turn {
            self.leave_queue(id, now);
        }
    }

    /// Divides the use of a set equally among its running tasks.
    pub(super) fn charge_set(&mut self, id: JobId, seconds: f64, bytes: Option<u64>, now: f64) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.used_bytes = bytes.or(job.used_bytes);
        let more = (seconds - job.cpu_seconds).max(0.0);
        job.cpu_seconds += more;
        let used_bytes = job.used_bytes;
        let Kind::Set(runs) = &mut job.kind else { return };
        runs.unpaid_seconds += more;
        let running = runs.running.clone();
        let Some(count) = Some(running.len() as u64).filter(|count| *count > 0) else { return };
        let each = std::mem::take(&mut runs.unpaid_seconds) / count as f64;
        for task in running {
            let used = self.jobs.get(&task).map_or(0.0, |task| task.cpu_seconds);
            self.charge(task, used + each, used_bytes.map(|bytes| bytes / count), now);
        }
    }

    /// The view of a set, with the sums over its running tasks.
    pub(super) fn with_tasks<'a>(&'a self, view: JobView<'a>, runs: &'a SetRuns) -> JobView<'a> {
        let tasks = || runs.running.iter().filter_map(|task| self.jobs.get(task));
        let dop = tasks().filter_map(|task| Some(task.run()?.dop)).sum();
        let phase = match (view.phase, runs.since) {
            (Phase::Waiting { .. }, Some(since)) => Phase::Running { since, dop },
            (phase, _) => phase,
        };
        JobView {
            phase,
            is_idle: !runs.running.is_empty() && tasks().all(|task| task.is_idle),
            used_cores: tasks().map(Job::used_cores).sum(),
            set: Some(runs.set),
            eviction: self.leaving.get(&view.job).map(|it| &it.cause).or(runs.evicted.as_ref()),
            is_leaving: self.leaving.contains_key(&view.job),
            ..view
        }
    }
}
