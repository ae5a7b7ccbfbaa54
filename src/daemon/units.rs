//! Tenants that are units of systemd: finding them, asking for changes, and believing only the file.
//!
//! **Problem.** A unit's cgroup is read like any other, but it is changed by asking, and whoever is asked
//! may take his time, be away, or say yes without anything happening. The unit may not run now, or be
//! another one of the same name the next time; its administrator may set the same properties.
//!
//! **Terms.** A *post* is what is known of one unit ([`super::posts`]). It is *missing* until systemd says where
//! its cgroup is, and again when that cgroup goes. A set that was asked for is *pending* until its values
//! stand in the files, which are read in every tick.
//!
//! **Rules.** Nothing here waits. A unit has one order at a time; what it shall hold meanwhile is decided
//! anew when that is through. What a property held is journalled before it is first set, from a look that is
//! no older than the tick before. A value that does not arrive, and an order that is refused, is said and
//! tried again with growing pauses; a bus that is away is said once, for all units, and asked again with
//! growing pauses as well. A unit that does not run is not set.
//!
//! **tenants.slice.** All slices of tenants live in it, and what is protected in them is void without
//! protection for it. So it is a post as well, the one behind those of the nodes, with one knob.
//!
//! **Properties.** `tests/agent/units.rs`: tenants as slices and units get their values and give them back,
//! whatever the bus does meanwhile; drift is found in the next tick.

use std::collections::BTreeMap;
use std::time::Duration;

use super::agent::{Agent, Slot};
use super::enforce::{EnforceError, taken};
use super::posts::{Pending, Phase, Post};
use crate::control::plan::{Action, Knob, Value};
use crate::control::tree::TreeNode;
use crate::host::cgroup::{Cgroup, Dialect, Facet, Layout};
use crate::host::journal::{Entry, UnitHeld};
use crate::host::kernfs::KernFs;
use crate::host::systemd::slice_name::TOP;
use crate::host::systemd::{Order, Reply, Setting, UnitError, UnitState};
use crate::units::Limit;

/// So many ticks after systemd said that it is done the files must hold it: it writes them a moment later.
const ARRIVAL_TICKS: u64 = 2;

impl<K: KernFs> Agent<K> {
    /// Takes in what systemd has answered since the last tick.
    pub(super) fn hear(&mut self, tick: u64, findings: &mut Vec<String>) {
        if self.units.is_unmanaged() {
            let what = "this host is not run by systemd: tenants that are units are left out";
            findings.push(what.to_string());
        }
        while let Some(answer) = self.next_answer() {
            self.units.note(tick, &answer.outcome);
            let Some(&index) = self.units.by_unit.get(answer.order.unit()) else { continue };
            match (answer.order, answer.outcome) {
                (Order::Look { .. }, Ok(Reply::Unit(state))) => {
                    self.found(index, state, tick, findings)
                }
                (Order::StartSlice { .. }, Ok(_)) => {
                    if let Some(post) = &mut self.units.posts[index] {
                        post.phase = Phase::Missing { look_at: tick };
                    }
                }
                (Order::Set { .. }, Ok(_)) => {
                    let post = self.units.posts[index].as_mut();
                    if let Some(pending) = post.and_then(|post| post.pending.as_mut()) {
                        pending.answered_at = Some(tick);
                    }
                }
                (order, Err(error)) => self.refused(index, &order, error, tick),
                _ => {}
            }
        }
        findings.extend(self.units.trouble.as_ref().map(|trouble| trouble.message.clone()));
    }

    fn next_answer(&mut self) -> Option<crate::host::systemd::Answer> {
        self.units.manager.as_mut()?.answer(Duration::ZERO)
    }

    /// Systemd told what it knows of the unit at `index`.
    fn found(&mut self, index: usize, state: UnitState, tick: u64, findings: &mut Vec<String>) {
        let is_known = state.is_loaded && !state.id.is_empty();
        let double = if is_known { self.units.identify(index, &state.id).err() } else { None };
        let Some(post) = &mut self.units.posts[index] else { return };
        post.is_looking = false;
        let unit = &post.name;
        if !state.is_loaded {
            let why = format!(
                "systemd knows no unit {unit}: name one that `systemctl list-units --all` shows"
            );
            return post.miss(tick, why);
        }
        if let Some(other) = double {
            let other = name_of(&self.nodes, other);
            let why = format!(
                "{unit} is {}, which is that of {other}: name it for one tenant only",
                state.id
            );
            return post.miss(tick, why);
        }
        if !state.is_active || state.cgroup.is_empty() {
            if is_back(&mut self.kernel, &self.layout, &post.cgroup) {
                // Somebody outlived its end: that there is a cgroup tells nothing.
                post.cgroup.clear();
            }
            let is_started = post.is_slice && self.enforcing;
            let why = format!("{unit} does not run: it is shared with once it does");
            return if is_started { self.start_slice(index, tick) } else { post.miss(tick, why) };
        }
        let moved = post.phase == Phase::There && post.cgroup != state.cgroup;
        post.phase = Phase::There;
        post.nr_misses = 0;
        post.message = None;
        post.life = state.life;
        post.held = state.held;
        post.looked_at = tick;
        post.cgroup = state.cgroup;
        if moved && index < self.nodes.len() {
            self.lose(index, "its unit has another cgroup now", findings);
        }
    }

    /// Starts a slice once the one above it is there, so that none is started without being recorded.
    fn start_slice(&mut self, index: usize, tick: u64) {
        let above = match self.nodes.get(index).and_then(|node| node.parent) {
            Some(parent) => Some(parent),
            None => Some(self.nodes.len()).filter(|top| *top != index),
        };
        let is_ready =
            |post: &Option<Box<Post>>| post.as_ref().is_some_and(|p| p.phase == Phase::There);
        let name = self.nodes.get(index).map_or("all tenants", |node| &node.path);
        let description = format!("tenantd: {name}");
        let waits = above.is_some_and(|above| !is_ready(&self.units.posts[above]));
        let Some(post) = &mut self.units.posts[index] else { return };
        if waits {
            post.phase = Phase::Missing { look_at: tick };
            return;
        }
        let unit = post.unit.clone();
        match self.journal.record(Entry::Starting { unit: unit.clone() }) {
            Ok(()) => {
                post.phase = Phase::Asked;
                self.units.submit(Order::StartSlice { unit, description });
            }
            Err(error) => post.miss(tick, EnforceError::from(error).to_string()),
        }
    }

    /// An order came to nothing.
    fn refused(&mut self, index: usize, order: &Order, error: UnitError, tick: u64) {
        let Some(post) = &mut self.units.posts[index] else { return };
        post.is_looking = false;
        let is_gone = matches!(error, UnitError::NoSuchUnit(_));
        match order {
            Order::Set { .. } => {
                let pending = post.pending.take();
                if is_gone {
                    post.phase = Phase::Missing { look_at: tick };
                }
                // What is the matter with the bus is said once, and not for each value.
                if error.is_about_the_bus() {
                    return;
                }
                let outcome = Err(EnforceError::Unit(error));
                for action in pending.into_iter().flat_map(|pending| pending.actions) {
                    self.slot_of(index).settle(&action, tick, &outcome);
                }
            }
            // Asked again as soon as the bus is.
            _ if error.is_about_the_bus() && post.phase == Phase::Asked => {
                post.phase = Phase::Missing { look_at: tick };
            }
            _ if post.phase == Phase::Asked => post.miss(tick, error.to_string()),
            _ => {}
        }
    }

    /// The slot of a node, or that of the top slice.
    pub(super) fn slot_of(&mut self, index: usize) -> &mut Slot {
        match self.slots.get_mut(index) {
            Some(slot) => slot,
            None => &mut self.units.top,
        }
    }

    /// The slots of all nodes and that of the top slice, each with what a finding calls it.
    pub(super) fn named_slots(&self) -> impl Iterator<Item = (&str, &Slot)> {
        let nodes = self.nodes.iter().map(|node| &*node.path).zip(&self.slots);
        nodes.chain([(TOP, &self.units.top)])
    }

    /// Looks for the units that are missing, and opens the cgroups of those that are there.
    pub(super) fn attend(&mut self, tick: u64, findings: &mut Vec<String>) {
        let last = self.units.posts.len().saturating_sub(1);
        let above_first = std::iter::once(last).chain(0..last);
        for index in above_first {
            // An observer leaves the slice above the tenants out: nothing is to be written there.
            if index == last && !self.enforcing {
                continue;
            }
            self.attend_one(index, tick, findings);
        }
        self.probe(tick);
    }

    /// Sees whether a bus that was away is back, also where there is nothing to ask for.
    fn probe(&mut self, tick: u64) {
        if self.units.trouble.is_none() || !self.units.may_ask(tick) {
            return;
        }
        let mut idle = self.units.posts.iter_mut().flatten().filter(|post| !post.is_looking);
        if let Some(post) = idle.find(|post| post.phase == Phase::There) {
            post.is_looking = true;
            let unit = post.name.clone();
            self.units.submit(Order::Look { unit });
        }
    }

    fn attend_one(&mut self, index: usize, tick: u64, findings: &mut Vec<String>) {
        let may_ask = self.units.may_ask(tick);
        let is_open = self.slot_of(index).cgroup.is_some();
        let name = name_of(&self.nodes, index);
        let Some(Some(post)) = self.units.posts.get_mut(index) else { return };
        if let Some(message) = &post.message {
            findings.push(format!("{name}: {message}"));
        }
        match post.phase {
            Phase::There if !is_open => {
                match Cgroup::open_unit(&mut self.kernel, &self.layout, &post.cgroup) {
                    Ok(cgroup) => self.slot_of(index).cgroup = Some(cgroup),
                    Err(error) if error.is_gone() => post.phase = Phase::Missing { look_at: tick },
                    Err(error) => findings.push(format!("{name}: {error}")),
                }
            }
            Phase::Missing { look_at } if may_ask => {
                let is_due = tick >= look_at;
                if is_due || is_back(&mut self.kernel, &self.layout, &post.cgroup) {
                    post.phase = Phase::Asked;
                    let unit = post.name.clone();
                    self.units.submit(Order::Look { unit });
                }
            }
            _ => {}
        }
    }

    /// Asks for what `actions` say of units, all of one unit in one call.
    pub(super) fn order(&mut self, tick: u64, actions: &[Action]) {
        let mut wanted: BTreeMap<usize, Vec<Action>> = BTreeMap::new();
        for action in actions {
            if !self.units.owns(action.node) {
                continue;
            }
            let retries = &self.slot_of(action.node).retries;
            if !retries.iter().any(|retry| retry.knob == action.knob && retry.at_tick > tick) {
                wanted.entry(action.node).or_default().push(action.clone());
            }
        }
        // In the order of the plan: what grows before what shrinks, parents before children.
        for action in actions {
            if let Some(wanted) = wanted.remove(&action.node)
                && self.units.may_ask(tick)
            {
                self.order_one(action.node, tick, wanted);
            }
        }
    }

    fn order_one(&mut self, index: usize, tick: u64, mut actions: Vec<Action>) {
        self.defer_what_would_kill(index, tick, &mut actions);
        let is_open = self.slot_of(index).cgroup.is_some();
        let Some(post) = &mut self.units.posts[index] else { return };
        if !is_open || post.phase != Phase::There || post.pending.is_some() || actions.is_empty() {
            return;
        }
        let settings: Vec<Setting> =
            actions.iter().map(|action| Setting::of(action.knob, &action.to)).collect();
        let is_new = |setting: &&Setting| {
            !self.journal.knows_property(&post.unit, &post.life, setting.property)
        };
        let unit = post.unit.clone();
        if settings.iter().any(|setting| is_new(&setting)) && post.looked_at + 1 < tick {
            // What it holds was seen too long ago to be what is to be put back.
            if !std::mem::replace(&mut post.is_looking, true) {
                let unit = post.name.clone();
                self.units.submit(Order::Look { unit });
            }
            return;
        }
        let known =
            |setting: &&Setting| post.held.iter().find(|h| h.setting.property == setting.property);
        let entries: Vec<Entry> = settings
            .iter()
            .filter(is_new)
            .filter_map(|setting| known(&setting))
            .map(|held| UnitHeld {
                unit: unit.clone(),
                life: post.life.clone(),
                held: held.setting.clone(),
                drop_in: held.drop_in.clone(),
            })
            .map(|was| Entry::UnitHeld(Box::new(was)))
            .collect();
        let recorded = entries.into_iter().try_for_each(|entry| self.journal.record(entry));
        if let Err(error) = recorded {
            let outcome = Err(error.into());
            actions.iter().for_each(|action| self.slot_of(index).settle(action, tick, &outcome));
            return;
        }
        for action in &actions {
            post.ordered.retain(|(knob, _)| *knob != action.knob);
            post.ordered.push((action.knob, action.to.clone()));
        }
        post.pending = Some(Pending { actions, answered_at: None });
        self.units.submit(Order::Set { unit, settings });
    }

    /// A limit that could be met only by killing waits.
    fn defer_what_would_kill(&mut self, index: usize, tick: u64, actions: &mut Vec<Action>) {
        let limit = actions.iter().position(|action| action.knob == Knob::MemoryMax);
        let Some(at) = limit else { return };
        let Value::Memory(Limit::Finite(limit)) = actions[at].to else { return };
        let Some(cgroup) = self.slot_of(index).cgroup.take() else { return };
        let dir = cgroup.dir(&self.layout, Facet::Memory);
        let safe = dir.map_or(Ok(()), |dir| self.enforcer().check_limit_is_safe(dir, limit));
        let slot = self.slot_of(index);
        slot.cgroup = Some(cgroup);
        if let Err(error) = safe {
            slot.settle(&actions.remove(at), tick, &Err(error));
        }
    }

    /// Compares what was asked for with what the files hold now.
    pub(super) fn check_arrivals(&mut self, tick: u64) {
        for index in 0..self.units.posts.len() {
            let Some(post) = &mut self.units.posts[index] else { continue };
            let Some(mut pending) = post.pending.take() else { continue };
            let unit = post.unit.clone();
            let (arrived, waiting): (Vec<Action>, Vec<Action>) =
                pending.actions.drain(..).partition(|action| {
                    let slot = self.slots.get(index).unwrap_or(&self.units.top);
                    let mut observed = slot.observed.iter();
                    observed.any(|(knob, v)| *knob == action.knob && taken(v, &action.to))
                });
            arrived.iter().for_each(|action| self.settle_arrived(index, tick, action));
            let is_late = pending.answered_at.is_some_and(|at| tick >= at + ARRIVAL_TICKS);
            if is_late {
                for action in &waiting {
                    let outcome = Err(self.not_arrived(index, &unit, action));
                    self.slot_of(index).settle(action, tick, &outcome);
                }
            } else if !waiting.is_empty()
                && let Some(post) = &mut self.units.posts[index]
            {
                post.pending = Some(Pending { actions: waiting, ..pending });
            }
        }
    }

    /// A value that stands in its file, and may still have no effect.
    fn settle_arrived(&mut self, index: usize, tick: u64, action: &Action) {
        let Some(cgroup) = self.slot_of(index).cgroup.take() else { return };
        let effective = self.enforcer().check_effective(action, &cgroup);
        let slot = self.slot_of(index);
        slot.cgroup = Some(cgroup);
        match effective {
            Ok(()) => slot.retries.retain(|retry| retry.knob != action.knob),
            Err(error) => slot.settle(action, tick, &Err(error)),
        }
    }

    fn not_arrived(&mut self, index: usize, unit: &str, action: &Action) -> EnforceError {
        let setting = Setting::of(action.knob, &action.to);
        let slot = self.slot_of(index);
        let found = slot.observed.iter().find(|(knob, _)| *knob == action.knob);
        let found = found.map_or("nothing".to_string(), |(_, value)| value.to_string());
        EnforceError::NotArrived {
            unit: unit.to_string(),
            property: setting.property.name(),
            written: action.to.to_string(),
            file: Dialect::Unified.file(action.knob),
            found,
        }
    }
}

/// What a finding calls the node at `index`, or the top slice behind the last.
pub(super) fn name_of(nodes: &[TreeNode], index: usize) -> &str {
    nodes.get(index).map_or(TOP, |node| &node.path)
}

/// Whether there is again a cgroup where that of a unit was, `cgroup` from the mount; empty where it had none yet.
fn is_back(kernel: &mut impl KernFs, layout: &Layout, cgroup: &str) -> bool {
    let path = layout.trees[0].dir_of(cgroup);
    if cgroup.is_empty() {
        return false;
    }
    let dir = kernel.open_dir(&path);
    dir.is_ok_and(|dir| {
        kernel.close_dir(dir);
        true
    })
}
