//! Dominant resource fairness as an order: the smallest share held, measured by the resource held most.
//!
//! # Problem
//! Requests hold several resources at once, and in different proportions. The order chooses the tenant that
//! starts its next one.
//!
//! # Algorithm
//! Progressive filling for whole tasks (Ghodsi and others, NSDI'11), with YARN's comparator
//! (`DominantResourceFairnessPolicy`): tenants that hold less than their minimum share of the resource they
//! use most of come first, by `held / minimum`; then the smallest `held / (capacity · weight)`, compared
//! resource by resource from the most used down; then by [`Ties`]. A tenant whose next request does not fit
//! is skipped.
//!
//! Shares have no memory: with one worker and short requests, all shares are 0 whenever a request is
//! chosen. If the earlier tenant won every tie, the others would starve. [`Ties::Turn`] chooses the tenant
//! that was served longest ago.
//!
//! The comparator looks at one tenant at a time, so it is a key; the keys are in a search tree, and a
//! dispatch or completion renews one: O(m log n) for m resources. Tenants that do not fit are skipped one
//! by one.
//!
//! # Properties
//! - The same order as [`tenantd_fair::yarn::compare`] (`drf_order_is_that_of_the_comparator`).
//! - No tenant starves by ties that go in turn (`ties_in_turn_starve_nobody`).
//! - The published example (`the_example_of_the_drf_paper`).
//! - Running requests never hold more than the capacity (`the_example_of_the_drf_paper`).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::super::order::{Activity, Admits, Head, Order, Running};
use super::super::room::shift;
use super::super::tag::Tag;
use super::super::types::{Request, TenantId, Terms};
use tenantd_fair::yarn::{by_dominance, min_share_ratios};

/// Rule for tenants of equal shares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ties {
    /// The earlier tenant first, as in published schedules.
    #[default]
    Earlier,
    /// The tenant that was served longest ago first; tenants that were never served before all others; then
    /// the earlier tenant.
    Turn,
}

/// False for a needy tenant, then ratios, then the turn, then the tenant.
type Key = (bool, Vec<Tag>, u64, TenantId);

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Dominant {
    capacity: Vec<f64>,
    ties: Ties,
    tenants: Vec<Holder>,
    heads: BTreeSet<Key>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Holder {
    weight: f64,
    min_share: Vec<f64>,
    held: Vec<f64>,
    #[serde(default)]
    has_head: bool,
    /// Its last turn, if turns break ties.
    turn: u64,
    key: Option<Key>,
}

impl Dominant {
    /// `capacity` has at least one resource, all positive.
    pub(super) fn new(capacity: Vec<f64>, ties: Ties) -> Dominant {
        Dominant { capacity, ties, tenants: Vec::new(), heads: BTreeSet::new() }
    }

    fn key(&self, holder: &Holder, tenant: TenantId) -> Key {
        let share = |(held, whole): (&f64, &f64)| if *held == 0.0 { 0.0 } else { held / whole };
        let shares: Vec<f64> = holder.held.iter().zip(&self.capacity).map(share).collect();
        let mut dominant = 0;
        for (resource, share) in shares.iter().enumerate() {
            if *share > shares[dominant] {
                dominant = resource;
            }
        }
        let is_needy = holder.held[dominant] < holder.min_share[dominant];
        let ratios = if is_needy {
            min_share_ratios(&holder.held, &holder.min_share)
        } else {
            shares.iter().map(|share| share / holder.weight).collect()
        };
        let ratios = by_dominance(&shares, &ratios);
        (!is_needy, ratios.into_iter().map(Tag::exact).collect(), holder.turn, tenant)
    }

    fn renew(&mut self, tenant: TenantId) {
        let holder = &self.tenants[tenant.index()];
        let key = holder.has_head.then(|| self.key(holder, tenant));
        let holder = &mut self.tenants[tenant.index()];
        if holder.key != key {
            if let Some(old) = std::mem::replace(&mut holder.key, key.clone()) {
                self.heads.remove(&old);
            }
            self.heads.extend(key);
        }
    }

    fn hold(&mut self, tenant: TenantId, holds: &[f64], sign: f64) {
        shift(&mut self.tenants[tenant.index()].held, holds, sign, &self.capacity);
    }
}

impl Order for Dominant {
    fn admit(&mut self, tenant: TenantId, terms: &Terms, _: Activity, _: f64) {
        let nr_resources = self.capacity.len();
        let nothing = Holder {
            weight: 1.0,
            min_share: vec![0.0; nr_resources],
            held: vec![0.0; nr_resources],
            has_head: false,
            turn: 0,
            key: None,
        };
        if self.tenants.len() <= tenant.index() {
            self.tenants.resize(tenant.index() + 1, nothing);
        }
        let holder = &mut self.tenants[tenant.index()];
        holder.weight = terms.weight;
        holder.min_share = terms.min_share.to_vec();
        holder.min_share.resize(nr_resources, 0.0);
        self.renew(tenant);
    }

    fn reset(&mut self, tenant: TenantId) {
        if let Some(holder) = self.tenants.get_mut(tenant.index()) {
            holder.turn = 0;
        }
    }

    fn head(&mut self, tenant: TenantId, head: Option<Head<'_>>, _: f64) {
        let holder = &mut self.tenants[tenant.index()];
        holder.has_head = head.is_some();
        if let (Some(head), Ties::Turn) = (head, self.ties) {
            holder.turn = head.turn;
        }
        self.renew(tenant);
    }

    fn next(&mut self, _: u32, _: f64, admits: Admits<'_>) -> Option<TenantId> {
        self.heads.iter().map(|(_, _, _, tenant)| *tenant).find(|tenant| admits(*tenant, None))
    }

    fn dispatched(&mut self, tenant: TenantId, request: &Request, _: f64) -> f64 {
        self.hold(tenant, &request.holds, 1.0);
        0.0
    }

    fn completed(&mut self, running: &Running, _: f64, _: Activity, _: f64) {
        self.hold(running.tenant, &running.holds, -1.0);
        self.renew(running.tenant);
    }
}
