//! The queue itself: waiting requests, running requests, and the public calls.
//!
//! This file has the common part of all disciplines: first in first out within a tenant, tickets, activity,
//! reservations and limits. The differences are behind [`super::order`].

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::bounds::{Bounds, Phase};
use super::discipline::multilevel::LEVELS;
use super::discipline::{AnyOrder, Discipline};
use super::estimate::Ledger;
use super::order::{Activity, Head, Running};
use super::room::Room;
use super::types::{Machine, Picked, Request, TenantId, Terms, TermsError, Ticket};

/// A discipline on a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// Rule that chooses the next request.
    pub discipline: Discipline,
    /// Machine of the workers.
    pub machine: Machine,
}

/// Workers that take small requests only, and otherwise idle: without them no order helps a small request
/// that arrives while large ones run on every worker.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reserve {
    /// The first such worker; all after it are reserved too.
    pub from: u32,
    /// Upper bound, exclusive, of the cost of their requests (of the estimate, if costs are estimated).
    pub below: f64,
}

/// The result of [`Queue::pick`].
#[derive(Clone, Debug, PartialEq)]
pub enum Pick {
    /// This request runs now.
    Run(Picked),
    /// Nothing may run before this time, unless something arrives or completes: all waiting requests are
    /// over their limits.
    NotBefore(f64),
    /// Nothing can run until something arrives or completes.
    Nothing,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Waiting {
    request: Request,
    arrival: u64,
    arrived: f64,
    stamp: f64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Tenant {
    is_admitted: bool,
    /// True if its requests are skipped for now.
    is_held: bool,
    waiting: VecDeque<Waiting>,
    nr_running: u32,
    /// The place of its last dispatch among all dispatches, from 1; 0 before the first.
    turn: u64,
}

impl Tenant {
    fn activity(&self) -> Activity {
        if self.waiting.is_empty() && self.nr_running == 0 {
            Activity::Idle
        } else {
            Activity::Active
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Slot {
    running: Running,
    phase: Phase,
    /// Advance charge against reservation and limit.
    advance: f64,
}

/// Requests of many tenants, and the order in which they run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Queue {
    discipline: Discipline,
    order: AnyOrder,
    bounds: Bounds,
    #[serde(default)]
    room: Option<Room>,
    #[serde(default)]
    reserve: Option<Reserve>,
    tenants: Vec<Tenant>,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    nr_arrivals: u64,
    nr_dispatches: u64,
    nr_waiting: usize,
}

impl Queue {
    /// Creates an empty queue.
    pub fn new(setup: Setup) -> Queue {
        let order = setup.discipline.order(setup.machine);
        let room = match &setup.discipline {
            Discipline::Drf { capacity, .. } => Some(Room::new(capacity.clone())),
            _ => None,
        };
        Queue {
            discipline: setup.discipline,
            order,
            bounds: Bounds::default(),
            room,
            reserve: None,
            tenants: Vec::new(),
            slots: Vec::new(),
            free: Vec::new(),
            nr_arrivals: 0,
            nr_dispatches: 0,
            nr_waiting: 0,
        }
    }

    /// Sets a capacity: a request runs only if its holdings fit beside those of the others. A request that
    /// does not fit is skipped.
    #[must_use]
    pub fn within(self, capacity: Vec<f64>) -> Queue {
        Queue { room: Some(Room::new(capacity)), ..self }
    }

    /// Reserves some workers for small requests. Multilevel feedback ignores them.
    #[must_use]
    pub fn reserving(self, reserve: Option<Reserve>) -> Queue {
        Queue { reserve, ..self }
    }

    /// Adds a tenant, or changes its terms from now on.
    ///
    /// # Errors
    /// A term that is out of range; nothing has changed then.
    pub fn admit(&mut self, tenant: TenantId, terms: &Terms, now: f64) -> Result<(), TermsError> {
        terms.check()?;
        if self.tenants.len() <= tenant.index() {
            self.tenants.resize_with(tenant.index() + 1, Tenant::default);
        }
        let known = &mut self.tenants[tenant.index()];
        known.is_admitted = true;
        let activity = known.activity();
        self.order.admit(tenant, terms, activity, now);
        self.bounds.admit(tenant, terms, now);
        self.show(tenant, now);
        Ok(())
    }

    /// Retires a tenant: returns its waiting requests; its running ones go on. It may be admitted again,
    /// and then has its old tags and estimates.
    pub fn retire(&mut self, tenant: TenantId, now: f64) -> Vec<Request> {
        let Some(known) = self.tenants.get_mut(tenant.index()) else { return Vec::new() };
        known.is_admitted = false;
        let mut given_back = Vec::new();
        while let Some(waiting) = self.tenants[tenant.index()].waiting.pop_front() {
            given_back.push(waiting.request);
            self.forget(tenant, now);
        }
        given_back
    }

    /// Retires a tenant permanently: if no request of it waits or runs, its number is free for another
    /// tenant, which inherits nothing.
    pub fn reset(&mut self, tenant: TenantId, now: f64) {
        let Some(known) = self.tenants.get_mut(tenant.index()) else { return };
        if known.activity() == Activity::Idle {
            *known = Tenant::default();
            self.order.reset(tenant);
            self.bounds.admit(tenant, &Terms::default(), now);
        }
    }

    /// Adds a request. Returns true if it waits now: a tenant that was not admitted has no queue, and a
    /// cost must be finite and at least 0.
    pub fn enqueue(&mut self, tenant: TenantId, request: Request, now: f64) -> bool {
        let Some(known) = self.tenants.get_mut(tenant.index()) else { return false };
        if !known.is_admitted || !request.cost.is_finite() || request.cost < 0.0 {
            return false;
        }
        let was = known.activity();
        let is_head = known.waiting.is_empty();
        if was == Activity::Idle {
            self.bounds.activate(tenant, now);
        }
        let stamp = self.order.arrive(tenant, &request, was, now);
        let arrival = self.nr_arrivals;
        self.nr_arrivals += 1;
        self.nr_waiting += 1;
        known.waiting.push_back(Waiting { request, arrival, arrived: now, stamp });
        if is_head {
            self.show(tenant, now);
        }
        true
    }

    /// Withdraws a waiting request. O(waiting requests of the tenant).
    pub fn withdraw(&mut self, tenant: TenantId, id: u64, now: f64) -> Option<Request> {
        let known = self.tenants.get_mut(tenant.index())?;
        let at = known.waiting.iter().position(|waiting| waiting.request.id == id)?;
        let waiting = known.waiting.remove(at)?;
        self.forget(tenant, now);
        Some(waiting.request)
    }

    fn forget(&mut self, tenant: TenantId, now: f64) {
        self.nr_waiting -= 1;
        let activity = self.tenants[tenant.index()].activity();
        self.order.withdrawn(tenant, activity, now);
        self.show(tenant, now);
    }

    /// The request that a free `worker` begins now.
    pub fn pick(&mut self, worker: u32, now: f64) -> Pick {
        let next = self.next_in_phase(worker, now);
        let picked = next.and_then(|(tenant, phase)| self.dispatch(tenant, phase, now));
        match (picked, self.bounds.next_release()) {
            (Some(picked), _) => Pick::Run(picked),
            (None, Some(time)) => Pick::NotBefore(time),
            (None, None) => Pick::Nothing,
        }
    }

    /// The tenant whose first request a free `worker` would begin now. The request stays in place: a caller
    /// with conditions of its own begins it ([`Queue::take`]), or skips the tenant ([`Queue::hold`]).
    pub fn next(&mut self, worker: u32, now: f64) -> Option<TenantId> {
        self.next_in_phase(worker, now).map(|(tenant, _)| tenant)
    }

    fn next_in_phase(&mut self, worker: u32, now: f64) -> Option<(TenantId, Phase)> {
        while let Some(tenant) = self.bounds.released(now) {
            self.show(tenant, now);
        }
        let Queue { order, bounds, room, tenants, reserve, .. } = self;
        let reserved = reserve.as_ref().filter(|reserve| worker >= reserve.from);
        let below = reserved.map_or(f64::INFINITY, |reserve| reserve.below);
        let admits = |tenant: TenantId, estimate: Option<f64>| {
            let head = tenants[tenant.index()].waiting.front();
            head.is_some_and(|Waiting { request, .. }| {
                let fits = room.as_ref().is_none_or(|room| room.fits(&request.holds));
                fits && estimate.unwrap_or(request.cost) < below
            })
        };
        let owed = bounds.owed(now).find(|tenant| admits(*tenant, order.estimate(*tenant)));
        match owed {
            Some(tenant) => Some((tenant, Phase::Reservation)),
            None if room.is_none() && reserved.is_none() => {
                Some((order.next(worker, now, &|_, _| true)?, Phase::Share))
            }
            None => Some((order.next(worker, now, &admits)?, Phase::Share)),
        }
    }

    /// Begins the first request of a tenant, out of turn.
    pub fn take(&mut self, tenant: TenantId, now: f64) -> Option<Picked> {
        self.dispatch(tenant, Phase::Share, now)
    }

    /// Skips a tenant from now on, or no longer.
    pub fn hold(&mut self, tenant: TenantId, is_held: bool, now: f64) {
        if let Some(known) = self.tenants.get_mut(tenant.index())
            && known.is_held != is_held
        {
            known.is_held = is_held;
            self.show(tenant, now);
        }
    }

    /// Lends a tenant a bank: cost units that it may start ahead of its turn when it next has its first request after a
    /// pause. Replaces its former bank; less than the rest of its present head start shortens that. Disciplines without
    /// tags ignore it. Call [`Queue::fees`] after each round of starts.
    pub fn lend(&mut self, tenant: TenantId, bank: f64) {
        let is_usable = bank.is_finite() && bank > 0.0;
        self.order.lend(tenant, if is_usable { bank } else { 0.0 });
    }

    /// Ends a round of starts at one instant. Returns the tenants that started ahead of their turn while another request
    /// waits, with their fees in cost units; their banks are smaller by these.
    pub fn fees(&mut self, now: f64) -> Vec<(TenantId, f64)> {
        self.order.fees(now)
    }

    /// Puts a waiting request before the others of its tenant. Returns true if it waits. O(waiting requests
    /// of the tenant).
    pub fn promote(&mut self, tenant: TenantId, id: u64, now: f64) -> bool {
        let Some(known) = self.tenants.get_mut(tenant.index()) else { return false };
        let at = known.waiting.iter().position(|waiting| waiting.request.id == id);
        let Some(promoted) = at.and_then(|at| known.waiting.remove(at)) else { return false };
        known.waiting.push_front(promoted);
        self.show(tenant, now);
        true
    }

    /// Puts a waiting request before those of its tenant with higher numbers. Returns true if it waits. O(waiting requests
    /// of the tenant).
    pub fn restore_place(&mut self, tenant: TenantId, id: u64, now: f64) -> bool {
        let Some(known) = self.tenants.get_mut(tenant.index()) else { return false };
        let at = known.waiting.iter().position(|waiting| waiting.request.id == id);
        let Some(restored) = at.and_then(|at| known.waiting.remove(at)) else { return false };
        let place = known.waiting.iter().position(|waiting| waiting.request.id > id);
        known.waiting.insert(place.unwrap_or(known.waiting.len()), restored);
        self.show(tenant, now);
        true
    }

    /// The waiting requests of a tenant, the next one first.
    pub fn requests_of(&self, tenant: TenantId) -> impl Iterator<Item = &Request> {
        let known = self.tenants.get(tenant.index());
        known.into_iter().flat_map(|known| known.waiting.iter().map(|waiting| &waiting.request))
    }

    fn dispatch(&mut self, tenant: TenantId, phase: Phase, now: f64) -> Option<Picked> {
        let known = &mut self.tenants[tenant.index()];
        let request = known.waiting.pop_front()?.request;
        known.nr_running += 1;
        self.nr_dispatches += 1;
        known.turn = self.nr_dispatches;
        self.nr_waiting -= 1;
        if let Some(room) = &mut self.room {
            room.shift(&request.holds, 1.0);
        }
        let credit = self.order.dispatched(tenant, &request, now);
        let advance = self.discipline.advance(&request, credit);
        self.bounds.dispatched(tenant, advance, phase);
        let running = Running {
            tenant,
            class: request.class,
            holds: request.holds.clone(),
            credit,
            used: 0.0,
            started: now,
        };
        let slot = Slot { running, phase, advance };
        let ticket = match self.free.pop() {
            Some(free) => {
                self.slots[free as usize] = Some(slot);
                free
            }
            None => {
                self.slots.push(Some(slot));
                (self.slots.len() - 1) as u32
            }
        };
        self.show(tenant, now);
        Some(Picked { ticket: Ticket(ticket), tenant, request })
    }

    /// Passes the present head of a tenant to the order.
    fn show(&mut self, tenant: TenantId, now: f64) {
        let head = self.tenants[tenant.index()].waiting.front().map(|waiting| Head {
            request: &waiting.request,
            arrival: waiting.arrival,
            arrived: waiting.arrived,
            stamp: waiting.stamp,
            turn: self.tenants[tenant.index()].turn,
        });
        let is_held = self.tenants[tenant.index()].is_held;
        let head = head.filter(|_| !is_held);
        let is_allowed = self.bounds.show(tenant, head.is_some(), now);
        self.order.head(tenant, head.filter(|_| is_allowed), now);
    }

    /// Charges a running request for `used` since its last charge. Does nothing for a ticket that is not
    /// valid.
    pub fn charge(&mut self, ticket: Ticket, used: f64, now: f64) {
        let Some(Some(slot)) = self.slots.get_mut(ticket.0 as usize) else { return };
        slot.running.used += used;
        self.order.used(&mut slot.running, used, now);
        let (tenant, phase) = (slot.running.tenant, slot.phase);
        let over = (slot.running.used - slot.advance).max(0.0);
        if over > 0.0 {
            slot.advance += over;
            self.bounds.corrected(tenant, over, phase);
            self.show_bounded(tenant, now);
        }
    }

    /// Charges a tenant with requests for service that it got beside the queue, in cost units. Disciplines without tags ignore
    /// it, and so do reservations and limits.
    pub fn charge_beside(&mut self, tenant: TenantId, used: f64) {
        if used > 0.0 && self.is_active(tenant) {
            self.order.used_beside(tenant, used);
        }
    }

    /// Advance charge that a running request has not used yet; 0 for a ticket that is not valid.
    pub fn credit(&self, ticket: Ticket) -> f64 {
        let slot = self.slots.get(ticket.0 as usize).and_then(Option::as_ref);
        slot.map_or(0.0, |slot| slot.running.credit)
    }

    /// Charges a running request that has used up its credit as much again as so far; the estimate of its
    /// class becomes at least its usage.
    pub fn extend(&mut self, ticket: Ticket, now: f64) {
        self.charge(ticket, self.credit(ticket), now);
        let Some(Some(slot)) = self.slots.get_mut(ticket.0 as usize) else { return };
        self.order.extended(&mut slot.running);
    }

    /// Charges and estimates of a tenant; `None` if the discipline has no tags.
    pub fn ledger(&self, tenant: TenantId) -> Option<&Ledger> {
        match &self.order {
            AnyOrder::Tags(tags) => tags.ledger(tenant),
            _ => None,
        }
    }

    /// Selections of each level; `None` without levels.
    pub fn level_selected(&self) -> Option<[u64; LEVELS]> {
        match &self.order {
            AnyOrder::Multilevel(order) => Some(order.selected()),
            _ => None,
        }
    }

    /// Completes a running request that has used `used` since its last charge. Returns the time of its
    /// dispatch; `None` for a ticket that is not valid.
    pub fn complete(&mut self, ticket: Ticket, used: f64, now: f64) -> Option<f64> {
        let mut slot = self.slots.get_mut(ticket.0 as usize)?.take()?;
        self.free.push(ticket.0);
        slot.running.used += used;
        if let Some(room) = &mut self.room {
            room.shift(&slot.running.holds, -1.0);
        }
        let tenant = slot.running.tenant;
        let known = &mut self.tenants[tenant.index()];
        known.nr_running -= 1;
        let activity = known.activity();
        self.order.completed(&slot.running, used, activity, now);
        let correction = slot.running.used - slot.advance;
        if correction != 0.0 {
            self.bounds.corrected(tenant, correction, slot.phase);
            self.show_bounded(tenant, now);
        }
        Some(slot.running.started)
    }

    /// Updates the head of a tenant whose limit may have been reached, or left.
    fn show_bounded(&mut self, tenant: TenantId, now: f64) {
        if self.bounds.has(tenant) {
            self.show(tenant, now);
        }
    }

    /// For each tenant the place of its last dispatch among all dispatches, for [`Queue::resume_turns`].
    pub fn turns(&self) -> Vec<u64> {
        self.tenants.iter().map(|tenant| tenant.turn).collect()
    }

    /// Continues with the turns of a queue that this one replaces.
    pub fn resume_turns(&mut self, turns: &[u64], now: f64) {
        let last = turns.iter().copied().max().unwrap_or(0);
        self.nr_dispatches = self.nr_dispatches.max(last);
        for (index, turn) in turns.iter().enumerate().take(self.tenants.len()) {
            self.tenants[index].turn = *turn;
            self.show(TenantId(index as u32), now);
        }
    }

    /// Number of waiting requests.
    pub fn waiting(&self) -> usize {
        self.nr_waiting
    }

    /// Number of waiting requests of one tenant.
    pub fn waiting_of(&self, tenant: TenantId) -> usize {
        self.tenants.get(tenant.index()).map_or(0, |known| known.waiting.len())
    }

    /// True if a tenant has a request waiting or running.
    pub fn is_active(&self, tenant: TenantId) -> bool {
        self.tenants.get(tenant.index()).is_some_and(|known| known.activity() == Activity::Active)
    }
}
