//! Parameters of a simulation, and the interfaces of its work and its events.

use super::super::entrance::{Entrance, Gate};
use super::super::operations::Operations;
use super::super::room::amount;
use super::super::types::{Machine, TenantId};
use super::state::State;

/// Work that arrives.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrival {
    /// Time in seconds.
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
    /// Its class ([`crate::Request::class`]).
    pub class: u32,
    /// Its holdings ([`crate::Request::holds`]).
    pub holds: Box<[f64]>,
    /// Use of each resource at its end; empty for no more than its holdings.
    pub uses: Box<[f64]>,
    /// Consent to an eviction ([`super::Entry::grace`]).
    pub grace: Option<u32>,
}

impl Work {
    /// Work after which it is killed, and the resource of which it uses too much; `None` if it is never
    /// killed.
    pub fn killed_after(&self) -> Option<(f64, usize)> {
        let held = |resource: usize| amount(&self.holds, resource);
        let parts = self.uses.iter().enumerate();
        let parts = parts.filter(|(resource, used)| **used > held(*resource));
        let parts = parts.map(|(resource, used)| (self.cost * (held(resource) / used), resource));
        parts.reduce(|least, other| if other.0 < least.0 { other } else { least })
    }
}

/// The source of work.
pub trait Source {
    /// The next arrival, not before the last one.
    fn next_arrival(&mut self) -> Option<Arrival>;

    /// Another request of an endless tenant; `None` if it has no more from now on.
    fn next_of(&mut self, tenant: TenantId, now: f64) -> Option<Work>;

    /// The endless tenants, each from a time on, in the order of these times.
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

    /// An endless tenant has no more requests.
    fn ended(&mut self, _time: f64, _tenant: TenantId) {}

    /// A request that has arrived enters the queue.
    fn entered(&mut self, _time: f64, _tenant: TenantId, _number: u64, _cost: f64) {}

    /// A request has left without being completed.
    fn left(&mut self, _time: f64, _tenant: TenantId, _number: u64, _why: Left) {}

    /// The run of a request on a worker has ended for another request, after this time in seconds. Its work is lost, and
    /// the request waits again.
    fn evicted(
        &mut self,
        _time: f64,
        _worker: u32,
        _tenant: TenantId,
        _number: u64,
        _lost_seconds: f64,
    ) {
    }

    /// A request has been completed, having arrived at `arrived`.
    fn completed(&mut self, _time: f64, _tenant: TenantId, _number: u64, _arrived: f64) {}

    /// Time of the next call of [`Observer::lend`].
    fn lends_at(&self) -> f64 {
        f64::INFINITY
    }

    /// The banks of all tenants from now on ([`crate::Queue::lend`]).
    fn lend(&mut self, _time: f64, _state: &State) -> Vec<f64> {
        Vec::new()
    }

    /// A tenant has paid for starts ahead of its turn ([`crate::Queue::fees`]).
    fn paid(&mut self, _tenant: TenantId, _fee: f64) {}

    /// The time of a sample or of an event is reached, before its effects.
    fn instant(&mut self, _time: f64, _kind: Instance, _state: &State) {}
}

/// Reason of a request's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Too many requests of its tenant waited.
    Dropped,
    /// It had waited for too long.
    TimedOut,
    /// It used more of this resource than it holds.
    Killed(usize),
}

/// Times at which running requests are charged for their use.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Charge {
    /// At their end.
    #[default]
    End,
    /// At intervals, in seconds.
    Refresh(f64),
    /// Each time the advance charge is used up.
    Timer,
}

/// Stages before the queue.
#[derive(Clone, Debug, Default)]
pub struct Before {
    /// Rates and bounds of all tenants.
    pub entrance: Entrance,
    /// Sets of requests.
    pub operations: Operations,
    /// The tenant and the requests of each set.
    pub works: Vec<(TenantId, Work)>,
    /// True if tenants donate turns to the operations that theirs wait for ([`crate::donation`]); those whose time has come
    /// when the operation is sent.
    pub donates: bool,
}

impl Before {
    /// Returns empty stages for this number of tenants.
    pub fn nothing(nr_tenants: usize) -> Before {
        let entrance = Entrance::new(vec![Gate::default(); nr_tenants], None);
        Before { entrance, ..Before::default() }
    }
}

/// Reason of a call of [`Observer::instant`].
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
    /// End, in seconds.
    pub horizon: f64,
    /// Times at which running requests are charged for their use.
    pub charge: Charge,
    /// The longest slice, in seconds; `None` for no slices.
    pub quantum: Option<f64>,
    /// Time between samples, in seconds, positive.
    pub sample: f64,
    /// Dispatches after which the run is aborted.
    pub dispatches_max: u64,
}

/// End of a simulation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ended {
    /// At its horizon.
    Horizon,
    /// The bound on dispatches was reached.
    TooMany {
        /// Time of the abort.
        time: f64,
    },
}
