//! Three orders without virtual time: first in first out, priority with ageing, and round-robin over
//! tenants.
//!
//! # Algorithm
//! - *FIFO*: the smallest number of arrival.
//! - *Priority with ageing*: a request's priority rises by `ageing` for each second that it waits. As all
//!   rise alike, the order of `priority − ageing · arrival` never changes, and no key is ever renewed.
//!   Without ageing a low priority may starve; with ageing, a request waits at most `(highest − lowest) /
//!   ageing` seconds behind later ones.
//! - *Round-robin*: the next tenant after the last one, in their order. Fair in the number of requests, and
//!   so unfair by the ratio of their costs: requests twice as large get twice the time.
//!
//! Each keeps one key for each backlogged tenant in a search tree: O(log n).
//!
//! # Properties
//! - The published schedule of round-robin (vector `fq_schedules-07`); each order against a linear scan
//!   (`each_discipline_equals_its_slow_reference`).
//! - Ageing bounds the wait (`ageing_bounds_the_wait`).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::super::order::{Activity, Admits, Head, Order};
use super::super::tag::Tag;
use super::super::types::{TenantId, Terms};

/// First in, first out; and priority with ageing. The first is the second without priorities.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ByArrival {
    /// Priority gained in a second of waiting; `None` for no priorities at all.
    ageing: Option<f64>,
    priorities: Vec<f64>,
    /// The key of each tenant's head.
    keys: Vec<Option<Key>>,
    heads: BTreeSet<(Key, TenantId)>,
}

/// The larger the priority the smaller the key; then the earlier arrival.
type Key = (Tag, u64);

impl ByArrival {
    pub(super) fn fifo() -> ByArrival {
        ByArrival { ageing: None, priorities: Vec::new(), keys: Vec::new(), heads: BTreeSet::new() }
    }

    pub(super) fn with_priority(ageing: f64) -> ByArrival {
        ByArrival { ageing: Some(ageing), ..ByArrival::fifo() }
    }
}

impl Order for ByArrival {
    fn admit(&mut self, tenant: TenantId, terms: &Terms, _: Activity, _: f64) {
        if self.keys.len() <= tenant.index() {
            self.keys.resize(tenant.index() + 1, None);
            self.priorities.resize(tenant.index() + 1, 0.0);
        }
        self.priorities[tenant.index()] = terms.priority;
    }

    fn head(&mut self, tenant: TenantId, head: Option<Head<'_>>, _: f64) {
        let key = head.map(|head| {
            let rank = match self.ageing {
                Some(ageing) => ageing * head.arrived - self.priorities[tenant.index()],
                None => 0.0,
            };
            (Tag::rounded(rank), head.arrival)
        });
        let old = std::mem::replace(&mut self.keys[tenant.index()], key);
        if old != key {
            old.map(|key| self.heads.remove(&(key, tenant)));
            key.map(|key| self.heads.insert((key, tenant)));
        }
    }

    fn next(&mut self, _: u32, _: f64, admits: Admits<'_>) -> Option<TenantId> {
        self.heads.iter().map(|(_, tenant)| *tenant).find(|tenant| admits(*tenant, None))
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RoundRobin {
    heads: BTreeSet<TenantId>,
    last: Option<TenantId>,
}

impl Order for RoundRobin {
    fn admit(&mut self, _: TenantId, _: &Terms, _: Activity, _: f64) {}

    fn head(&mut self, tenant: TenantId, head: Option<Head<'_>>, _: f64) {
        match head {
            Some(_) => self.heads.insert(tenant),
            None => self.heads.remove(&tenant),
        };
    }

    fn next(&mut self, _: u32, _: f64, admits: Admits<'_>) -> Option<TenantId> {
        let after = self.last.map_or(TenantId(0), |last| TenantId(last.0.saturating_add(1)));
        let mut in_turn = self.heads.range(after..).chain(self.heads.range(..after)).copied();
        in_turn.find(|tenant| admits(*tenant, None))
    }

    fn dispatched(&mut self, tenant: TenantId, _: &super::super::types::Request, _: f64) -> f64 {
        self.last = Some(tenant);
        0.0
    }
}
