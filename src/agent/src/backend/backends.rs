//! The cgroups of all nodes, behind one set of operations.
//!
//! **Terms.** A *place* is the cgroup of one node, by the node's identity. Its *location* tells the
//! owner: the agent itself (direct), or systemd.
//!
//! **Operations** are the same for both. [`Backends::attach`] makes and opens missing cgroups;
//! [`Backends::sample`] and [`Backends::observe`] read; [`Backends::apply`] writes or orders from systemd;
//! `release` restores. The result of an order to systemd is available in a later tick ([`Backends::arrivals`]).
//!
//! This file holds the state of the places across reloads. The operations are in `attach`, `read` and `write`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use super::access::HostAccess;
use super::ancestry;
use super::backlog::{Backlog, Work};
use super::claims::Search;
use super::cpusets::CpuInventory;
use super::found::Finds;
use super::location::{Location, rest_of};
use super::members::Members;
use super::place::Place;
use super::rest::{self, Rest};
use super::systemd::Systemd;
use super::unmoved::Unmoved;
use tenantd_control::report::status::MoveStatus;
use tenantd_control::state::Outcome;
use tenantd_control::tree::bounds::AncestorBounds;
use tenantd_control::tree::{Ancestor, Node, Tree};
use tenantd_control::words::finding::Finding;
use tenantd_control::words::knob::Knob;
use tenantd_core::kernel_text::path_of;
use tenantd_core::node::{NodeId, NodeMap};
use tenantd_host::cgroup::{Cgroup, Facet};
use tenantd_host::claiming::{ClaimRule, ClaimRules};
use tenantd_host::kernfs::{DirId, KernError, KernFs};
use tenantd_host::knobs::row_of;
use tenantd_host::systemd::UnitManager;
use tenantd_host::systemd::slice_name::TOP;
use tenantd_policy::rest::Claimed;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    pub(crate) node: NodeId,
    /// True if a foreign value outlives the cgroup, because systemd sets it again.
    pub(crate) keeps_left: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Events {
    pub(crate) findings: Vec<Finding>,
    pub(crate) losses: Vec<Loss>,
    pub(crate) outcomes: Vec<Outcome>,
}

#[derive(Debug)]
pub(crate) struct Backends {
    pub(super) places: NodeMap<Place>,
    pub(super) unattached: NodeMap<Finding>,
    pub(super) systemd: Systemd,
    pub(super) members: Members,
    pub(super) rest: Rest,
    pub(super) finds: Finds,
    found: BTreeSet<String>,
    has_moved: bool,
    pub(super) claim_rules: ClaimRules,
    pub(super) root: Option<DirId>,
    pub(super) inventory: CpuInventory,
    pub(super) search: Search,
    pub(super) unmoved: Unmoved,
    pub(super) backlog: Backlog,
    /// Limits above the direct cgroups, at the last reading.
    pub(super) above: AncestorBounds,
}

impl Backends {
    pub(crate) fn new(
        kernel: &impl KernFs,
        tree: &Tree,
        locations: &[Location],
        claim_rules: Vec<ClaimRule>,
    ) -> Backends {
        let places = places(tree, locations);
        let systemd = Systemd::new(kernel, &places);
        Backends {
            places,
            unattached: NodeMap::default(),
            systemd,
            members: Members::default(),
            rest: Rest::default(),
            finds: Finds::default(),
            found: BTreeSet::new(),
            has_moved: false,
            claim_rules: ClaimRules::new(claim_rules),
            root: None,
            inventory: CpuInventory::default(),
            above: AncestorBounds::default(),
            search: Search::default(),
            unmoved: Unmoved::default(),
            backlog: Backlog::default(),
        }
    }

    pub(crate) fn locations(&self, tree: &Tree) -> Vec<Location> {
        self.locations_of(tree).cloned().collect()
    }

    /// Locations of the policy's nodes.
    pub(super) fn locations_of(&self, tree: &Tree) -> impl Iterator<Item = &Location> {
        tree.policy_nodes().map(|node| self.location(node.id()))
    }

    pub(super) fn location(&self, id: NodeId) -> &Location {
        self.places.get(id).map_or(&Location::Nowhere, |place| &place.location)
    }

    pub(super) fn cgroup(&self, id: NodeId) -> Option<&Cgroup> {
        self.places.get(id)?.cgroup.as_ref()
    }

    pub(crate) fn has_direct(&self) -> bool {
        self.places.values().any(|place| place.location.is_made())
    }

    pub(crate) fn owners(&self) -> &'static str {
        let has_units = self.places.values().any(|place| place.location.is_of_systemd());
        match (self.has_direct(), has_units) {
            (true, true) => "direct and systemd",
            (false, true) => "systemd",
            (_, false) => "direct",
        }
    }

    pub(crate) fn is_governed(&self, id: NodeId) -> bool {
        self.location(id).is_governed()
    }

    /// True for a unit, whose values systemd writes.
    pub(crate) fn is_unit(&self, id: NodeId) -> bool {
        self.systemd.owns(id)
    }

    pub(crate) fn is_present(&self, id: NodeId) -> bool {
        self.cgroup(id).is_some()
    }

    pub(crate) fn has<K>(&self, host: &HostAccess<K>, id: NodeId, knob: Knob) -> bool {
        self.places.get(id).is_some_and(|place| place.has(&host.layout, knob))
    }

    pub(crate) fn missing_files(&self, id: NodeId) -> &[KernError] {
        self.cgroup(id).map_or(&[], |cgroup| cgroup.missing())
    }

    /// Subset of `knobs` whose trees do not contain its open cgroup.
    pub(crate) fn lacks<K>(&self, host: &HostAccess<K>, id: NodeId, knobs: &[Knob]) -> Vec<Facet> {
        let Some(place) = self.places.get(id) else { return Vec::new() };
        let facets =
            knobs.iter().filter(|knob| place.cgroup.is_some() && !place.has(&host.layout, **knob));
        let facets = facets.map(|knob| row_of(*knob).facet);
        facets.filter(|facet| host.layout.tree(*facet).is_some()).collect()
    }

    /// Directory of its cgroup in the tree with the files of `facet`; `None` if it has none, or is not found
    /// yet.
    pub(crate) fn dir_of<K>(
        &self,
        host: &HostAccess<K>,
        node: Node<'_>,
        facet: Facet,
    ) -> Option<PathBuf> {
        let mut dir = PathBuf::new();
        self.dir_into(host, node, facet, &mut dir).then_some(dir)
    }

    /// Like [`Backends::dir_of`], but writes into a reusable buffer, for callers with a thousand nodes; false
    /// if there is none.
    pub(crate) fn dir_into<K>(
        &self,
        host: &HostAccess<K>,
        node: Node<'_>,
        facet: Facet,
        dir: &mut PathBuf,
    ) -> bool {
        let Some(index) = host.layout.tree(facet) else { return false };
        let trees = &host.layout.trees[index];
        let (above, below) = match self.location(node.id()) {
            Location::Direct => (&trees.root, Some(node.name())),
            Location::Made(below) => (&trees.root, Some(below.as_str())),
            Location::InPlace(path) | Location::AboveInPlace(path) => {
                (&trees.mount, Some(path.as_str()))
            }
            Location::Slice(_) | Location::Unit(_) | Location::Above(_) => {
                (&trees.mount, self.systemd.cgroup(node.id()))
            }
            Location::Members(_) | Location::Nowhere | Location::Unknown(_) => return false,
        };
        dir.clone_from(above);
        if let Some(below) = below.map(|below| below.trim_start_matches('/')) {
            // Names of the agent's own cgroups are plain; those of others may be escaped.
            if above == &trees.mount && below.contains('\\') {
                dir.push(path_of(below))
            } else {
                dir.push(below)
            }
        }
        below.is_some()
    }

    /// Directories of its cgroup, one in each tree; empty if it has none, or is not found yet.
    pub(super) fn dirs_of<K>(&self, host: &HostAccess<K>, node: Node<'_>) -> Vec<PathBuf> {
        let facets = host.layout.trees.iter().filter_map(|tree| tree.facets.first());
        facets.filter_map(|facet| self.dir_of(host, node, *facet)).collect()
    }

    /// Cgroup of a node that the agent did not make, below the mount; the name of its unit while it is not
    /// found.
    pub(crate) fn home_outside(&self, id: NodeId) -> Option<&str> {
        let in_place = self.location(id).in_place();
        in_place.or_else(|| self.systemd.cgroup(id)).or_else(|| self.systemd.name(id))
    }

    /// Name of its unit, whether that runs or not.
    pub(crate) fn unit_name(&self, id: NodeId) -> Option<&str> {
        self.systemd.name(id)
    }

    /// Present or last cgroup of its unit, below the mount.
    pub(crate) fn last_home(&self, id: NodeId) -> Option<&str> {
        self.systemd.name(id).and_then(|name| self.systemd.home_of(name))
    }

    /// True if others must protect the parent of this node's cgroup. The agent's own groups, and the slice of
    /// all tenants, are protected by the nodes below them.
    pub(crate) fn needs_protection_above(&self, node: Node<'_>) -> bool {
        match self.location(node.id()) {
            Location::Direct => node.group().is_none(),
            Location::Made(_) => true,
            Location::Slice(_) | Location::Above(_) | Location::AboveInPlace(_) => false,
            // A missing cgroup has no parent.
            Location::InPlace(_) => self.is_present(node.id()),
            Location::Unit(_) | Location::Members(_) | Location::Nowhere | Location::Unknown(_) => {
                true
            }
        }
    }

    pub(crate) fn begin_tick(&mut self, now: Duration) {
        self.systemd.time = now;
    }

    /// Closes every cgroup, so that the next tick makes and opens those needed by then.
    pub(crate) fn close_all(&mut self, kernel: &mut impl KernFs) {
        self.places.values_mut().for_each(|place| place.close(kernel));
        self.backlog = Backlog::default();
        self.backlog.pass = Some(0);
        self.restart_search();
    }

    pub(crate) fn restart_units(&mut self, kernel: &impl KernFs) {
        self.members.miss_answers();
        self.systemd.restart(kernel, &self.places);
    }

    /// Hands the connection to systemd to the final restoration.
    pub(crate) fn take_manager(&mut self) -> Option<Box<dyn UnitManager>> {
        self.members.miss_answers();
        self.systemd.take_manager()
    }

    /// Takes another tree. Nodes that stay keep their cgroups.
    pub(crate) fn take_tree(
        &mut self,
        kernel: &mut impl KernFs,
        tree: &Tree,
        locations: &[Location],
        claim_rules: Vec<ClaimRule>,
    ) {
        self.take_nodes(kernel, tree, locations, claim_rules);
        self.members.discovery.restart();
        self.rest.restart();
        self.restart_search();
        self.backlog.has_unjoined = false;
    }

    /// Like [`Backends::take_tree`] if only the finds of templates changed: the state of processes stays.
    pub(crate) fn take_nodes(
        &mut self,
        kernel: &mut impl KernFs,
        tree: &Tree,
        locations: &[Location],
        claim_rules: Vec<ClaimRule>,
    ) {
        self.replace(kernel, tree, locations, &[]);
        self.backlog.pass = Some(0);
        self.unattached = NodeMap::default();
        let before = std::mem::replace(&mut self.claim_rules, ClaimRules::new(claim_rules));
        self.claim_rules.finds_users = before.finds_users;
        self.claim_rules.known_users = before.known_users;
        self.search.follow(tree);
        self.unmoved.follow(tree);
    }

    fn restart_search(&mut self) {
        self.search.restart();
        self.unmoved.clear();
    }

    fn replace(
        &mut self,
        kernel: &mut impl KernFs,
        tree: &Tree,
        locations: &[Location],
        handed: &[(NodeId, NodeId)],
    ) {
        let mut old = std::mem::replace(&mut self.places, places(tree, locations));
        for (tenant, member) in handed {
            if let Some(place) = old.remove(*tenant) {
                old.insert(*member, place);
            }
        }
        for (id, mut place) in old {
            match self.places.get_mut(id) {
                Some(new) => {
                    // The sources of the members may be different in the new policy.
                    std::mem::swap(&mut place.location, &mut new.location);
                    *new = place;
                }
                None => place.close(kernel),
            }
        }
        self.systemd.replace(kernel, &self.places, handed);
        self.rest.claimed = None;
        self.backlog.forget_actions();
        // Jobs come and go with names of their own.
        let in_place: BTreeSet<&str> =
            self.places.values().filter_map(|place| place.location.in_place()).collect();
        self.found.retain(|path| in_place.contains(path.as_str()));
    }

    /// The cgroup into which processes of this node are moved.
    pub(crate) fn own<'t>(&self, node: Node<'t>) -> Option<Node<'t>> {
        node.cgroups().find(|own| self.location(own.id()).is_below_root())
    }

    /// Known members of tenants at these locations. Ancestors of others in the tree `before` stay.
    pub(crate) fn members_at(
        &self,
        locations: &[Location],
        before: Option<&Tree>,
    ) -> Vec<(usize, String)> {
        let mut members = self.members.of(locations);
        if let Some((tenant, sources)) = rest_of(locations) {
            let claimed = self.claimed(locations, &members, before);
            let parts = self.rest.parts(&claimed).into_iter();
            members.extend(parts.map(|path| (tenant, sources.part_at(path).to_string())));
            members.sort_by_key(|(tenant, _)| *tenant);
        }
        members
    }

    /// True if this is a part of the rest that was not attached to it.
    pub(crate) fn is_rest(&self, node: Node<'_>) -> bool {
        let is_it = |other: Node<'_>| other.at() == node.at();
        let mut members = node.tree().members();
        node.tenant().is_some_and(|tenant| self.location(tenant.id()).is_rest())
            && members.all(|(other, member)| !is_it(other) || !member.is_attached)
    }

    pub(super) fn claimed(
        &self,
        locations: &[Location],
        members: &[(usize, String)],
        before: Option<&Tree>,
    ) -> Claimed {
        rest::claimed(locations, members, |unit| self.systemd.home_of(unit), before)
    }

    /// Present or last cgroup of a node outside the root, below the mount.
    pub(crate) fn cgroup_of(&self, location: &Location) -> Option<String> {
        let found = match location.in_place() {
            Some(path) => self.found.get(path).map(String::as_str),
            None => self.systemd.home_of(location.unit()?),
        };
        found.map(str::to_string)
    }

    pub(super) fn note_found(&mut self, path: String) {
        self.has_moved |= self.found.insert(path);
    }

    /// True if members came or went, or cgroups were found, since the last call.
    pub(crate) fn has_grown(&mut self) -> bool {
        if self.systemd.has_moved {
            self.members.note_homes(|unit| self.systemd.home_of(unit));
        }
        let has_members = std::mem::take(&mut self.members.has_changed);
        let has_moved = std::mem::take(&mut self.has_moved);
        std::mem::take(&mut self.systemd.has_moved) || has_members || has_moved
    }

    /// Returns the tree with the known members and the ancestors of found cgroups if it differs from `tree`,
    /// with the tenants whose cgroup becomes a member. `locations` become those of the nodes. To be taken with
    /// [`Backends::take_grown`].
    pub(crate) fn grown<K: KernFs>(
        &self,
        host: &HostAccess<K>,
        tree: &Tree,
        locations: &[Location],
    ) -> Option<(Tree, Vec<(NodeId, NodeId)>)> {
        let cgroup_of = |location: &Location| self.cgroup_of(location);
        let on = (&host.layout, host.governs_above);
        let placed = (locations, self.members_at(locations, Some(tree)));
        let grown = ancestry::tree(on, tree.shared_nodes(), placed, cgroup_of, Some(tree));
        if grown.is_placed_as(tree) {
            return None;
        }
        let nodes = (0..tree.nodes().len()).map(Some);
        let kept: Vec<_> = nodes.chain(ancestry::kept(tree, &grown)).collect();
        let grown = grown.after(tree, &kept);
        let handed = |tenant: Node<'_>| {
            let member = self.location(tenant.id()).as_member(tenant)?;
            Some((tenant.id(), member.id()))
        };
        let handed = grown.policy_nodes().filter_map(handed).collect();
        Some((grown, handed))
    }

    pub(crate) fn take_grown(
        &mut self,
        kernel: &mut impl KernFs,
        tree: &Tree,
        locations: &[Location],
        handed: &[(NodeId, NodeId)],
    ) {
        let nr_nodes = tree.nodes().len();
        self.replace(kernel, tree, locations, handed);
        self.unattached.retain(|id| tree.position(id).is_some_and(|at| at < nr_nodes));
        let is_missing = |place: &Place| place.location.is_below_root() && place.cgroup.is_none();
        let mut later = tree.all().skip(nr_nodes).filter_map(|node| self.places.get(node.id()));
        let is_new = later.any(is_missing);
        let next = self.backlog.pass.or(is_new.then_some(nr_nodes));
        self.backlog.pass = next.map(|next| next.min(nr_nodes));
    }

    pub(crate) fn claim_findings(&self) -> impl Iterator<Item = &Finding> {
        self.search.findings()
    }

    /// Processes outside of the tenants that claim them, in the last search.
    pub(crate) fn moves(&self, tree: &Tree) -> Vec<MoveStatus> {
        self.search.moves(tree)
    }

    pub(crate) fn nr_moves(&self) -> u64 {
        self.search.nr_moves
    }

    /// The most urgent kind of work that the last tick left over.
    pub(crate) fn next_work(&self) -> Option<Work> {
        self.backlog.next(self.search.owed())
    }

    /// Notes whether the width files of some tenants are still to be written.
    pub(crate) fn note_untold(&mut self, has_untold: bool) {
        self.backlog.has_untold = has_untold;
    }

    /// Parts of the process list not yet fully searched since the agent started, or changed its rules or mode.
    pub(crate) fn nr_owed_searches(&self) -> usize {
        self.search.owed()
    }

    pub(crate) fn has_root(&self) -> bool {
        self.root.is_some()
    }

    pub(crate) fn hold_root(&mut self, root: DirId) {
        self.root = Some(root);
    }

    /// Releases the root, and with it its lock.
    pub(crate) fn close_root(&mut self, kernel: &mut impl KernFs) {
        if let Some(root) = self.root.take() {
            kernel.close_dir(root);
        }
    }

    pub(crate) fn claim_rules(&self) -> &[ClaimRule] {
        self.claim_rules.all()
    }
}

fn places(tree: &Tree, locations: &[Location]) -> NodeMap<Place> {
    let nodes = locations.iter().cloned().map(Place::new);
    let has_slices = ancestry::has_slices(locations);
    // The slice of all tenants is started with them.
    let location = |above: &Ancestor| {
        if !above.is_unit {
            Location::AboveInPlace(above.cgroup.clone())
        } else if has_slices && above.name == TOP {
            Location::Slice(above.name.clone())
        } else {
            Location::Above(above.name.clone())
        }
    };
    let members = tree.members().map(|(_, member)| match &locations[member.tenant] {
        Location::Members(sources) => Place::new(sources.location_of(&member.at)),
        _ => Place::new(Location::Nowhere),
    });
    let ancestors = tree.ancestors().map(|(_, above)| Place::new(location(above)));
    tree.all().map(Node::id).zip(nodes.chain(members).chain(ancestors)).collect()
}
