//! Restoration in a reload: cgroups of removed nodes, values that the policy no longer names, and processes of
//! changed claims.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::access::HostAccess;
use super::backends::Backends;
use crate::recovery::all_cpus::unconfine;
use crate::recovery::deadline::Deadline;
use crate::recovery::leftover::{self, Keeper};
use crate::recovery::processes::{nr_nested, processes_in};
use crate::recovery::residents::{REST_CGROUP, Resident};
use crate::recovery::restore::Extent;
use crate::recovery::restored::Restored;
use crate::recovery::{restore, unit_restore};
use tenantd_control::share::target;
use tenantd_control::tick::control_loop::ControlLoop;
use tenantd_control::tree::{Node, Tree, TreeNode};
use tenantd_control::words::knob::{Action, Knob, Purpose, Value};
use tenantd_core::node::NodeId;
use tenantd_host::cgroup::disk_limits::without_disk;
use tenantd_host::claiming::ClaimRule;
use tenantd_host::enforce::{EnforceError, cpus_of, with_causes};
use tenantd_host::journal::Entry;
use tenantd_host::kernfs::KernFs;
use tenantd_host::knobs::row_of;
use tenantd_host::systemd::Property;
use tenantd_policy::model::CpusPolicy;

/// A reload, which restores the values that the new policy removes.
#[derive(Debug)]
pub(crate) struct Release<'a, K> {
    pub(crate) host: &'a mut HostAccess<K>,
    pub(crate) backends: &'a mut Backends,
    pub(crate) keeper: &'a mut Keeper,
    pub(crate) old: Tree,
    pub(crate) new: &'a Tree,
    /// For each old position, true if the node is placed on CPUs.
    pub(crate) is_pinned: Vec<bool>,
    pub(crate) failures: Vec<String>,
}

impl<'a, K: KernFs> Release<'a, K> {
    /// The change from the tree of `control` to `new`.
    pub(crate) fn new(
        (host, backends, keeper): (&'a mut HostAccess<K>, &'a mut Backends, &'a mut Keeper),
        control: &ControlLoop,
        new: &'a Tree,
    ) -> Release<'a, K> {
        let (old, failures) = (control.tree().clone(), Vec::new());
        let widths = control.states().iter().map(|state| state.width.cpus().is_some());
        Release { host, backends, keeper, old, new, is_pinned: widths.collect(), failures }
    }

    /// Knobs of remaining nodes that the old policy named and the new one does not.
    pub(crate) fn unnamed(&self) -> Vec<(NodeId, Knob)> {
        let has_exclusive = has_exclusive(self.new.nodes());
        let (was_promised, is_promised) = (promised(&self.old), promised(self.new));
        let is_share_gone = self.old.weighs_disks() && !self.new.weighs_disks();
        let mut unnamed = Vec::new();
        for (node, old) in self.old.policy_nodes().zip(self.old.nodes()) {
            let Some(kept) = self.new.find(node.id()) else { continue };
            let Some(new) = kept.policy() else { continue };
            let is_free = new.cpus == CpusPolicy::Shared && !has_exclusive;
            let is_unnamed = |knob: &Knob| match knob.purpose() {
                Purpose::Limit => old.limits(*knob) && !new.limits(*knob),
                Purpose::Placement => is_free && self.is_pinned[node.at()],
                Purpose::Guarantee => was_promised[node.at()] && !is_promised[kept.at()],
                Purpose::Share => is_share_gone,
                Purpose::Weight | Purpose::Protection | Purpose::Bound => false,
            };
            let mut knobs: Vec<Knob> = Knob::ALL.into_iter().filter(is_unnamed).collect();
            // Memory stays protected while the kernel reclaims for a limit that comes back.
            knobs.sort_by_key(|knob| knob.is_protection());
            for knob in knobs {
                unnamed.extend(node.cgroups().map(|cgroup| (cgroup.id(), knob)));
            }
        }
        if is_share_gone {
            let stays = |node: &Node<'_>| self.new.find(node.id()).is_some();
            let above = self.old.ancestors().map(|(node, _)| node).filter(stays);
            let shares = || Knob::ALL.into_iter().filter(|knob| knob.purpose() == Purpose::Share);
            unnamed.extend(above.flat_map(|node| shares().map(move |knob| (node.id(), knob))));
        }
        unnamed
    }

    /// Removes the cgroups that the agent made for removed nodes, restores cgroups in place, and moves the
    /// processes of changed claims.
    pub(crate) fn let_go_of_cgroups(&mut self, claim_rules: &[ClaimRule]) {
        let location = |node: &Node<'_>| self.backends.location(node.id());
        let ours = self.gone().filter(|node| location(node).is_below_root());
        let dirs: HashSet<PathBuf> = ours.flat_map(|node| self.dirs_of(node)).collect();
        let in_place = self.gone().filter(|node| location(node).in_place().is_some());
        let values: BTreeSet<(PathBuf, Cow<'static, str>)> =
            in_place.flat_map(|node| self.files_of(node, self.knobs_of(node))).collect();
        let changed = self.changed_claims(claim_rules);
        let own = changed.into_iter().filter_map(|node| self.backends.own(node));
        let unclaimed: Vec<PathBuf> = own.flat_map(|node| self.dirs_of(node)).collect();
        if dirs.is_empty() && values.is_empty() && unclaimed.is_empty() {
            return;
        }
        for (id, place) in self.backends.places.iter_mut() {
            if self.new.find(id).is_none() {
                place.close(&mut self.host.kernel);
            }
        }
        let is_below = |path: &Path| path.ancestors().any(|up| dirs.contains(up));
        let concerns = |entry: &Entry| match entry {
            Entry::Making { path } | Entry::Made { path, .. } | Entry::NotMade { path } => {
                is_below(path)
            }
            Entry::Held { path, file, .. } | Entry::Theirs { path, file, .. } => {
                is_below(path) || values.contains(&(path.clone(), without_disk(file).into()))
            }
            Entry::Moved { to, .. } => {
                to.iter().any(|to| is_below(to) || unclaimed.iter().any(|dir| dir == to))
            }
            Entry::UnitHeld(_)
            | Entry::UnitTheirs { .. }
            | Entry::Starting { .. }
            | Entry::Marking
            | Entry::Scored { .. }
            | Entry::DiskHeld(_)
            | Entry::Kept => false,
        };
        let restored = self.put_cgroups_back(concerns);
        leftover::report(&restored, self.keeper);
        self.forget(concerns, restored);
    }

    fn put_cgroups_back(&mut self, concerns: impl Fn(&Entry) -> bool) -> Restored {
        let entries = self.host.journal.entries().iter().filter(|entry| concerns(entry));
        let entries: Vec<Entry> = entries.cloned().collect();
        let made: Vec<&Path> = entries.iter().filter_map(made_path).collect();
        let proc = self.host.proc();
        let (mut restored, refused) =
            restore::put_contents_back(&mut self.host.kernel, proc, &entries);
        self.rehouse(&made, &mut restored);
        let refused = (refused, Extent::Part);
        restore::remove_cgroups(&mut self.host.kernel, proc, &entries, refused, &mut restored);
        restored
    }

    /// Moves processes out of cgroups that will be removed and whose ancestors take no process: to beside the
    /// tenants, never above the root.
    fn rehouse(&mut self, made: &[&Path], restored: &mut Restored) {
        if !self.host.layout.is_unified() {
            return;
        }
        for path in made.iter().rev() {
            if let Err(error) = self.rehouse_from(path, &mut restored.displaced)
                && !error.is_gone()
            {
                restored.failures.push(error.to_string());
            }
        }
    }

    fn rehouse_from(
        &mut self,
        path: &Path,
        displaced: &mut Vec<Resident>,
    ) -> Result<(), EnforceError> {
        let dir = self.host.kernel.open_dir(path)?;
        let pids = processes_in(&mut self.host.kernel, dir);
        self.host.kernel.close_dir(dir);
        let pids = pids?;
        // A cgroup that stays keeps its processes.
        if pids.is_empty() || nr_nested(&mut self.host.kernel, path)? > 0 {
            return Ok(());
        }
        let tree = &self.host.layout.trees[0];
        let (mount, rest) = (tree.mount.clone(), tree.root.join(REST_CGROUP));
        let proc = self.host.proc();
        let mut enforcer = self.host.enforcer();
        enforcer.make_all(&mount, &rest)?;
        let dir = enforcer.kernel.open_dir(&rest)?;
        let outcome = pids.into_iter().try_for_each(|pid| {
            displaced.extend(Resident::of(enforcer.kernel, proc, pid, path, &rest));
            enforcer.move_into(dir, pid)
        });
        enforcer.kernel.close_dir(dir);
        outcome
    }

    pub(crate) fn put_back_unnamed(&mut self, unnamed: &[(NodeId, Knob)]) {
        for (id, knob) in unnamed {
            self.backends.systemd.forget(*id, *knob);
            let location = self.backends.location(*id);
            if location.is_below_root() || location.in_place().is_some() {
                self.put_back_value(*id, *knob);
            }
        }
    }

    fn put_back_value(&mut self, id: NodeId, knob: Knob) {
        let Some(node) = self.old.find(id) else { return };
        let facet = row_of(knob).facet;
        let Some(dir) = self.backends.dir_of(self.host, node, facet) else { return };
        let path = node.name().to_string();
        let is_made = |entry: &Entry| made_path(entry) == Some(&*dir);
        if knob.purpose() == Purpose::Placement && self.host.journal.entries().iter().any(is_made) {
            // While the cgroup has processes its CPU list cannot be emptied: it is widened to confine none.
            if let Err(error) = self.widen(id, &dir) {
                self.failures.push(format!("{path}: {error}"));
            }
            return;
        }
        let values = self.files_of(node, [knob]);
        // Including the record that a value was left to another writer, so that it stays here too.
        let concerns = |entry: &Entry| match entry {
            Entry::Held { path, file, .. } | Entry::Theirs { path, file, .. } => {
                values.contains(&(path.clone(), without_disk(file).into()))
            }
            _ => false,
        };
        let entries = self.host.journal.entries().iter();
        let held: Vec<Entry> = entries.filter(|entry| concerns(entry)).cloned().collect();
        let proc = self.host.proc();
        let restored = restore::put_back(&mut self.host.kernel, proc, &held, Extent::Part);
        self.forget(concerns, restored);
    }

    /// Allows a cgroup all CPUs of its parent, including offline ones if the kernel takes those.
    fn widen(&mut self, node: NodeId, dir: &Path) -> Result<(), EnforceError> {
        let (Some(cgroup), Some(parent)) = (self.backends.cgroup(node), dir.parent()) else {
            return Ok(());
        };
        if self.host.layout.is_unified() {
            let dir = cgroup.knob_dir(&self.host.layout, Knob::Cpus)?;
            return Ok(unconfine(&mut self.host.kernel, dir)?);
        }
        let above = self.host.kernel.open_dir(parent)?;
        let cpus = cpus_of(&mut self.host.kernel, above, self.host.layout.effective_cpus());
        self.host.kernel.close_dir(above);
        let Some(cpus) = cpus? else { return Ok(()) };
        let action = Action {
            node,
            knob: Knob::Cpus,
            from: None,
            to: Value::CpuList(cpus),
            reason: "the policy pins it no longer".to_string(),
        };
        self.host.enforcer().apply(&action, cgroup).map(|_| ())
    }

    /// Releases removed units, and restores values of the others that the policy no longer names. Started
    /// slices stay until the agent stops: see [`unit_restore`].
    pub(crate) fn let_go_of_units(&mut self, unnamed: &[(NodeId, Knob)], deadline: Deadline<'_>) {
        let systemd = &self.backends.systemd;
        let gone = self.gone().filter_map(|node| systemd.name(node.id()).map(str::to_string));
        let gone: HashSet<String> = gone.collect();
        let properties: Vec<(String, Property)> = unnamed
            .iter()
            .filter_map(|(id, knob)| Some((systemd.name(*id)?.to_string(), Property::of(*knob))))
            .collect();
        let is_concerned = |unit: &String, property| {
            gone.contains(unit) || properties.contains(&(unit.clone(), property))
        };
        let concerns = |entry: &Entry| match entry {
            Entry::UnitHeld(was) => is_concerned(&was.unit, was.held.property),
            Entry::UnitTheirs { unit, property, .. } => is_concerned(unit, *property),
            _ => false,
        };
        let journal = self.host.journal.entries().iter();
        let entries: Vec<Entry> = journal.filter(|entry| concerns(entry)).cloned().collect();
        if entries.is_empty() {
            return;
        }
        let manager = self.backends.take_manager();
        let mut restored = Restored::default();
        let (proc, kernel) = (self.host.proc(), &mut self.host.kernel);
        let part = (&entries[..], Extent::Part);
        unit_restore::put_back(kernel, proc, manager, part, deadline, &mut restored);
        self.keeper.has_stale_units |= restored.is_stale;
        self.forget(concerns, restored);
    }

    fn forget(&mut self, concerns: impl Fn(&Entry) -> bool, mut restored: Restored) {
        let keeps = |entry: &Entry| !concerns(entry) || restored.owes(entry);
        if let Err(error) = self.host.journal.retain(keeps) {
            // All of it is restored once more at the end.
            restored.failures.push(with_causes(&error));
        }
        self.failures.append(&mut restored.failures);
    }

    fn changed_claims(&self, new: &[ClaimRule]) -> Vec<Node<'_>> {
        let says = |rule: &ClaimRule| {
            let owners = (rule.uids.clone(), rule.gids.clone());
            (rule.cgroups.clone(), owners, rule.rest_beside.clone())
        };
        let path = |rule: &ClaimRule| self.new.nodes()[rule.node].path.as_str();
        let new: HashMap<&str, &ClaimRule> = new.iter().map(|rule| (path(rule), rule)).collect();
        let is_same = |rule: &&ClaimRule| {
            let twin = new.get(self.old.nodes()[rule.node].path.as_str());
            twin.is_some_and(|twin| says(twin) == says(rule))
        };
        let old = self.backends.claim_rules().iter();
        old.filter(|rule| !is_same(rule)).map(|rule| self.old.at(rule.node)).collect()
    }

    /// Nodes that are not in the new tree.
    fn gone(&self) -> impl Iterator<Item = Node<'_>> {
        self.old.all().filter(|node| self.new.find(node.id()).is_none())
    }

    fn dirs_of(&self, node: Node<'_>) -> Vec<PathBuf> {
        self.backends.dirs_of(self.host, node)
    }

    fn knobs_of(&self, node: Node<'_>) -> impl IntoIterator<Item = Knob> + use<K> {
        let is_tenant = !node.is_ancestor();
        Knob::ALL.into_iter().filter(move |knob| is_tenant || knob.is_above())
    }

    fn files_of(
        &self,
        node: Node<'_>,
        knobs: impl IntoIterator<Item = Knob>,
    ) -> BTreeSet<(PathBuf, Cow<'static, str>)> {
        let layout = &self.host.layout;
        let names = |knob: Knob| {
            let dir = self.backends.dir_of(self.host, node, row_of(knob).facet)?;
            Some(layout.journal_names(knob).map(move |name| (dir.clone(), name)))
        };
        knobs.into_iter().filter_map(names).flatten().collect()
    }
}

fn promised(tree: &Tree) -> Vec<bool> {
    tree.any_below(target::is_promised)
}

pub(crate) fn has_exclusive(nodes: &[TreeNode]) -> bool {
    nodes.iter().any(|node| node.is_leaf && node.cpus == CpusPolicy::Exclusive)
}

fn made_path(entry: &Entry) -> Option<&Path> {
    match entry {
        Entry::Made { path, .. } => Some(path),
        _ => None,
    }
}
