//! Opening the cgroups of all nodes, and closing those that went away.
//!
//! **Rules.** A cgroup that went away is closed, reported, and passed to the control loop as a [`Loss`]; at
//! the next tick it is opened anew, and made where it is missing.

use super::access::HostAccess;
use super::backends::{Backends, Events, Loss};
use super::direct;
use super::location::Location;
use super::place::Place;
use super::root;
use crate::control::finding::{Code, Finding};
use crate::control::tree::Tree;
use crate::host::kernfs::KernFs;

impl Backends {
    /// Opens the cgroups of all nodes, at most `nr_max` of those that are not open; makes those that are
    /// missing, where the agent may.
    pub(in crate::daemon) fn attach<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        tree: &Tree,
        tick: u64,
        is_enforcing: bool,
        nr_max: usize,
    ) -> Events {
        let mut events = Events::default();
        let units = self.systemd.refresh(host, tree, tick, is_enforcing);
        events.findings = units.findings;
        events.outcomes = units.refused;
        for number in units.moved.into_iter().filter(|number| *number < tree.nodes().len()) {
            self.lose(host, tree, number, "its unit has another cgroup now", &mut events);
        }
        self.lose_groups_of_missing(host, tree, &mut events);
        if is_enforcing {
            self.retake_root(host, tree, &mut events);
        }
        let mut left = nr_max;
        for number in tree.from_above() {
            let is_ancestor = number >= tree.nodes().len();
            // An observer leaves ancestors out: nothing is to be written there.
            if is_ancestor && !is_enforcing {
                continue;
            }
            if self.places[number].cgroup.is_none() && self.is_governed(number) {
                let Some(fewer) = left.checked_sub(1) else { continue };
                left = fewer;
            }
            self.attach_one(host, tree, number, tick, is_enforcing, &mut events.findings);
        }
        self.systemd.probe(tick);
        events
    }

    /// Takes the root again where it was removed: its lock went with it.
    fn retake_root<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        tree: &Tree,
        events: &mut Events,
    ) {
        let is_missing =
            |place: &Place| place.location == Location::Direct && place.cgroup.is_none();
        let Some(root) = self.root.filter(|_| self.places.iter().any(is_missing)) else { return };
        let is_gone = host.kernel.read_once(root, "cgroup.procs").is_err_and(|e| e.is_gone());
        if !is_gone {
            return;
        }
        match root::take(host, tree.nodes(), &[]) {
            Ok((taken, _)) => {
                let what = "the root of the tenants was removed: it is made and taken again";
                events.findings.push(Finding::of_host(Code::CgroupGone, what));
                host.kernel.close_dir(root);
                self.root = Some(taken);
            }
            Err(error) => {
                let what = format!("the root of the tenants was removed: {error}");
                events.findings.push(Finding::of_host(Code::CgroupGone, what).as_error());
            }
        }
    }

    fn attach_one<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        tree: &Tree,
        number: usize,
        tick: u64,
        is_enforcing: bool,
        findings: &mut Vec<Finding>,
    ) {
        let place = &mut self.places[number];
        match &place.location {
            Location::Slice(_) | Location::Unit(_) => {
                let name = tree.name(number);
                findings.extend(self.systemd.attach(host, place, number, name, tick));
            }
            Location::Direct if place.cgroup.is_none() => {
                let attached = direct::attach(host, place, &tree.nodes()[number], is_enforcing);
                findings.extend(attached.err());
            }
            Location::Unknown(why) => {
                let name = tree.name(number);
                findings.push(Finding::of(name, Code::NotAttached, why.as_str()));
            }
            Location::Direct | Location::Nowhere => {}
        }
    }

    /// A tenant may be missing because the group above it went, which is not sampled.
    fn lose_groups_of_missing<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        tree: &Tree,
        events: &mut Events,
    ) {
        for (number, node) in tree.nodes().iter().enumerate() {
            if let Some(parent) = node.parent
                && self.places[number].cgroup.is_none()
            {
                self.lose_if_gone(host, tree, parent, events);
            }
        }
    }

    pub(super) fn lose_if_gone<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        tree: &Tree,
        number: usize,
        events: &mut Events,
    ) {
        let Some(cgroup) = &self.places[number].cgroup else { return };
        if !cgroup.is_there(&mut host.kernel, &host.layout) {
            self.lose(host, tree, number, "its cgroup went away", events);
        }
    }

    /// Gives up the cgroup of a node, and says why.
    pub(super) fn lose<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        tree: &Tree,
        number: usize,
        why: &str,
        events: &mut Events,
    ) {
        events.findings.push(Finding::of(tree.name(number), Code::CgroupGone, why));
        events.losses.push(self.give_up(host, number));
    }

    /// Closes the cgroup of a node, so that the next tick opens it anew.
    pub(super) fn give_up<K: KernFs>(&mut self, host: &mut HostAccess<K>, number: usize) -> Loss {
        self.places[number].close(&mut host.kernel);
        self.systemd.lose(number);
        Loss { number, keeps_left: self.systemd.owns(number) }
    }
}
