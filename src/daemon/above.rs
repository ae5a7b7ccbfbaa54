//! What the cgroups above and beside the tenants take away from what is written in theirs.
//!
//! Tenants may be anywhere: below the agent's root, in a slice of theirs, or wherever systemd has their unit.
//! Protection counts only as far as everything above is protected, and weights only among siblings. Neither is
//! the agent's to change where it made nothing, so it is said, with the remedy, and shown with each value.
//!
//! **Beside.** A sibling that is no tenant competes with its neighbours by a weight that no policy knows. Most
//! have one and sleep, as the services of `system.slice` do, and what they use is taken off before anything is
//! divided; so only those are named that use more than [`FAIR_ERROR_MAX`] of the machine's CPUs while a tenant
//! beside them waits. Nothing is looked at beside tenants that have what they want.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::agent::Agent;
use super::effect;
use super::enforce::AGENT_CGROUP;
use super::seats::Seat;
use crate::control::fairness::FAIR_ERROR_MAX;
use crate::host::cgroup::{self, Facet};
use crate::host::kernfs::KernFs;

/// Siblings that are looked at in one place.
const SIBLINGS_MAX: usize = 1024;

/// What was found above and beside the tenants when it was looked at last.
#[derive(Debug, Default)]
pub(super) struct Above {
    /// Cgroups without protection, and what there is to say of each.
    unprotected: Vec<(PathBuf, String)>,
    /// Tenants that do not compete, and others that do.
    findings: Vec<String>,
    /// Why the weights of nodes are void, by their paths.
    weights: HashMap<String, String>,
    /// When siblings were looked at, and the CPU time that each had used.
    siblings: Option<(Duration, HashMap<PathBuf, u64>)>,
}

impl Above {
    /// All of it, for a person.
    pub(super) fn findings(&self) -> impl Iterator<Item = String> + '_ {
        self.unprotected.iter().map(|(_, what)| what).chain(&self.findings).cloned()
    }

    /// Why the weight of the node with this path is void, if it is.
    pub(super) fn void_weight(&self, path: &str) -> Option<&String> {
        self.weights.get(path)
    }
}

impl<K: KernFs> Agent<K> {
    /// Looks at what is above and beside the tenants.
    pub(super) fn look_above(&mut self, now: Duration) {
        let mut dirs = BTreeSet::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let seat = &self.seats[index];
            // Groups of ours are protected by what is below them, and so is the slice of all tenants.
            let is_inside = *seat == Seat::Direct && node.parent.is_some();
            let dir = self.dir_of(index, Facet::Memory);
            if let Some(parent) = dir.as_ref().and_then(|dir| dir.parent())
                && !is_inside
                && !matches!(seat, Seat::Slice(_))
            {
                dirs.insert(parent.to_path_buf());
            }
        }
        let unprotected = effect::void_protection(&mut self.kernel, &self.layout, &dirs);
        let siblings = self.above.siblings.take();
        self.above = Above { unprotected, siblings, ..Above::default() };
        let homes: Vec<Option<PathBuf>> =
            (0..self.nodes.len()).map(|index| self.dir_of(index, Facet::Cpu)).collect();
        self.look_apart(&homes);
        self.look_beside(&homes, now);
    }

    /// Finds the nodes of one level that have different parents.
    fn look_apart(&mut self, homes: &[Option<PathBuf>]) {
        let mut levels: BTreeMap<Option<usize>, Vec<(&str, &Path)>> = BTreeMap::new();
        for (node, home) in self.nodes.iter().zip(homes) {
            if let Some(parent) = home.as_deref().and_then(Path::parent) {
                levels.entry(node.parent).or_default().push((&node.path, parent));
            }
        }
        for places in levels.values() {
            // Of the first and the first that is elsewhere, each node is apart from one at least.
            let first = places[0];
            let Some(stray) = places.iter().find(|(_, place)| *place != first.1) else { continue };
            self.above.findings.push(effect::apart(first, *stray));
            for node in places {
                let other = if node.1 == first.1 { *stray } else { first };
                self.above.weights.insert(node.0.to_string(), effect::apart(*node, other));
            }
        }
    }

    /// Finds who is no tenant and keeps tenants beside it from their CPUs.
    fn look_beside(&mut self, homes: &[Option<PathBuf>], now: Duration) {
        let lived_in: BTreeSet<&Path> = homes.iter().flatten().map(PathBuf::as_path).collect();
        let waiting = self.waiting();
        let mut places: BTreeMap<PathBuf, Vec<usize>> = BTreeMap::new();
        for (index, home) in homes.iter().enumerate().filter(|(index, _)| waiting[*index]) {
            if let Some(parent) = home.as_deref().and_then(Path::parent) {
                places.entry(parent.to_path_buf()).or_default().push(index);
            }
        }
        let before = self.above.siblings.take();
        let mut used = HashMap::new();
        let busy_cores = FAIR_ERROR_MAX * f64::from(self.status.host.cpus);
        for (place, nodes) in places {
            let foreign = self.foreign_in(&place, &lived_in);
            let is_busy = |(path, usage): &&(PathBuf, u64)| {
                let Some((then, known)) = &before else { return false };
                let elapsed_usec = now.saturating_sub(*then).as_micros() as f64;
                let grown = known.get(path).and_then(|known| usage.checked_sub(*known));
                grown.is_some_and(|usec| usec as f64 > busy_cores * elapsed_usec)
            };
            let busy: Vec<&PathBuf> =
                foreign.iter().filter(is_busy).map(|(path, _)| path).collect();
            let names = nodes.iter().map(|node| self.nodes[*node].path.clone());
            let names: Vec<String> = names.collect();
            if let Some(what) = effect::beside(&names, &busy) {
                for name in names {
                    self.above.weights.entry(name).or_insert_with(|| what.clone());
                }
                self.above.findings.push(what);
            }
            used.extend(foreign);
        }
        self.above.siblings = Some((now, used));
    }

    /// The nodes in which, or below which, some task waits for a CPU.
    fn waiting(&self) -> Vec<bool> {
        let mut waiting: Vec<bool> = self.slots.iter().map(|slot| slot.looks_pressed()).collect();
        for (index, node) in self.nodes.iter().enumerate().rev() {
            if let Some(parent) = node.parent {
                waiting[parent] |= waiting[index];
            }
        }
        waiting
    }

    /// The cgroups in `place` in which no node lives, with the CPU time that each has used.
    fn foreign_in(&mut self, place: &Path, lived_in: &BTreeSet<&Path>) -> Vec<(PathBuf, u64)> {
        let Ok(dir) = self.kernel.open_dir(place) else { return Vec::new() };
        let names = self.kernel.list_dirs(dir).unwrap_or_default();
        self.kernel.close_dir(dir);
        let mut foreign = Vec::new();
        for name in names.into_iter().filter(|name| name != AGENT_CGROUP).take(SIBLINGS_MAX) {
            let path = place.join(name);
            // Whatever is in or below it follows it in the order of paths.
            let next = lived_in.range(path.as_path()..).next();
            if next.is_some_and(|home| home.starts_with(&path)) {
                continue;
            }
            // One that went meanwhile competes with nobody.
            if let Some(usage) = cgroup::usage_usec(&mut self.kernel, &self.layout, &path) {
                foreign.push((path, usage));
            }
        }
        foreign
    }

    /// Why the protection of the node at `index` is void, if it is.
    pub(super) fn void_protection(&self, index: usize) -> Option<&String> {
        let dir = self.dir_of(index, Facet::Memory)?;
        let above = self.above.unprotected.iter().find(|(up, _)| dir.starts_with(up) && dir != *up);
        above.map(|(_, what)| what)
    }

    /// The directory of the node at `index`, in the tree that has the files of `facet`; `None` where it has none,
    /// or is not found yet.
    fn dir_of(&self, index: usize, facet: Facet) -> Option<PathBuf> {
        let tree = &self.layout.trees[self.layout.tree(facet)?];
        match &self.seats[index] {
            Seat::Direct => Some(tree.root.join(&self.nodes[index].path)),
            Seat::Slice(_) | Seat::Unit(_) => {
                let cgroup = self.units.cgroup(index)?;
                Some(tree.dir_of(cgroup))
            }
            Seat::Nowhere | Seat::Unknown(_) => None,
        }
    }
}
