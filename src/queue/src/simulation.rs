//! A queue with workers, run event by event.
//!
//! # Decision
//! The order of simultaneous events: completions first, then charges for running requests, then arrivals,
//! then dispatches to free workers in the order of their numbers. Times that differ by less than rounding are
//! one instant.
//!
//! Work comes from a [`Source`], events go to an [`Observer`]; both are arguments, as is everything else. A
//! request longer than the quantum runs in slices, between which it waits in the queue again.
//!
//! # Properties
//! - No worker idles while a request waits that may run (`no_worker_idles_beside_a_waiting_request`).
//! - Two runs of the same source are the same (`the_same_seed_gives_the_same_answer`).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::requests::{Pick, Queue};
use super::tag::{STEP, Tag};
use super::types::{Machine, Request, TenantId, Ticket};

/// Work that arrives.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrival {
    /// When, in seconds.
    pub time: f64,
    /// The tenant.
    pub tenant: TenantId,
    /// The request.
    pub work: Work,
}

/// A request before it has a number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Work {
    /// Cost units, finite and at least 0; above 0 for endless tenants.
    pub cost: f64,
    /// Its class ([`Request::class`]).
    pub class: u32,
    /// What it holds ([`Request::holds`]).
    pub holds: Box<[f64]>,
}

/// The source of work.
pub trait Source {
    /// The next arrival, not before the last one.
    fn next_arrival(&mut self) -> Option<Arrival>;

    /// Another request of a tenant that always has one; `None` where it has no more from now on.
    fn next_of(&mut self, tenant: TenantId, now: f64) -> Option<Work>;

    /// The tenants that always have a request, each from a time on, in the order of these times.
    fn endless(&self) -> Vec<(f64, TenantId)>;
}

/// Receives the events of a simulation.
pub trait Observer {
    /// A request, or a slice of it, begins. `number` counts the requests of its tenant from 1.
    fn dispatched(
        &mut self,
        _time: f64,
        _worker: u32,
        _tenant: TenantId,
        _number: u64,
        _cost: f64,
    ) {
    }

    /// A request has arrived.
    fn arrived(&mut self, _time: f64, _tenant: TenantId, _number: u64, _work: &Work) {}

    /// A tenant that always had another request has no more.
    fn ended(&mut self, _time: f64, _tenant: TenantId) {}

    /// A request has been completed, having arrived at `arrived`.
    fn completed(&mut self, _time: f64, _tenant: TenantId, _number: u64, _arrived: f64) {}

    /// Time has come to a sample, or to an event: nothing has happened at it yet.
    fn instant(&mut self, _time: f64, _kind: Instance, _state: &State) {}
}

/// Why [`Observer::instant`] is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instance {
    /// Something happens now.
    Event,
    /// A sample is due.
    Sample,
}

/// The parameters of a simulation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// The workers.
    pub machine: Machine,
    /// When it ends, in seconds.
    pub horizon: f64,
    /// How often running requests are charged for what they have used, in seconds; `None` for at completion
    /// only.
    pub refresh: Option<f64>,
    /// The longest slice, in seconds; `None` for no slices.
    pub quantum: Option<f64>,
    /// Time between samples, in seconds, positive.
    pub sample: f64,
    /// Dispatches after which the run is aborted.
    pub dispatches_max: u64,
}

/// How a simulation ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ended {
    /// At its horizon.
    Horizon,
    /// There were too many dispatches before this time, or at it.
    TooMany {
        /// When the run was aborted.
        time: f64,
    },
}

/// The work done, at an instant.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Work completed for each tenant, cost units.
    done: Vec<f64>,
    /// Requests of each tenant that wait or run.
    present: Vec<u32>,
    workers: Vec<Option<Busy>>,
    rate: f64,
}

impl State {
    /// The service of each tenant so far, cost units, what runs included. O(tenants + workers).
    pub fn services(&self, now: f64, services: &mut Vec<f64>) {
        services.clear();
        services.extend_from_slice(&self.done);
        for busy in self.workers.iter().flatten() {
            services[busy.tenant.index()] += busy.done(now, self.rate);
        }
    }

    /// Whether a tenant has a request waiting or running.
    pub fn is_backlogged(&self, tenant: TenantId) -> bool {
        self.present.get(tenant.index()).is_some_and(|present| *present > 0)
    }
}

#[derive(Clone, Copy, Debug)]
struct Busy {
    ticket: Ticket,
    tenant: TenantId,
    job: usize,
    started: f64,
    cost: f64,
    /// The part of the cost that the queue was charged with.
    charged: f64,
}

impl Busy {
    fn done(&self, now: f64, rate: f64) -> f64 {
        ((now - self.started) * rate).clamp(0.0, self.cost)
    }
}

#[derive(Clone, Debug)]
struct Job {
    number: u64,
    arrived: f64,
    /// What is left of it, the present slice included.
    rest: f64,
    class: u32,
    holds: Box<[f64]>,
}

/// Dispatches after which time counts as stopped, if it has not moved by [`MOVED`] of the horizon meanwhile.
const STANDING_MAX: u64 = 1_000_000;
const MOVED: f64 = 1e-12;

/// Runs a queue to its horizon. `nr_tenants` have been admitted to it, numbered from 0.
pub fn simulate(
    queue: &mut Queue,
    run: Run,
    nr_tenants: usize,
    source: &mut dyn Source,
    observer: &mut dyn Observer,
) -> Ended {
    let workers = run.machine.workers;
    let mut simulation = Simulation {
        run,
        queue,
        observer,
        state: State {
            done: vec![0.0; nr_tenants],
            present: vec![0; nr_tenants],
            workers: vec![None; workers as usize],
            rate: run.machine.rate,
        },
        idle: Idle::all(workers),
        ends: BinaryHeap::new(),
        jobs: Vec::new(),
        free_jobs: Vec::new(),
        free_workers: Vec::new(),
        numbers: vec![0; nr_tenants],
        is_endless: vec![false; nr_tenants],
        nr_dispatched: 0,
        wake: f64::INFINITY,
    };
    simulation.run(source)
}

struct Simulation<'a> {
    run: Run,
    queue: &'a mut Queue,
    observer: &'a mut dyn Observer,
    state: State,
    idle: Idle,
    ends: BinaryHeap<Reverse<(Tag, u32)>>,
    jobs: Vec<Job>,
    free_jobs: Vec<usize>,
    /// Kept between two completions for its memory.
    free_workers: Vec<u32>,
    numbers: Vec<u64>,
    is_endless: Vec<bool>,
    nr_dispatched: u64,
    /// When a limit lets something run again.
    wake: f64,
}

/// A set of workers, as bits.
struct Idle(Vec<u64>);

impl Idle {
    fn all(workers: u32) -> Idle {
        let mut idle = Idle(vec![0; workers.div_ceil(64) as usize]);
        (0..workers).for_each(|worker| idle.insert(worker));
        idle
    }

    fn insert(&mut self, worker: u32) {
        self.0[worker as usize / 64] |= 1 << (worker % 64);
    }

    fn remove(&mut self, worker: u32) {
        self.0[worker as usize / 64] &= !(1 << (worker % 64));
    }

    fn first(&self) -> Option<u32> {
        let (at, word) = self.0.iter().enumerate().find(|(_, word)| **word != 0)?;
        Some(at as u32 * 64 + word.trailing_zeros())
    }
}

/// Whether a time is `now`, up to rounding, or before.
fn is_due(time: f64, now: f64) -> bool {
    time <= now + now.abs() * STEP
}

impl Simulation<'_> {
    fn run(&mut self, source: &mut dyn Source) -> Ended {
        let mut endless = source.endless().into_iter().peekable();
        let mut arrival = source.next_arrival();
        let mut refreshes = 1.0;
        let mut samples = 0.0;
        // The time, and the dispatches before it: costs may be too small for time to move.
        let mut stood = (0.0, 0);
        loop {
            let refresh = self.run.refresh.map_or(f64::INFINITY, |period| refreshes * period);
            let sample = samples * self.run.sample;
            let times = [
                self.ends.peek().map_or(f64::INFINITY, |Reverse((end, _))| end.value()),
                arrival.as_ref().map_or(f64::INFINITY, |arrival| arrival.time),
                endless.peek().map_or(f64::INFINITY, |(time, _)| *time),
                self.wake,
            ];
            let event = times.into_iter().fold(f64::INFINITY, f64::min);
            let now = event.min(refresh).min(sample);
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
            self.complete(now);
            if is_due(refresh, now) {
                refreshes += 1.0;
                self.charge(now);
            }
            while let Some((_, tenant)) = endless.next_if(|(time, _)| is_due(*time, now)) {
                self.is_endless[tenant.index()] = true;
                self.continue_endless(source, tenant, now);
            }
            while let Some(due) = arrival.take_if(|arrival| is_due(arrival.time, now)) {
                self.arrive(due.tenant, due.work, now);
                arrival = source.next_arrival();
            }
            self.dispatch(source, now);
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

    fn complete(&mut self, now: f64) {
        let mut free = std::mem::take(&mut self.free_workers);
        while let Some(Reverse((end, worker))) = self.ends.peek()
            && is_due(end.value(), now)
        {
            free.push(*worker);
            self.ends.pop();
        }
        free.sort_unstable();
        for worker in free.drain(..) {
            self.idle.insert(worker);
            let Some(busy) = self.state.workers[worker as usize].take() else { continue };
            self.state.done[busy.tenant.index()] += busy.cost;
            self.queue.complete(busy.ticket, busy.cost - busy.charged, now);
            let job = &mut self.jobs[busy.job];
            job.rest -= busy.cost;
            if job.rest > 0.0 {
                self.enqueue(busy.tenant, busy.job, now);
                continue;
            }
            self.state.present[busy.tenant.index()] -= 1;
            self.observer.completed(now, busy.tenant, job.number, job.arrived);
            self.free_jobs.push(busy.job);
        }
        self.free_workers = free;
    }

    fn charge(&mut self, now: f64) {
        let rate = self.state.rate;
        for busy in self.state.workers.iter_mut().flatten() {
            let used = busy.done(now, rate) - busy.charged;
            if used > 0.0 {
                busy.charged += used;
                self.queue.charge(busy.ticket, used, now);
            }
        }
    }

    fn arrive(&mut self, tenant: TenantId, work: Work, now: f64) {
        self.numbers[tenant.index()] += 1;
        let number = self.numbers[tenant.index()];
        self.observer.arrived(now, tenant, number, &work);
        self.state.present[tenant.index()] += 1;
        let Work { cost, class, holds } = work;
        let job = Job { number, arrived: now, rest: cost, class, holds };
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
        self.enqueue(tenant, index, now);
    }

    fn enqueue(&mut self, tenant: TenantId, index: usize, now: f64) {
        let job = &self.jobs[index];
        let slice = self.run.quantum.map_or(f64::INFINITY, |quantum| quantum * self.state.rate);
        let request = Request {
            id: index as u64,
            cost: job.rest.min(slice),
            class: job.class,
            holds: job.holds.clone(),
        };
        let waits = self.queue.enqueue(tenant, request, now);
        debug_assert!(waits, "work of an unknown tenant, or of an impossible cost");
    }

    fn dispatch(&mut self, source: &mut dyn Source, now: f64) {
        self.wake = f64::INFINITY;
        while let Some(worker) = self.idle.first() {
            let picked = match self.queue.pick(worker, now) {
                Pick::Run(picked) => picked,
                Pick::NotBefore(time) => {
                    // A release that rounding put at `now` is one right after it.
                    self.wake = time.max(now + now.abs() * STEP * 2.0);
                    return;
                }
                Pick::Nothing => return,
            };
            self.idle.remove(worker);
            self.nr_dispatched += 1;
            let (tenant, cost) = (picked.tenant, picked.request.cost);
            let job = picked.request.id as usize;
            let number = self.jobs[job].number;
            let has_more = self.is_endless[tenant.index()];
            self.observer.dispatched(now, worker, tenant, number, cost);
            let ticket = picked.ticket;
            self.state.workers[worker as usize] =
                Some(Busy { ticket, tenant, job, started: now, cost, charged: 0.0 });
            self.ends.push(Reverse((Tag::exact(now + cost / self.state.rate), worker)));
            // The tenant always has another request: as soon as none of its requests waits, there is one.
            if has_more && self.queue.waiting_of(tenant) == 0 {
                self.continue_endless(source, tenant, now);
            }
        }
    }

    fn continue_endless(&mut self, source: &mut dyn Source, tenant: TenantId, now: f64) {
        match source.next_of(tenant, now) {
            Some(work) => self.arrive(tenant, work, now),
            None => {
                self.is_endless[tenant.index()] = false;
                self.observer.ended(now, tenant);
            }
        }
    }
}
