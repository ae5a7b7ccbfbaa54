//! The disciplines: their names, their parameters, and the orders behind them.
//!
//! A new one is a file in this folder, and its name and its order here: policies and scenarios read the names
//! from [`Name::ALL`].

mod dominant;
mod lead;
pub mod multilevel;
mod plain;
mod staggered;
mod tags;

use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Serialize};

use self::dominant::Dominant;
pub use self::dominant::Ties;
use self::multilevel::Multilevel;
use self::plain::{ByArrival, RoundRobin};
pub use self::tags::Rule;
use self::tags::Tags;
use super::estimate::Estimator;
use super::order::Order;
use super::types::{Machine, Request};
use super::virtual_time::Method;

/// Rule that chooses the next request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Discipline {
    /// The earliest request.
    Fifo,
    /// The highest priority, which rises with the time of waiting.
    Priority {
        /// Rise of priority for each second of waiting, at least 0; 0 is strict priority.
        ageing: f64,
    },
    /// One request of each tenant in turn.
    RoundRobin,
    /// Fair queueing by tags: SFQ, WFQ (FQ without weights), WF²Q and 2DFQ, with stated or estimated costs.
    Fair {
        /// Tag that decides.
        rule: Rule,
        /// The source of costs.
        estimator: Estimator,
        /// Definition of virtual time.
        virtual_time: Method,
    },
    /// The smallest dominant share held.
    Drf {
        /// Capacity of each resource, at least one, all positive.
        capacity: Vec<f64>,
        /// Rule for equal shares.
        ties: Ties,
    },
    /// Multilevel feedback.
    Multilevel {
        /// Factor of each level's time over the next level's, at least 1.
        multiplier: f64,
    },
}

/// The order of any discipline, as a value that can be copied and stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum AnyOrder {
    ByArrival(ByArrival),
    RoundRobin(RoundRobin),
    Tags(Tags),
    Dominant(Dominant),
    Multilevel(Multilevel),
}

/// Matches the order inside of an [`AnyOrder`], shared or exclusive like the value.
macro_rules! order_in {
    ($any:expr) => {
        match $any {
            AnyOrder::ByArrival(order) => order,
            AnyOrder::RoundRobin(order) => order,
            AnyOrder::Tags(order) => order,
            AnyOrder::Dominant(order) => order,
            AnyOrder::Multilevel(order) => order,
        }
    };
}

impl Deref for AnyOrder {
    type Target = dyn Order;

    fn deref(&self) -> &(dyn Order + 'static) {
        order_in!(self)
    }
}

impl DerefMut for AnyOrder {
    fn deref_mut(&mut self) -> &mut (dyn Order + 'static) {
        order_in!(self)
    }
}

/// A discipline by its name in policies and scenarios.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are the field's own")]
pub enum Name {
    Fifo,
    Priority,
    RoundRobin,
    Fq,
    Sfq,
    Wfq,
    Wf2q,
    TwoDfq,
    WfqE,
    Wf2qE,
    #[default]
    TwoDfqE,
    Drf,
    Multilevel,
}

/// The parameters of disciplines; each reads its own.
#[derive(Clone, Debug)]
pub struct Parameters {
    /// Rise of a priority in a second.
    pub ageing: f64,
    /// Weight of the past in an estimate of costs.
    pub alpha: f64,
    /// The estimate for the first request.
    pub initial: f64,
    /// Definition of virtual time.
    pub virtual_time: Method,
    /// Capacity of each resource.
    pub capacity: Vec<f64>,
    /// Rule for equal dominant shares.
    pub ties: Ties,
    /// Factor of each level's time over the next level's.
    pub multiplier: f64,
}

impl Name {
    /// All names as they are written.
    pub const ALL: [(&'static str, Name); 13] = [
        ("fifo", Name::Fifo),
        ("priority", Name::Priority),
        ("round-robin", Name::RoundRobin),
        ("fq", Name::Fq),
        ("sfq", Name::Sfq),
        ("wfq", Name::Wfq),
        ("wf2q", Name::Wf2q),
        ("2dfq", Name::TwoDfq),
        ("wfq-e", Name::WfqE),
        ("wf2q-e", Name::Wf2qE),
        ("2dfq-e", Name::TwoDfqE),
        ("drf", Name::Drf),
        ("multilevel", Name::Multilevel),
    ];

    /// Returns the discipline with its parameters.
    pub fn with(self, parameters: &Parameters) -> Discipline {
        let Parameters { ageing, alpha, initial, virtual_time, ref capacity, ties, multiplier } =
            *parameters;
        let average = Estimator::MovingAverage { alpha, initial };
        let pessimistic = Estimator::Pessimistic { alpha, initial };
        let fair = |rule, estimator| Discipline::Fair { rule, estimator, virtual_time };
        match self {
            Name::Fifo => Discipline::Fifo,
            Name::Priority => Discipline::Priority { ageing },
            Name::RoundRobin => Discipline::RoundRobin,
            Name::Sfq => fair(Rule::Start, Estimator::Declared),
            Name::Fq | Name::Wfq => fair(Rule::Finish, Estimator::Declared),
            Name::Wf2q => fair(Rule::Eligible, Estimator::Declared),
            Name::TwoDfq => fair(Rule::Staggered, Estimator::Declared),
            Name::WfqE => fair(Rule::Finish, average),
            Name::Wf2qE => fair(Rule::Eligible, average),
            Name::TwoDfqE => fair(Rule::Staggered, pessimistic),
            Name::Drf => Discipline::Drf { capacity: capacity.clone(), ties },
            Name::Multilevel => Discipline::Multilevel { multiplier },
        }
    }

    /// True if it orders by tags: tenants with credit start earlier ([`crate::Queue::lend`]), and service beside the queue counts
    /// ([`crate::Queue::charge_beside`]).
    pub fn has_tags(self) -> bool {
        match self {
            Name::Fifo | Name::Priority | Name::RoundRobin | Name::Drf | Name::Multilevel => false,
            Name::Fq | Name::Sfq | Name::Wfq | Name::Wf2q | Name::TwoDfq => true,
            Name::WfqE | Name::Wf2qE | Name::TwoDfqE => true,
        }
    }
}

impl Discipline {
    /// Returns fair queueing with stated costs.
    pub fn fair(rule: Rule) -> Discipline {
        let (estimator, virtual_time) = (Estimator::Declared, Method::Active);
        Discipline::Fair { rule, estimator, virtual_time }
    }

    /// True if it decides by estimated costs.
    pub fn estimates(&self) -> bool {
        matches!(self, Discipline::Fair { estimator, .. } if *estimator != Estimator::Declared)
    }

    /// The order of requests on this machine.
    pub(super) fn order(&self, machine: Machine) -> AnyOrder {
        match self {
            Discipline::Fifo => AnyOrder::ByArrival(ByArrival::fifo()),
            Discipline::Priority { ageing } => {
                AnyOrder::ByArrival(ByArrival::with_priority(*ageing))
            }
            Discipline::RoundRobin => AnyOrder::RoundRobin(RoundRobin::default()),
            Discipline::Fair { rule, estimator, virtual_time } => {
                AnyOrder::Tags(Tags::new(*rule, *estimator, *virtual_time, machine))
            }
            Discipline::Drf { capacity, ties } => {
                AnyOrder::Dominant(Dominant::new(capacity.clone(), *ties))
            }
            Discipline::Multilevel { multiplier } => {
                AnyOrder::Multilevel(Multilevel::new(*multiplier, machine.rate))
            }
        }
    }

    /// The charge against reservations and limits in advance.
    pub(super) fn advance(&self, request: &Request, credit: f64) -> f64 {
        match self {
            Discipline::Fair { .. } => credit,
            Discipline::Multilevel { .. } => 0.0,
            _ => request.cost,
        }
    }
}
