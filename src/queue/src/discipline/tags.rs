//! Fair queueing by start and finish tags: SFQ, WFQ, WF²Q, 2DFQ, and their variants for unknown costs.
//!
//! # Problem
//! Serve tenants in an order that stays near the ideal of [`super::super::gps`], with workers that take
//! whole requests.
//!
//! # Terms
//! For the `j`-th request of a tenant of weight φ that arrives at `A` and costs `l`: start tag `S =
//! max(v(A), F of j−1)`, finish tag `F = S + l/φ`, where `v` is virtual time
//! ([`super::super::virtual_time`]).
//!
//! # Algorithm
//! A free worker takes, with ties to the smaller finish tag and then to the earlier tenant,
//! - *SFQ* (start-time fair queueing, Goyal, Vin and Cheng 1996): the smallest `S`. It needs no costs to
//!   decide, and tenants stay within a cost of each other on a machine of varying speed;
//! - *WFQ* (PGPS of Parekh and Gallager), and *FQ* (Demers, Keshav and Shenker 1989), the same without
//!   weights: the smallest `F`. Never late by more than a request, but early without bound: tenants of
//!   small requests are served in bursts, and then wait;
//! - *WF²Q* (Bennett and Zhang 1996): the smallest `F` with `S ≤ v`, which GPS has begun. On one worker
//!   never early by more than a request. On several, all large requests become eligible at once and block
//!   all workers at once;
//! - *2DFQ* (Mace and others, SIGCOMM'16): on worker `i` of `n` the smallest `F` with `S − (i/n)·l ≤ v`.
//!   Small requests may begin early only by little, large ones by much, and on high workers first: the
//!   workers divide themselves by size.
//!
//! With *estimated costs* ([`super::super::estimate`]) `l` is the estimate, and a tenant has one tag
//! instead of one for each request: `S = max(S, v)` when it becomes active, and charges move it from there
//! (2DFQ, figure 7).
//!
//! The paper does not define the case without an eligible head. A worker does not idle: the smallest start
//! tag (on worker `i`, the smallest `S − (i/n)·l`), then the smallest finish tag.
//!
//! SFQ, WFQ and WF²Q keep heads in search trees: O(log n) for a dispatch. WF²Q has two, one by start tag
//! for heads that are not eligible and one by finish tag for those that are; as `v` never falls, each head
//! moves over once. 2DFQ's index is [`super::staggered`].
//!
//! # Errata
//! Figure 7 of the paper has `S − (i/n)·l < v`. With `<`, figures 5d and 6b would differ from the printed
//! ones: at `v = 0` nothing would be eligible. It is `≤`.
//!
//! # Properties
//! - The published schedules (vectors `fq_schedules`, `fq_shares_gps`); the long-run shares.
//! - Work conservation, FIFO within a tenant, no starvation (`no_worker_idles_beside_a_waiting_request`,
//!   `first_in_first_out_within_a_tenant`, `no_tenant_starves`).
//! - Under 2DFQ, GPS is never ahead of a tenant by more than `n·Lmax` (`the_lag_is_bounded`; theorem 1).
//! - The same order as a plain scan (`each_discipline_equals_its_slow_reference`).
//!
//! Tenants with credit start earlier: [`super::lead`].

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::super::estimate::{Estimator, Ledger};
use super::super::order::{Activity, Admits, Head, Order, Running};
use super::super::tag::Tag;
use super::super::types::{Machine, Request, TenantId, Terms};
use super::super::virtual_time::{Clock, Method};
use super::lead::{EarlyStart, Lead, Round};
use super::staggered::{Entry, Staggered};

/// Tag that decides, and heads that are considered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rule {
    /// Smallest start tag: SFQ.
    Start,
    /// Smallest finish tag: WFQ, and FQ without weights.
    Finish,
    /// Smallest finish tag among those that GPS has begun: WF²Q.
    Eligible,
    /// Smallest finish tag among those that may begin; large requests may begin early, and earlier on high
    /// workers: 2DFQ.
    Staggered,
}

/// All heads, in the order of one rule.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Index {
    Start(BTreeSet<(Tag, Tag, TenantId)>),
    Finish(BTreeSet<(Tag, TenantId)>),
    Eligible {
        /// Heads that were not eligible at the last check, by start tag.
        later: BTreeSet<(Tag, Tag, TenantId)>,
        now: BTreeSet<(Tag, TenantId)>,
    },
    Staggered(Staggered),
}

impl Index {
    fn new(rule: Rule, workers: u32) -> Index {
        match rule {
            Rule::Start => Index::Start(BTreeSet::new()),
            Rule::Finish => Index::Finish(BTreeSet::new()),
            Rule::Eligible => Index::Eligible { later: BTreeSet::new(), now: BTreeSet::new() },
            Rule::Staggered => Index::Staggered(Staggered::new(workers)),
        }
    }

    fn insert(&mut self, entry: Entry) {
        let by_start = (Tag::rounded(entry.start), entry.finish, entry.tenant);
        match self {
            Index::Start(heads) => drop(heads.insert(by_start)),
            Index::Finish(heads) => drop(heads.insert((entry.finish, entry.tenant))),
            Index::Eligible { later, .. } => drop(later.insert(by_start)),
            Index::Staggered(heads) => heads.insert(entry),
        }
    }

    fn remove(&mut self, entry: &Entry) {
        let by_start = (Tag::rounded(entry.start), entry.finish, entry.tenant);
        match self {
            Index::Start(heads) => drop(heads.remove(&by_start)),
            Index::Finish(heads) => drop(heads.remove(&(entry.finish, entry.tenant))),
            Index::Eligible { later, now } => {
                if !now.remove(&(entry.finish, entry.tenant)) {
                    later.remove(&by_start);
                }
            }
            Index::Staggered(heads) => heads.remove(entry),
        }
    }

    fn first(
        &mut self,
        worker: u32,
        v: f64,
        admits: impl Fn(TenantId) -> bool,
    ) -> Option<TenantId> {
        let admitted = |tenant: &TenantId| admits(*tenant);
        match self {
            Index::Start(heads) => heads.iter().map(|(_, _, tenant)| *tenant).find(admitted),
            Index::Finish(heads) => heads.iter().map(|(_, tenant)| *tenant).find(admitted),
            Index::Eligible { later, now } => {
                let v = Tag::rounded(v);
                while let Some((start, finish, tenant)) = later.first().copied()
                    && start <= v
                {
                    later.pop_first();
                    now.insert((finish, tenant));
                }
                let begun = now.iter().map(|(_, tenant)| *tenant).find(admitted);
                begun.or_else(|| later.iter().map(|(_, _, tenant)| *tenant).find(admitted))
            }
            Index::Staggered(heads) => heads.first(worker, v, admits),
        }
    }
}

/// One tenant's tag: `S = base + charged / weight`.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Tagged {
    weight: f64,
    is_endless: bool,
    base: f64,
    ledger: Ledger,
    /// Class and stated cost of the head in the index.
    head: Option<(u32, f64)>,
    entry: Option<Entry>,
    #[serde(default, skip_serializing_if = "Lead::is_none")]
    lead: Lead,
}

impl Tagged {
    fn start(&self) -> f64 {
        self.base + self.ledger.charged() / self.weight
    }

    /// `S = max(S, v)`.
    fn raise(&mut self, v: f64) {
        if self.start() < v {
            self.base = v;
            self.ledger.forget();
        }
    }

    /// `S = max(S, v − bank/φ)`, with a new lead.
    fn wake(&mut self, v: f64) {
        self.shorten_lead(0.0);
        let most = self.lead.bank / self.weight;
        self.raise(v - most);
        self.lead.rest = (v - self.start()).clamp(0.0, most);
    }

    /// Shortens the lead to `most`. The tag without it stays.
    fn shorten_lead(&mut self, most: f64) {
        if self.lead.rest > most {
            self.base += self.lead.rest - most;
            self.lead.rest = most;
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Tags {
    estimator: Estimator,
    clock: Clock,
    index: Index,
    tenants: Vec<Option<Tagged>>,
    #[serde(skip)]
    round: Round,
}

impl Tags {
    pub(super) fn new(rule: Rule, estimator: Estimator, method: Method, machine: Machine) -> Tags {
        Tags {
            estimator,
            clock: Clock::new(method, machine),
            index: Index::new(rule, machine.workers),
            tenants: Vec::new(),
            round: Round::default(),
        }
    }

    pub(crate) fn ledger(&self, tenant: TenantId) -> Option<&Ledger> {
        self.tenants.get(tenant.index())?.as_ref().map(|tagged| &tagged.ledger)
    }

    /// Moves the head of a tenant to the place of its tags.
    fn renew(&mut self, tenant: TenantId) {
        let Some(tagged) = self.tenants[tenant.index()].as_mut() else { return };
        let entry = tagged.head.map(|(class, cost)| {
            let (start, length) = (tagged.start(), tagged.ledger.estimate(class, cost));
            // One rounding if only charges have moved the tag: equal sums stay equal.
            let charged = tagged.ledger.charged() + length;
            let finish = Tag::rounded(tagged.base + charged / tagged.weight);
            Entry { finish, tenant, start, length }
        });
        if entry != tagged.entry {
            if let Some(old) = &tagged.entry {
                self.index.remove(old);
            }
            if let Some(new) = entry {
                self.index.insert(new);
            }
            tagged.entry = entry;
        }
    }

    fn first(&mut self, worker: u32, v: f64, admits: Admits<'_>) -> Option<TenantId> {
        let tenants = &self.tenants;
        self.index.first(worker, v, |tenant| admits(tenant, estimate(tenants, tenant)))
    }

    /// The choice if a tenant had this head instead of its present one.
    fn first_with(
        &mut self,
        head: Entry,
        worker: u32,
        v: f64,
        admits: Admits<'_>,
    ) -> Option<TenantId> {
        let present = self.tenants[head.tenant.index()].as_ref().and_then(|tagged| tagged.entry);
        present.iter().for_each(|present| self.index.remove(present));
        self.index.insert(head);
        let first = self.first(worker, v, admits);
        self.index.remove(&head);
        present.into_iter().for_each(|present| self.index.insert(present));
        first
    }

    /// The head of a tenant with a lead, as it would be if no start of this round had one.
    fn without_lead(&self, tenant: TenantId) -> Option<Entry> {
        let tagged = self.tenants[tenant.index()].as_ref().filter(|it| it.lead.rest > 0.0)?;
        Some(tagged.entry?.later(tagged.lead.rest + self.round.taken(tenant)))
    }
}

/// The estimated cost of the head of a tenant.
fn estimate(tenants: &[Option<Tagged>], tenant: TenantId) -> Option<f64> {
    tenants[tenant.index()].as_ref()?.entry.as_ref().map(|entry| entry.length)
}

impl Order for Tags {
    fn admit(&mut self, tenant: TenantId, terms: &Terms, activity: Activity, now: f64) {
        if self.tenants.len() <= tenant.index() {
            self.tenants.resize_with(tenant.index() + 1, || None);
        }
        let slot = &mut self.tenants[tenant.index()];
        let old = slot.as_ref().map(|tagged| tagged.weight);
        let counted = old.filter(|_| activity == Activity::Active);
        self.clock.weigh(tenant, counted, terms.weight, now);
        match slot {
            Some(tagged) => {
                tagged.base = tagged.start();
                tagged.ledger.forget();
                tagged.weight = terms.weight;
                tagged.is_endless = terms.endless;
                tagged.shorten_lead(tagged.lead.bank / tagged.weight);
            }
            None => {
                *slot = Some(Tagged {
                    weight: terms.weight,
                    is_endless: terms.endless,
                    base: 0.0,
                    ledger: Ledger::new(self.estimator),
                    head: None,
                    entry: None,
                    lead: Lead::default(),
                });
            }
        }
        self.renew(tenant);
    }

    fn reset(&mut self, tenant: TenantId) {
        if let Some(known) = self.tenants.get_mut(tenant.index()) {
            *known = None;
        }
    }

    fn arrive(&mut self, tenant: TenantId, request: &Request, was: Activity, now: f64) -> f64 {
        let v = self.clock.now(now);
        let Some(tagged) = self.tenants[tenant.index()].as_mut() else { return v };
        if was == Activity::Idle {
            self.clock.set_active(tagged.weight, true, now);
            tagged.wake(v);
        }
        self.clock.arrive(tenant, request.cost, tagged.is_endless, now);
        let has_own_tag = self.estimator == Estimator::Declared && !tagged.is_endless;
        if has_own_tag { v } else { 0.0 }
    }

    fn withdrawn(&mut self, tenant: TenantId, activity: Activity, now: f64) {
        let Some(tagged) = self.tenants[tenant.index()].as_ref() else { return };
        if activity == Activity::Idle {
            self.clock.set_active(tagged.weight, false, now);
        }
    }

    fn head(&mut self, tenant: TenantId, head: Option<Head<'_>>, _: f64) {
        let Some(tagged) = self.tenants[tenant.index()].as_mut() else { return };
        if let Some(head) = &head {
            tagged.raise(head.stamp - tagged.lead.rest);
        } else if self.round.chosen.is_some_and(|(chosen, _)| chosen == tenant) {
            self.round.chosen = None;
        }
        tagged.head = head.map(|head| (head.request.class, head.request.cost));
        self.renew(tenant);
    }

    fn next(&mut self, worker: u32, now: f64, admits: Admits<'_>) -> Option<TenantId> {
        let v = self.clock.now(now);
        let first = self.first(worker, v, admits);
        let without = first.and_then(|tenant| self.without_lead(tenant));
        let decides = without.is_some_and(|head| self.first_with(head, worker, v, admits) != first);
        self.round.chosen = first.filter(|_| decides).map(|tenant| (tenant, worker));
        first
    }

    fn estimate(&self, tenant: TenantId) -> Option<f64> {
        estimate(&self.tenants, tenant)
    }

    fn dispatched(&mut self, tenant: TenantId, request: &Request, _: f64) -> f64 {
        let chosen = self.round.chosen.take().filter(|(chosen, _)| *chosen == tenant);
        let without = chosen.and_then(|_| self.without_lead(tenant));
        let Some(tagged) = self.tenants[tenant.index()].as_mut() else { return 0.0 };
        let credit = tagged.ledger.dispatch(request.class, request.cost);
        if let Some(((_, worker), without)) = chosen.zip(without) {
            let taken = tagged.lead.take(credit / tagged.weight, tagged.weight);
            self.round.push(EarlyStart { worker, without, taken: (taken, tagged.weight) });
        }
        credit
    }

    fn lend(&mut self, tenant: TenantId, bank: f64) {
        let Some(Some(tagged)) = self.tenants.get_mut(tenant.index()) else { return };
        tagged.lead.bank = bank;
        tagged.shorten_lead(bank / tagged.weight);
        self.renew(tenant);
    }

    fn fees(&mut self, now: f64) -> Vec<(TenantId, f64)> {
        let v = self.clock.now(now);
        let mut fees = Vec::new();
        let mut bought: BTreeMap<TenantId, f64> = BTreeMap::new();
        for EarlyStart { worker, without, taken: (taken, weight) } in
            std::mem::take(&mut self.round).starts
        {
            let tenant = without.tenant;
            let before = bought.entry(tenant).or_default();
            let head = without.later(-*before);
            if self.first_with(head, worker, v, &|_, _| true) != Some(tenant) {
                *before += taken;
                fees.push((tenant, taken * weight));
            } else if let Some(tagged) = self.tenants[tenant.index()].as_mut() {
                tagged.lead.put_back(taken, weight);
            }
        }
        fees
    }

    fn used(&mut self, running: &mut Running, used: f64, _: f64) {
        self.clock.serve(used);
        let Some(tagged) = self.tenants[running.tenant.index()].as_mut() else { return };
        running.credit = tagged.ledger.refresh(running.credit, used);
        self.renew(running.tenant);
    }

    fn used_beside(&mut self, tenant: TenantId, used: f64) {
        self.clock.serve(used);
        let Some(Some(tagged)) = self.tenants.get_mut(tenant.index()) else { return };
        tagged.ledger.refresh(0.0, used);
        self.renew(tenant);
    }

    fn extended(&mut self, running: &mut Running) {
        let Some(tagged) = self.tenants[running.tenant.index()].as_mut() else { return };
        running.credit = tagged.ledger.extend(running.class, running.used);
        self.renew(running.tenant);
    }

    fn completed(&mut self, running: &Running, used: f64, activity: Activity, now: f64) {
        self.clock.serve(used);
        let Some(tagged) = self.tenants[running.tenant.index()].as_mut() else { return };
        tagged.ledger.complete(running.class, running.credit, used, running.used);
        if activity == Activity::Idle {
            self.clock.set_active(tagged.weight, false, now);
        }
        self.renew(running.tenant);
    }
}
