//! Choice of the jobs that start now.

use super::fit::{Free, Lack};
use super::state::{Admission, Run, State};
use super::types::{Dispatch, JobId, Measured, Start};
use tenantd_queue::TenantId;

/// Most jobs of a tenant that are tried if its first one does not fit.
const LOOKED_AT_MAX: usize = 256;

/// A job whose turn came in this dispatch but that lacks something.
struct Passed {
    id: JobId,
    lacks: Vec<Lack>,
}

impl Admission {
    /// Starts every job that may start now, and divides the slots anew.
    ///
    /// O(running + tried · log tenants), where tried are the jobs that start or are passed over.
    pub fn dispatch(&mut self, measured: Measured, now: f64) -> Dispatch {
        self.measured = measured;
        let mut started = Vec::new();
        if self.nr_waiting() > 0 {
            self.start_all(now, &mut started);
        }
        self.divide(&started)
    }

    fn start_all(&mut self, now: f64, started: &mut Vec<JobId>) {
        let mut free = self.free_now();
        if free.busy >= self.workers() {
            return;
        }
        let mut passed: Vec<Passed> = Vec::new();
        let mut held: Vec<TenantId> = Vec::new();
        while free.busy < self.workers() && free.slots > 0 {
            let worker = self.next_worker();
            let Some(id) = self.choose(worker, &free, &mut passed, &mut held, now) else { break };
            if !self.start(id, worker, now) {
                break;
            }
            let job = &self.jobs[&id];
            free.take(&job.need, job.held_slots(), job.reserved_bytes());
            passed.retain(|it| it.id != id);
            self.count_overtaken(id, &passed, &free);
            started.push(id);
        }
        self.note_lacked_units(&free);
        held.into_iter().for_each(|tenant| self.queue.hold(tenant, false, now));
        self.collect_fees(now);
    }

    /// The next job: a senior that fits, or the discipline's choice among those that fit.
    fn choose(
        &mut self,
        worker: u32,
        free: &Free,
        passed: &mut Vec<Passed>,
        held: &mut Vec<TenantId>,
        now: f64,
    ) -> Option<JobId> {
        let senior = self.seniors.iter().find(|id| self.may_start(**id, free)).copied();
        if senior.is_some() {
            return senior;
        }
        while let Some(tenant) = self.queue.next(worker, now) {
            let mut waiting = self.queue.requests_of(tenant).map(|request| JobId(request.id));
            let first = waiting.next()?;
            if self.may_start(first, free) {
                return Some(first);
            }
            let job = &self.jobs[&first];
            let lacks: Vec<Lack> = self.lacks(&job.need, free).collect();
            // A limit on the whole tenant holds for each of its jobs.
            let is_full = lacks.contains(&Lack::TenantRunning);
            let nr_others = if is_full { 0 } else { LOOKED_AT_MAX };
            let other = waiting.take(nr_others).find(|id| self.may_start(*id, free));
            if !lacks.is_empty() && passed.iter().all(|it| it.id != first) {
                passed.push(Passed { id: first, lacks });
            }
            if other.is_some() {
                return other;
            }
            self.queue.hold(tenant, true, now);
            held.push(tenant);
        }
        None
    }

    fn start(&mut self, id: JobId, worker: u32, now: f64) -> bool {
        let tenant = self.jobs[&id].need.tenant;
        if !self.queue.promote(tenant, id.0, now) {
            return false;
        }
        let Some(picked) = self.queue.take(tenant, now) else { return false };
        self.free_workers.remove(&worker);
        self.waits_no_more(id);
        self.active.insert(id);
        self.seniors.retain(|senior| *senior != id);
        if let Some(job) = self.jobs.get_mut(&id) {
            job.state = State::Running(Run { ticket: picked.ticket, worker, since: now, dop: 0 });
            (job.is_idle, job.busy) = (false, Some((job.cpu_seconds, now)));
        }
        true
    }

    /// Counts jobs whose turn had come as overtaken by `id`, if it takes of a resource that they lacked, or
    /// of a counted one that they lack since. `free` is the rest after `id`.
    fn count_overtaken(&mut self, id: JobId, passed: &[Passed], free: &Free) {
        let taker = self.jobs[&id].need.clone();
        for Passed { id, lacks } in passed {
            let Some(need) = self.jobs.get(id).map(|job| &job.need) else { continue };
            let is_taken = |lack: &Lack| lack.is_taken_by(need, &taker);
            let is_taken_since = |lack: Lack| lack.is_of_some() && is_taken(&lack);
            if !lacks.iter().any(is_taken) && !self.lacks(need, free).any(is_taken_since) {
                continue;
            }
            let Some(job) = self.jobs.get_mut(id) else { continue };
            if let State::Waiting { overtaken } = &mut job.state {
                *overtaken += 1;
                if *overtaken >= self.rules.overtakes_max && !self.seniors.contains(id) {
                    self.seniors.push(*id);
                }
            }
        }
    }

    fn divide(&mut self, started: &[JobId]) -> Dispatch {
        let widths = self.widths();
        let mut dispatch = Dispatch::default();
        for (id, dop) in &widths {
            let Some(job) = self.jobs.get_mut(id) else { continue };
            let State::Running(run) = &mut job.state else { continue };
            let before = std::mem::replace(&mut run.dop, *dop);
            if before != *dop && !started.contains(id) {
                dispatch.widths.push((*id, *dop));
            }
        }
        let dop = |id: &JobId| self.jobs.get(id).and_then(|job| job.run()).map_or(1, |run| run.dop);
        dispatch.starts = started.iter().map(|id| Start { job: *id, dop: dop(id) }).collect();
        dispatch
    }
}
