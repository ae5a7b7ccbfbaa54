//! Test whether a job fits, and its lacks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::nested::Withheld;
use super::types::{Capacity, Owed, Terms};
use tenantd_queue::TenantId;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Need {
    pub(super) tenant: TenantId,
    pub(super) user: u32,
    pub(super) class: u32,
    /// Slots without which it does not start.
    pub(super) floor: u64,
    pub(super) ceiling: u64,
    pub(super) memory_bytes: u64,
    pub(super) units: Vec<u32>,
    /// True if it may not use the workers and slots that are kept for short jobs.
    #[serde(default)]
    pub(super) is_long: bool,
}

/// Something that a job lacks, in the order of the tests: the first one is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    TenantRunning,
    UserRunning,
    TenantMemory,
    /// A counted resource, by its index.
    Units(usize),
    Memory,
    Slots,
    /// The rest is kept for short jobs.
    Reserve,
}

impl Lack {
    /// True if the start of another job makes this lack worse.
    pub(super) fn is_taken_by(self, lacking: &Need, other: &Need) -> bool {
        let is_of_tenant = lacking.tenant == other.tenant;
        match self {
            Lack::TenantRunning | Lack::TenantMemory => is_of_tenant,
            Lack::UserRunning => is_of_tenant && lacking.user == other.user,
            Lack::Units(at) => other.units.get(at).is_some_and(|count| *count > 0),
            // Every job takes slots, and memory, declared or not.
            Lack::Memory | Lack::Slots => true,
            Lack::Reserve => other.is_long,
        }
    }

    /// True if only some jobs take it: then a job may have it and lack another such resource a moment
    /// later, in turn.
    pub(super) fn is_of_some(self) -> bool {
        !matches!(self, Lack::Memory | Lack::Slots)
    }

    /// True for a limit of its tenant, which the end of jobs of others does not lift.
    pub(super) fn is_of_tenant(self) -> bool {
        matches!(self, Lack::TenantRunning | Lack::UserRunning | Lack::TenantMemory)
    }

    pub(super) fn units(self) -> Option<usize> {
        if let Lack::Units(at) = self { Some(at) } else { None }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Free {
    pub(super) slots: u64,
    /// Jobs that hold slots and a worker; idle ones lend theirs.
    pub(super) busy: u32,
    /// Largest width of a job.
    pub(super) widest: u64,
    /// `None` if the memory is unknown: then no job lacks it.
    pub(super) memory_bytes: Option<u64>,
    pub(super) units: Vec<u32>,
    /// Workers and slots for long jobs; `None` without a reserve.
    for_long: Option<ForLong>,
    /// Slots that jobs of others leave to tenants and groups.
    withheld: Withheld,
    held: BTreeMap<TenantId, Held>,
}

/// Resources of the running jobs of one tenant.
#[derive(Clone, Debug, Default)]
struct Held {
    running: u32,
    slots: u64,
    memory_bytes: u64,
    of_users: BTreeMap<u32, u32>,
}

/// Workers and slots that long jobs may still take.
#[derive(Clone, Copy, Debug)]
struct ForLong {
    workers: u64,
    slots: u64,
    is_used: bool,
}

impl Free {
    /// Free resources without running jobs, at this outside memory usage: a number of slots, and the
    /// `widest` job.
    pub(super) fn new(
        (slots, widest): (u32, u32),
        capacity: &Capacity,
        outside_bytes: u64,
    ) -> Free {
        Free {
            slots: u64::from(slots),
            busy: 0,
            widest: u64::from(widest),
            memory_bytes: capacity.memory_bytes.map(|bytes| bytes.saturating_sub(outside_bytes)),
            units: capacity.units.iter().map(|(_, count)| *count).collect(),
            for_long: None,
            withheld: Withheld::default(),
            held: BTreeMap::new(),
        }
    }

    /// Keeps workers and as many slots for short jobs.
    pub(super) fn reserving(self, kept: Option<u32>, workers: u32) -> Free {
        let for_long = kept.map(|kept| ForLong {
            workers: workers.saturating_sub(kept).into(),
            slots: self.slots.saturating_sub(kept.into()),
            is_used: false,
        });
        Free { for_long, ..self }
    }

    /// True if a job would take of the rest that is kept for short ones. One long job may always run.
    fn is_kept_from(&self, need: &Need) -> bool {
        let Some(left) = self.for_long.filter(|left| left.is_used && need.is_long) else {
            return false;
        };
        left.workers == 0 || need.floor > left.slots
    }

    pub(super) fn withholding(self, withheld: &Withheld) -> Free {
        Free { withheld: withheld.clone(), ..self }
    }

    pub(super) fn slots_for(&self, tenant: TenantId) -> u64 {
        // One job may always run: nothing is gained by an idle machine.
        if self.busy == 0 {
            return self.slots.min(self.widest);
        }
        // The free slots already exclude those held by the claims' own jobs.
        let held = self.held.iter().map(|(tenant, held)| (*tenant, held.slots));
        self.slots.saturating_sub(self.withheld.left_by(tenant, held)).min(self.widest)
    }

    /// Takes what a job holds: its floor of `slots`, none while it lends them.
    pub(super) fn take(&mut self, need: &Need, slots: u64, reserved_bytes: u64) {
        self.slots = self.slots.saturating_sub(slots);
        self.busy += u32::from(slots > 0);
        self.memory_bytes = self.memory_bytes.map(|bytes| bytes.saturating_sub(reserved_bytes));
        if let Some(left) = self.for_long.as_mut().filter(|_| need.is_long && slots > 0) {
            left.workers = left.workers.saturating_sub(1);
            left.slots = left.slots.saturating_sub(slots);
            left.is_used = true;
        }
        for (free, taken) in self.units.iter_mut().zip(&need.units) {
            *free = free.saturating_sub(*taken);
        }
        let held = self.held.entry(need.tenant).or_default();
        held.running += 1;
        held.slots += slots;
        held.memory_bytes = held.memory_bytes.saturating_add(reserved_bytes);
        *held.of_users.entry(need.user).or_default() += 1;
    }

    pub(super) fn most_lacking(&self, tenant: TenantId) -> Option<(&str, Owed)> {
        self.withheld.most_lacking(tenant)
    }

    pub(super) fn reserved_of(&self, tenant: TenantId) -> u64 {
        self.held.get(&tenant).map_or(0, |held| held.memory_bytes)
    }

    /// True if the units of a counted resource are enough for one job, but not after the start of the other.
    pub(super) fn is_for_one(&self, at: usize, one: &Need, other: &Need) -> bool {
        let of = |need: &Need| need.units.get(at).copied().unwrap_or(0);
        let free = self.units.get(at).copied().unwrap_or(0);
        (of(one)..of(one).saturating_add(of(other))).contains(&free)
    }

    /// Everything that a job of a tenant with these terms lacks; nothing if it fits. Starting jobs never
    /// shorten it.
    pub(super) fn lacks<'a>(
        &'a self,
        terms: &Terms,
        need: &'a Need,
    ) -> impl Iterator<Item = Lack> + use<'a> {
        let held = self.held.get(&need.tenant);
        let running = held.map_or(0, |held| held.running);
        let of_user = held.and_then(|held| held.of_users.get(&need.user)).copied().unwrap_or(0);
        let wanted = need.memory_bytes;
        let reserved = self.reserved_of(need.tenant).saturating_add(wanted);
        // A job without a declaration reserves nothing: its tenant's share of the machine bounds its memory.
        let is_over = |max: u64| wanted > 0 && reserved > max;
        let of_tenant = [
            (terms.max_running.is_some_and(|max| running >= max), Lack::TenantRunning),
            (terms.max_running_per_user.is_some_and(|max| of_user >= max), Lack::UserRunning),
            (terms.memory_max_bytes.is_some_and(is_over), Lack::TenantMemory),
        ];
        let units = need.units.iter().zip(&self.units).enumerate();
        let units = units.filter(|(_, (wanted, free))| wanted > free);
        let is_short = wanted > 0 && self.memory_bytes.is_some_and(|free| wanted > free);
        let slots = move || (need.floor > self.slots_for(need.tenant)).then_some(Lack::Slots);
        let of_tenant = of_tenant.into_iter().filter_map(|(lacks, lack)| lacks.then_some(lack));
        of_tenant
            .chain(units.map(|(at, _)| Lack::Units(at)))
            .chain(is_short.then_some(Lack::Memory))
            .chain(self.is_kept_from(need).then_some(Lack::Reserve))
            // Last and only if nothing else decides: withheld slots are a sum.
            .chain(std::iter::once_with(slots).flatten())
    }
}
