//! Unit properties still to be restored, from the journal.
//!
//! A *debt* is a unit, a *due* one property of it. A due is settled in two stages: the unit is set to the old
//! value, and systemd forgets the setting. Only dues that are not settled stay in the journal.

use tenantd_host::journal::{Entry, UnitHeld};
use tenantd_host::systemd::{Property, Setting, UnitState};

pub(crate) struct Debt<'a> {
    pub(crate) unit: &'a str,
    pub(crate) life: &'a str,
    pub(crate) dues: Vec<Due<'a>>,
    pub(crate) may_be_loaded: bool,
}

pub(crate) struct Due<'a> {
    pub(crate) held: Setting,
    pub(crate) drop_in: Option<&'a str>,
    pub(crate) stage: Stage,
    pub(crate) entry: &'a Entry,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Not restored yet, or waiting.
    Owed,
    /// Set if needed; systemd has not forgotten the setting yet.
    Set,
    Paid,
}

pub(crate) struct Started<'a> {
    pub(crate) unit: &'a str,
    pub(crate) is_settled: bool,
    pub(crate) entry: &'a Entry,
}

/// Records of each unit, without properties that another program has set since. Values that an earlier agent
/// set and could not restore are still owed.
pub(crate) fn debts(entries: &[Entry]) -> Vec<Debt<'_>> {
    let is_theirs = |of: &str, of_property: Property| {
        entries.iter().any(|entry| {
            matches!(entry, Entry::UnitTheirs { unit, property, ours: Some(_) }
                if unit == of && *property == of_property)
        })
    };
    let mut debts: Vec<Debt<'_>> = Vec::new();
    for entry in entries {
        let Entry::UnitHeld(was) = entry else { continue };
        let UnitHeld { unit, life, held, drop_in } = &**was;
        if is_theirs(unit, held.property) {
            continue;
        }
        let (held, drop_in, stage) = (held.clone(), drop_in.as_deref(), Stage::Owed);
        let due = Due { held, drop_in, stage, entry };
        let known = debts.iter_mut().find(|d| d.unit == unit && d.life == life);
        match known {
            // The first record has the value from before any agent.
            Some(debt) if debt.dues.iter().any(|d| d.held.property == due.held.property) => {}
            Some(debt) => debt.dues.push(due),
            None => debts.push(Debt { unit, life, dues: vec![due], may_be_loaded: true }),
        }
    }
    debts
}

/// A property that another program has set since, of which the agent's drop-in may be left.
pub(super) struct Leftover<'a> {
    pub(super) was: &'a UnitHeld,
    pub(super) ours: &'a Setting,
    pub(super) is_settled: bool,
    pub(super) entries: Vec<&'a Entry>,
}

/// A property without a record of its earlier value was never set: nothing of it is left.
pub(super) fn leftovers<'a>(entries: &'a [Entry]) -> Vec<Leftover<'a>> {
    let leftover = |entry: &'a Entry| {
        let Entry::UnitTheirs { unit, property, ours: Some(ours) } = entry else { return None };
        let (mut last, mut all) = (None, vec![entry]);
        for entry in entries {
            if let Entry::UnitHeld(was) = entry
                && (&was.unit, was.held.property) == (unit, *property)
            {
                last = Some(&**was);
                all.push(entry);
            }
        }
        Some(Leftover { was: last?, ours, is_settled: false, entries: all })
    };
    entries.iter().filter_map(leftover).collect()
}

pub(super) fn started<'a>(entries: &'a [Entry]) -> Vec<Started<'a>> {
    let slice = |entry: &'a Entry| match entry {
        Entry::Starting { unit } => Some(Started { unit, is_settled: false, entry }),
        _ => None,
    };
    entries.iter().filter_map(slice).collect()
}

impl<'a> Due<'a> {
    /// Returns the due to set instead, if the unit's value differs from the restored one.
    pub(crate) fn changed(&self, state: &UnitState) -> Option<Due<'a>> {
        let now = state.held.iter().find(|held| held.setting.property == self.held.property)?;
        let is_changed = self.stage == Stage::Paid && now.setting != self.held;
        is_changed.then(|| Due { held: now.setting.clone(), stage: Stage::Owed, ..*self })
    }
}

impl Debt<'_> {
    pub(crate) fn properties(&self, is_meant: impl Fn(&Due<'_>) -> bool) -> Vec<Property> {
        self.dues.iter().filter(|due| is_meant(due)).map(|due| due.held.property).collect()
    }

    pub(crate) fn set(&self) -> Vec<Setting> {
        let is_set = |due: &&Due<'_>| due.stage == Stage::Set;
        self.dues.iter().filter(is_set).map(|due| due.held.clone()).collect()
    }

    pub(crate) fn advance(&mut self, from: Stage, to: Stage) {
        let dues = self.dues.iter_mut().filter(|due| due.stage == from);
        dues.for_each(|due| due.stage = to);
    }
}
