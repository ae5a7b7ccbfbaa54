//! Stages before the queue: rates, bounds on waiting requests, and bounds on the splits of a task.
//!
//! # Problem
//! A queue orders its waiting requests. A client that sends too much is better stopped before: its requests
//! wait for a token, or are dropped. And the splits of a large task should not all be inside before those
//! of a small one.
//!
//! # Algorithm
//! - *Rate*: a bucket of `burst` tokens, full at first, that gets `rate` tokens a second. A request takes
//!   one; without one it waits in front. The state is one time (GCRA): the time at which the bucket would
//!   be full.
//! - *Bound*: a request that arrives while `queue_max` of its tenant have not started is dropped.
//! - *Splits*: requests wait outside until [`Drivers`] lets them in, and count as inside until they end.

use std::collections::{BTreeSet, VecDeque};

use super::concurrency::{Drivers, TaskLoad};
use super::tag::Tag;
use super::types::TenantId;

/// A bucket of tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    /// Tokens a second, positive.
    rate: f64,
    /// Largest number of tokens, at least one.
    burst: f64,
    /// Time at which it would be full.
    full_at: f64,
}

impl Bucket {
    /// A full bucket.
    pub fn new(rate: f64, burst: f64) -> Bucket {
        Bucket { rate, burst, full_at: 0.0 }
    }

    /// Time of the next token.
    pub fn next(&self) -> f64 {
        self.full_at - (self.burst - 1.0) / self.rate
    }

    /// Takes a token.
    pub fn take(&mut self, now: f64) {
        self.full_at = self.full_at.max(now) + 1.0 / self.rate;
    }
}

/// The bounds of one tenant's requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gate {
    /// Its tokens; `None` for no limit of the rate.
    pub bucket: Option<Bucket>,
    /// The largest number of waiting requests; `None` for no bound.
    pub queue_max: Option<u32>,
    /// Seconds after which a request that has not started leaves; `None` for never.
    pub timeout: Option<f64>,
}

/// Result of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// The request is in the queue.
    Enters,
    /// The request waits before the queue.
    Waits,
    /// The request is dropped.
    Dropped,
}

#[derive(Clone, Debug, Default)]
struct Waiting {
    gate: Gate,
    /// Requests without a token.
    unpaid: VecDeque<usize>,
    /// Requests with a token that wait before the queue.
    outside: VecDeque<usize>,
    /// Requests that have entered and not ended.
    inside: u32,
    /// Requests that have arrived and not started.
    unstarted: u32,
}

/// Requests before the queue, by the numbers of their owner.
#[derive(Clone, Debug, Default)]
pub struct Entrance {
    splits: Option<Drivers>,
    tenants: Vec<Waiting>,
    /// Time at which the next request of each tenant gets its token.
    tokens: BTreeSet<(Tag, TenantId)>,
    nr_outside: usize,
}

impl Entrance {
    /// Creates an empty entrance. `gates` are those of all tenants.
    pub fn new(gates: impl IntoIterator<Item = Gate>, splits: Option<Drivers>) -> Entrance {
        let waiting = |gate| Waiting { gate, ..Waiting::default() };
        let tenants = gates.into_iter().map(waiting).collect();
        Entrance { splits, tenants, tokens: BTreeSet::new(), nr_outside: 0 }
    }

    /// Number of tenants.
    pub fn nr_tenants(&self) -> usize {
        self.tenants.len()
    }

    /// Seconds after which a request of a tenant leaves.
    pub fn timeout(&self, tenant: TenantId) -> Option<f64> {
        self.tenants[tenant.index()].gate.timeout
    }

    /// Number of a tenant's requests before the queue.
    pub fn waiting_of(&self, tenant: TenantId) -> usize {
        let waiting = &self.tenants[tenant.index()];
        waiting.unpaid.len() + waiting.outside.len()
    }

    /// A request arrives.
    pub fn arrive(&mut self, tenant: TenantId, request: usize, now: f64) -> Arrived {
        let waiting = &mut self.tenants[tenant.index()];
        if waiting.gate.queue_max.is_some_and(|most| waiting.unstarted >= most) {
            return Arrived::Dropped;
        }
        waiting.unstarted += 1;
        let Some(bucket) = &mut waiting.gate.bucket else { return self.pay(tenant, request) };
        if waiting.unpaid.is_empty() && Tag::rounded(bucket.next()) <= Tag::rounded(now) {
            bucket.take(now);
            return self.pay(tenant, request);
        }
        waiting.unpaid.push_back(request);
        self.expect(tenant);
        Arrived::Waits
    }

    /// A request has its token.
    fn pay(&mut self, tenant: TenantId, request: usize) -> Arrived {
        if self.splits.is_none() {
            return Arrived::Enters;
        }
        self.tenants[tenant.index()].outside.push_back(request);
        self.nr_outside += 1;
        Arrived::Waits
    }

    /// Records the time at which the first request of a tenant gets its token.
    fn expect(&mut self, tenant: TenantId) {
        let waiting = &self.tenants[tenant.index()];
        let Some(bucket) = &waiting.gate.bucket else { return };
        let entry = (Tag::rounded(bucket.next()), tenant);
        if waiting.unpaid.is_empty() {
            self.tokens.remove(&entry)
        } else {
            self.tokens.insert(entry)
        };
    }

    /// Time at which the next request gets its token.
    pub fn next_token(&self) -> f64 {
        self.tokens.first().map_or(f64::INFINITY, |(time, _)| time.value())
    }

    /// Pays the next request its token. Returns a request that enters the queue.
    pub fn release(&mut self, now: f64) -> Option<(TenantId, usize)> {
        let (_, tenant) = self.tokens.pop_first()?;
        let waiting = &mut self.tenants[tenant.index()];
        let request = waiting.unpaid.pop_front()?;
        if let Some(bucket) = &mut waiting.gate.bucket {
            bucket.take(now);
        }
        self.expect(tenant);
        (self.pay(tenant, request) == Arrived::Enters).then_some((tenant, request))
    }

    /// The requests that enter now, besides those that entered on arrival.
    pub fn enter(&mut self) -> Vec<(TenantId, usize)> {
        let Some(drivers) = self.splits.filter(|_| self.nr_outside > 0) else { return Vec::new() };
        let load = |waiting: &Waiting| TaskLoad {
            inside: waiting.inside,
            outside: u32::try_from(waiting.outside.len()).unwrap_or(u32::MAX),
        };
        let loads: Vec<TaskLoad> = self.tenants.iter().map(load).collect();
        let mut entered = Vec::new();
        for (tenant, count) in (0..).map(TenantId).zip(drivers.start(&loads)) {
            let waiting = &mut self.tenants[tenant.index()];
            waiting.inside += count;
            let requests = waiting.outside.drain(..count as usize);
            entered.extend(requests.map(|request| (tenant, request)));
        }
        self.nr_outside -= entered.len();
        entered
    }

    /// A request starts for the first time.
    pub fn started(&mut self, tenant: TenantId) {
        self.tenants[tenant.index()].unstarted -= 1;
    }

    /// A request that was in the queue has ended.
    pub fn ended(&mut self, tenant: TenantId) {
        let waiting = &mut self.tenants[tenant.index()];
        waiting.inside = waiting.inside.saturating_sub(1);
    }

    /// Removes a request that has not started. Returns true if it was before the queue.
    pub fn withdraw(&mut self, tenant: TenantId, request: usize) -> bool {
        let waiting = &mut self.tenants[tenant.index()];
        waiting.unstarted -= 1;
        if let Some(at) = waiting.unpaid.iter().position(|other| *other == request) {
            waiting.unpaid.remove(at);
            self.expect(tenant);
            return true;
        }
        let Some(at) = waiting.outside.iter().position(|other| *other == request) else {
            return false;
        };
        waiting.outside.remove(at);
        self.nr_outside -= 1;
        true
    }
}
