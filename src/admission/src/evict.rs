//! Eviction: running jobs that asked for it end for others, and wait again.
//!
//! # Problem
//! A long job that runs when the machine is empty holds its slots, memory or device for hours, and a job whose turn has come
//! waits for its end. Preemption by width frees slots only, and freezing frees none of memory and devices. Ending a job
//! loses work, so only its user can allow that: `run --requeue`.
//!
//! # Terms
//! - *Evictable*: a running job with [`Requeue`](super::types::Requeue) that has run for [`RUN_SECONDS`], was not evicted for
//!   [`REST_SECONDS`] plus its grace, and has runs left ([`RUNS_MAX`]). It is a set of which each run is a task, one at a
//!   time: its client starts each run ([`super::tasks`]).
//! - *Dominant share* of a tenant: the largest part of the slots, workers, memory or units of a counted resource that its
//!   running jobs hold. Slots count by floors: wider jobs get narrower without a loss.
//! - *Entitled share*: its weight among the tenants that have a running or a waiting job.
//! - *Beneficiary*: the waiting job that starts in the place of the evicted ones.
//!
//! # Rules
//! 1. *Guarantee.* The first waiting job of a tenant is a beneficiary if its slots and memory, with those that the tenant's
//!    jobs hold, are within the tenant's guarantee.
//! 2. *Turn.* Otherwise the beneficiary is the first senior, else the first job of the tenant whose turn it is; a tenant
//!    whose own limit stops that job is skipped. Its tenant holds less than its entitled share, each tenant that loses a job
//!    holds more than its own at that moment, and the beneficiary itself was never evicted.
//! 3. *Never below a guarantee.* No tenant loses slots or memory within its own guarantee, and none loses a job to itself.
//! 4. *Enough or none.* Jobs are evicted only if the beneficiary fits once they have ended. One job or two are chosen exactly,
//!    the youngest first; of more, those with the smallest dominant share are left out until none can be.
//! 5. *One at a time.* No further beneficiary is chosen while jobs end for one.
//! 6. *Reservation.* The beneficiary is the first senior until it starts, or until the longest grace plus
//!    [`RESERVED_SECONDS`] have passed. So no third job takes the freed resources, for a bounded time.
//! 7. *Old place.* An evicted job waits again before the younger jobs of its tenant.
//!
//! # Bounds
//! A job is evicted at most once in [`REST_SECONDS`] and at most [`RUNS_MAX`] − 1 times. Two jobs do not evict each other in
//! turn, because an evicted job is no beneficiary of rule 2. The search tries at most [`CANDIDATES_MAX`] of the youngest
//! jobs: O(candidates² · running).
//!
//! # Properties (`tests/admission/evictions.rs`)
//! - No more is held than there is; only jobs that asked for it are evicted; each beneficiary starts with the next dispatch
//!   after their end; evictions are bounded per job and time (`evictions_are_useful_and_bounded`).
//! - Two jobs do not evict each other in turn (`two_jobs_do_not_evict_each_other_in_turn`).

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::fit::{Lack, Need};
use super::job::{Job, Kind, Leaving, Reservation};
use super::state::Admission;
use super::types::{Cause, Guarantee, JobId};
use tenantd_queue::TenantId;

/// Least time in seconds that a job runs before it is evicted: starting it again must not cost more than its run.
pub const RUN_SECONDS: f64 = 60.0;
/// Time in seconds, beside the grace, in which a job is not evicted again.
pub const REST_SECONDS: f64 = 600.0;
/// Most runs of one job; the last one is not evicted.
pub const RUNS_MAX: u32 = 100;
/// Time in seconds after the grace in which the client has to report the end; then the daemon ends the job.
pub const FORCE_SECONDS: f64 = 5.0;
/// Time in seconds after the grace for which resources stay reserved.
pub const RESERVED_SECONDS: f64 = 15.0;
/// Most evictable jobs that are tried.
const CANDIDATES_MAX: usize = 48;
/// Most tenants whose turn is looked at.
const TENANTS_MAX: usize = 64;
/// Tolerance of a comparison of shares.
const NOISE: f64 = 1e-9;

/// An order to end a running job, which then waits again.
#[derive(Clone, Debug, PartialEq)]
pub struct Eviction {
    /// The job.
    pub job: JobId,
    /// Its beneficiary.
    pub cause: Cause,
    /// Time between SIGTERM and SIGKILL.
    pub grace_seconds: u32,
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    task: JobId,
    set: JobId,
}

/// The reason for which a beneficiary may take from others.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Claim {
    Guarantee,
    Turn,
}

/// Resources of the running jobs of a tenant.
#[derive(Clone, Debug, Default)]
struct Holding {
    slots: u64,
    workers: u64,
    memory_bytes: u64,
    units: Vec<u64>,
}

impl Holding {
    fn add(&mut self, job: &Job) {
        self.slots += job.held_slots();
        self.workers += u64::from(job.held_slots() > 0);
        self.memory_bytes = self.memory_bytes.saturating_add(job.reserved_bytes());
        self.units.resize(self.units.len().max(job.need.units.len()), 0);
        for (all, of_job) in self.units.iter_mut().zip(&job.need.units) {
            *all += u64::from(*of_job);
        }
    }

    fn remove(&mut self, job: &Job) {
        self.slots = self.slots.saturating_sub(job.held_slots());
        self.workers = self.workers.saturating_sub(u64::from(job.held_slots() > 0));
        self.memory_bytes = self.memory_bytes.saturating_sub(job.reserved_bytes());
        for (all, of_job) in self.units.iter_mut().zip(&job.need.units) {
            *all = all.saturating_sub(u64::from(*of_job));
        }
    }
}

/// One choice of jobs to evict.
struct Search<'a> {
    admission: &'a Admission,
    need: &'a Need,
    claim: Claim,
    holdings: BTreeMap<TenantId, Holding>,
    /// Sum of the weights of the tenants with jobs.
    weights: f64,
}

impl Admission {
    /// Chooses jobs to end for a waiting one, after a dispatch. They run until their clients report their end
    /// ([`Admission::report_tasks`]).
    pub fn evict(&mut self, now: f64) -> Vec<Eviction> {
        self.renew_reservation(now);
        if self.reservation.is_some() || !self.leaving.is_empty() || self.queue.waiting() == 0 {
            return Vec::new();
        }
        let candidates = self.candidates(now);
        if candidates.is_empty() {
            return Vec::new();
        }
        let of_guarantee = self.due_guarantees().into_iter().find_map(|(id, tenant)| {
            Some((id, self.chosen(id, tenant, Claim::Guarantee, &candidates)?))
        });
        let choice = of_guarantee.or_else(|| {
            let (id, tenant) = self.next_turn(now)?;
            Some((id, self.chosen(id, tenant, Claim::Turn, &candidates)?))
        });
        let Some((id, chosen)) = choice else { return Vec::new() };
        let cause = Cause { job: Some(id), tenant: self.jobs[&id].request.tenant.clone() };
        let begun = chosen.into_iter().filter_map(|it| self.begin(it.set, cause.clone(), now));
        let begun: Vec<Eviction> = begun.collect();
        let grace = begun.iter().map(|it| it.grace_seconds).max().unwrap_or(0);
        self.reservation =
            Some(Reservation { job: id, until: now + f64::from(grace) + RESERVED_SECONDS });
        self.seniors.retain(|senior| *senior != id);
        self.seniors.insert(0, id);
        begun
    }

    /// Evicts a job for the guarantee of a tenant or group; `None` if it may not be evicted.
    pub fn evict_for_guarantee(&mut self, job: JobId, tenant: &str, now: f64) -> Option<Eviction> {
        let is_evictable = self.is_evictable(job, now);
        let cause = Cause { job: None, tenant: tenant.to_string() };
        is_evictable.then(|| self.begin(job, cause, now)).flatten()
    }

    fn begin(&mut self, job: JobId, cause: Cause, now: f64) -> Option<Eviction> {
        let grace_seconds = self.jobs.get(&job)?.request.requeue?.grace_seconds;
        let until = now + f64::from(grace_seconds) + FORCE_SECONDS;
        self.nr_changes += 1;
        self.leaving.insert(job, Leaving { cause: cause.clone(), until });
        Some(Eviction { job, cause, grace_seconds })
    }

    /// The eviction of a job that is under way, for a client that may not have got its order.
    pub fn eviction(&self, job: JobId) -> Option<Eviction> {
        let (leaving, known) = (self.leaving.get(&job)?, self.jobs.get(&job)?);
        let grace_seconds = known.request.requeue?.grace_seconds;
        Some(Eviction { job, cause: leaving.cause.clone(), grace_seconds })
    }

    /// Jobs whose clients have not ended them in time.
    pub fn overdue(&self, now: f64) -> Vec<JobId> {
        let overdue = self.leaving.iter().filter(|(_, leaving)| now >= leaving.until);
        overdue.map(|(job, _)| *job).collect()
    }

    /// Records that the daemon ends a job itself: its resources stay reserved a little longer.
    pub fn eviction_forced(&mut self, job: JobId, now: f64) {
        self.nr_changes += 1;
        if let Some(leaving) = self.leaving.get_mut(&job) {
            leaving.until = now + RESERVED_SECONDS;
        }
        if let Some(reservation) = &mut self.reservation {
            reservation.until = reservation.until.max(now + RESERVED_SECONDS);
        }
    }

    /// Ends an eviction that failed: the job runs on, and is left alone for [`REST_SECONDS`] plus its grace.
    pub fn eviction_failed(&mut self, job: JobId, now: f64) {
        if self.leaving.remove(&job).is_none() {
            return;
        }
        self.rest(job, now);
        if self.leaving.is_empty() {
            self.end_reservation();
        }
    }

    /// True if a running job may be evicted now.
    pub fn is_evictable(&self, job: JobId, now: f64) -> bool {
        let Some(known) = self.jobs.get(&job) else { return false };
        let (Some(_), Some(runs)) = (known.request.requeue, known.set()) else { return false };
        let started = runs.running.iter().filter_map(|task| self.jobs.get(task)?.run());
        let has_run = |since: f64| now - since >= RUN_SECONDS;
        let has_more = runs.set.granted() < runs.set.tasks().count && !runs.set.is_closed();
        runs.running.len() == 1
            && started.into_iter().all(|run| has_run(run.since))
            && has_more
            && !runs.is_unsure
            && runs.rests_until.is_none_or(|until| now >= until)
            && !self.leaving.contains_key(&job)
    }

    /// Records that no run of a job is left; `returns` if it waits for another one.
    pub(super) fn has_left(&mut self, id: JobId, returns: bool, now: f64) {
        if self.jobs.get(&id).is_none_or(|job| job.request.requeue.is_none()) {
            return;
        }
        let leaving = self.leaving.remove(&id);
        if returns {
            self.rest(id, now);
            if let (Some(leaving), Some(Job { kind: Kind::Set(runs), .. })) =
                (leaving, self.jobs.get_mut(&id))
            {
                runs.evicted = Some(leaving.cause);
            }
        }
    }

    fn rest(&mut self, id: JobId, now: f64) {
        self.nr_changes += 1;
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let grace = job.request.requeue.map_or(0, |it| it.grace_seconds);
        if let Kind::Set(runs) = &mut job.kind {
            runs.rests_until = Some(now + f64::from(grace) + REST_SECONDS);
        }
    }

    /// Job and tenant of an eviction for a waiting job.
    pub(super) fn leaves_for(&self, id: JobId) -> Option<(JobId, String)> {
        let (job, _) = self.leaving.iter().find(|(_, it)| it.cause.job == Some(id))?;
        Some((*job, self.jobs.get(job)?.request.tenant.clone()))
    }

    /// True if a job is a senior only because others end for it.
    pub(super) fn is_reserved_for(&self, id: JobId) -> bool {
        self.reservation.is_some_and(|it| it.job == id)
    }

    /// Ends a reservation of which the job has started or left, or whose time is over.
    fn renew_reservation(&mut self, now: f64) {
        let Some(Reservation { job, until }) = self.reservation else { return };
        if now >= until || self.jobs.get(&job).is_none_or(|job| !job.is_waiting()) {
            self.end_reservation();
        }
    }

    fn end_reservation(&mut self) {
        let Some(Reservation { job, .. }) = self.reservation.take() else { return };
        self.nr_changes += 1;
        let max = self.rules.overtakes_max;
        if self.jobs.get(&job).is_none_or(|job| job.overtaken().is_none_or(|it| it < max)) {
            self.seniors.retain(|senior| *senior != job);
        }
    }

    /// Evictable jobs, the youngest run first.
    fn candidates(&self, now: f64) -> Vec<Candidate> {
        let mut all: Vec<(f64, Candidate)> = Vec::new();
        for (task, run) in self.runs() {
            if let Kind::Task(set) = self.jobs[&task].kind
                && self.is_evictable(set, now)
            {
                all.push((run.since, Candidate { task, set }));
            }
        }
        all.sort_by(|(a, left), (b, right)| b.total_cmp(a).then(right.set.cmp(&left.set)));
        all.truncate(CANDIDATES_MAX);
        all.into_iter().map(|(_, candidate)| candidate).collect()
    }

    /// First waiting jobs of tenants with a guarantee, if the job is within it.
    fn due_guarantees(&self) -> Vec<(JobId, TenantId)> {
        let tenants = (0..self.tenants.len() as u32).map(TenantId);
        let due = tenants.filter_map(|tenant| {
            let Guarantee { cores, memory_bytes } = self.terms(tenant)?.guarantee;
            let id = JobId(self.queue.requests_of(tenant).next()?.id);
            let need = &self.jobs.get(&id).filter(|_| cores > 0.0 || memory_bytes > 0)?.need;
            let held = self.holding(tenant);
            let free = self.free_now();
            let has_slots = (held.slots + need.floor) as f64 <= cores + NOISE;
            let has_memory = held.memory_bytes.saturating_add(need.memory_bytes) <= memory_bytes;
            let mut lacks = self.lacks(need, &free).peekable();
            let is_full = free.busy >= self.workers();
            let is_lacking = is_full || lacks.peek().is_some();
            let is_due = need.tenant == tenant
                && is_lacking
                && (has_slots || !is_full)
                && lacks.all(|lack| match lack {
                    Lack::Slots => has_slots,
                    Lack::Memory => has_memory,
                    _ => false,
                });
            is_due.then_some((id, tenant))
        });
        due.collect()
    }

    /// The job whose turn it is, and the tenant that has the turn.
    fn next_turn(&self, now: f64) -> Option<(JobId, TenantId)> {
        if let Some(senior) = self.seniors.first() {
            return Some((*senior, self.jobs.get(senior)?.need.tenant));
        }
        let (mut queue, free) = (self.queue.clone(), self.free_now());
        for _ in 0..TENANTS_MAX {
            let tenant = queue.next(0, now)?;
            let id = JobId(queue.requests_of(tenant).next()?.id);
            let need = &self.jobs.get(&id)?.need;
            if self.lacks(need, &free).all(|lack| !lack.is_of_tenant()) {
                return Some((id, tenant));
            }
            queue.hold(tenant, true, now);
        }
        None
    }

    fn holding(&self, tenant: TenantId) -> Holding {
        let mut holding = Holding::default();
        let jobs = self.runs().map(|(id, _)| &self.jobs[&id]);
        jobs.filter(|job| job.need.tenant == tenant).for_each(|job| holding.add(job));
        holding
    }

    /// Jobs whose end lets this one start; `None` if it has no claim, or these do not suffice.
    fn chosen(
        &self,
        id: JobId,
        tenant: TenantId,
        claim: Claim,
        candidates: &[Candidate],
    ) -> Option<Vec<Candidate>> {
        let job = self.jobs.get(&id).filter(|job| job.is_waiting())?;
        let was_evicted = job.request.requeue.is_some() && job.has_begun();
        let search = Search::new(self, &job.need, claim);
        let is_below = || search.surplus(tenant, &search.holdings) < -NOISE;
        if claim == Claim::Turn && (was_evicted || !is_below()) || search.fits(&[]) {
            return None;
        }
        let others: Vec<Candidate> = candidates
            .iter()
            .filter(|it| {
                let of = self.jobs[&it.task].need.tenant;
                of != tenant && of != job.need.tenant
            })
            .copied()
            .collect();
        search.fewest(&others)
    }
}

impl<'a> Search<'a> {
    fn new(admission: &'a Admission, need: &'a Need, claim: Claim) -> Search<'a> {
        let mut holdings: BTreeMap<TenantId, Holding> = BTreeMap::new();
        for (id, _) in admission.runs() {
            let job = &admission.jobs[&id];
            holdings.entry(job.need.tenant).or_default().add(job);
        }
        let all = (0..admission.tenants.len() as u32).map(TenantId);
        let is_busy = |tenant: &TenantId| {
            holdings.contains_key(tenant) || admission.queue.waiting_of(*tenant) > 0
        };
        let weights = all.filter(is_busy).filter_map(|it| Some(admission.terms(it)?.weight)).sum();
        Search { admission, need, claim, holdings, weights }
    }

    /// Dominant share of a tenant less its entitled share.
    fn surplus(&self, tenant: TenantId, holdings: &BTreeMap<TenantId, Holding>) -> f64 {
        let weight = self.admission.terms(tenant).map_or(0.0, |terms| terms.weight);
        let entitled = if self.weights > 0.0 { weight / self.weights } else { 0.0 };
        holdings.get(&tenant).map_or(0.0, |holding| self.dominant(holding)) - entitled
    }

    fn dominant(&self, holding: &Holding) -> f64 {
        let capacity = &self.admission.capacity;
        let part = |held: u64, all: u64| held as f64 / all.max(1) as f64;
        let memory = capacity.memory_bytes.map(|all| part(holding.memory_bytes, all));
        let units = holding.units.iter().zip(&capacity.units);
        let units = units.map(|(held, (_, all))| part(*held, u64::from(*all)));
        let slots = part(holding.slots, self.admission.slots().into());
        let workers = part(holding.workers, self.admission.workers().into());
        [slots, workers].into_iter().chain(memory).chain(units).fold(0.0, f64::max)
    }

    /// Removes a job from the holdings; false if its tenant may not lose it.
    fn remove(&self, candidate: Candidate, holdings: &mut BTreeMap<TenantId, Holding>) -> bool {
        let job = &self.admission.jobs[&candidate.task];
        let tenant = job.need.tenant;
        if self.claim == Claim::Turn && self.surplus(tenant, holdings) <= NOISE {
            return false;
        }
        let Some(holding) = holdings.get_mut(&tenant) else { return false };
        holding.remove(job);
        // A tenant that has left the policy has no guarantee.
        let terms = self.admission.terms(tenant);
        let Guarantee { cores, memory_bytes } = terms.map(|it| it.guarantee).unwrap_or_default();
        let keeps = |before: u64, left: u64, guaranteed: f64| {
            before == left || left as f64 + NOISE >= guaranteed
        };
        keeps(holding.slots + job.held_slots(), holding.slots, cores)
            && keeps(
                holding.memory_bytes.saturating_add(job.reserved_bytes()),
                holding.memory_bytes,
                memory_bytes as f64,
            )
    }

    fn may_leave(&self, chosen: &[Candidate]) -> bool {
        let mut holdings = self.holdings.clone();
        chosen.iter().all(|candidate| self.remove(*candidate, &mut holdings))
    }

    /// True if the beneficiary can start once these have ended.
    fn fits(&self, chosen: &[Candidate]) -> bool {
        let ended: Vec<JobId> = chosen.iter().map(|it| it.task).collect();
        let free = self.admission.free_after(&ended);
        free.busy < self.admission.workers() && self.admission.lack(self.need, &free).is_none()
    }

    fn suffices(&self, chosen: &[Candidate]) -> bool {
        self.may_leave(chosen) && self.fits(chosen)
    }

    fn fewest(&self, all: &[Candidate]) -> Option<Vec<Candidate>> {
        if let Some(one) = all.iter().find(|it| self.suffices(&[**it])) {
            return Some(vec![*one]);
        }
        for (place, first) in all.iter().enumerate() {
            let second = all[place + 1..].iter().find(|it| self.suffices(&[*first, **it]));
            if let Some(second) = second {
                return Some(vec![*first, *second]);
            }
        }
        self.irreducible(all)
    }

    /// As many as may leave, without those that are not needed.
    fn irreducible(&self, all: &[Candidate]) -> Option<Vec<Candidate>> {
        let mut holdings = self.holdings.clone();
        let mut chosen: Vec<Candidate> = Vec::new();
        for candidate in all {
            let before = holdings.clone();
            if self.remove(*candidate, &mut holdings) {
                chosen.push(*candidate);
            } else {
                holdings = before;
            }
        }
        if !self.fits(&chosen) {
            return None;
        }
        let size = |it: &Candidate| {
            let mut holding = Holding::default();
            holding.add(&self.admission.jobs[&it.task]);
            self.dominant(&holding)
        };
        // Of equal size the oldest is left out first.
        let mut order: Vec<(f64, Reverse<usize>, JobId)> = chosen
            .iter()
            .enumerate()
            .map(|(place, it)| (size(it), Reverse(place), it.task))
            .collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        for (_, _, task) in order {
            let rest: Vec<Candidate> =
                chosen.iter().filter(|it| it.task != task).copied().collect();
            if self.suffices(&rest) {
                chosen = rest;
            }
        }
        Some(chosen)
    }
}
