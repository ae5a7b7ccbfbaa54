//! Choice of the jobs that start now.

use super::fit::{Free, Lack};
use super::job::{Kind, Run, State};
use super::state::Admission;
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
        if self.queue.waiting() > 0 {
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
            let chosen = self.choose(worker, &free, &mut passed, &mut held, now);
            let Some((id, payer)) = chosen else { break };
            let Some(running) = self.start(id, payer, worker, now) else { break };
            let job = &self.jobs[&running];
            free.take(&job.need, job.held_slots(), job.reserved_bytes());
            passed.retain(|it| it.id != id);
            self.count_overtaken(id, &passed, &free);
            started.push(running);
        }
        self.note_lacked_units(&free);
        held.into_iter().for_each(|tenant| self.queue.hold(tenant, false, now));
        self.collect_fees(now);
    }

    /// The next job with the tenant whose turn it is: a senior that fits, or the discipline's choice among those that fit.
    /// An entry of a donor stands for the job that it waits for ([`tenantd_queue::donation`]).
    fn choose(
        &mut self,
        worker: u32,
        free: &Free,
        passed: &mut Vec<Passed>,
        held: &mut Vec<TenantId>,
        now: f64,
    ) -> Option<(JobId, TenantId)> {
        let senior = self.seniors.iter().find(|id| self.may_start(**id, free)).copied();
        if let Some(senior) = senior {
            return Some((senior, self.jobs[&senior].need.tenant));
        }
        while let Some(tenant) = self.queue.next(worker, now) {
            let mut waiting = self.queue.requests_of(tenant).map(|request| JobId(request.id));
            let first = waiting.next()?;
            if self.may_start(first, free) {
                return Some((first, tenant));
            }
            let job = &self.jobs[&first];
            let lacks: Vec<Lack> = self.lacks(&job.need, free).collect();
            // A limit on the whole tenant holds for each of its jobs.
            let is_own = job.need.tenant == tenant;
            let is_full = is_own && lacks.contains(&Lack::TenantRunning);
            let nr_others = if is_full { 0 } else { LOOKED_AT_MAX };
            let other = waiting.take(nr_others).find(|id| self.may_start(*id, free));
            if !lacks.is_empty() && passed.iter().all(|it| it.id != first) {
                passed.push(Passed { id: first, lacks });
            }
            if let Some(other) = other {
                return Some((other, tenant));
            }
            self.queue.hold(tenant, true, now);
            held.push(tenant);
        }
        None
    }

    /// Starts a job, or the next task of a set. Returns the one that runs.
    fn start(&mut self, id: JobId, payer: TenantId, worker: u32, now: f64) -> Option<JobId> {
        let tenant = self.jobs[&id].need.tenant;
        if !self.queue.promote(payer, id.0, now) {
            return None;
        }
        let picked = self.queue.take(payer, now)?;
        if let Some(donors) = self.donors.get_mut(&id) {
            donors.remove(&payer);
        }
        self.free_workers.remove(&worker);
        self.active.insert(id);
        self.seniors.retain(|senior| *senior != id);
        let running = match self.jobs[&id].kind {
            Kind::Set(_) => self.begin_task(id, payer, now),
            Kind::Single | Kind::Task(_) => {
                if payer != tenant {
                    self.queue.withdraw(tenant, id.0, now);
                }
                self.waits_no_more(id);
                id
            }
        };
        let payer = Some(payer).filter(|payer| *payer != tenant);
        if let Some(job) = self.jobs.get_mut(&running) {
            let (ticket, since) = (picked.ticket, now);
            job.state = State::Running(Run { ticket, worker, since, dop: 0, payer });
            (job.is_idle, job.busy) = (false, Some((job.cpu_seconds, now)));
        }
        self.take_indices(id, running);
        self.renew_donors(id, now);
        Some(running)
    }

    /// Counts jobs whose turn had come as overtaken by `id`, if it takes of a resource that they lacked, or
    /// of a counted one that they lack since. `free` is the rest after `id`.
    ///
    /// A senior that lacks more than all running jobs hold is not counted: it blocks no other while the end of
    /// theirs would not help it ([`Admission::senior_before`]).
    fn count_overtaken(&mut self, id: JobId, passed: &[Passed], free: &Free) {
        let taker = self.jobs[&id].need.clone();
        for Passed { id, lacks } in passed {
            let Some(need) = self.jobs.get(id).map(|job| &job.need) else { continue };
            let is_taken = |lack: &Lack| lack.is_taken_by(need, &taker);
            let is_taken_since = |lack: Lack| lack.is_of_some() && is_taken(&lack);
            if !lacks.iter().any(is_taken) && !self.lacks(need, free).any(is_taken_since) {
                continue;
            }
            let is_senior = self.seniors.contains(id);
            if is_senior && !self.is_helped_by_ends(need) {
                continue;
            }
            let Some(job) = self.jobs.get_mut(id) else { continue };
            if let State::Waiting { overtaken } = &mut job.state {
                *overtaken += 1;
                if *overtaken >= self.rules.overtakes_max && !is_senior {
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
                dispatch.widths.push((self.job_of(*id), *dop));
            }
        }
        let dop = |id: &JobId| self.jobs.get(id).and_then(|job| job.run()).map_or(1, |run| run.dop);
        let start = |id: &JobId| Start { job: self.job_of(*id), dop: dop(id) };
        dispatch.starts = started.iter().map(start).collect();
        dispatch
    }
}
