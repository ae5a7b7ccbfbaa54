//! Virtual time: the fair service so far of a tenant of weight 1 that is always served.
//!
//! # Problem
//! A tenant that was away must neither get credit for the time without requests, nor be behind those that
//! stayed. So its first request after a pause starts at the present virtual time, and its next ones where
//! the previous one ended. There are several definitions of virtual time.
//!
//! # Three definitions
//! - [`Method::Active`], of 2DFQ's figure 7: `dv/dt = speed / Σ weights`, over the tenants that have a
//!   request waiting or running. A tenant leaves when its last request completes. It costs nothing and
//!   needs no costs in advance, so it is the only one for unknown costs.
//! - [`Method::Served`]: the same with the measured `speed`: `v` grows by `used / Σ weights` whenever a
//!   request is charged. With an assumed speed, tags of tenants that are always backlogged fall behind `v`
//!   on a slower machine, because others use it or because requests wait for something else. A tenant that
//!   returns has its tag at `v` and waits until they have caught up, which no order intends
//!   (`a_slow_machine_holds_no_newcomer_up`).
//! - [`Method::Gps`]: the virtual time of [`super::gps`], where a tenant leaves when the ideal would have
//!   finished its work. WFQ and WF²Q are defined with it; it costs O(log n) for each request.
//!
//! They are not equal: with the first, WF²Q on Bennett and Zhang's example stops alternating once a few
//! tenants of a single packet have left (`wf2q_stops_alternating_without_exact_virtual_time`).
//!
//! GPS cannot revoke service: there, a request that is withdrawn, or whose cost differs from the stated
//! one, counts as stated.
//!
//! # Properties
//! - `v` never decreases, and is constant while no tenant is active (`virtual_time_never_falls`).

use serde::{Deserialize, Serialize};

use super::gps::Gps;
use super::types::{Machine, TenantId};
use super::weights::WeightSum;

/// Definition of virtual time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Method {
    /// At the rate of the tenants that have requests waiting or running.
    #[default]
    Active,
    /// By the service of the tenants.
    Served,
    /// As in generalized processor sharing.
    Gps,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Clock {
    Active(Active),
    Served(Served),
    Gps(Gps),
}

/// `v` grows by usage over the sum of the weights.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Served {
    v: f64,
    weights: WeightSum,
}

/// `v = base + (now − since) · speed / Σ weights`. The sums are kept apart until the active set changes, so
/// that a long steady time is one product and not a sum of rounding errors.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Active {
    speed: f64,
    base: f64,
    since: f64,
    weights: WeightSum,
}

impl Active {
    fn at(&self, now: f64) -> f64 {
        match self.weights.value() {
            Some(weights) => self.base + (now - self.since).max(0.0) * self.speed / weights,
            None => self.base,
        }
    }

    fn settle(&mut self, now: f64) {
        self.base = self.at(now);
        self.since = self.since.max(now);
    }
}

impl Clock {
    pub(super) fn new(method: Method, machine: Machine) -> Clock {
        let speed = machine.speed();
        match method {
            Method::Active => Clock::Active(Active {
                speed,
                base: 0.0,
                since: 0.0,
                weights: WeightSum::default(),
            }),
            Method::Served => Clock::Served(Served::default()),
            Method::Gps => Clock::Gps(Gps::new(speed)),
        }
    }

    pub(super) fn now(&mut self, now: f64) -> f64 {
        match self {
            Clock::Active(clock) => clock.at(now),
            Clock::Served(clock) => clock.v,
            Clock::Gps(gps) => {
                gps.advance(now);
                gps.virtual_time()
            }
        }
    }

    /// Records a tenant's new or first weight.
    pub(super) fn weigh(&mut self, tenant: TenantId, old: Option<f64>, new: f64, now: f64) {
        match self {
            Clock::Active(clock) => {
                if let Some(old) = old {
                    clock.settle(now);
                    clock.weights.subtract(old);
                    clock.weights.add(new);
                }
            }
            Clock::Served(clock) => {
                if let Some(old) = old {
                    clock.weights.subtract(old);
                    clock.weights.add(new);
                }
            }
            Clock::Gps(gps) => gps.set_weight(tenant, new, now),
        }
    }

    /// Records a tenant's first request, or the end of its last.
    pub(super) fn set_active(&mut self, weight: f64, is_active: bool, now: f64) {
        let weights = match self {
            Clock::Active(clock) => {
                clock.settle(now);
                &mut clock.weights
            }
            Clock::Served(clock) => &mut clock.weights,
            Clock::Gps(_) => return,
        };
        if is_active { weights.add(weight) } else { weights.subtract(weight) }
    }

    /// Records the usage of a running request.
    pub(super) fn serve(&mut self, used: f64) {
        if let Clock::Served(Served { v, weights }) = self
            && let Some(weights) = weights.value()
        {
            *v += used.max(0.0) / weights;
        }
    }

    /// A request arrives.
    pub(super) fn arrive(&mut self, tenant: TenantId, cost: f64, is_endless: bool, now: f64) {
        if let Clock::Gps(gps) = self {
            if is_endless { gps.set_endless(tenant, now) } else { gps.arrive(tenant, 0, cost, now) }
        }
    }
}
