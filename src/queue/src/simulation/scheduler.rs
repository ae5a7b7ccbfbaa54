//! The decisions of a simulation, as an interface.

use super::super::requests::{Pick, Queue};
use super::super::types::{Request, TenantId, Ticket};

/// A request, with its consent to an eviction.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The request.
    pub request: Request,
    /// Longest time in seconds from the order to end to the end of a run; `None` for a request that may not be evicted.
    pub grace: Option<u32>,
}

/// An order to end a running request, which then waits again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Leave {
    /// The running request.
    pub ticket: Ticket,
    /// Time until its end.
    pub grace_seconds: u32,
}

/// Chooses the requests that run: a [`Queue`], or the admission of a host with a queue inside.
pub trait Scheduler {
    /// Adds a request; true if it waits now ([`Queue::enqueue`]).
    fn enqueue(&mut self, tenant: TenantId, entry: Entry, now: f64) -> bool;

    /// Withdraws a waiting request.
    fn withdraw(&mut self, tenant: TenantId, id: u64, now: f64);

    /// The request that a free worker begins now.
    fn pick(&mut self, worker: u32, now: f64) -> Pick;

    /// Charges a running request for its use since the last charge.
    fn charge(&mut self, ticket: Ticket, used: f64, now: f64);

    /// Completes a running request, after its use since the last charge.
    fn complete(&mut self, ticket: Ticket, used: f64, now: f64);

    /// Number of waiting requests of a tenant.
    fn waiting_of(&self, tenant: TenantId) -> usize;

    /// Advance charge that is not used yet ([`Queue::credit`]).
    fn credit(&self, _ticket: Ticket) -> f64 {
        0.0
    }

    /// Charges a request again that has used up its credit ([`Queue::extend`]).
    fn extend(&mut self, _ticket: Ticket, _now: f64) {}

    /// Lends a tenant a bank ([`Queue::lend`]).
    fn lend(&mut self, tenant: TenantId, bank: f64);

    /// Ends a round of starts ([`Queue::fees`]).
    fn fees(&mut self, now: f64) -> Vec<(TenantId, f64)>;

    /// Running requests that end from now on for others.
    fn evict(&mut self, _now: f64) -> Vec<Leave> {
        Vec::new()
    }

    /// Records the end of an evicted run, after its use since the last charge. The request waits again, and
    /// [`Scheduler::pick`] returns it with the same identifier.
    fn evicted(&mut self, _ticket: Ticket, _used: f64, _now: f64) {}
}

impl Scheduler for Queue {
    fn enqueue(&mut self, tenant: TenantId, entry: Entry, now: f64) -> bool {
        Queue::enqueue(self, tenant, entry.request, now)
    }

    fn withdraw(&mut self, tenant: TenantId, id: u64, now: f64) {
        Queue::withdraw(self, tenant, id, now);
    }

    fn pick(&mut self, worker: u32, now: f64) -> Pick {
        Queue::pick(self, worker, now)
    }

    fn charge(&mut self, ticket: Ticket, used: f64, now: f64) {
        Queue::charge(self, ticket, used, now);
    }

    fn complete(&mut self, ticket: Ticket, used: f64, now: f64) {
        Queue::complete(self, ticket, used, now);
    }

    fn waiting_of(&self, tenant: TenantId) -> usize {
        Queue::waiting_of(self, tenant)
    }

    fn credit(&self, ticket: Ticket) -> f64 {
        Queue::credit(self, ticket)
    }

    fn extend(&mut self, ticket: Ticket, now: f64) {
        Queue::extend(self, ticket, now);
    }

    fn lend(&mut self, tenant: TenantId, bank: f64) {
        Queue::lend(self, tenant, bank);
    }

    fn fees(&mut self, now: f64) -> Vec<(TenantId, f64)> {
        Queue::fees(self, now)
    }
}
