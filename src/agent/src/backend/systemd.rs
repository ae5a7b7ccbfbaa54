//! Cgroups of units, and the state of the bus to systemd.
//!
//! **Problem.** A unit's cgroup is read like any other, but changed by a request. The reply may be late, never
//! come, or report success without any effect. The unit may not run, or be another one of the same name next
//! time. Its administrator may set the same properties.
//!
//! **Terms.** A unit is *missing* until systemd reports its cgroup, and again when that cgroup goes.
//!
//! **Rules.** Nothing here blocks. A refused order is reported and tried again with growing pauses. A lost bus
//! is reported once for all units, and tried again with growing pauses as well. A unit that does not run is not
//! set. A reload of the policy keeps the state of units that stay: a requested value that arrives afterwards is
//! not drift (`our_own_values_are_no_drift_after_a_reload`).
//!
//! `unit_orders` decides the values to order, and checks their arrival.
//!
//! **Properties** (`tests/agent/units.rs`): tenants as slices and units get their values and are restored in
//! every state of the bus; drift is found in the next tick.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

use super::access::HostAccess;
use super::location::Location;
use super::place::Place;
use super::unit_state::{Phase, UnitState};
use tenantd_control::state::Outcome;
use tenantd_control::tree::{Node, Tree};
use tenantd_control::words::finding::{Code, Finding};
use tenantd_core::node::{NodeId, NodeMap};
use tenantd_host::cgroup::{Cgroup, Layout};
use tenantd_host::enforce::{EnforceError, with_causes};
use tenantd_host::journal::Entry;
use tenantd_host::kernfs::KernFs;
use tenantd_host::systemd::{self, Answer, Order, Reply, UnitError, UnitManager};

/// A lost bus is tried again after 1, 2, 4 … at most this many ticks.
const BUS_TICKS_MAX: u64 = 32;

#[derive(Debug, Default)]
pub(super) struct UnitEvents {
    pub(super) findings: Vec<Finding>,
    /// Nodes whose unit has another cgroup now.
    pub(super) moved: Vec<NodeId>,
    /// Nodes whose transient unit has begun another life.
    pub(super) reborn: Vec<NodeId>,
    pub(super) refused: Vec<Outcome>,
    /// Lists of running units; `None` for a failed one.
    pub(super) listed: Vec<Option<Vec<String>>>,
}

#[derive(Debug)]
struct Trouble {
    nr_failures: u32,
    retry_at: u64,
    message: String,
}

#[derive(Debug, Default)]
pub(super) struct Systemd {
    manager: Option<Box<dyn UnitManager>>,
    units: NodeMap<Box<UnitState>>,
    by_name: HashMap<String, NodeId>,
    is_needed: bool,
    trouble: Option<Trouble>,
    pub(super) time: Duration,
    is_watching: bool,
    /// True if a unit was found in a new cgroup.
    pub(super) has_moved: bool,
}

impl Systemd {
    /// The units at these locations. Connects to systemd only if there are any.
    pub(super) fn new(kernel: &impl KernFs, places: &NodeMap<Place>) -> Systemd {
        let unit = |(id, place): (NodeId, &Place)| {
            let is_slice = matches!(place.location, Location::Slice(_));
            Some((id, Box::new(UnitState::new(place.location.unit()?, is_slice))))
        };
        let mut systemd =
            Systemd { units: places.iter().filter_map(unit).collect(), ..Systemd::default() };
        systemd.index();
        let is_unit =
            |place: &Place| place.location.unit().is_some() || place.location.is_of_systemd();
        if places.values().any(is_unit) {
            systemd.connect(kernel);
        }
        systemd
    }

    /// Connects to systemd, unless that was done: a tenant is a unit, or a template may find one.
    pub(super) fn connect(&mut self, kernel: &impl KernFs) {
        if !self.is_needed {
            self.is_needed = true;
            self.manager = kernel.unit_manager();
        }
    }

    fn index(&mut self) {
        let units = self.units.iter();
        let names = units.flat_map(|(id, unit)| [&unit.name, &unit.unit].map(|n| (n.clone(), id)));
        self.by_name = names.collect();
    }

    /// Forgets the state of all units, except their last cgroups.
    pub(super) fn restart(&mut self, kernel: &impl KernFs, places: &NodeMap<Place>) {
        let old = std::mem::replace(self, Systemd::new(kernel, places));
        for (id, new) in self.units.iter_mut() {
            if let Some(old) = old.units.get(id) {
                new.home.clone_from(&old.home);
            }
        }
    }

    /// Takes other places. Units that stay keep their states; the tenants `handed` give theirs to a member.
    pub(super) fn replace(
        &mut self,
        kernel: &impl KernFs,
        places: &NodeMap<Place>,
        handed: &[(NodeId, NodeId)],
    ) {
        let mut old = std::mem::replace(self, Systemd::new(kernel, places));
        self.time = old.time;
        let is_heard = old.manager.is_some();
        for (tenant, member) in handed {
            if let Some(mut unit) = old.units.remove(*tenant) {
                unit.hand_to(*member);
                old.units.insert(*member, unit);
            }
        }
        for (id, mut unit) in old.units {
            if !is_heard {
                unit.miss_answers();
            }
            if places.get(id).is_some() {
                self.units.insert(id, unit);
            }
        }
        self.index();
        self.trouble = old.trouble;
        self.manager = old.manager.or(self.manager.take());
    }

    pub(super) fn unit(&self, id: NodeId) -> Option<&UnitState> {
        self.units.get(id).map(|unit| &**unit)
    }

    pub(super) fn units(&self) -> impl Iterator<Item = &UnitState> {
        self.units.values().map(|unit| &**unit)
    }

    pub(super) fn unit_mut(&mut self, id: NodeId) -> Option<&mut UnitState> {
        self.units.get_mut(id).map(|unit| &mut **unit)
    }

    pub(super) fn owns(&self, id: NodeId) -> bool {
        self.unit(id).is_some()
    }

    pub(super) fn name(&self, id: NodeId) -> Option<&str> {
        Some(&self.unit(id)?.unit)
    }

    /// Cgroup of its unit below the mount; `None` if it is not a unit, or not found yet.
    pub(super) fn cgroup(&self, id: NodeId) -> Option<&str> {
        let unit = self.unit(id)?;
        (unit.phase == Phase::There).then_some(&*unit.cgroup)
    }

    /// Present or last cgroup of the unit with this name, below the mount.
    pub(super) fn home_of(&self, name: &str) -> Option<&str> {
        let unit = self.unit(*self.by_name.get(name)?)?;
        (!unit.home.is_empty()).then_some(&*unit.home)
    }

    /// Asks systemd again after the node's cgroup went away.
    pub(super) fn lose(&mut self, id: NodeId) {
        if let Some(unit) = self.unit_mut(id) {
            unit.phase = Phase::Missing { look_at: 0 };
            unit.pending = None;
        }
    }

    /// True if the loss of the node's cgroup is that of a unit that stopped, which has one finding until it runs again: that
    /// its cgroup went away would be a second one at each restart.
    pub(super) fn reports_stop(&mut self, id: NodeId) -> bool {
        let Some(unit) = self.unit_mut(id).filter(|unit| !unit.is_slice) else { return false };
        let why = not_running(&unit.name);
        unit.message.get_or_insert(why);
        true
    }

    /// Hands the manager to the final restoration, so that no earlier request takes effect after it.
    pub(super) fn take_manager(&mut self) -> Option<Box<dyn UnitManager>> {
        self.manager.take()
    }

    /// False during the pause after a lost bus.
    pub(super) fn may_ask(&self, tick: u64) -> bool {
        self.trouble.as_ref().is_none_or(|trouble| tick >= trouble.retry_at)
    }

    pub(super) fn submit(&mut self, order: Order) {
        if let Some(manager) = &mut self.manager {
            manager.submit(order);
        }
    }

    fn note(&mut self, tick: u64, outcome: &Result<Reply, UnitError>) {
        let Err(error) = outcome.as_ref() else {
            self.trouble = None;
            return;
        };
        if !error.is_about_the_bus() || !self.may_ask(tick) {
            return;
        }
        let nr_failures = self.trouble.as_ref().map_or(1, |trouble| trouble.nr_failures + 1);
        let pause = (1_u64 << (nr_failures - 1).min(8)).min(BUS_TICKS_MAX);
        let message =
            format!("{error}: tenants that are units keep what they have until it answers");
        self.trouble = Some(Trouble { nr_failures, retry_at: tick + pause, message });
    }

    pub(super) fn refresh<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        tree: &Tree,
        tick: u64,
        is_enforcing: bool,
    ) -> UnitEvents {
        let (mut events, time) = (UnitEvents::default(), self.time);
        let mut unset = HashSet::new();
        if self.manager.is_none() && self.is_needed {
            let what = "this host is not run by systemd: tenants that are units are left out";
            events.findings.push(Finding::of_host(Code::BusAway, what));
        }
        while let Some(answer) = self.next_answer() {
            self.note(tick, &answer.outcome);
            if answer.order == Order::Watch {
                self.is_watching = false;
                self.take_results(answer.outcome);
                continue;
            }
            if let Order::List { .. } = answer.order {
                events.listed.push(match answer.outcome {
                    Ok(Reply::Running(units)) => Some(units),
                    _ => None,
                });
                continue;
            }
            let Some(&id) = self.by_name.get(answer.order.unit()) else { continue };
            match (answer.order, answer.outcome) {
                (Order::Look { .. }, Ok(Reply::Unit(state))) => {
                    let Some(node) = tree.find(id) else { continue };
                    let is_reborn = self.unit_mut(id).is_some_and(|unit| unit.end_life(&state));
                    events.reborn.extend(is_reborn.then_some(id));
                    let moved = self.found(host, node, state, tick, is_enforcing);
                    events.moved.extend(moved.then_some(id));
                }
                (Order::StartSlice { .. }, Ok(_)) => {
                    if let Some(unit) = self.unit_mut(id) {
                        unit.phase = Phase::Missing { look_at: tick };
                    }
                }
                (Order::Set { .. }, Ok(_)) => {
                    let Some(unit) = self.unit_mut(id) else { continue };
                    unit.relief_refused = (0, 0);
                    unit.answer_pending(time);
                }
                (order, Err(error)) => {
                    events.refused.extend(self.refused(id, &order, &error, tick, &mut unset));
                }
                _ => {}
            }
        }
        if let Err(error) = host.journal.forget_unset(&unset) {
            events.findings.push(Finding::of_host(Code::NotKept, with_causes(&error)));
        }
        let trouble = self.trouble.as_ref();
        events.findings.extend(
            trouble.map(|trouble| Finding::of_host(Code::BusAway, trouble.message.as_str())),
        );
        events
    }

    fn take_results(&mut self, outcome: Result<Reply, UnitError>) {
        let Ok(Reply::Results(results)) = outcome else { return };
        for result in results {
            let Some(&id) = self.by_name.get(&result.unit) else { continue };
            if let Some(unit) = self.unit_mut(id) {
                unit.kills.note(result.is_oom_kill);
            }
        }
    }

    pub(super) fn take_kills(&mut self, id: NodeId) -> u64 {
        self.unit_mut(id).map_or(0, |unit| std::mem::take(&mut unit.kills.nr_new))
    }

    fn next_answer(&mut self) -> Option<Answer> {
        self.manager.as_mut()?.answer(Duration::ZERO)
    }

    fn found<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        node: Node<'_>,
        state: systemd::UnitState,
        tick: u64,
        is_enforcing: bool,
    ) -> bool {
        let is_known = state.is_loaded && !state.id.is_empty();
        let double = if is_known { self.identify(node.id(), &state.id).err() } else { None };
        let Some(unit) = self.unit_mut(node.id()) else { return false };
        unit.is_looking = false;
        unit.kills.begin(state.is_oom_kill);
        let name = &unit.name;
        if !state.is_loaded && state.is_active {
            // The existence of its cgroup is no evidence.
            unit.cgroup.clear();
            let why = format!(
                "{name} runs and is not loaded: it was masked, or its file was removed; systemd changes nothing \
                 of it until `systemctl unmask`, or a file and `systemctl daemon-reload`"
            );
            unit.miss(tick, why);
            return false;
        }
        // A tenant's slice needs no file. It is not loaded if systemd still remembers an earlier run.
        if !(state.is_loaded || unit.is_slice && is_enforcing) {
            let why = format!(
                "systemd knows no unit {name}: name one that `systemctl list-units --all` shows"
            );
            unit.miss(tick, why);
            return false;
        }
        if let Some(other) = double {
            let other = node.tree().find(other).map_or("another tenant", Node::name);
            let why = format!(
                "{name} is {}, which is that of {other}: name it for one tenant only",
                state.id
            );
            unit.miss(tick, why);
            return false;
        }
        if !state.is_active || state.cgroup.is_empty() {
            if is_back(&mut host.kernel, &host.layout, &unit.cgroup) {
                // Some process outlived the unit: the existence of a cgroup is no evidence.
                unit.cgroup.clear();
            }
            let why = not_running(name);
            if unit.is_slice && is_enforcing {
                self.start_slice(host, node, tick)
            } else {
                unit.miss(tick, why)
            }
            return false;
        }
        let was_there = unit.phase == Phase::There;
        let moved = was_there && unit.cgroup != state.cgroup;
        unit.is_certain = was_there && !moved;
        unit.phase = Phase::There;
        unit.nr_misses = 0;
        unit.message = None;
        unit.life = state.life;
        unit.held = state.held;
        unit.looked_at = tick;
        let is_elsewhere = unit.home != state.cgroup;
        if is_elsewhere {
            unit.home.clone_from(&state.cgroup);
        }
        unit.cgroup = state.cgroup;
        self.has_moved |= is_elsewhere;
        moved
    }

    fn identify(&mut self, node: NodeId, id: &str) -> Result<(), NodeId> {
        match self.by_name.get(id) {
            Some(other) if *other != node => return Err(*other),
            Some(_) => {}
            None => drop(self.by_name.insert(id.to_string(), node)),
        }
        if let Some(unit) = self.unit_mut(node) {
            unit.unit = id.to_string();
        }
        Ok(())
    }

    /// Starts a slice once its parent slice runs, so that every started slice is recorded.
    fn start_slice<K: KernFs>(&mut self, host: &mut HostAccess<K>, node: Node<'_>, tick: u64) {
        let is_there = |unit: &UnitState| unit.phase == Phase::There;
        let above = node.governed_parent();
        let waits = above.is_some_and(|above| !self.unit(above.id()).is_some_and(is_there));
        let name = if node.is_ancestor() { "all tenants" } else { node.name() };
        let description = format!("tenantd: {name}");
        let Some(unit) = self.unit_mut(node.id()) else { return };
        if waits {
            unit.phase = Phase::Missing { look_at: tick };
            return;
        }
        let name = unit.unit.clone();
        match host.journal.record(Entry::Starting { unit: name.clone() }) {
            Ok(()) => {
                unit.phase = Phase::Asked;
                self.submit(Order::StartSlice { unit: name, description });
            }
            Err(error) => unit.miss(tick, EnforceError::from(error).to_string()),
        }
    }

    /// Looks for the unit of a node if it is missing, and opens its cgroup if it exists.
    pub(super) fn attach<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        place: &mut Place,
        node: Node<'_>,
        tick: u64,
    ) -> Vec<Finding> {
        let may_ask = self.may_ask(tick);
        let name = node.name();
        let Some(unit) = self.unit_mut(node.id()) else { return Vec::new() };
        let mut findings = Vec::new();
        if let Some(message) = &unit.message {
            findings.push(Finding::of(name, Code::UnitMissing, message.as_str()));
        }
        match unit.phase {
            Phase::There if place.cgroup.is_none() => {
                match Cgroup::open_from_mount(&mut host.kernel, &host.layout, &unit.cgroup) {
                    Ok(cgroup) => {
                        (place.cgroup, unit.is_certain) = (Some(cgroup), false);
                    }
                    Err(error) if error.is_gone() => unit.phase = Phase::Missing { look_at: tick },
                    Err(error) => {
                        findings.push(Finding::of(name, Code::NotAttached, error.to_string()));
                    }
                }
            }
            Phase::Missing { look_at } if may_ask => {
                let is_due = tick >= look_at;
                if is_due || is_back(&mut host.kernel, &host.layout, &unit.cgroup) {
                    unit.phase = Phase::Asked;
                    let unit = unit.name.clone();
                    self.submit(Order::Look { unit });
                }
            }
            _ => {}
        }
        findings
    }

    /// Asks for the results of services since the last tick. The reply shows as well that a lost bus is back.
    pub(super) fn watch(&mut self, tick: u64) {
        if self.is_needed && !self.is_watching && self.may_ask(tick) {
            self.is_watching = self.manager.is_some();
            self.submit(Order::Watch);
        }
    }
}

fn not_running(unit: &str) -> String {
    format!("{unit} does not run: it is shared with once it does")
}

/// True if a cgroup exists again at the path of a unit's, `cgroup` below the mount; empty if the unit never had
/// one.
fn is_back(kernel: &mut impl KernFs, layout: &Layout, cgroup: &str) -> bool {
    if cgroup.is_empty() {
        return false;
    }
    let path = layout.trees[0].dir_of(cgroup);
    let dir = kernel.open_dir(Path::new(&path));
    dir.is_ok_and(|dir| {
        kernel.close_dir(dir);
        true
    })
}
