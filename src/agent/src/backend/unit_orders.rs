//! Orders to systemd to set properties of units, and checks of their arrival.
//!
//! **Terms.** An *order* is one call that sets all wanted values of one unit. It is *pending* until the files
//! hold its values; they are read in every tick.
//!
//! **Rules.** A unit has one order at a time, and its next values are decided when that order is done. The
//! earlier value of a property is journaled before it is first set, from a reading no older than the last tick.
//! A memory limit that would kill processes is not requested. A value that does not arrive is reported and
//! tried again with growing pauses.
//!
//! **Relief is immediate.** If memory has run out, systemd may not run for minutes: reclaim takes its pages
//! before any protected ones, and only less protection lets it run again. So lower `memory.min` and
//! `memory.low` are written to the file as well as ordered, even while an order is pending.
//!
//! The state of the bus and the locations of units are in [`super::systemd`].

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use super::access::HostAccess;
use super::place::Place;
use super::systemd::Systemd;
use super::unit_state::{Pending, Phase, UnitState};
use tenantd_control::state::Outcome;
use tenantd_control::state::drift::Observation;
use tenantd_control::words::knob::{Action, Knob, Value};
use tenantd_core::node::{NodeId, NodeMap};
use tenantd_core::units::Limit;
use tenantd_host::cgroup::{Cgroup, Facet};
use tenantd_host::enforce::{EnforceError, taken};
use tenantd_host::journal::{Entry, Journal, JournalError, UnitHeld, UnitProperty};
use tenantd_host::kernfs::KernFs;
use tenantd_host::knobs::{Hazard, row_of};
use tenantd_host::systemd::{Order, Property, Setting, UnitError};

/// Time for a value to appear in the file after systemd reported success. Systemd writes the file a moment
/// later, on a busy host seconds later. Not in ticks, because they may be close together or late.
const ARRIVAL_TIME: Duration = Duration::from_secs(3);

impl Systemd {
    pub(super) fn ordered(&self, id: NodeId, knob: Knob, found: &Value) -> bool {
        self.unit(id).is_some_and(|unit| unit.ordered.include(knob, found))
    }

    pub(super) fn last_order(&self, id: NodeId, knob: Knob) -> Option<Setting> {
        self.unit(id)?.ordered.last(knob).map(|value| Setting::of(knob, value))
    }

    /// All values of its drop-in that may be this agent's, oldest first. `None` if it may be one of an earlier agent, whose
    /// orders are not known.
    pub(super) fn drop_ins_of<K>(
        &self,
        host: &HostAccess<K>,
        id: NodeId,
        knob: Knob,
    ) -> Option<Vec<Setting>> {
        let unit = self.unit(id)?;
        let (is_ours, property) = (unit.carried_out.contains(&knob), Property::of(knob));
        if !is_ours && host.journal.knows_property(&unit.unit, &unit.life, property) {
            return None;
        }
        Some(unit.ordered.all(knob).map(|value| Setting::of(knob, value)).collect())
    }

    /// Value of the unit before the agent: from the journal, or the present one.
    pub(super) fn held_before<K>(
        &self,
        host: &HostAccess<K>,
        id: NodeId,
        (knob, now): (Knob, &Value),
    ) -> Option<Value> {
        let unit = self.unit(id)?;
        let held = host.journal.held_property(&unit.unit, &unit.life, Property::of(knob));
        Some(held.and_then(Setting::expected).unwrap_or_else(|| now.clone()))
    }

    /// True if `found` is the value from before the first order, according to `journal`.
    ///
    /// This is not drift: systemd returns to its configuration when it is read again and another drop-in
    /// overrides the agent's (`systemctl edit` makes such drop-ins, named `override.conf`). The value is set
    /// again.
    pub(super) fn is_fallback(
        &self,
        journal: &Journal,
        id: NodeId,
        knob: Knob,
        found: &Value,
    ) -> bool {
        let Some(unit) = self.unit(id) else { return false };
        let held = journal.held_property(&unit.unit, &unit.life, Property::of(knob));
        held.and_then(Setting::expected).is_some_and(|held| taken(found, &held))
    }

    /// Cancels the request of a knob that is restored. If systemd refuses that, its drop-in is like one of an earlier agent.
    pub(super) fn forget(&mut self, id: NodeId, knob: Knob) {
        let Some(unit) = self.unit_mut(id) else { return };
        unit.ordered.forget(knob);
        unit.carried_out.remove(&knob);
        unit.relieved.retain(|action| action.knob != knob);
        if let Some(pending) = &mut unit.pending {
            pending.actions.retain(|action| action.knob != knob);
        }
    }

    /// Orders the `actions` on units, all of one unit in one call; returns those not ordered, with the reason.
    pub(super) fn order<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        places: &NodeMap<Place>,
        tick: u64,
        actions: &[Action],
    ) -> Vec<Outcome> {
        let late = self.relieve(host, places, tick, actions);
        let actions = || actions.iter().chain(&late);
        let mut wanted: BTreeMap<NodeId, Vec<Action>> = BTreeMap::new();
        for action in actions().filter(|action| self.owns(action.node)) {
            wanted.entry(action.node).or_default().push(action.clone());
        }
        let mut outcomes = Vec::new();
        for action in actions() {
            let Some(place) = places.get(action.node) else { continue };
            if let Some(wanted) = wanted.remove(&action.node)
                && self.may_ask(tick)
                && !self.has_ended(action.node, place)
                && let Some(cgroup) = &place.cgroup
            {
                let wanted = without_lethal(host, cgroup, wanted, &mut outcomes);
                outcomes.extend(self.order_one(host, cgroup, action.node, tick, wanted));
            }
        }
        outcomes
    }

    /// True if the unit has just ended: its cgroup is empty and systemd has not removed it yet. Settings would
    /// apply to its next run, and stay as drop-ins if there is none. A slice may be empty.
    fn has_ended(&self, id: NodeId, place: &Place) -> bool {
        place.is_emptied && self.unit(id).is_some_and(|unit| !unit.unit.ends_with(".slice"))
    }

    /// Writes values that relieve the host to the files. Returns those that are neither among the `actions` nor
    /// were part of an order at the time.
    fn relieve<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        places: &NodeMap<Place>,
        tick: u64,
        actions: &[Action],
    ) -> Vec<Action> {
        for action in actions.iter().filter(|action| relieves(action)) {
            let (knob, property) = (action.knob, Property::of(action.knob));
            let Some(unit) = self.unit_mut(action.node) else { continue };
            let Some(cgroup) = cgroup_of(places, action.node) else { continue };
            let is_journalled = host.journal.knows_property(&unit.unit, &unit.life, property);
            // Fails if the cgroup is gone; systemd gets the order all the same.
            if !is_journalled || host.enforcer().write_relief(action, cgroup).is_err() {
                continue;
            }
            unit.relieved.retain(|relieved| relieved.knob != knob);
            unit.relieved.push(action.clone());
            if let Some(pending) = &mut unit.pending {
                pending.recorded.retain(|recorded| *recorded != property);
                pending.added.retain(|added| *added != knob);
            }
            unit.ordered.add(knob, action.to.clone());
        }
        let is_new = |relieved: &&Action| {
            let is_same = |action: &Action| (action.node, action.knob);
            !actions.iter().any(|action| is_same(action) == is_same(relieved))
        };
        let may_be_told = |unit: &&UnitState| unit.relief_refused.1 <= tick;
        let told = self.units().filter(may_be_told).flat_map(|unit| &unit.relieved);
        told.filter(is_new).cloned().collect()
    }

    /// Writes the values that differ from those that systemd writes for their property, once the unit has it: systemd restores
    /// them with it.
    pub(super) fn correct<K: KernFs>(
        &self,
        host: &mut HostAccess<K>,
        places: &NodeMap<Place>,
        actions: Vec<Action>,
    ) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for action in actions {
            let Some(unit) = self.unit(action.node) else { continue };
            let Some(cgroup) = cgroup_of(places, action.node) else { continue };
            let property = Property::of(action.knob);
            if !host.journal.knows_property(&unit.unit, &unit.life, property) {
                continue;
            }
            let outcome = match host.enforcer().write_relief(&action, cgroup) {
                Ok(()) => Ok(action.to.clone()),
                // The scheduler went, and its files with it.
                Err(error) if error.is_gone() => continue,
                Err(error) => Err(error.refusal()),
            };
            outcomes.push((action, outcome));
        }
        outcomes
    }

    /// True if `found` is the value that systemd writes for an order or for the earlier value of the unit: it writes all
    /// properties again whenever one is set.
    pub(super) fn is_compressed(
        &self,
        journal: &Journal,
        id: NodeId,
        knob: Knob,
        found: &Value,
    ) -> bool {
        if row_of(knob).hazard != Hazard::Compressed {
            return false;
        }
        let Some(unit) = self.unit(id) else { return false };
        let property = Property::of(knob);
        let held = journal.held_property(&unit.unit, &unit.life, property);
        let ordered = self.last_order(id, property.knob());
        let written = ordered.iter().chain(held).filter_map(Setting::for_bfq);
        written.map(Value::Weight).any(|value| taken(found, &value))
    }

    fn order_one<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        cgroup: &Cgroup,
        id: NodeId,
        tick: u64,
        actions: Vec<Action>,
    ) -> Vec<Outcome> {
        let Some(unit) = self.unit_mut(id) else { return Vec::new() };
        if unit.phase != Phase::There || unit.pending.is_some() || actions.is_empty() {
            return Vec::new();
        }
        let settings: Vec<Setting> =
            actions.iter().map(|action| Setting::of(action.knob, &action.to)).collect();
        let is_new = |setting: &&Setting| {
            !host.journal.knows_property(&unit.unit, &unit.life, setting.property)
        };
        let new: Vec<&Setting> = settings.iter().filter(is_new).collect();
        let changed: Vec<(Knob, Value)> =
            new.iter().filter_map(|new| changed_since(unit, new, &actions)).collect();
        if !changed.is_empty() {
            // Another program has set it since. Asked once for each value, because a file may differ for long.
            if !std::mem::replace(&mut unit.is_looking, true) {
                unit.asked_about.extend(changed);
                let unit = unit.name.clone();
                self.submit(Order::Look { unit });
            }
            return Vec::new();
        }
        if !new.is_empty() && (unit.is_looking || unit.is_outdated(tick)) {
            // The known value is too old to be journaled.
            if !std::mem::replace(&mut unit.is_looking, true) {
                let unit = unit.name.clone();
                self.submit(Order::Look { unit });
            }
            return Vec::new();
        }
        let recorded: Vec<Property> = new.iter().map(|new| new.property).collect();
        let entries: Vec<Entry> = new.into_iter().filter_map(|new| held_by(unit, new)).collect();
        let outcome = take_over(&mut host.journal, &unit.unit, &settings)
            .and_then(|()| entries.into_iter().try_for_each(|entry| host.journal.record(entry)));
        if let Err(error) = outcome {
            // All of them are refused for the same reason.
            let refusal = EnforceError::from(error).refusal();
            return actions.into_iter().map(|action| (action, Err(refusal.clone()))).collect();
        }
        let (mut relieved, mut added) = (Vec::new(), Vec::new());
        for action in &actions {
            if unit.ordered.add(action.knob, action.to.clone()) {
                added.push(action.knob);
            }
            let told = unit.relieved.extract_if(.., |relieved| relieved.knob == action.knob);
            relieved.extend(told.map(|action| action.knob));
        }
        unit.asked_about.clear();
        unit.pending = Some(Pending { actions, recorded, added, relieved, answered_at: None });
        let unit = unit.unit.clone();
        let settings = self.with_memory_limit(host, cgroup, id, settings);
        self.submit(Order::Set { unit, settings });
        Vec::new()
    }

    /// Adds the memory limit in force if the unit's own limit would kill processes. Systemd writes all known
    /// properties of a unit whenever one is set. It applies the unit's own limit again after it has read a
    /// drop-in that overrides the agent's.
    fn with_memory_limit<K: KernFs>(
        &self,
        host: &mut HostAccess<K>,
        cgroup: &Cgroup,
        id: NodeId,
        mut settings: Vec<Setting>,
    ) -> Vec<Setting> {
        let (Some(unit), property) = (self.unit(id), Property::MemoryMax) else {
            return settings;
        };
        let held = host.journal.held_property(&unit.unit, &unit.life, property);
        let Some(Value::Amount(_, Limit::Finite(held))) = held.and_then(Setting::expected) else {
            return settings;
        };
        if settings.iter().any(|setting| setting.property == property)
            || check_limit(host, cgroup, held).is_ok()
        {
            return settings;
        }
        let now = cgroup.observe(&mut host.kernel, &host.layout, Knob::MemoryMax).ok();
        let stands = |setting: &Setting| {
            let expected = setting.expected();
            now.as_ref().zip(expected).is_some_and(|(now, expected)| taken(now, &expected))
        };
        settings.extend(self.last_order(id, Knob::MemoryMax).filter(stands));
        settings
    }

    /// Handles a failed order: returns its actions as failed, and adds to `unset` the properties recorded for
    /// it that are not set.
    pub(super) fn refused(
        &mut self,
        id: NodeId,
        order: &Order,
        error: &UnitError,
        tick: u64,
        unset: &mut HashSet<UnitProperty>,
    ) -> Vec<Outcome> {
        let Some(unit) = self.unit_mut(id) else { return Vec::new() };
        unit.is_looking = false;
        match order {
            Order::Set { .. } => {
                let pending = unit.pending.take();
                if let Some(pending) = &pending {
                    unit.relieve_again(pending, tick);
                }
                if matches!(error, UnitError::NoSuchUnit(_)) {
                    unit.phase = Phase::Missing { look_at: tick };
                }
                // A failure of the bus is reported once, and not for each value.
                if error.is_about_the_bus() {
                    return Vec::new();
                }
                pending.iter().for_each(|pending| unit.withdraw(pending));
                let (name, life) = (&unit.unit, &unit.life);
                let recorded = pending.iter().flat_map(|pending| &pending.recorded);
                unset.extend(recorded.map(|property| (name.clone(), life.clone(), *property)));
                let actions = pending.into_iter().flat_map(|pending| pending.actions);
                let refusal = EnforceError::from(error.clone()).refusal();
                return actions.map(|action| (action, Err(refusal.clone()))).collect();
            }
            // Asked again as soon as the bus is back.
            _ if error.is_about_the_bus() && unit.phase == Phase::Asked => {
                unit.phase = Phase::Missing { look_at: tick };
            }
            _ if unit.phase == Phase::Asked => unit.miss(tick, error.to_string()),
            _ => {}
        }
        Vec::new()
    }

    /// Compares the orders for the unit of a node with the present values; returns those that arrived, and
    /// those that are late.
    pub(super) fn arrivals<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        place: &Place,
        id: NodeId,
        observed: &[Observation],
    ) -> Vec<Outcome> {
        let time = self.time;
        let Some(unit) = self.unit_mut(id) else { return Vec::new() };
        // A file written directly has its value before earlier orders arrive, and before the order of that value, which
        // systemd may still refuse.
        let unanswered = unit.pending.iter().filter(|pending| pending.answered_at.is_none());
        let early: Vec<Knob> = unanswered.flat_map(|pending| pending.relieved.clone()).collect();
        let relieved = unit.relieved.iter().map(|action| action.knob);
        let relieved: Vec<Knob> = relieved.chain(early.iter().copied()).collect();
        for seen in observed.iter().filter(|seen| !relieved.contains(&seen.knob)) {
            unit.ordered.note(seen.knob, &seen.value);
        }
        let Some(pending) = unit.pending.take() else { return Vec::new() };
        let now = |knob: Knob| observed.iter().find(|seen| seen.knob == knob);
        let (arrived, waiting): (Vec<Action>, Vec<Action>) =
            pending.actions.into_iter().partition(|action| {
                let has_value = now(action.knob).is_some_and(|seen| taken(&seen.value, &action.to));
                has_value && !early.contains(&action.knob)
            });
        let shown = arrived.iter().map(|action| action.knob);
        unit.carried_out.extend(shown.filter(|knob| !relieved.contains(knob)));
        let is_late = pending.answered_at.is_some_and(|at| time >= at + ARRIVAL_TIME);
        let mut outcomes = Vec::new();
        if is_late {
            for action in waiting.into_iter().filter(|action| !relieved.contains(&action.knob)) {
                let found = now(action.knob).map(|seen| seen.value.to_string());
                let error = not_arrived(&unit.unit, &action, found);
                outcomes.push((action, Err(error.refusal())));
            }
        } else if !waiting.is_empty() {
            unit.pending = Some(Pending { actions: waiting, ..pending });
        }
        let Some(cgroup) = &place.cgroup else { return outcomes };
        for action in arrived {
            // A value in its file may still have no effect.
            let effective = host.enforcer().check_effective(&action, cgroup);
            let value = action.to.clone();
            outcomes.push((action, effective.map(|()| value).map_err(|error| error.refusal())));
        }
        outcomes
    }
}

fn cgroup_of(places: &NodeMap<Place>, id: NodeId) -> Option<&Cgroup> {
    places.get(id)?.cgroup.as_ref()
}

/// True if the action lowers protection, so that reclaim finds pages.
fn relieves(action: &Action) -> bool {
    action.knob.is_protection() && action.shrinks()
}

/// Drops the records that `settings` of a unit were left to another program, by an earlier agent or policy.
/// They are this agent's again and will be restored.
fn take_over(journal: &mut Journal, name: &str, settings: &[Setting]) -> Result<(), JournalError> {
    let is_void = |entry: &Entry| {
        matches!(entry, Entry::UnitTheirs { unit, property, .. }
            if unit == name && settings.iter().any(|setting| setting.property == *property))
    };
    if journal.entries().iter().any(is_void) {
        journal.retain(|entry| !is_void(entry))
    } else {
        Ok(())
    }
}

/// Present value of the file of a new setting, if it differs from systemd's report and systemd was not asked
/// about it yet.
fn changed_since(unit: &UnitState, new: &Setting, actions: &[Action]) -> Option<(Knob, Value)> {
    let action = actions.iter().find(|action| Property::of(action.knob) == new.property)?;
    let held = unit.held.iter().find(|held| held.setting.property == new.property)?;
    let (now, expected) = (action.from.as_ref()?, held.setting.expected()?);
    let found = (action.knob, now.clone());
    (!taken(now, &expected) && !unit.asked_about.contains(&found)).then_some(found)
}

fn held_by(unit: &UnitState, setting: &Setting) -> Option<Entry> {
    let held = unit.held.iter().find(|held| held.setting.property == setting.property)?;
    Some(Entry::UnitHeld(Box::new(UnitHeld {
        unit: unit.unit.clone(),
        life: unit.life.clone(),
        held: held.setting.clone(),
        drop_in: held.drop_in.clone(),
    })))
}

fn without_lethal<K: KernFs>(
    host: &mut HostAccess<K>,
    cgroup: &Cgroup,
    mut actions: Vec<Action>,
    outcomes: &mut Vec<Outcome>,
) -> Vec<Action> {
    let limit = actions.iter().position(|action| row_of(action.knob).hazard == Hazard::Kills);
    let Some(at) = limit else { return actions };
    let Value::Amount(_, Limit::Finite(limit)) = actions[at].to else { return actions };
    if let Err(error) = check_limit(host, cgroup, limit) {
        outcomes.push((actions.remove(at), Err(error.refusal())));
    }
    actions
}

fn check_limit<K: KernFs>(
    host: &mut HostAccess<K>,
    cgroup: &Cgroup,
    limit_bytes: u64,
) -> Result<(), EnforceError> {
    let dir = cgroup.dir(&host.layout, Facet::Memory);
    dir.map_or(Ok(()), |dir| host.enforcer().check_limit_is_safe(dir, limit_bytes))
}

fn not_arrived(unit: &str, action: &Action, found: Option<String>) -> EnforceError {
    let setting = Setting::of(action.knob, &action.to);
    EnforceError::NotArrived {
        unit: unit.to_string(),
        property: setting.property.name(),
        written: action.to.to_string(),
        file: row_of(action.knob).unified,
        found: found.unwrap_or_else(|| "nothing".to_string()),
    }
}
