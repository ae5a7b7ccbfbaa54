//! Estimates of the costs of requests, and the correction of a wrong estimate.
//!
//! # Problem
//! Tags need costs before they are known. An underestimate lets a tenant run ahead, an overestimate holds
//! it back; and with many workers a single wrong estimate can block them all behind one tenant.
//!
//! # Terms
//! *Estimate* `L`: kept for each tenant and each class of its requests. *Credit*: the advance charge of a
//! running request that is not used yet.
//!
//! # Algorithm (2DFQ, SIGCOMM'16 §5 and figure 7)
//! - *Dispatch*: charge `L` to the tenant, and open a credit of `L`.
//! - *Refresh*, while it runs: it has used `c` more. If `c < credit`, the credit falls by `c`; else the
//!   tenant is charged `c − credit` and the credit is 0. A request that turns out to be expensive is paid
//!   for while it runs.
//! - *Timer*, in place of the refresh: it fires when the credit is used up, and charges as much again as
//!   the request was charged so far. The charge doubles, so a request takes as many timers as the logarithm
//!   of its cost, and the estimate is at least its usage.
//! - *Completion*: the tenant is charged `c − credit`, which is a refund where the credit was larger.
//!
//! Estimators: *pessimistic*, `L = max(α·L, T)` for a completed cost `T`: a tenant that was expensive once
//! stays so until its estimate has decayed (with α = 0.99, 230 cheap completions for a factor of ten).
//! *Moving average*, `L = α·L + (1−α)·T`, for the variants of WFQ and WF²Q, which pessimism does not help.
//! *Declared*: the cost that the request states; the same bookkeeping corrects it.
//!
//! # Errata
//! The prose of the paper replaces `L` by `T` only where `T > L`; figure 7, which is implemented here, also
//! where `α·L < T ≤ L`. A published summary has `C < L` for both the over- and the under-estimate; the
//! second is `C > L`.
//!
//! # Properties
//! - Over a request, a tenant is charged exactly its cost, for any estimate (`charges_add_up_to_the_cost`).
//! - The published traces (vectors `tdfqe_bookkeeping`).

use serde::{Deserialize, Serialize};

/// Classes of a tenant with an estimate of their own: twice as many as have a name of their own.
const ESTIMATES_MAX: usize = 128;

/// Source of costs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Estimator {
    /// Requests state their costs.
    Declared,
    /// The largest cost seen, decaying.
    Pessimistic {
        /// Weight of the old estimate at each completion, above 0 and at most 1.
        alpha: f64,
        /// The estimate before anything has completed.
        initial: f64,
    },
    /// The average of the costs seen, recent ones more.
    MovingAverage {
        /// Weight of the old estimate at each completion, at least 0 and below 1.
        alpha: f64,
        /// The estimate before anything has completed; the first completion replaces it.
        initial: f64,
    },
}

impl Estimator {
    /// Weight of the old estimate in the paper.
    pub const ALPHA: f64 = 0.99;

    /// The estimate before anything has completed.
    fn initial(self) -> f64 {
        match self {
            Estimator::Declared => 0.0,
            Estimator::Pessimistic { initial, .. } | Estimator::MovingAverage { initial, .. } => {
                initial
            }
        }
    }

    /// The estimate after a completion; `old` is `None` before the first.
    fn after(self, old: Option<f64>, cost: f64) -> f64 {
        match self {
            Estimator::Declared => 0.0,
            Estimator::Pessimistic { alpha, initial } => (alpha * old.unwrap_or(initial)).max(cost),
            Estimator::MovingAverage { alpha, .. } => match old {
                Some(old) => alpha * old + (1.0 - alpha) * cost,
                None => cost,
            },
        }
    }
}

/// The estimates and charges of one tenant, in cost units.
///
/// Charges are added up as cost and divided by the weight once, when a tag is needed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    estimator: Estimator,
    charged: f64,
    /// Charges before the tag got its present base.
    #[serde(default)]
    forgotten: f64,
    /// Estimate of each class that was seen lately, the oldest first.
    estimates: Vec<(u32, f64)>,
}

impl Ledger {
    /// Creates a ledger without charges and estimates.
    pub fn new(estimator: Estimator) -> Ledger {
        Ledger { estimator, charged: 0.0, forgotten: 0.0, estimates: Vec::new() }
    }

    /// The estimated cost of a request of a class, given its stated cost.
    pub fn estimate(&self, class: u32, declared: f64) -> f64 {
        match self.estimator {
            Estimator::Declared => declared,
            other => self.known(class).unwrap_or(other.initial()),
        }
    }

    fn known(&self, class: u32) -> Option<f64> {
        self.estimates.iter().find(|(of, _)| *of == class).map(|(_, estimate)| *estimate)
    }

    /// Charges that are not forgotten.
    pub fn charged(&self) -> f64 {
        self.charged
    }

    /// All charges so far.
    pub fn charged_in_all(&self) -> f64 {
        self.forgotten + self.charged
    }

    /// The largest estimate of any class; the initial one before anything has completed.
    pub fn largest_estimate(&self) -> f64 {
        let known = self.estimates.iter().map(|(_, estimate)| *estimate);
        known.reduce(f64::max).unwrap_or(self.estimator.initial())
    }

    /// Forgets the charges, for a tag with a new base.
    pub fn forget(&mut self) {
        self.forgotten += std::mem::take(&mut self.charged);
    }

    /// Charges a request that goes to a worker; returns its credit.
    pub fn dispatch(&mut self, class: u32, declared: f64) -> f64 {
        let credit = self.estimate(class, declared);
        self.charged += credit;
        credit
    }

    /// Charges `used` more of a running request; returns its remaining credit.
    pub fn refresh(&mut self, credit: f64, used: f64) -> f64 {
        if used < credit {
            return credit - used;
        }
        self.charged += used - credit;
        0.0
    }

    /// Settles a request that is done, having used `used` since the last refresh and `total` in all.
    pub fn complete(&mut self, class: u32, credit: f64, used: f64, total: f64) {
        self.charged += used - credit;
        if self.estimator == Estimator::Declared {
            return;
        }
        let estimate = self.estimator.after(self.known(class), total);
        self.set(class, estimate);
    }

    /// Charges a running request that has used up its credit as much again; `used` is its whole usage.
    /// Returns its new credit.
    pub fn extend(&mut self, class: u32, used: f64) -> f64 {
        self.charged += used;
        self.set(class, self.estimate(class, used).max(used));
        used
    }

    fn set(&mut self, class: u32, estimate: f64) {
        match self.estimates.iter_mut().find(|(of, _)| *of == class) {
            Some((_, old)) => *old = estimate,
            None => {
                if self.estimates.len() >= ESTIMATES_MAX {
                    self.estimates.remove(0);
                }
                self.estimates.push((class, estimate));
            }
        }
    }
}
