//! Head start of tenants that left service to others earlier: credit in virtual time.
//!
//! # Problem
//! Tags remember no restraint: a tenant that returns after a pause starts at the present virtual time `v`, as if it had
//! used its share meanwhile. A tenant with credit should start earlier by that credit, pay for it, and never get more.
//!
//! # Terms
//! *Bank*: cost units that a tenant may start ahead of its turn ([`crate::Queue::lend`]); its owner keeps the account.
//! *Lead*: the rest of the head start of a tenant's present work, in virtual time.
//!
//! # Algorithm
//! - *Wake*: a tenant without requests gets one. Its start tag is raised to `v − bank/φ` instead of `v`, and its lead is
//!   `v − S`, at most `bank/φ`. A tenant that always has requests never wakes, so it never has a lead.
//! - *Start*: a request for which the lead decided pays `min(lead, L/φ)`; the lead and the bank fall by it. The tag
//!   without the lead, `S + lead`, stays where it was: the start was bought.
//! - *Decided*: with the tag `S + lead`, another tenant would have been chosen, and after all starts of the same
//!   instant a request still waits that would have gone first. Else the tenant would have started anyway, and nothing
//!   is paid. So fees are known at the end of a round of starts ([`crate::Queue::fees`]).
//! - A bank that falls below the lead shortens it: the start tag rises. A lead that is left when a tenant has no more
//!   requests ends, and the start tag rises by it.
//!
//! With estimated costs the fee is that of the estimate. The rest of the usage moves the tag as without a lead.
//!
//! # Properties (`tests/leads.rs`)
//! - All fees of a tenant together are at most the bank that it was lent (`fees_are_covered_by_banks`).
//! - The service that others lose is at most the banks, and a request for each worker (`others_lose_at_most_the_banks`).
//! - Without banks all decisions are the same (`without_a_bank_nothing_changes`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::super::types::TenantId;
use super::staggered::Entry;

/// Head start of one tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Lead {
    /// Cost units that it may start early.
    pub(super) bank: f64,
    /// Rest of the head start of its present work, in virtual time.
    pub(super) rest: f64,
}

impl Lead {
    pub(super) fn is_none(&self) -> bool {
        *self == Lead::default()
    }

    /// Takes at most `length` (virtual time) for a start, and returns the part taken.
    pub(super) fn take(&mut self, length: f64, weight: f64) -> f64 {
        let part = self.rest.min(length);
        self.rest -= part;
        self.bank = (self.bank - part * weight).max(0.0);
        part
    }

    /// Returns a part that was taken.
    pub(super) fn put_back(&mut self, part: f64, weight: f64) {
        self.rest += part;
        self.bank += part * weight;
    }
}

/// A start for which a lead was taken.
#[derive(Clone, Debug)]
pub(super) struct EarlyStart {
    pub(super) worker: u32,
    /// Its place if no start of this round had a lead.
    pub(super) without: Entry,
    /// Part of the lead that was taken, in virtual time, and the weight of the tenant.
    pub(super) taken: (f64, f64),
}

/// Starts since the last settlement.
#[derive(Clone, Debug, Default)]
pub(super) struct Round {
    /// Tenant and worker of the last choice, if the lead decided it.
    pub(super) chosen: Option<(TenantId, u32)>,
    pub(super) starts: Vec<EarlyStart>,
    /// Parts of leads that were taken in this round, in virtual time.
    taken: BTreeMap<TenantId, f64>,
}

impl Round {
    /// Part of a tenant's lead that was taken in this round.
    pub(super) fn taken(&self, tenant: TenantId) -> f64 {
        self.taken.get(&tenant).copied().unwrap_or(0.0)
    }

    pub(super) fn push(&mut self, start: EarlyStart) {
        *self.taken.entry(start.without.tenant).or_default() += start.taken.0;
        self.starts.push(start);
    }
}
