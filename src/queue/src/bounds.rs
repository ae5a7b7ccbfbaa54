//! Reservations and limits of tenants, in any discipline.
//!
//! # Problem
//! A policy guarantees a tenant a rate, and limits the rate of others. Weights alone do neither: a share
//! depends on which other tenants are active.
//!
//! # Algorithm (mClock, Gulati, Merchant and Varman, OSDI'10)
//! A tenant with a reservation `r` (cost units a second) has a tag `R`, one with a limit `l` a tag `L`,
//! both real times. They start at the time at which the tenant becomes active, and a dispatch of cost `c`
//! moves them by `c/r` and `c/l`: a request that had to wait for a worker does not move the next one. A
//! free worker first takes the tenant with the smallest `R ≤ now`; else the discipline decides, among
//! tenants with `L ≤ now`. Dispatches by the discipline do not move `R`: the reservation is a floor under
//! the share, and dispatches for the reservation count in the share.
//!
//! Costs are the advance charges of the discipline; if the real costs differ, the tags are corrected, as in
//! [`super::estimate`].
//!
//! # Properties
//! - A reserved tenant gets its reservation, a limited one no more than its limit and one request
//!   (`reservations_and_limits_hold`).
//! - Tenants without either have no tag, so their order does not change.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::tag::Tag;
use super::types::{TenantId, Terms};

/// Tags of the tenants that have a reservation or a limit.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Bounds {
    tenants: Vec<Option<Bound>>,
    /// Tenants with a reservation and a head, by `R`.
    due: BTreeSet<(Tag, TenantId)>,
    /// Tenants over their limits, by `L`.
    withheld: BTreeSet<(Tag, TenantId)>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Bound {
    reservation: f64,
    limit: f64,
    reserved: f64,
    limited: f64,
    /// Its entries in `due` and in `withheld`.
    due: Option<Tag>,
    withheld: Option<Tag>,
}

/// Reason of a dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Phase {
    /// To keep a reservation.
    Reservation,
    /// By the discipline.
    Share,
}

impl Bounds {
    pub(super) fn admit(&mut self, tenant: TenantId, terms: &Terms, now: f64) {
        let is_bounded = terms.reservation > 0.0 || terms.limit.is_finite();
        if self.tenants.len() <= tenant.index() {
            if !is_bounded {
                return;
            }
            self.tenants.resize(tenant.index() + 1, None);
        }
        let old = self.tenants[tenant.index()].take();
        if let Some(Bound { due: Some(tag), .. }) = old {
            self.due.remove(&(tag, tenant));
        }
        if let Some(Bound { withheld: Some(tag), .. }) = old {
            self.withheld.remove(&(tag, tenant));
        }
        if is_bounded {
            let past = |tag: fn(&Bound) -> f64| old.as_ref().map_or(now, tag);
            self.tenants[tenant.index()] = Some(Bound {
                reservation: terms.reservation,
                limit: terms.limit,
                reserved: past(|bound| bound.reserved),
                limited: past(|bound| bound.limited),
                due: None,
                withheld: None,
            });
        }
    }

    fn bound(&mut self, tenant: TenantId) -> Option<&mut Bound> {
        self.tenants.get_mut(tenant.index())?.as_mut()
    }

    /// True if a tenant has a reservation or a limit.
    pub(super) fn has(&self, tenant: TenantId) -> bool {
        self.tenants.get(tenant.index()).is_some_and(Option::is_some)
    }

    /// Updates the tags after a change of a tenant's head. Returns true if the discipline may see the head,
    /// because the tenant is not over its limit.
    pub(super) fn show(&mut self, tenant: TenantId, has_head: bool, now: f64) -> bool {
        let Some(bound) = self.bound(tenant) else { return true };
        let due = (has_head && bound.reservation > 0.0).then(|| Tag::rounded(bound.reserved));
        let withheld =
            Some(Tag::rounded(bound.limited)).filter(|tag| has_head && tag.value() > now);
        let old = (std::mem::replace(&mut bound.due, due), bound.withheld);
        bound.withheld = withheld;
        if old.0 != due {
            old.0.map(|tag| self.due.remove(&(tag, tenant)));
            due.map(|tag| self.due.insert((tag, tenant)));
        }
        if old.1 != withheld {
            old.1.map(|tag| self.withheld.remove(&(tag, tenant)));
            withheld.map(|tag| self.withheld.insert((tag, tenant)));
        }
        withheld.is_none()
    }

    /// The next tenant that is no longer over its limit.
    pub(super) fn released(&self, now: f64) -> Option<TenantId> {
        let (tag, tenant) = *self.withheld.first()?;
        (tag.value() <= now).then_some(tenant)
    }

    /// Tenants behind their reservations, the earliest first.
    pub(super) fn owed(&self, now: f64) -> impl Iterator<Item = TenantId> {
        self.due.iter().take_while(move |(tag, _)| tag.value() <= now).map(|(_, tenant)| *tenant)
    }

    /// Time at which the next tenant comes under its limit again.
    pub(super) fn next_release(&self) -> Option<f64> {
        self.withheld.first().map(|(tag, _)| tag.value())
    }

    /// Records a dispatch with its advance charge.
    pub(super) fn dispatched(&mut self, tenant: TenantId, cost: f64, phase: Phase) {
        let Some(bound) = self.bound(tenant) else { return };
        bound.limited += cost / bound.limit;
        if phase == Phase::Reservation && bound.reservation > 0.0 {
            bound.reserved += cost / bound.reservation;
        }
    }

    /// A tenant without anything waiting or running gets a request: it keeps no credit for its idle time.
    pub(super) fn activate(&mut self, tenant: TenantId, now: f64) {
        let Some(bound) = self.bound(tenant) else { return };
        bound.limited = bound.limited.max(now);
        bound.reserved = bound.reserved.max(now);
    }

    /// Corrects a charge: a request used this much more (or less) than was charged in advance.
    pub(super) fn corrected(&mut self, tenant: TenantId, cost: f64, phase: Phase) {
        let Some(bound) = self.bound(tenant) else { return };
        bound.limited += cost / bound.limit;
        if phase == Phase::Reservation && bound.reservation > 0.0 {
            bound.reserved += cost / bound.reservation;
        }
    }
}
