//! What the cgroups above the tenants take away from what is written in theirs.
//!
//! Tenants may be anywhere: below the agent's root, in a slice of theirs, or wherever systemd has their unit.
//! Protection counts only as far as everything above is protected, and weights only among siblings. Neither is
//! the agent's to change where it made nothing, so it is said, with the remedy, and shown with each value.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::agent::Agent;
use super::effect;
use super::seats::Seat;
use crate::host::cgroup::Facet;
use crate::host::kernfs::KernFs;

/// What was found above the tenants when it was looked at last.
#[derive(Debug, Default)]
pub(super) struct Above {
    /// Cgroups without protection, and what there is to say of each.
    unprotected: Vec<(PathBuf, String)>,
    /// Tenants that do not compete.
    apart: Vec<String>,
}

impl Above {
    /// All of it, for a person.
    pub(super) fn findings(&self) -> impl Iterator<Item = String> + '_ {
        self.unprotected.iter().map(|(_, what)| what).chain(&self.apart).cloned()
    }
}

impl<K: KernFs> Agent<K> {
    /// Looks at what is above the tenants.
    pub(super) fn look_above(&mut self) {
        let mut places: BTreeMap<Option<usize>, Vec<(String, PathBuf)>> = BTreeMap::new();
        let mut dirs = BTreeSet::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let seat = &self.seats[index];
            let dir = self.dir_of(index);
            let Some(parent) = dir.as_ref().and_then(|dir| dir.parent()) else { continue };
            // Groups of ours are protected by what is below them, and so is the slice of all tenants.
            let is_inside = *seat == Seat::Direct && node.parent.is_some();
            if !is_inside && !matches!(seat, Seat::Slice(_)) {
                dirs.insert(parent.to_path_buf());
            }
            places.entry(node.parent).or_default().push((node.path.clone(), parent.to_path_buf()));
        }
        self.above = Above {
            unprotected: effect::void_protection(&mut self.kernel, &self.layout, &dirs),
            apart: places.values().filter_map(|places| effect::apart(places)).collect(),
        };
    }

    /// Why the protection of the node at `index` is void, if it is.
    pub(super) fn void_protection(&self, index: usize) -> Option<&String> {
        let dir = self.dir_of(index)?;
        let above = self.above.unprotected.iter().find(|(up, _)| dir.starts_with(up) && dir != *up);
        above.map(|(_, what)| what)
    }

    /// The directory of the node at `index`, in the tree that has the memory files; `None` where it has none,
    /// or is not found yet.
    fn dir_of(&self, index: usize) -> Option<PathBuf> {
        let tree = &self.layout.trees[self.layout.tree(Facet::Memory)?];
        match &self.seats[index] {
            Seat::Direct => Some(tree.root.join(&self.nodes[index].path)),
            Seat::Slice(_) | Seat::Unit(_) => {
                let cgroup = self.units.cgroup(index)?;
                Some(tree.mount.join(cgroup.trim_start_matches('/')))
            }
            Seat::Nowhere | Seat::Unknown(_) => None,
        }
    }
}
