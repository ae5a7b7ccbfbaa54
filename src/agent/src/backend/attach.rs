//! Opening the cgroups of all nodes, and closing those that went away.
//!
//! **Rules.** A cgroup that went away is closed, reported, and passed to the control loop as a [`Loss`]. The
//! next tick opens it again, and makes it if it is missing.
//!
//! **Passes.** Making and opening a thousand cgroups takes longer than a tick may take. A *pass* over the
//! agent's own cgroups can therefore stop after any number of them and continue later. A tick starts a pass
//! when the last one is complete. Failures to open are reported until the next attempt.

use super::access::HostAccess;
use super::backends::{Backends, Events, Loss};
use super::direct;
use super::in_place;
use super::location::Location;
use super::on_host::Ground;
use super::place::Place;
use super::rest;
use super::root;
use tenantd_control::tree::{Node, Tree};
use tenantd_control::words::finding::{Code, Finding};
use tenantd_core::node::NodeId;
use tenantd_host::enforce::EnforceError;
use tenantd_host::kernfs::KernFs;
use tenantd_host::process::Claim;

impl Backends {
    /// Processes the answers of systemd since the last tick, and sends the lookups for the next one.
    pub(crate) fn poll<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        tree: &Tree,
        tick: u64,
        is_enforcing: bool,
    ) -> Events {
        let mut events = Events::default();
        if !self.finds.wants.units.is_empty() {
            self.systemd.connect(&host.kernel);
        }
        let units = self.systemd.refresh(host, tree, tick, is_enforcing);
        for running in units.listed {
            self.members.answered(running, tick);
        }
        self.systemd.watch(tick);
        if self.systemd.may_ask(tick) {
            let locations = tree.policy_nodes().filter_map(|node| self.places.get(node.id()));
            let locations = locations.map(|place| &place.location);
            let question = self.members.question(locations, &self.finds.wants.units, tick);
            question.into_iter().for_each(|order| self.systemd.submit(order));
        }
        events.findings = units.findings;
        events.outcomes = units.refused;
        let moved = units.moved.into_iter().filter_map(|id| tree.find(id));
        for node in moved.filter(|node| !node.is_ancestor()) {
            let what = "its unit has another cgroup now";
            events.findings.push(Finding::of(node.name(), Code::CgroupGone, what));
            events.losses.push(self.give_up(host, node.id()));
        }
        // What was left to others in the life before has ended with it.
        let reborn = units.reborn.into_iter().map(|node| Loss { node, keeps_left: false });
        events.losses.extend(reborn);
        events
    }

    /// Opens the cgroups of all nodes, at most `nr_max` of the agent's own that are not open; makes missing
    /// ones if allowed. [`Backends::attach_more`] opens the others.
    pub(crate) fn attach<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        tree: &Tree,
        tick: u64,
        is_enforcing: bool,
        nr_max: usize,
    ) -> Events {
        let mut events = Events::default();
        self.lose_groups_of_missing(host, tree, &mut events);
        if is_enforcing {
            self.retake_root(host, tree, &mut events);
        }
        for node in tree.from_above() {
            // An observer writes no ancestors, so it does not open them.
            if !node.is_ancestor() || is_enforcing {
                self.attach_found(host, node, tick, &mut events.findings);
            }
        }
        if !self.has_more_to_attach() {
            self.backlog.pass = Some(0);
        }
        self.attach_more(host, tree, is_enforcing, nr_max);
        events.findings.extend(self.unattached.values().cloned());
        events
    }

    pub(crate) fn discover<K: KernFs>(&mut self, host: &mut HostAccess<K>, tree: &Tree, tick: u64) {
        let places = &self.places;
        let of_nodes = || tree.policy_nodes().filter_map(|node| places.get(node.id()));
        let locations = || of_nodes().map(|place| &place.location);
        let ground = |kernel: &K| Ground::of(kernel, tree.nodes(), locations());
        let wanted = (locations(), &self.finds.wants.cgroups[..]);
        let has_changed = self.members.discovery.proceed(host, wanted, ground, tick);
        if has_changed {
            self.members.note_change();
        }
        self.look_for_rest(host, tree, tick);
    }

    fn look_for_rest<K: KernFs>(&mut self, host: &mut HostAccess<K>, tree: &Tree, tick: u64) {
        if !self.locations_of(tree).any(Location::is_rest) {
            return self.rest.clear();
        }
        let claimed = self.rest.claimed.take().unwrap_or_else(|| {
            let locations = self.locations(tree);
            let members = self.members.of(&locations);
            let mut claimed = self.claimed(&locations, &members, Some(tree));
            claimed.cgroups.extend(rest::own(&host.layout));
            self.rest.hurry();
            claimed
        });
        let places = &self.places;
        let of_nodes = tree.policy_nodes().filter_map(|node| places.get(node.id()));
        let locations = of_nodes.map(|place| &place.location);
        let ground = |kernel: &K| Ground::of(kernel, tree.nodes(), locations);
        if self.rest.proceed(host, &claimed, ground, tick) {
            self.members.note_change();
        }
        self.rest.claimed = Some(claimed);
    }

    pub(crate) fn has_more_to_attach(&self) -> bool {
        self.backlog.pass.is_some()
    }

    pub(crate) fn is_pending(&self, node: Node<'_>) -> bool {
        self.backlog.pass.is_some_and(|next| node.at() >= next) && !self.is_present(node.id())
    }

    /// Continues the pass with at most `nr_max` cgroups; returns the opened ones.
    pub(crate) fn attach_more<'t, K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        tree: &'t Tree,
        is_enforcing: bool,
        nr_max: usize,
    ) -> Vec<Node<'t>> {
        let Some(first) = self.backlog.pass else { return Vec::new() };
        // Groups come before their members.
        let is_missing = |node: &Node<'_>| {
            let is_missing = |it: &Place| it.location.is_below_root() && it.cgroup.is_none();
            self.places.get(node.id()).is_some_and(is_missing)
        };
        let mut missing = tree.tenants_and_members().skip(first).filter(is_missing);
        let mut batch: Vec<Node<'_>> = missing.by_ref().take(nr_max).collect();
        self.backlog.pass = missing.next().map(Node::at);
        batch.retain(|node| {
            let Some(place) = self.places.get_mut(node.id()) else { return false };
            match direct::attach(host, place, node.name(), is_enforcing) {
                Ok(()) => self.unattached.remove(node.id()),
                Err(finding) => self.unattached.insert(node.id(), finding),
            };
            place.cgroup.is_some()
        });
        batch
    }

    /// Opens, and makes if needed, the agent's own cgroup of this node.
    pub(crate) fn open_own<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        node: Node<'_>,
    ) -> Result<(), Finding> {
        match self.places.get_mut(node.id()) {
            Some(place) if place.cgroup.is_none() => direct::attach(host, place, node.name(), true),
            _ => Ok(()),
        }
    }

    pub(crate) fn join<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        own: NodeId,
        claim: &Claim,
    ) -> Result<(), EnforceError> {
        let Some(place) = self.places.get_mut(own) else { return Ok(()) };
        place.is_joined = false;
        place.cgroup.as_ref().map_or(Ok(()), |cgroup| host.enforcer().claim(claim, cgroup))
    }

    /// True if the node has a cgroup in the tree with this index.
    pub(crate) fn has_home<K>(&self, host: &HostAccess<K>, own: NodeId, tree: usize) -> bool {
        let cgroup = self.places.get(own).and_then(|place| place.cgroup.as_ref());
        cgroup.is_some_and(|cgroup| cgroup.homes(&host.layout).any(|(home, _)| home == tree))
    }

    /// Looks for these processes in the next search, wherever they were found before.
    pub(crate) fn look_for(&mut self, pids: &[u32]) {
        self.search.look_for(pids);
    }

    /// Takes the root again if it was removed: its lock went with it.
    fn retake_root<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        tree: &Tree,
        events: &mut Events,
    ) {
        let is_missing = |place: &Place| place.location.is_below_root() && place.cgroup.is_none();
        let Some(root) = self.root.filter(|_| self.places.values().any(is_missing)) else { return };
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

    fn attach_found<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        node: Node<'_>,
        tick: u64,
        findings: &mut Vec<Finding>,
    ) {
        let (may_be_missing, name) = (self.may_be_missing(node), node.name());
        let Some(place) = self.places.get_mut(node.id()) else { return };
        match &place.location {
            Location::Slice(_) | Location::Unit(_) | Location::Above(_) => {
                let mut found = self.systemd.attach(host, place, node, tick);
                found.retain(|finding| !(may_be_missing && finding.code == Code::UnitMissing));
                findings.append(&mut found);
            }
            Location::InPlace(path) | Location::AboveInPlace(path) if place.cgroup.is_none() => {
                let (path, is_tenant) = (path.clone(), !node.is_ancestor());
                match in_place::attach(host, place, &path, name) {
                    Ok(()) => self.note_found(path),
                    // The ancestors of a missing tenant may be missing.
                    Err(finding) => findings.extend(Some(finding).filter(|finding| {
                        is_tenant && !(may_be_missing && finding.code == Code::CgroupMissing)
                    })),
                }
            }
            Location::Unknown(why) => {
                findings.push(Finding::of(name, Code::NotAttached, why.as_str()));
            }
            Location::Members(sources) => {
                let refused = sources.refused.iter();
                findings
                    .extend(refused.map(|why| Finding::of(name, Code::NotAttached, why.as_str())));
                findings.extend(self.members.discovery.findings(name, sources));
                findings.extend(self.rest.findings(name).filter(|_| sources.rest.is_some()));
            }
            Location::InPlace(_)
            | Location::AboveInPlace(_)
            | Location::Direct
            | Location::Made(_)
            | Location::Nowhere => {}
        }
    }

    /// True if the policy does not require this cgroup: it is above a tenant, or a member found by a pattern.
    pub(super) fn may_be_missing(&self, node: Node<'_>) -> bool {
        let Some(tenant) = node.tenant() else { return true };
        match (self.location(tenant.id()), self.location(node.id())) {
            (Location::Members(sources), Location::Unit(unit)) => !sources.named.contains(unit),
            (Location::Members(sources), Location::InPlace(path)) => {
                !sources.cgroups.contains(path)
            }
            _ => false,
        }
    }

    /// Gives up groups that went away with the tenants in them; groups are not sampled.
    fn lose_groups_of_missing<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        tree: &Tree,
        events: &mut Events,
    ) {
        let mut checked = None;
        for node in tree.policy_nodes() {
            if let Some(group) = node.group()
                && !self.is_present(node.id())
                && checked != Some(group.id())
            {
                self.lose_if_gone(host, group, events);
                checked = Some(group.id());
            }
        }
    }

    pub(super) fn lose_if_gone<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        node: Node<'_>,
        events: &mut Events,
    ) {
        let Some(cgroup) = self.cgroup(node.id()) else { return };
        if !cgroup.is_there(&mut host.kernel, &host.layout) {
            self.lose(host, node, "its cgroup went away", events);
        }
    }

    pub(super) fn lose<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        node: Node<'_>,
        why: &str,
        events: &mut Events,
    ) {
        if !self.systemd.reports_stop(node.id()) {
            events.findings.push(Finding::of(node.name(), Code::CgroupGone, why));
        }
        events.losses.push(self.give_up(host, node.id()));
    }

    pub(super) fn give_up<K: KernFs>(&mut self, host: &mut HostAccess<K>, node: NodeId) -> Loss {
        if let Some(place) = self.places.get_mut(node) {
            place.close(&mut host.kernel);
        }
        self.systemd.lose(node);
        Loss { node, keeps_left: self.systemd.owns(node) }
    }
}
