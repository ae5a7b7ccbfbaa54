//! A queue with workers, run event by event.
//!
//! # Decision
//! The order of events at one instant: new banks, completions by worker, timers and refreshes, arrivals (tokens of
//! earlier ones, endless tenants, the source's, operations), splits that enter, dispatches to free workers
//! by worker, timeouts. Times that differ by less than rounding are one instant.
//!
//! Work comes from a [`Source`], events go to an [`Observer`]; both are arguments, as is everything else. A
//! request longer than the quantum runs in slices, between which it waits in the queue again. A request
//! that uses more than it holds is killed when its use reaches its holdings: use grows with work. Decisions come from a
//! [`Scheduler`], which may evict running requests: such a run ends after its grace, its work is lost, and the request
//! waits again.
//!
//! # Properties
//! - No worker idles while a request waits that may run (`no_worker_idles_beside_a_waiting_request`).
//! - Two runs of the same source are the same (`the_same_seed_gives_the_same_answer`).

mod scheduler;
mod state;
mod types;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::entrance::Arrived;
use super::requests::Pick;
use super::tag::{STEP, Tag};
use super::types::{Request, TenantId};
pub use scheduler::{Entry, Leave, Scheduler};
pub use state::State;
use state::{Busy, Idle};
pub use types::{Arrival, Before, Charge, Ended, Instance, Left, Observer, Run, Source, Work};

#[derive(Clone, Debug)]
struct Job {
    tenant: TenantId,
    number: u64,
    arrived: f64,
    /// Rest of its work, the present slice included.
    rest: f64,
    class: u32,
    holds: Box<[f64]>,
    /// Work left until it is killed, and the resource of which it uses too much.
    killed_after: Option<(f64, usize)>,
    operation: Option<usize>,
    grace: Option<u32>,
    has_started: bool,
}

/// Dispatches after which time counts as stopped, if it has not moved by [`MOVED`] of the horizon meanwhile.
const STANDING_MAX: u64 = 1_000_000;
const MOVED: f64 = 1e-12;

/// Runs a queue to its horizon. The tenants of `before` have been admitted to it, numbered from 0.
pub fn simulate(
    queue: &mut dyn Scheduler,
    run: Run,
    before: &mut Before,
    source: &mut dyn Source,
    observer: &mut dyn Observer,
) -> Ended {
    let nr_tenants = before.entrance.nr_tenants();
    let workers = run.machine.workers;
    let mut simulation = Simulation {
        run,
        queue,
        before,
        observer,
        state: State::new(nr_tenants, run.machine),
        idle: Idle::all(workers),
        ends: BinaryHeap::new(),
        timers: BinaryHeap::new(),
        deadlines: BinaryHeap::new(),
        jobs: Vec::new(),
        free_jobs: Vec::new(),
        free_workers: Vec::new(),
        numbers: vec![0; nr_tenants],
        is_endless: vec![false; nr_tenants],
        donors: BTreeMap::new(),
        nr_dispatched: 0,
        wake: f64::INFINITY,
    };
    simulation.run(source)
}

struct Simulation<'a> {
    run: Run,
    queue: &'a mut dyn Scheduler,
    before: &'a mut Before,
    observer: &'a mut dyn Observer,
    state: State,
    idle: Idle,
    ends: BinaryHeap<Reverse<(Tag, u32)>>,
    /// Times at which the credit of a request is used up: its worker, and the number of its dispatch.
    timers: BinaryHeap<Reverse<(Tag, u32, u64)>>,
    /// Times at which a request leaves if it has not started: its tenant, its number, its place among the
    /// jobs.
    deadlines: BinaryHeap<Reverse<(Tag, TenantId, u64, usize)>>,
    jobs: Vec<Job>,
    free_jobs: Vec<usize>,
    /// Kept between two completions to reuse the memory.
    free_workers: Vec<u32>,
    numbers: Vec<u64>,
    is_endless: Vec<bool>,
    /// Tenants that donate turns to each operation.
    donors: BTreeMap<usize, BTreeSet<TenantId>>,
    nr_dispatched: u64,
    /// Time at which a limit lets something run again.
    wake: f64,
}

/// True if a time is `now`, up to rounding, or before.
fn is_due(time: f64, now: f64) -> bool {
    time <= now + now.abs() * STEP
}

fn first<T: Ord + Copy>(heap: &BinaryHeap<Reverse<T>>, time: impl Fn(T) -> Tag) -> f64 {
    heap.peek().map_or(f64::INFINITY, |Reverse(first)| time(*first).value())
}

impl Simulation<'_> {
    fn run(&mut self, source: &mut dyn Source) -> Ended {
        let mut endless = source.endless().into_iter().peekable();
        let mut arrival = source.next_arrival();
        let mut refreshes = 1.0;
        let mut samples = 0.0;
        // The time, and the dispatches before it: costs may be too small to move the time.
        let mut stood = (0.0, 0);
        loop {
            let refresh = match self.run.charge {
                Charge::Refresh(period) => refreshes * period,
                Charge::End | Charge::Timer => f64::INFINITY,
            };
            let sample = samples * self.run.sample;
            let arrives = arrival.as_ref().map_or(f64::INFINITY, |arrival| arrival.time);
            let begins = endless.peek().map_or(f64::INFINITY, |(time, _)| *time);
            let event = self.next_event().min(arrives).min(begins);
            let lends = self.observer.lends_at();
            let now = event.min(refresh).min(sample).min(lends);
            if is_due(self.run.horizon, now) {
                self.observer.instant(self.run.horizon, Instance::Sample, &self.state);
                return Ended::Horizon;
            }
            if is_due(sample, now) {
                samples += 1.0;
                self.observer.instant(now, Instance::Sample, &self.state);
            }
            if is_due(event, now) {
                self.observer.instant(now, Instance::Event, &self.state);
            }
            if is_due(lends, now) {
                self.lend(now);
            }
            self.complete(now);
            self.extend(now);
            if is_due(refresh, now) {
                refreshes += 1.0;
                self.refresh(now);
            }
            self.release(now);
            while let Some((_, tenant)) = endless.next_if(|(time, _)| is_due(*time, now)) {
                self.is_endless[tenant.index()] = true;
                self.continue_endless(source, tenant, now);
            }
            while let Some(due) = arrival.take_if(|arrival| is_due(arrival.time, now)) {
                self.arrive(due.tenant, due.work, None, now);
                arrival = source.next_arrival();
            }
            self.send(now);
            self.enter(now);
            self.dispatch(source, now);
            self.collect_fees(now);
            self.evict(now);
            self.time_out(source, now);
            if now - stood.0 > self.run.horizon * MOVED {
                stood = (now, self.nr_dispatched);
            }
            if self.nr_dispatched > self.run.dispatches_max
                || self.nr_dispatched - stood.1 > STANDING_MAX
            {
                return Ended::TooMany { time: now };
            }
        }
    }

    fn lend(&mut self, now: f64) {
        for (tenant, bank) in (0..).map(TenantId).zip(self.observer.lend(now, &self.state)) {
            self.queue.lend(tenant, bank);
        }
    }

    fn collect_fees(&mut self, now: f64) {
        for (tenant, fee) in self.queue.fees(now) {
            self.observer.paid(tenant, fee);
        }
    }

    /// The next event that does not come from the source.
    fn next_event(&mut self) -> f64 {
        while let Some(Reverse((_, worker, dispatch))) = self.timers.peek()
            && self.state.busy(*worker).is_none_or(|busy| busy.dispatch != *dispatch)
        {
            self.timers.pop();
        }
        while let Some(Reverse((_, tenant, number, job))) = self.deadlines.peek()
            && !self.has_not_started(*tenant, *number, *job)
        {
            self.deadlines.pop();
        }
        while let Some(Reverse((end, worker))) = self.ends.peek()
            && self.state.end(*worker) != Some(*end)
        {
            self.ends.pop();
        }
        let times = [
            first(&self.ends, |(time, _)| time),
            first(&self.timers, |(time, ..)| time),
            first(&self.deadlines, |(time, ..)| time),
            self.before.entrance.next_token(),
            self.before.operations.next(),
            self.wake,
        ];
        times.into_iter().fold(f64::INFINITY, f64::min)
    }

    /// True if it is still the same request: places of jobs are used again.
    fn has_not_started(&self, tenant: TenantId, number: u64, job: usize) -> bool {
        let job = &self.jobs[job];
        job.tenant == tenant && job.number == number && !job.has_started
    }

    fn complete(&mut self, now: f64) {
        let mut free = std::mem::take(&mut self.free_workers);
        while let Some(Reverse((end, worker))) = self.ends.peek()
            && is_due(end.value(), now)
        {
            if self.state.end(*worker) == Some(*end) {
                free.push(*worker);
            }
            self.ends.pop();
        }
        free.sort_unstable();
        free.dedup();
        for worker in free.drain(..) {
            self.idle.insert(worker);
            let Some(busy) = self.state.stop(worker) else { continue };
            if busy.is_leaving {
                self.queue.evicted(busy.ticket, busy.cost - busy.charged, now);
                let number = self.jobs[busy.job].number;
                let lost = busy.cost / self.state.rate;
                self.observer.evicted(now, worker, busy.tenant, number, lost);
                continue;
            }
            self.queue.complete(busy.ticket, busy.cost - busy.charged, now);
            let job = &mut self.jobs[busy.job];
            job.rest -= busy.cost;
            let (number, arrived) = (job.number, job.arrived);
            if let Some((left, resource)) = &mut job.killed_after {
                *left -= busy.cost;
                if *left <= 0.0 {
                    let why = Left::Killed(*resource);
                    self.observer.left(now, busy.tenant, number, why);
                    self.end(busy.job, now);
                    continue;
                }
            }
            if job.rest > 0.0 {
                self.enqueue(busy.job, now);
                continue;
            }
            self.observer.completed(now, busy.tenant, number, arrived);
            self.end(busy.job, now);
        }
        self.free_workers = free;
    }

    /// A request that was in the queue has ended.
    fn end(&mut self, job: usize, now: f64) {
        let tenant = self.jobs[job].tenant;
        self.state.present[tenant.index()] -= 1;
        self.before.entrance.ended(tenant);
        self.forget(job, now);
    }

    fn forget(&mut self, job: usize, now: f64) {
        if let Some(operation) = self.jobs[job].operation {
            self.before.operations.ended(operation, self.jobs[job].has_started, now);
        }
        // Its deadline has no effect any more.
        self.jobs[job].has_started = true;
        self.free_jobs.push(job);
    }

    fn refresh(&mut self, now: f64) {
        let State { workers, rate, nr_charged, .. } = &mut self.state;
        for busy in workers.iter_mut().flatten() {
            let used = busy.done(now, *rate) - busy.charged;
            if used > 0.0 {
                busy.charged += used;
                *nr_charged += 1;
                self.queue.charge(busy.ticket, used, now);
            }
        }
    }

    /// Charges the requests whose credit is used up.
    fn extend(&mut self, now: f64) {
        while let Some(Reverse((time, worker, dispatch))) = self.timers.peek().copied()
            && is_due(time.value(), now)
        {
            self.timers.pop();
            let busy = self.state.workers[worker as usize].as_mut();
            let Some(busy) = busy.filter(|busy| busy.dispatch == dispatch) else { continue };
            busy.charged += self.queue.credit(busy.ticket);
            self.queue.extend(busy.ticket, now);
            self.state.nr_charged += 1;
            self.set_timer(worker);
        }
    }

    /// Sets the timer of a request that runs on past its credit. A credit of 0 cannot double: it is
    /// corrected at the end.
    fn set_timer(&mut self, worker: u32) {
        let Some(busy) = self.state.busy(worker).filter(|_| self.run.charge == Charge::Timer)
        else {
            return;
        };
        let (credit, rate) = (self.queue.credit(busy.ticket), self.state.rate);
        let time = busy.started + (busy.charged + credit) / rate;
        if credit > 0.0 && !is_due(busy.started + busy.cost / rate, time) {
            self.timers.push(Reverse((Tag::exact(time), worker, busy.dispatch)));
        }
    }

    fn arrive(&mut self, tenant: TenantId, work: Work, operation: Option<usize>, now: f64) {
        self.numbers[tenant.index()] += 1;
        let number = self.numbers[tenant.index()];
        self.observer.arrived(now, tenant, number, &work);
        let killed_after = work.killed_after();
        let Work { cost, class, holds, grace, .. } = work;
        let (arrived, rest, has_started) = (now, cost, false);
        let job = Job {
            tenant,
            number,
            arrived,
            rest,
            class,
            holds,
            killed_after,
            operation,
            grace,
            has_started,
        };
        let index = match self.free_jobs.pop() {
            Some(free) => {
                self.jobs[free] = job;
                free
            }
            None => {
                self.jobs.push(job);
                self.jobs.len() - 1
            }
        };
        match self.before.entrance.arrive(tenant, index, now) {
            Arrived::Dropped => {
                self.observer.left(now, tenant, number, Left::Dropped);
                return self.forget(index, now);
            }
            Arrived::Enters => self.first_enqueue(index, now),
            Arrived::Waits => {}
        }
        if let Some(timeout) = self.before.entrance.timeout(tenant) {
            self.deadlines.push(Reverse((Tag::exact(now + timeout), tenant, number, index)));
        }
    }

    /// Handles requests that get a token now.
    fn release(&mut self, now: f64) {
        while is_due(self.before.entrance.next_token(), now) {
            if let Some((_, job)) = self.before.entrance.release(now) {
                self.first_enqueue(job, now);
            }
        }
    }

    /// Sends the operations that are ready.
    fn send(&mut self, now: f64) {
        while is_due(self.before.operations.next(), now)
            && let Some((operation, count)) = self.before.operations.send(now)
        {
            let (tenant, work) = self.before.works[operation].clone();
            if self.before.donates {
                let waiting = self.before.operations.waiting_for(operation, now);
                let donors = waiting.map(|it| self.before.works[it].0).filter(|it| *it != tenant);
                self.donors.insert(operation, donors.collect());
            }
            (0..count).for_each(|_| self.arrive(tenant, work.clone(), Some(operation), now));
        }
        self.continue_sets(now);
    }

    /// Sends the next requests of sets.
    fn continue_sets(&mut self, now: f64) {
        while let Some(operation) = self.before.operations.next_of_set() {
            let (tenant, work) = self.before.works[operation].clone();
            self.arrive(tenant, work, Some(operation), now);
        }
    }

    /// Lets splits enter whose turn it is.
    fn enter(&mut self, now: f64) {
        for (_, job) in self.before.entrance.enter() {
            self.first_enqueue(job, now);
        }
    }

    fn first_enqueue(&mut self, index: usize, now: f64) {
        let Job { tenant, number, rest, .. } = self.jobs[index];
        self.state.present[tenant.index()] += 1;
        self.observer.entered(now, tenant, number, rest);
        self.enqueue(index, now);
    }

    fn enqueue(&mut self, index: usize, now: f64) {
        let job = &self.jobs[index];
        let slice = self.run.quantum.map_or(f64::INFINITY, |quantum| quantum * self.state.rate);
        let (id, cost) = (index as u64, job.rest.min(slice));
        let request = Request { id, cost, class: job.class, holds: job.holds.clone() };
        let grace = job.grace;
        for donor in self.donors_of(index) {
            let request = Request { class: 0, ..request.clone() };
            self.queue.enqueue(donor, Entry { request, grace }, now);
        }
        let waits = self.queue.enqueue(self.jobs[index].tenant, Entry { request, grace }, now);
        debug_assert!(waits, "work of an unknown tenant, or of an impossible cost");
    }

    /// Tenants with an entry for a request of another one.
    fn donors_of(&self, index: usize) -> Vec<TenantId> {
        let operation = self.jobs[index].operation;
        let donors = operation.and_then(|operation| self.donors.get(&operation));
        donors.into_iter().flatten().copied().collect()
    }

    /// Withdraws all entries of a request.
    fn leave_queue(&mut self, index: usize, now: f64) {
        let mut tenants = self.donors_of(index);
        tenants.push(self.jobs[index].tenant);
        for tenant in tenants {
            self.queue.withdraw(tenant, index as u64, now);
        }
    }

    fn dispatch(&mut self, source: &mut dyn Source, now: f64) {
        self.wake = f64::INFINITY;
        while let Some(worker) = self.idle.first() {
            let picked = match self.queue.pick(worker, now) {
                Pick::Run(picked) => picked,
                Pick::NotBefore(time) => {
                    // A release that rounding put at `now` becomes one right after it.
                    self.wake = time.max(now + now.abs() * STEP * 2.0);
                    return;
                }
                Pick::Nothing => return,
            };
            self.idle.remove(worker);
            self.nr_dispatched += 1;
            let index = picked.request.id as usize;
            // It may be the turn of a donor.
            let tenant = self.jobs[index].tenant;
            if !self.donors.is_empty() {
                self.leave_queue(index, now);
            }
            let job = &mut self.jobs[index];
            let killed_after = job.killed_after.map_or(f64::INFINITY, |(left, _)| left);
            let cost = picked.request.cost.min(killed_after);
            if !std::mem::replace(&mut job.has_started, true) {
                self.before.entrance.started(tenant);
                if let Some(operation) = job.operation {
                    self.before.operations.started(operation, now);
                }
            }
            self.observer.dispatched(now, worker, tenant, job.number, cost);
            let (ticket, dispatch) = (picked.ticket, self.nr_dispatched);
            let (started, charged) = (now, 0.0);
            let is_leaving = false;
            let busy =
                Busy { ticket, tenant, job: index, dispatch, started, cost, charged, is_leaving };
            self.state.start(worker, busy);
            self.set_end(worker);
            self.set_timer(worker);
            self.continue_sets(now);
            self.keep_endless(source, tenant, now);
        }
    }

    fn set_end(&mut self, worker: u32) {
        let end = self.state.end(worker);
        self.ends.extend(end.map(|end| Reverse((end, worker))));
    }

    /// Ends runs for other requests: each after its grace, or at its own end before.
    fn evict(&mut self, now: f64) {
        for Leave { ticket, grace_seconds } in self.queue.evict(now) {
            let rate = self.state.rate;
            let workers = (0..).zip(&mut self.state.workers);
            let mut of_ticket = workers
                .filter_map(|(worker, busy)| Some((worker, busy.as_mut()?)))
                .filter(|(_, busy)| busy.ticket == ticket);
            let Some((worker, busy)) = of_ticket.next() else { continue };
            let left = (now + f64::from(grace_seconds) - busy.started) * rate;
            (busy.cost, busy.is_leaving) = (busy.cost.min(left), true);
            self.set_end(worker);
        }
    }

    /// Removes requests that have waited for too long.
    fn time_out(&mut self, source: &mut dyn Source, now: f64) {
        while let Some(Reverse((time, tenant, number, job))) = self.deadlines.peek().copied()
            && is_due(time.value(), now)
        {
            self.deadlines.pop();
            if !self.has_not_started(tenant, number, job) {
                continue;
            }
            if !self.before.entrance.withdraw(tenant, job) {
                self.leave_queue(job, now);
                self.state.present[tenant.index()] -= 1;
                self.before.entrance.ended(tenant);
            }
            self.observer.left(now, tenant, number, Left::TimedOut);
            self.forget(job, now);
            self.keep_endless(source, tenant, now);
            // Requests that waited for it may start at the same instant.
            self.wake = now;
        }
    }

    /// Adds a request of an endless tenant as soon as none of its requests waits.
    fn keep_endless(&mut self, source: &mut dyn Source, tenant: TenantId, now: f64) {
        let waits = || self.queue.waiting_of(tenant) + self.before.entrance.waiting_of(tenant) > 0;
        if self.is_endless[tenant.index()] && !waits() {
            self.continue_endless(source, tenant, now);
            self.enter(now);
        }
    }

    fn continue_endless(&mut self, source: &mut dyn Source, tenant: TenantId, now: f64) {
        match source.next_of(tenant, now) {
            Some(work) => self.arrive(tenant, work, None, now),
            None => {
                self.is_endless[tenant.index()] = false;
                self.observer.ended(now, tenant);
            }
        }
    }
}
