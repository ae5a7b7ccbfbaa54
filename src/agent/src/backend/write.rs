//! Changing the cgroups of all nodes: processes, values, and accepted foreign values.
//!
//! The agent's own cgroups are written at once. Systemd gets orders, and `read` finds the result later.

use std::collections::BTreeSet;

use super::access::HostAccess;
use super::backends::{Backends, Events};
use super::cpusets;
use super::direct;
use tenantd_control::state::drift::Drift;
use tenantd_control::tree::Tree;
use tenantd_control::words::finding::{Code, Finding};
use tenantd_control::words::knob::{Action, Knob};
use tenantd_core::node::NodeId;
use tenantd_host::journal::{Entry, JournalError};
use tenantd_host::kernfs::KernFs;
use tenantd_host::knobs::{Hazard, row_of};
use tenantd_host::systemd::Property;

/// Ticks between two looks for processes that others put into some of a tenant's cgroups only.
const JOIN_TICKS: u64 = 5;
const BATCH: usize = 32;

impl Backends {
    /// Searches the next part of all processes for those that the policy assigns to tenants, and moves them
    /// into their cgroups, at most `nr_max` at a time. An observer moves none.
    pub(crate) fn claim<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        tree: &Tree,
        is_enforcing: bool,
        nr_max: usize,
    ) {
        let Backends { places, claim_rules, search, unmoved, .. } = self;
        let rules = &*claim_rules;
        if is_enforcing {
            direct::claim(host, places, tree, rules, nr_max, search)
        } else {
            direct::look_for(host, tree, rules, search, unmoved)
        }
    }

    /// Moves the processes of pinned tenants into their cpusets, if those are a separate tree. Newly pinned
    /// tenants, and those that were given processes, come first, about `nr_max` processes at a time; processes
    /// that others moved follow every few ticks.
    pub(crate) fn join_cpusets<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        tree: &Tree,
        tick: Option<u64>,
        is_pinned: impl Fn(NodeId) -> bool,
        nr_max: usize,
    ) -> Vec<Finding> {
        self.backlog.has_unjoined = false;
        if !cpusets::needs_joining(host) {
            return Vec::new();
        }
        let (mut findings, mut nr_done) = (Vec::new(), 0);
        for node in tree.tenants_and_members() {
            let Some(place) = self.places.get_mut(node.id()) else { continue };
            // The agent fills only cgroups that it made.
            let tenant = node.tenant().filter(|_| place.location.is_below_root());
            let is_turn = tick.is_some_and(|tick| node.id().is_turn(tick, JOIN_TICKS));
            if !tenant.is_some_and(|it| is_pinned(it.id())) || (place.is_joined && !is_turn) {
                continue;
            }
            if nr_done >= nr_max {
                self.backlog.has_unjoined |= !place.is_joined && place.cgroup.is_some();
                continue;
            }
            let is_first = !place.is_joined;
            match cpusets::join(host, place, node.name()) {
                // A look costs as much as a move.
                Ok(nr) => nr_done += nr.max(usize::from(is_first)),
                Err(error) if error.is_gone() => {}
                Err(error) => {
                    findings.push(Finding::of(node.name(), Code::NotWritten, error.to_string()));
                }
            }
        }
        findings
    }

    /// Orders the values of `actions` on units from systemd. Writes the others and all memory bounds, at most
    /// about `nr_max` of them; [`Backends::write_more`] writes the rest. A failure does not stop the others.
    pub(crate) fn apply<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        tree: &Tree,
        tick: u64,
        actions: Vec<Action>,
        nr_max: usize,
    ) -> Events {
        // A bound is short-lived: it is written to the file, bypassing systemd.
        let is_direct = |action: &Action| {
            row_of(action.knob).hazard == Hazard::Blocks || !self.systemd.owns(action.node)
        };
        let (direct, asked): (Vec<Action>, Vec<Action>) = actions.into_iter().partition(is_direct);
        let is_compressed = |action: &Action| row_of(action.knob).hazard == Hazard::Compressed;
        let (compressed, asked) = asked.into_iter().partition::<Vec<_>, _>(is_compressed);
        let outcomes = self.systemd.order(host, &self.places, tick, &asked);
        let actions = direct.into_iter().filter(|action| self.is_present(action.node)).collect();
        let nr_max = self.backlog.replace(actions, nr_max);
        let mut events = self.write_more(host, tree, nr_max);
        events.outcomes.splice(..0, outcomes);
        events.outcomes.extend(self.systemd.correct(host, &self.places, compressed));
        events
    }

    /// Decided values of the last tick that are not written yet, by node.
    pub(crate) fn unwritten(&self) -> BTreeSet<(NodeId, Knob)> {
        self.backlog.actions().map(|action| (action.node, action.knob)).collect()
    }

    pub(crate) fn write_more<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        tree: &Tree,
        nr_max: usize,
    ) -> Events {
        let mut events = Events::default();
        let mut nr_left = nr_max;
        while nr_left > 0 && !self.backlog.is_empty() {
            let batch = self.backlog.take(nr_left.min(BATCH));
            nr_left -= batch.len();
            self.write(host, tree, batch, &mut events);
        }
        events
    }

    fn write<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        tree: &Tree,
        actions: Vec<Action>,
        events: &mut Events,
    ) {
        direct::record(host, &self.places, &actions);
        for action in actions {
            let Some(node) = tree.find(action.node) else { continue };
            let Some(place) = self.places.get(action.node) else { continue };
            let Some(outcome) = direct::apply(host, place, &action, node.name()) else { continue };
            let is_gone = outcome.as_ref().is_err_and(|error| error.is_gone());
            let outcome = outcome.map_err(|error| error.refusal());
            events.outcomes.push((action, outcome));
            if is_gone {
                self.lose_if_gone(host, node, events);
            }
        }
    }

    /// Records that a foreign value is accepted.
    pub(crate) fn leave<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        drift: &Drift,
    ) -> Result<(), JournalError> {
        // No earlier value of such a file is kept: systemd restores it with the property.
        let is_kept = row_of(drift.knob).hazard != Hazard::Compressed;
        if let Some(unit) = self.systemd.name(drift.node).filter(|_| is_kept) {
            let (unit, property) = (unit.to_string(), Property::of(drift.knob));
            // What an earlier agent left is still owed: whatever the file holds, systemd would write that value again.
            let Some(ours) = self.systemd.drop_ins_of(host, drift.node, drift.knob) else {
                return Ok(());
            };
            // Which of several orders systemd carried out last is not known.
            let ours: Vec<_> = match ours.len() {
                0 => vec![None],
                _ => ours.into_iter().map(|setting| Some(Box::new(setting))).collect(),
            };
            let theirs = |ours| Entry::UnitTheirs { unit: unit.clone(), property, ours };
            return ours.into_iter().try_for_each(|ours| host.journal.record(theirs(ours)));
        }
        let Some(cgroup) = self.cgroup(drift.node) else { return Ok(()) };
        let Ok(dir) = cgroup.knob_dir(&host.layout, drift.knob) else { return Ok(()) };
        let Ok(inode) = host.kernel.inode(dir) else { return Ok(()) };
        let (path, file) = (host.kernel.dir_path(dir), host.layout.journal_name(drift.knob));
        let file = (&*file).into();
        host.journal.record(Entry::Theirs { path, inode, file })
    }
}
