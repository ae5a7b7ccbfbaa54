//! The inputs and outputs of a queue: tenants, their terms, requests, tickets.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A tenant, by its place in the order that breaks ties. Small numbers: they index tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TenantId(pub u32);

impl TenantId {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The policy of one tenant.
#[derive(Clone, Debug, PartialEq)]
pub struct Terms {
    /// Its weight, [`Terms::WEIGHT_MIN`] to [`Terms::WEIGHT_MAX`].
    pub weight: f64,
    /// Its priority, larger first; read by the priority discipline only.
    pub priority: f64,
    /// Cost units a second that it always gets if it wants them; 0 for none.
    pub reservation: f64,
    /// Cost units a second that it never exceeds; infinite for none.
    pub limit: f64,
    /// Minimum holding of each resource, read by the DRF order; empty for none.
    pub min_share: Box<[f64]>,
    /// True if it always has another request, although only the next one is ever enqueued: it counts as
    /// backlogged from its first request on. For simulations.
    pub endless: bool,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms {
            weight: 1.0,
            priority: 0.0,
            reservation: 0.0,
            limit: f64::INFINITY,
            min_share: Box::default(),
            endless: false,
        }
    }
}

impl Terms {
    /// The smallest weight.
    pub const WEIGHT_MIN: f64 = 1e-9;
    /// The largest weight. Sums of weights are exact within these bounds.
    pub const WEIGHT_MAX: f64 = 1e9;

    /// Checks every number.
    ///
    /// # Errors
    /// The first number that is out of range.
    pub fn check(&self) -> Result<(), TermsError> {
        let is_amount = |amount: f64| amount.is_finite() && amount >= 0.0;
        if !(Terms::WEIGHT_MIN..=Terms::WEIGHT_MAX).contains(&self.weight) {
            return Err(TermsError::Weight);
        }
        if !self.priority.is_finite() {
            return Err(TermsError::Priority);
        }
        if !is_amount(self.reservation) {
            return Err(TermsError::Reservation);
        }
        if self.limit.is_nan() || self.limit <= 0.0 || self.limit < self.reservation {
            return Err(TermsError::Limit);
        }
        if !self.min_share.iter().all(|share| is_amount(*share)) {
            return Err(TermsError::MinShare);
        }
        Ok(())
    }
}

/// The errors of [`Terms`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TermsError {
    /// Not between the smallest and the largest weight.
    #[error("the weight is not between 1e-9 and 1e9")]
    Weight,
    /// Not a finite number.
    #[error("the priority is not a finite number")]
    Priority,
    /// Negative or not finite.
    #[error("the reservation is negative or not finite")]
    Reservation,
    /// Not positive, or below the reservation.
    #[error("the limit is not positive, or below the reservation")]
    Limit,
    /// Negative or not finite.
    #[error("a minimum share is negative or not finite")]
    MinShare,
}

/// One unit of work for one worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Its owner's identifier. The queue reads it only to withdraw a request.
    pub id: u64,
    /// Cost in cost units, finite and at least 0. Disciplines that estimate do not read it.
    pub cost: f64,
    /// Its class: costs are estimated for each class of each tenant.
    pub class: u32,
    /// Amount of each resource that it holds while it runs, read by the DRF order; empty for one worker and
    /// nothing else.
    pub holds: Box<[f64]>,
}

impl Request {
    /// Creates a request of a known cost.
    pub fn new(id: u64, cost: f64) -> Request {
        Request { id, cost, class: 0, holds: Box::default() }
    }
}

/// A running request; valid until it is completed, and reused after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ticket(pub(super) u32);

impl From<u32> for Ticket {
    fn from(number: u32) -> Ticket {
        Ticket(number)
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// A request that goes to a worker now.
#[derive(Clone, Debug, PartialEq)]
pub struct Picked {
    /// Identifies it in charges and the completion.
    pub ticket: Ticket,
    /// Its tenant.
    pub tenant: TenantId,
    /// The request.
    pub request: Request,
}

/// The machine that requests are dispatched to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Workers, at least one, each with one request at a time.
    pub workers: u32,
    /// Cost units that a worker does in a second, positive.
    pub rate: f64,
}

impl Machine {
    /// Cost units that all workers do in a second.
    pub fn speed(self) -> f64 {
        f64::from(self.workers) * self.rate
    }
}
