//! Workers and the work done, at an instant.

use super::super::tag::Tag;
use super::super::types::{Machine, TenantId, Ticket};

/// The work done, at an instant.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Work done for each tenant by requests and slices that have ended, cost units.
    done: Vec<f64>,
    /// Requests of each tenant that wait in the queue or run.
    pub(super) present: Vec<u32>,
    /// Running requests of each tenant, and their maximum so far.
    running: Vec<(u32, u32)>,
    pub(super) workers: Vec<Option<Busy>>,
    pub(super) rate: f64,
    pub(super) nr_charged: u64,
}

/// A request, or a slice of it, on a worker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Busy {
    pub(super) ticket: Ticket,
    pub(super) tenant: TenantId,
    pub(super) job: usize,
    /// The number of its dispatch.
    pub(super) dispatch: u64,
    pub(super) started: f64,
    pub(super) cost: f64,
    /// Part of the cost that was charged to the queue.
    pub(super) charged: f64,
    /// True while it ends for another request.
    pub(super) is_leaving: bool,
}

impl Busy {
    pub(super) fn done(&self, now: f64, rate: f64) -> f64 {
        ((now - self.started) * rate).clamp(0.0, self.cost)
    }
}

impl State {
    pub(super) fn new(nr_tenants: usize, machine: Machine) -> State {
        State {
            done: vec![0.0; nr_tenants],
            present: vec![0; nr_tenants],
            running: vec![(0, 0); nr_tenants],
            workers: vec![None; machine.workers as usize],
            rate: machine.rate,
            nr_charged: 0,
        }
    }

    pub(super) fn busy(&self, worker: u32) -> Option<&Busy> {
        self.workers[worker as usize].as_ref()
    }

    /// End of the run on a worker.
    pub(super) fn end(&self, worker: u32) -> Option<Tag> {
        let busy = self.busy(worker)?;
        Some(Tag::exact(busy.started + busy.cost / self.rate))
    }

    pub(super) fn start(&mut self, worker: u32, busy: Busy) {
        let (running, most) = &mut self.running[busy.tenant.index()];
        *running += 1;
        *most = (*most).max(*running);
        self.workers[worker as usize] = Some(busy);
    }

    pub(super) fn stop(&mut self, worker: u32) -> Option<Busy> {
        let busy = self.workers[worker as usize].take()?;
        self.done[busy.tenant.index()] += busy.cost;
        self.running[busy.tenant.index()].0 -= 1;
        Some(busy)
    }

    /// The service of each tenant so far, in cost units, running requests included. O(tenants + workers).
    pub fn services(&self, now: f64, services: &mut Vec<f64>) {
        services.clear();
        services.extend_from_slice(&self.done);
        for busy in self.workers.iter().flatten() {
            services[busy.tenant.index()] += busy.done(now, self.rate);
        }
    }

    /// True if a tenant has a request in the queue or running.
    pub fn is_backlogged(&self, tenant: TenantId) -> bool {
        self.present.get(tenant.index()).is_some_and(|present| *present > 0)
    }

    /// Number of a tenant's requests that wait in the queue, and of those that run.
    pub fn requests(&self, tenant: TenantId) -> (u32, u32) {
        let present = self.present.get(tenant.index()).copied().unwrap_or(0);
        let running = self.running.get(tenant.index()).map_or(0, |(running, _)| *running);
        (present.saturating_sub(running), running)
    }

    /// The largest number of a tenant's requests that ran at the same time.
    pub fn most_running(&self, tenant: TenantId) -> u32 {
        self.running.get(tenant.index()).map_or(0, |(_, most)| *most)
    }

    /// Number of timers that fired, or of refreshes of running requests.
    pub fn nr_charged(&self) -> u64 {
        self.nr_charged
    }
}

/// A set of workers, as bits.
pub(super) struct Idle(Vec<u64>);

impl Idle {
    pub(super) fn all(workers: u32) -> Idle {
        let mut idle = Idle(vec![0; workers.div_ceil(64) as usize]);
        (0..workers).for_each(|worker| idle.insert(worker));
        idle
    }

    pub(super) fn insert(&mut self, worker: u32) {
        self.0[worker as usize / 64] |= 1 << (worker % 64);
    }

    pub(super) fn remove(&mut self, worker: u32) {
        self.0[worker as usize / 64] &= !(1 << (worker % 64));
    }

    pub(super) fn first(&self) -> Option<u32> {
        let (at, word) = self.0.iter().enumerate().find(|(_, word)| **word != 0)?;
        Some(at as u32 * 64 + word.trailing_zeros())
    }
}
