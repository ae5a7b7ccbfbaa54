//! Generalized processor sharing: the ideal for the comparison of all disciplines.
//!
//! # Problem
//! GPS (Parekh and Gallager 1993) divides work infinitely and serves all active tenants at once, in
//! proportion to their weights. No machine can do it; its finish times and its service are the reference
//! for real disciplines.
//!
//! # Terms
//! *Active*: has work left in GPS. *Virtual time* `v`: the service so far of a tenant of weight 1 that is
//! always active; `dv/dt = speed / Σ weights of the active`. *Finish tag* of a request: `F =
//! max(v(arrival), F of the one before) + cost / weight`; in GPS it finishes when `v = F`.
//!
//! # Algorithm
//! Between two events `v` is linear. Events are arrivals and finishes; the next finish is the smallest
//! finish tag, kept in a heap. A tenant whose last request finishes leaves the active set. Service needs no
//! bookkeeping: an active tenant has its service at its activation plus `weight · (v − v then)`, an
//! inactive one the sum of its costs. O(log n) for each request.
//!
//! # Properties
//! - The finish times are the published ones (vectors `fq_shares_gps`).
//! - Work is conserved: the service of all is `speed · time` while any tenant is active
//!   (`gps_serves_all_that_arrives_and_never_idles`).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::{Deserialize, Serialize};

use super::tag::Tag;
use super::types::TenantId;
use super::weights::WeightSum;

/// GPS over any number of tenants.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Gps {
    /// Cost units a second.
    speed: f64,
    now: f64,
    /// The virtual time at `now`.
    virtual_time: f64,
    active: WeightSum,
    tenants: Vec<Fluid>,
    /// Finish tags of requests that have not finished, with their tenants and numbers; and the same tags
    /// unrounded, for the sum in `v`.
    pending: BinaryHeap<Reverse<(Tag, TenantId, u64, Tag)>>,
    /// Requests that finished since the last call of [`Gps::take_finished`]: number and time.
    finished: Vec<(u64, f64)>,
    is_recording: bool,
}

/// One tenant in GPS.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Fluid {
    weight: f64,
    is_active: bool,
    is_endless: bool,
    /// Requests that have not finished.
    pending: u64,
    /// The virtual time and its service when it became active.
    since: f64,
    before: f64,
    /// Work that has arrived.
    arrived: f64,
    /// Work that has arrived since it became active: its last finish tag is `since + burst / weight`.
    burst: f64,
}

impl Gps {
    /// Creates an idle machine at time 0.
    pub fn new(speed: f64) -> Gps {
        Gps {
            speed,
            now: 0.0,
            virtual_time: 0.0,
            active: WeightSum::default(),
            tenants: Vec::new(),
            pending: BinaryHeap::new(),
            finished: Vec::new(),
            is_recording: false,
        }
    }

    /// Creates an idle machine that records the finish of each request, for [`Gps::take_finished`].
    pub fn recording(speed: f64) -> Gps {
        Gps { is_recording: true, ..Gps::new(speed) }
    }

    /// Adds a tenant or changes its weight; its service stays.
    pub fn set_weight(&mut self, tenant: TenantId, weight: f64, now: f64) {
        self.advance(now);
        if self.tenants.len() <= tenant.index() {
            self.tenants.resize(tenant.index() + 1, Fluid::default());
        }
        let fluid = &mut self.tenants[tenant.index()];
        if fluid.is_active && fluid.weight != weight {
            self.active.subtract(fluid.weight);
            self.active.add(weight);
            fluid.before += fluid.weight * (self.virtual_time - fluid.since);
            fluid.burst -= fluid.weight * (self.virtual_time - fluid.since);
            fluid.since = self.virtual_time;
        }
        fluid.weight = weight;
    }

    /// Makes a tenant permanently active.
    pub fn set_endless(&mut self, tenant: TenantId, now: f64) {
        self.advance(now);
        self.activate(tenant);
        self.tenants[tenant.index()].is_endless = true;
    }

    /// Ends the endless work of a tenant: it has only the work that has arrived by now.
    pub fn set_finite(&mut self, tenant: TenantId, now: f64) {
        self.advance(now);
        let fluid = &mut self.tenants[tenant.index()];
        if !std::mem::take(&mut fluid.is_endless) {
            return;
        }
        let got = fluid.before + fluid.weight * (self.virtual_time - fluid.since);
        if got >= fluid.arrived {
            // Service beyond the arrived work is not revoked.
            fluid.arrived = got;
            fluid.is_active = false;
            self.active.subtract(fluid.weight);
        } else {
            fluid.pending += 1;
            let finish = fluid.since + (fluid.arrived - fluid.before) / fluid.weight;
            let entry = (Tag::rounded(finish), tenant, u64::MAX, Tag::exact(finish));
            self.pending.push(Reverse(entry));
        }
    }

    /// A request arrives; `number` identifies it in [`Gps::take_finished`].
    pub fn arrive(&mut self, tenant: TenantId, number: u64, cost: f64, now: f64) {
        self.advance(now);
        self.activate(tenant);
        let fluid = &mut self.tenants[tenant.index()];
        fluid.arrived += cost;
        fluid.burst += cost;
        if !fluid.is_endless {
            fluid.pending += 1;
            let finish = fluid.since + fluid.burst / fluid.weight;
            let entry = (Tag::rounded(finish), tenant, number, Tag::exact(finish));
            self.pending.push(Reverse(entry));
        }
    }

    fn activate(&mut self, tenant: TenantId) {
        let fluid = &mut self.tenants[tenant.index()];
        if !fluid.is_active {
            fluid.is_active = true;
            fluid.since = self.virtual_time;
            fluid.before = fluid.arrived;
            fluid.burst = 0.0;
            self.active.add(fluid.weight);
        }
    }

    /// Advances the time. An earlier time than the present one changes nothing.
    pub fn advance(&mut self, now: f64) {
        while let Some(Reverse((.., finish))) = self.pending.peek() {
            let Some(weight) = self.active.value() else { break };
            let ahead = (finish.value() - self.virtual_time).max(0.0);
            let at = self.now + ahead * weight / self.speed;
            // A finish at `now`, up to rounding, counts as one before it.
            if at > now + now.abs() * super::tag::STEP {
                break;
            }
            self.virtual_time = self.virtual_time.max(finish.value());
            self.now = self.now.max(at.min(now));
            self.finish(at);
        }
        if now > self.now {
            if let Some(weight) = self.active.value() {
                self.virtual_time += (now - self.now) * self.speed / weight;
            }
            self.now = now;
        }
    }

    fn finish(&mut self, at: f64) {
        let Some(Reverse((_, tenant, number, _))) = self.pending.pop() else { return };
        if self.is_recording {
            self.finished.push((number, at));
        }
        let fluid = &mut self.tenants[tenant.index()];
        fluid.pending -= 1;
        if fluid.pending == 0 && !fluid.is_endless {
            fluid.is_active = false;
            self.active.subtract(fluid.weight);
        }
    }

    /// Time at which the next request finishes, if nothing arrives before.
    pub fn next_finish(&self) -> Option<f64> {
        let Reverse((.., finish)) = self.pending.peek()?;
        let ahead = (finish.value() - self.virtual_time).max(0.0);
        Some(self.now + ahead * self.active.value()? / self.speed)
    }

    /// The virtual time, at the time to which it was advanced.
    pub fn virtual_time(&self) -> f64 {
        self.virtual_time
    }

    /// Service of a tenant so far, in cost units.
    pub fn service(&self, tenant: TenantId) -> f64 {
        let Some(fluid) = self.tenants.get(tenant.index()) else { return 0.0 };
        if fluid.is_active {
            fluid.before + fluid.weight * (self.virtual_time - fluid.since)
        } else {
            fluid.arrived
        }
    }

    /// Requests that finished since the last call, each with its time.
    pub fn take_finished(&mut self) -> Vec<(u64, f64)> {
        std::mem::take(&mut self.finished)
    }
}
