//! Where the cgroups of all nodes are, behind one set of verbs.
//!
//! **Terms.** A *place* is the cgroup of one node, by the node's number in the tree. Its *location* says who owns it:
//! the agent itself (direct), or systemd. The verbs are the same for both: [`Backends::attach`] opens (and makes)
//! what is missing, [`Backends::sample`] and [`Backends::observe`] read, [`Backends::apply`] writes or asks,
//! `release` puts back. What an order to systemd came to is told in a later tick ([`Backends::arrivals`]).
//!
//! **Rules.** A cgroup that went is let go of, said, and told to the control loop as a [`Loss`]; at the next tick it
//! is opened anew, and made where it is missing.

use std::path::PathBuf;

use super::access::HostAccess;
use super::bounds;
use super::cpusets::{self, CpuInventory};
use super::direct;
use super::location::Location;
use super::place::{Place, Sampled};
use super::root;
use super::systemd::Systemd;
use crate::control::bounds::AncestorBounds;
use crate::control::drift::{Drift, Observation};
use crate::control::finding::{Code, Finding};
use crate::control::plan::{Action, Knob, Value};
use crate::control::state::Outcome;
use crate::control::step::Sampling;
use crate::control::tree::Tree;
use crate::dop::Topology;
use crate::host::cgroup::Facet;
use crate::host::journal::{Entry, JournalError};
use crate::host::kernfs::{DirId, KernFs};
use crate::host::process::ClaimRule;
use crate::host::systemd::{Property, UnitManager};
use crate::units::{Bytes, Limit};

/// A node whose cgroup went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::daemon) struct Loss {
    pub(in crate::daemon) number: usize,
    /// Whether what another writer set there outlives the cgroup: systemd sets it again.
    pub(in crate::daemon) keeps_left: bool,
}

/// What happened to the places while a verb was carried out.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Events {
    pub(in crate::daemon) findings: Vec<Finding>,
    pub(in crate::daemon) losses: Vec<Loss>,
    pub(in crate::daemon) outcomes: Vec<Outcome>,
}

/// The cgroups of all nodes.
#[derive(Debug)]
pub(in crate::daemon) struct Backends {
    pub(super) places: Vec<Place>,
    pub(super) systemd: Systemd,
    pub(super) claim_rules: Vec<ClaimRule>,
    /// The root of the direct ones, while it is taken.
    pub(super) root: Option<DirId>,
    pub(super) inventory: CpuInventory,
    /// What was said last of processes that are claimed by owner and stay where they are.
    stays: Vec<Finding>,
    /// The limits above the direct ones, as they were when they were read last.
    above: AncestorBounds,
    /// With more records of moved processes than this, those that ended are dropped.
    forget_at: usize,
}

impl Backends {
    /// The places of `tree`; nothing is opened yet. `locations` are those of the policy's nodes.
    pub(in crate::daemon) fn new(
        kernel: &impl KernFs,
        tree: &Tree,
        locations: &[Location],
        claim_rules: Vec<ClaimRule>,
    ) -> Backends {
        let places = places(tree, locations);
        let systemd = Systemd::new(kernel, &places);
        Backends {
            places,
            systemd,
            claim_rules,
            root: None,
            inventory: CpuInventory::default(),
            above: AncestorBounds::default(),
            forget_at: 0,
            stays: Vec::new(),
        }
    }

    // --- what is known ---

    /// The locations of the policy's nodes.
    pub(in crate::daemon) fn locations(&self, tree: &Tree) -> Vec<Location> {
        let places = &self.places[..tree.nodes().len()];
        places.iter().map(|place| place.location.clone()).collect()
    }

    /// Whether any cgroup is made by the agent.
    pub(in crate::daemon) fn has_direct(&self) -> bool {
        self.places.iter().any(|place| place.location == Location::Direct)
    }

    /// Who owns the cgroups, for a person.
    pub(in crate::daemon) fn owners(&self) -> &'static str {
        let has_units = self.places.iter().any(|place| place.location.unit().is_some());
        match (self.has_direct(), has_units) {
            (true, true) => "direct and systemd",
            (false, true) => "systemd",
            (_, false) => "direct",
        }
    }

    /// Whether any cgroup is steered for this node.
    pub(in crate::daemon) fn is_governed(&self, number: usize) -> bool {
        self.places[number].location.is_governed()
    }

    /// Whether its cgroup is open.
    pub(in crate::daemon) fn is_present(&self, number: usize) -> bool {
        self.places[number].cgroup.is_some()
    }

    /// Whether it is in the tree that holds the files of `knob`.
    pub(in crate::daemon) fn has<K>(
        &self,
        host: &HostAccess<K>,
        number: usize,
        knob: Knob,
    ) -> bool {
        self.places[number].has(&host.layout, knob)
    }

    /// Files that its cgroup should have and has not; empty where it is not open.
    pub(in crate::daemon) fn missing_files(
        &self,
        number: usize,
    ) -> &[crate::host::kernfs::KernError] {
        self.places[number].cgroup.as_ref().map_or(&[], |cgroup| cgroup.missing())
    }

    /// The directory of its cgroup in the tree that has the files of `facet`; `None` where it has none, or where it
    /// is not found yet.
    pub(in crate::daemon) fn dir_of<K>(
        &self,
        host: &HostAccess<K>,
        tree: &Tree,
        number: usize,
        facet: Facet,
    ) -> Option<PathBuf> {
        let trees = &host.layout.trees[host.layout.tree(facet)?];
        match &self.places[number].location {
            Location::Direct => Some(trees.root.join(tree.name(number))),
            Location::Slice(_) | Location::Unit(_) => {
                Some(trees.dir_of(self.systemd.cgroup(number)?))
            }
            Location::Nowhere | Location::Unknown(_) => None,
        }
    }

    /// Where a node lives that is a unit: its cgroup, or its name while that is not found.
    pub(in crate::daemon) fn unit_home<K>(
        &self,
        host: &HostAccess<K>,
        number: usize,
    ) -> Option<PathBuf> {
        let name = self.systemd.name(number)?;
        let cgroup = self.systemd.cgroup(number).map(|cgroup| host.layout.trees[0].dir_of(cgroup));
        Some(cgroup.unwrap_or_else(|| PathBuf::from(name)))
    }

    /// Whether the parent of this node's cgroup has to be protected by another than the agent: groups of ours are
    /// protected by what is below them, and so is the slice of all tenants.
    pub(in crate::daemon) fn needs_protection_above(&self, tree: &Tree, number: usize) -> bool {
        match self.places[number].location {
            Location::Direct => tree.nodes()[number].parent.is_none(),
            Location::Slice(_) => false,
            Location::Unit(_) | Location::Nowhere | Location::Unknown(_) => true,
        }
    }

    // --- attach ---

    /// Opens the cgroups of all nodes, at most `nr_max` of those that are not open; makes those that are missing,
    /// where the agent may.
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
            Ok(taken) => {
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

    fn lose_if_gone<K: KernFs>(
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
    fn lose<K: KernFs>(
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

    fn give_up<K: KernFs>(&mut self, host: &mut HostAccess<K>, number: usize) -> Loss {
        self.places[number].close(&mut host.kernel);
        self.systemd.lose(number);
        Loss { number, keeps_left: self.systemd.owns(number) }
    }

    // --- sample and observe ---

    /// Moves the processes that the policy gives to tenants into their cgroups; an observer moves none.
    pub(in crate::daemon) fn claim<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        tree: &Tree,
        is_enforcing: bool,
    ) -> Vec<Finding> {
        let rules = &self.claim_rules;
        let forget_at = &mut self.forget_at;
        let claimed =
            direct::claim(host, &self.places, tree.nodes(), rules, is_enforcing, forget_at);
        if let Some(stays) = claimed.stays {
            self.stays = stays;
        }
        claimed.findings
    }

    /// Reads the counters of one tenant; `None` where its cgroup is not open, or went.
    pub(in crate::daemon) fn sample<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        tree: &Tree,
        number: usize,
        sampling: Sampling,
        events: &mut Events,
    ) -> Option<Sampled> {
        match self.places[number].sample(host, sampling)? {
            Ok(mut sampled) => {
                let name = tree.name(number);
                let gaps = sampled.gaps.drain(..);
                events
                    .findings
                    .extend(gaps.map(|gap| Finding::of(name, Code::Unreadable, gap.to_string())));
                Some(sampled)
            }
            Err(error) => {
                let why = format!("it went away: {error}");
                self.lose(host, tree, number, &why, events);
                None
            }
        }
    }

    /// Whether the files of a node are read in every tick: they have another writer.
    pub(in crate::daemon) fn is_watched(&self, number: usize) -> bool {
        self.systemd.owns(number)
    }

    /// Reads what the files of one node hold; `known` is what they held when they were read last.
    pub(in crate::daemon) fn observe<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        tree: &Tree,
        number: usize,
        known: &[(Knob, Value)],
        events: &mut Events,
    ) -> Option<Vec<Observation>> {
        let pins = host.pins;
        let is_ancestor = number >= tree.nodes().len();
        let is_asked = |knob: &Knob| match is_ancestor {
            true => *knob == Knob::MemoryLow,
            false => pins || *knob != Knob::Cpus,
        };
        let knobs = Knob::ALL.into_iter().filter(is_asked);
        let mut observed = self.places[number].observe(host, knobs)?;
        let gaps = std::mem::take(&mut observed.gaps);
        let name = tree.name(number);
        events
            .findings
            .extend(gaps.iter().map(|gap| Finding::of(name, Code::Unreadable, gap.to_string())));
        if is_ancestor && !observed.gone.is_empty() {
            events.losses.push(self.give_up(host, number));
            return None;
        }
        // A file that never was there was said when the cgroup was opened.
        let was_there = |gone: &&Knob| known.iter().any(|(knob, _)| knob == *gone);
        if let Some(gone) = observed.gone.iter().find(was_there) {
            let why = format!("its {} went away", host.file(*gone));
            self.lose(host, tree, number, &why, events);
            return None;
        }
        let (systemd, journal) = (&self.systemd, &host.journal);
        let is_ours = |knob: Knob, value: &Value| {
            systemd.ordered(number, knob, value)
                || systemd.is_fallback(journal, number, knob, value)
        };
        Some(observed.into_observations(is_ours))
    }

    /// What came of the values that systemd was asked for in earlier ticks.
    pub(in crate::daemon) fn arrivals<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        number: usize,
        tick: u64,
        observed: &[Observation],
    ) -> Vec<Outcome> {
        self.systemd.arrivals(host, &self.places[number], number, tick, observed)
    }

    /// How much of an ancestor was protected before the agent; `now` is what its file holds.
    pub(in crate::daemon) fn protected_before<K>(
        &self,
        host: &HostAccess<K>,
        number: usize,
        now: Option<&Value>,
    ) -> Option<Limit<Bytes>> {
        self.systemd.protected_before(host, number, now)
    }

    /// The machine's CPUs, where they are not those that are known.
    ///
    /// # Errors
    /// They cannot be read.
    pub(in crate::daemon) fn topology<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
    ) -> Result<Option<Topology>, Finding> {
        let changed = self.inventory.refresh(host).map_err(|error| {
            Finding::of_host(Code::Unreadable, format!("no CPU is pinned: {error}"))
        })?;
        if changed.is_some() {
            // What CPUs came back to above a tenant is seen to anew.
            self.places.iter_mut().for_each(|place| place.has_cpus = false);
        }
        Ok(changed)
    }

    /// The limits above the tenants, read again where `refreshes`; none where some of them are units, which have
    /// each their own.
    pub(in crate::daemon) fn bounds_above<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        refreshes: bool,
    ) -> AncestorBounds {
        let has_units = self.places.iter().any(|place| place.location.unit().is_some());
        if refreshes && !has_units {
            self.above = bounds::read(host);
        }
        if has_units { AncestorBounds::default() } else { self.above }
    }

    // --- apply ---

    /// Takes the processes of tenants with CPUs of their own along into their cpusets, where those are apart.
    pub(in crate::daemon) fn join_cpusets<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        tree: &Tree,
        is_pinned: impl Fn(usize) -> bool,
    ) -> Vec<Finding> {
        if !cpusets::needs_joining(host) {
            return Vec::new();
        }
        let mut findings = Vec::new();
        for (number, node) in tree.nodes().iter().enumerate() {
            if is_pinned(number)
                && let Err(error) = cpusets::join(host, &mut self.places[number], &node.path)
                && !error.is_gone()
            {
                findings.push(Finding::of(&node.path, Code::NotWritten, error.to_string()));
            }
        }
        findings
    }

    /// Writes the values of `actions`, or asks systemd for them; a failed one stops nothing else.
    pub(in crate::daemon) fn apply<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        tree: &Tree,
        tick: u64,
        actions: &[Action],
    ) -> Events {
        let mut events = Events {
            outcomes: self.systemd.order(host, &self.places, tick, actions),
            ..Events::default()
        };
        for action in actions {
            if self.systemd.owns(action.node) {
                continue;
            }
            let place = &self.places[action.node];
            let name = tree.name(action.node);
            let Some(outcome) = direct::apply(host, place, action, name) else { continue };
            let is_gone = outcome.as_ref().is_err_and(|error| error.is_gone());
            let outcome = outcome.map_err(|error| error.refusal());
            events.outcomes.push((action.clone(), outcome));
            if is_gone {
                self.lose_if_gone(host, tree, action.node, &mut events);
            }
        }
        events
    }

    /// Records that a value is left to the writer that set it.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub(in crate::daemon) fn leave<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        drift: &Drift,
    ) -> Result<(), JournalError> {
        if let Some(unit) = self.systemd.name(drift.node) {
            let (unit, property) = (unit.to_string(), Property::of(drift.knob));
            let ours = self.systemd.last_order(drift.node, drift.knob).map(Box::new);
            return host.journal.record(Entry::UnitTheirs { unit, property, ours });
        }
        let Some(cgroup) = &self.places[drift.node].cgroup else { return Ok(()) };
        let Ok(dir) = cgroup.knob_dir(&host.layout, drift.knob) else { return Ok(()) };
        let Ok(inode) = host.kernel.inode(dir) else { return Ok(()) };
        let (path, file) = (host.kernel.dir_path(dir), host.file(drift.knob).into());
        host.journal.record(Entry::Theirs { path, inode, file })
    }

    // --- over reloads and changes of mode ---

    /// Lets go of every cgroup, so that the next tick makes and opens what is needed by then.
    pub(in crate::daemon) fn close_all(&mut self, kernel: &mut impl KernFs) {
        self.places.iter_mut().for_each(|place| place.close(kernel));
    }

    /// Forgets all that is known of units.
    pub(in crate::daemon) fn restart_units(&mut self, kernel: &impl KernFs) {
        self.systemd = Systemd::new(kernel, &self.places);
    }

    /// Hands the connection to systemd to what puts everything back.
    pub(in crate::daemon) fn take_manager(&mut self) -> Option<Box<dyn UnitManager>> {
        self.systemd.take_manager()
    }

    /// Takes another tree: the node `n` is `kept[n]` from now on, and keeps its cgroup.
    pub(in crate::daemon) fn take_tree(
        &mut self,
        kernel: &mut impl KernFs,
        tree: &Tree,
        locations: &[Location],
        claim_rules: Vec<ClaimRule>,
        kept: &[Option<usize>],
    ) {
        let old = std::mem::replace(&mut self.places, places(tree, locations));
        for (mut place, new) in old.into_iter().zip(kept) {
            match new {
                Some(new) => self.places[*new] = place,
                None => place.close(kernel),
            }
        }
        self.systemd.replace(kernel, &self.places, kept);
        self.claim_rules = claim_rules;
        self.stays.clear();
    }

    /// What is said of processes that are claimed by owner and stay where they are.
    pub(in crate::daemon) fn stays(&self) -> &[Finding] {
        &self.stays
    }

    // --- the root ---

    /// Whether the root is taken.
    pub(in crate::daemon) fn has_root(&self) -> bool {
        self.root.is_some()
    }

    /// Notes that the root is taken.
    pub(in crate::daemon) fn hold_root(&mut self, root: DirId) {
        self.root = Some(root);
    }

    /// Lets go of the root, and with it of its lock.
    pub(in crate::daemon) fn close_root(&mut self, kernel: &mut impl KernFs) {
        if let Some(root) = self.root.take() {
            kernel.close_dir(root);
        }
    }

    /// The rules by which processes are moved.
    pub(in crate::daemon) fn claim_rules(&self) -> &[ClaimRule] {
        &self.claim_rules
    }
}

fn places(tree: &Tree, locations: &[Location]) -> Vec<Place> {
    let nodes = locations.iter().cloned().map(Place::new);
    // The ancestors are slices.
    let above = tree.ancestors().map(|(_, above)| Place::new(Location::Slice(above.name.clone())));
    nodes.chain(above).collect()
}
