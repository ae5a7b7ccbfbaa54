//! Price of slots, and who waits for them.
//!
//! # Problem
//! A job uses CPU time, but what others wait for is its slots. A job that declares more than it uses, or whose tenant wastes CPU
//! time beside it, would hold slots for a long time and pay for little. And a tenant whose other processes use its share while
//! its jobs wait would have the turns of its jobs on top of its share.
//!
//! # Rule
//! The running jobs of a tenant pay together for the CPU time that their slots could have used: that of the slots, but at most
//! what the tenant is entitled to with what waiting tenants lend it. What they use beyond that is paid for as well.
//!
//! The time of slots alone would be too much: jobs of a tenant of small weight are slower beside those of others, and it would have
//! fewer slots by its weight and less of each, so the weight would count twice.
//!
//! While its jobs wait for slots and none of them runs, a tenant pays for what its other processes use. A part is free
//! ([`FREE_RATIO`]), so that the jobs of a tenant whose other processes always use its share get a turn now and then.
//!
//! # Algorithm
//! Each tenant with jobs has an *account*: the CPU time that its slots were due at the *price*, less what its jobs have used. The
//! price is that of one slot in CPUs. At each tick the running jobs pay for what is on the account, in proportion to their
//! slots, and the price is set anew; a job that ends pays for what is on it then. Use is uneven, so up to a second of slots that
//! were used beyond the price stay on the account. An idle job holds no slots. Use beside the queue moves the turn of the tenant
//! back ([`tenantd_queue::Queue::charge_beside`]).

use std::collections::{BTreeMap, BTreeSet};

use super::fit::Lack;
use super::state::Admission;
use super::types::JobId;
use tenantd_queue::TenantId;

/// Part of the use beside waiting jobs that is free.
const FREE_RATIO: f64 = 0.03;

/// CPUs of a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cores {
    /// Those that it is entitled to, with those that are lent to its jobs.
    pub entitled: f64,
    /// Those that it has used since the last price was set; `None` if that is not known.
    pub used: Option<f64>,
}

/// Slots of a tenant's jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotUse {
    /// Those that its running jobs hold.
    pub held: u64,
    /// True if one of its jobs waits for nothing but slots, or a worker.
    pub are_awaited: bool,
    /// True if a job of it has held slots since the price was set.
    pub were_held: bool,
}

impl Admission {
    /// Charges tenants for the slots that their jobs have held, or for their use beside waiting jobs, and sets the price of slots:
    /// `cores` are the CPUs of a tenant, `None` if they are not known.
    pub fn price_slots(&mut self, cores: impl Fn(&str) -> Option<Cores>, now: f64) {
        self.charge_beside(&cores, now);
        let mut jobs_of: BTreeMap<TenantId, Vec<(JobId, f64)>> = BTreeMap::new();
        for (id, _) in self.runs() {
            let job = &self.jobs[&id];
            jobs_of.entry(job.need.tenant).or_default().push((id, job.held_slots() as f64));
        }
        for (id, _) in jobs_of.values().flatten() {
            self.note_slots(*id, now);
        }
        let tenants: BTreeSet<TenantId> = self.jobs.values().map(|job| job.need.tenant).collect();
        self.accounts.retain(|tenant, _| tenants.contains(tenant));
        for tenant in tenants {
            self.accounts.entry(tenant).or_default().begin(now);
        }
        for (tenant, jobs) in jobs_of {
            let held: f64 = jobs.iter().map(|(_, slots)| slots).sum();
            let cores = self.terms(tenant).and_then(|terms| cores(&terms.path));
            let account = self.accounts.entry(tenant).or_default();
            let due = account.take_due();
            account.set_price(held, cores.unwrap_or_default().entitled);
            for (id, slots) in jobs {
                if let Some(job) = self.jobs.get_mut(&id).filter(|_| due > 0.0 && held > 0.0) {
                    job.unused_seconds += due * slots / held;
                    self.pay(id, now);
                }
            }
        }
    }

    /// Charges tenants whose jobs all wait for what they have used since the last time.
    fn charge_beside(&mut self, cores: impl Fn(&str) -> Option<Cores>, now: f64) {
        self.accounts.values_mut().for_each(|account| account.beside_cores = 0.0);
        if !self.rules.discipline.has_tags() {
            return;
        }
        for (tenant, slots) in self.slots_of_tenants() {
            if slots.held > 0 || !slots.are_awaited {
                continue;
            }
            let used = self.terms(tenant).and_then(|terms| cores(&terms.path)?.used);
            // A tenant without an account has had jobs for less than a tick.
            let Some((used, account)) = used.zip(self.accounts.get_mut(&tenant)) else {
                continue;
            };
            let seconds = account.note_beside(used, now) * (1.0 - FREE_RATIO);
            self.queue.charge_beside(tenant, seconds);
            self.nr_changes += u64::from(seconds > 0.0);
        }
    }

    /// CPUs that the tenant of a job used beside its jobs while they all waited.
    pub(super) fn beside_cores(&self, id: JobId) -> f64 {
        let account = self.jobs.get(&id).and_then(|job| self.accounts.get(&job.need.tenant));
        account.map_or(0.0, |account| account.beside_cores)
    }

    /// Slots of each tenant with jobs. O(waiting + running).
    pub fn slot_use(&self) -> BTreeMap<&str, SlotUse> {
        let named = self.slots_of_tenants().into_iter();
        named.filter_map(|(tenant, slots)| Some((&*self.terms(tenant)?.path, slots))).collect()
    }

    fn slots_of_tenants(&self) -> BTreeMap<TenantId, SlotUse> {
        if self.jobs.is_empty() {
            return BTreeMap::new();
        }
        let mut of_tenants: BTreeMap<TenantId, SlotUse> = BTreeMap::new();
        for (id, run) in self.runs() {
            let job = &self.jobs[&id];
            let held = if job.is_idle { 0 } else { u64::from(run.dop) };
            let slots = of_tenants.entry(job.need.tenant).or_default();
            (slots.held, slots.were_held) = (slots.held + held, true);
        }
        let free = self.free_now();
        let is_full = free.busy >= self.workers();
        for (id, job) in self.jobs.iter().filter(|(_, job)| job.is_waiting()) {
            let slots = of_tenants.entry(job.need.tenant).or_default();
            if !slots.are_awaited && !self.graph.is_blocked(id.0) {
                let lack = self.lacks(&job.need, &free).next();
                slots.are_awaited = lack.map_or(is_full, |lack| lack == Lack::Slots);
            }
        }
        for (tenant, _) in self.accounts.iter().filter(|(_, account)| account.has_ended()) {
            of_tenants.entry(*tenant).or_default().were_held = true;
        }
        of_tenants
    }

    /// Adds the slots that a running job has held to the account of its tenant.
    fn note_slots(&mut self, id: JobId, now: f64) {
        let Some(job) = self.jobs.get(&id) else { return };
        if let Some((run, account)) = job.run().zip(self.accounts.get_mut(&job.need.tenant)) {
            account.note_slots(job.held_slots(), run.since, now);
        }
    }

    /// The same for a job that ends, which pays for what is due.
    pub(super) fn note_end(&mut self, id: JobId, now: f64) {
        self.note_slots(id, now);
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let account = self.accounts.entry(job.need.tenant).or_default();
        account.note_end(now);
        job.unused_seconds += account.take_due();
        self.pay(id, now);
    }
}
