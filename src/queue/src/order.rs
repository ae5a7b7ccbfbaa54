//! The interface between the queue and its disciplines: the choice of the next tenant, and its charge.
//!
//! [`super::Queue`] keeps the requests (first in, first out within each tenant) and the running ones; an
//! [`Order`] gets one head for each tenant and decides among heads. It has no access to a worker's state or
//! a clock: `now` is an argument.

use std::fmt::Debug;

use serde::{Deserialize, Serialize};

use super::types::{Request, TenantId, Terms};

/// The first waiting request of a tenant, as an order gets it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head<'a> {
    pub(super) request: &'a Request,
    /// The place of its arrival among all arrivals.
    pub(super) arrival: u64,
    /// Time of its arrival.
    pub(super) arrived: f64,
    /// The return value of [`Order::arrive`] for it.
    pub(super) stamp: f64,
    /// The place of its tenant's last dispatch among all dispatches, from 1; 0 before the first.
    pub(super) turn: u64,
}

/// A running request, as an order gets it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Running {
    pub(super) tenant: TenantId,
    pub(super) class: u32,
    pub(super) holds: Box<[f64]>,
    /// Advance charge that is not used yet.
    pub(super) credit: f64,
    /// Usage so far.
    pub(super) used: f64,
    /// Time of its dispatch.
    pub(super) started: f64,
}

/// Activity of a tenant: with or without waiting and running requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    Active,
    Idle,
}

/// Returns true if the head of a tenant may run on the worker that asks: it fits, and the worker is not
/// reserved for smaller requests. The second argument is its estimated cost, if the order has one.
pub(super) type Admits<'a> = &'a dyn Fn(TenantId, Option<f64>) -> bool;

/// A discipline. Methods that an order does not need keep their defaults.
pub(super) trait Order: Debug {
    /// A tenant is new, or has new terms.
    fn admit(&mut self, tenant: TenantId, terms: &Terms, activity: Activity, now: f64);

    /// Forgets an idle tenant: its number goes to another tenant.
    fn reset(&mut self, _: TenantId) {}

    /// Records an arrival at a tenant that was `activity` until now. The result becomes [`Head::stamp`].
    fn arrive(&mut self, _: TenantId, _: &Request, _: Activity, _: f64) -> f64 {
        0.0
    }

    /// A waiting request was withdrawn without having run. The tenant is `activity` from now on.
    fn withdrawn(&mut self, _: TenantId, _: Activity, _: f64) {}

    /// Records a change of a tenant's head; `None` if it has none, or may not run at the moment.
    fn head(&mut self, tenant: TenantId, head: Option<Head<'_>>, now: f64);

    /// The tenant whose head goes to `worker`, of those admitted; the head stays in place until
    /// [`Order::dispatched`].
    fn next(&mut self, worker: u32, now: f64, admits: Admits<'_>) -> Option<TenantId>;

    /// The estimated cost of the head of a tenant; `None` if its cost is as stated.
    fn estimate(&self, _: TenantId) -> Option<f64> {
        None
    }

    /// Records that the head of a tenant runs. Returns its advance charge.
    fn dispatched(&mut self, _: TenantId, _: &Request, _: f64) -> f64 {
        0.0
    }

    /// Sets the bank of a tenant, in cost units. An order without tags ignores it.
    fn lend(&mut self, _: TenantId, _: f64) {}

    /// Fees of the starts since the last call, in cost units.
    fn fees(&mut self, _: f64) -> Vec<(TenantId, f64)> {
        Vec::new()
    }

    /// Records further usage of a running request.
    fn used(&mut self, _: &mut Running, _: f64, _: f64) {}

    /// Records service that a tenant with requests got beside the queue. An order without tags ignores it.
    fn used_beside(&mut self, _: TenantId, _: f64) {}

    /// Charges a running request that has used up its credit as much again as so far.
    fn extended(&mut self, _: &mut Running) {}

    /// Records that a running request is done, with its usage since the last charge; `running.used` is all
    /// of it. The tenant is `activity` from now on.
    fn completed(&mut self, _: &Running, _: f64, _: Activity, _: f64) {}
}
