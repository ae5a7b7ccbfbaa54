//! Where the cgroups of all nodes are in the kernel's tree, and what is above them.
//!
//! **Problem.** The agent makes some cgroups itself, below its root; units are wherever systemd has them, and that is
//! known only once they run. What is above them has to be weighed and protected as well
//! ([`crate::control::govern`]).
//!
//! **Rules.** An ancestor is a unit of the system's systemd: a slice, or a service or scope with cgroups of its own
//! inside. What is deeper belongs to somebody else (a user's manager, a container engine, the agent itself) and is
//! passed over. A unit that ended stays where it was last, so that a restart changes nothing. An ancestor stays until
//! a reload, also where nothing is below it any more.
//!
//! Where systemd does not run the host, or the policy says so, only the slice of all tenants is an ancestor, and only
//! where a tenant is a slice.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::location::Location;
use crate::control::tree::{Ancestor, CgroupParent, Member, Tree, TreeNode};
use crate::host::cgroup::{Facet, Layout};
use crate::host::systemd::slice_name::TOP;

/// The tree of `nodes` at these locations. Where `manages`, the slices and services above tenants are governed.
/// `cgroups` are those of units, by name, from the mount; `before` is the tree so far, whose ancestors stay.
pub(in crate::daemon) fn tree(
    (layout, manages): (&Layout, bool),
    nodes: Arc<[TreeNode]>,
    (locations, members): (&[Location], Vec<(usize, String)>),
    cgroups: impl Fn(&str) -> Option<String>,
    before: Option<&Tree>,
) -> Tree {
    let known: Vec<Option<String>> =
        locations.iter().map(|location| cgroups(location.unit()?)).collect();
    let of_members: Vec<Option<String>> = members.iter().map(|(_, unit)| cgroups(unit)).collect();
    let root = root_from_mount(layout);
    let mut ancestry = Ancestry::new(manages, units_of(&root), &nodes, (&known, &of_members));
    for (_, ancestor) in before.iter().flat_map(|tree| tree.ancestors()) {
        ancestry.at(&ancestor.cgroup);
    }
    let is_slice = |location: &Location| matches!(location, Location::Slice(_));
    let top = match locations.iter().any(is_slice) {
        true => ancestry.at(&format!("/{TOP}")),
        false => CgroupParent::Top,
    };
    let parent = |(number, location): (usize, &Location)| match location {
        Location::Direct => match direct_group(&nodes, locations, number) {
            Some(group) => CgroupParent::Governed(group),
            None => ancestry.above(&root).unwrap_or(CgroupParent::Top),
        },
        Location::Slice(_) => match nodes[number].parent {
            Some(group) if is_slice(&locations[group]) => CgroupParent::Governed(group),
            _ => top,
        },
        Location::Unit(_) => ancestry.above_unit(known[number].as_deref()),
        Location::Members(_) => CgroupParent::Members,
        Location::Above(_) | Location::Nowhere | Location::Unknown(_) => CgroupParent::Unknown,
    };
    let parents: Vec<CgroupParent> = locations.iter().enumerate().map(parent).collect();
    let member = |((tenant, at), cgroup): ((usize, String), Option<String>)| Member {
        tenant,
        name: format!("{}[{at}]", nodes[tenant].path),
        at,
        parent: ancestry.above_unit(cgroup.as_deref()),
    };
    let members = members.into_iter().zip(of_members).map(member).collect();
    Tree::below(nodes, parents, members, ancestry.ancestors)
}

/// For each member and each ancestor of `old` its number in `new`, where it stays.
pub(in crate::daemon) fn kept(old: &Tree, new: &Tree) -> Vec<Option<usize>> {
    let of_new = new.members().map(|(number, member)| (member.name.as_str(), number));
    let of_new: HashMap<&str, usize> = of_new.collect();
    let members = old.members().map(|(_, member)| of_new.get(member.name.as_str()).copied());
    let same = |ancestor: &Ancestor| {
        let mut same = new.ancestors().filter(|(_, other)| other.cgroup == ancestor.cgroup);
        same.next().map(|(number, _)| number)
    };
    members.chain(old.ancestors().map(|(_, ancestor)| same(ancestor))).collect()
}

/// The group whose cgroup contains that of a node which the agent makes.
fn direct_group(nodes: &[TreeNode], locations: &[Location], number: usize) -> Option<usize> {
    nodes[number].parent.filter(|group| locations[*group] == Location::Direct)
}

/// The agent's root in the tree that systemd has, from the mount.
fn root_from_mount(layout: &Layout) -> String {
    let tree = layout.tree(Facet::Cpu).map(|tree| &layout.trees[tree]);
    let root = tree.and_then(|tree| tree.root.strip_prefix(&tree.mount).ok());
    Path::new("/").join(root.unwrap_or(Path::new(""))).display().to_string()
}

/// The cgroup that `cgroup` is in; `None` for the top.
fn dir_of(cgroup: &str) -> Option<&str> {
    let (dir, name) = cgroup.rsplit_once('/')?;
    (!name.is_empty()).then_some(if dir.is_empty() { "/" } else { dir })
}

#[derive(Debug)]
struct Ancestry {
    manages: bool,
    /// The unit in which the agent makes cgroups: there are no others in it.
    root: String,
    /// The number of the first ancestor.
    first: usize,
    /// The cgroups of units that are nodes or members: their numbers, and whether they are tenants' and not groups'.
    units: HashMap<String, (usize, bool)>,
    ancestors: Vec<Ancestor>,
    by_cgroup: HashMap<String, usize>,
}

impl Ancestry {
    fn new(
        manages: bool,
        root: &str,
        nodes: &[TreeNode],
        (of_nodes, of_members): (&[Option<String>], &[Option<String>]),
    ) -> Ancestry {
        let all = of_nodes.iter().chain(of_members).enumerate();
        let units = all.filter_map(|(number, cgroup)| {
            let is_tenant = nodes.get(number).is_none_or(|node| node.is_leaf);
            Some((cgroup.clone()?, (number, is_tenant)))
        });
        Ancestry {
            manages,
            root: root.to_string(),
            first: nodes.len() + of_members.len(),
            units: units.collect(),
            ancestors: Vec::new(),
            by_cgroup: HashMap::new(),
        }
    }

    /// The parent of a unit's cgroup, where it is known.
    fn above_unit(&mut self, cgroup: Option<&str>) -> CgroupParent {
        let dir = cgroup.and_then(dir_of);
        dir.and_then(|dir| self.above(dir)).unwrap_or(CgroupParent::Unknown)
    }

    /// The parent of a cgroup in `dir`: the nearest that is governed; `None` where none is known.
    fn above(&mut self, dir: &str) -> Option<CgroupParent> {
        let ups = || std::iter::successors(Some(dir), |up| dir_of(up));
        for up in ups() {
            match self.units.get(up) {
                // What is inside of a tenant is its own to divide.
                Some((_, true)) => return Some(CgroupParent::Unknown),
                Some((group, false)) => return Some(CgroupParent::Governed(*group)),
                None => {}
            }
        }
        if self.manages {
            return Some(self.at(units_of(dir)));
        }
        ups().find_map(|up| self.by_cgroup.get(up)).map(|above| CgroupParent::Governed(*above))
    }

    /// The ancestor with this cgroup, and all above it.
    fn at(&mut self, cgroup: &str) -> CgroupParent {
        let Some((dir, name)) = dir_of(cgroup).zip(cgroup.rsplit('/').next()) else {
            return CgroupParent::Top;
        };
        if let Some(number) = self.by_cgroup.get(cgroup) {
            return CgroupParent::Governed(*number);
        }
        let parent = self.at(dir);
        let number = self.first + self.ancestors.len();
        let (name, cgroup) = (name.to_string(), cgroup.to_string());
        self.by_cgroup.insert(cgroup.clone(), number);
        let is_shared = name != TOP && cgroup != self.root;
        self.ancestors.push(Ancestor { name, cgroup, parent, is_shared });
        CgroupParent::Governed(number)
    }
}

/// As much of a cgroup's path as are units of the system's systemd: slices, and then one service or scope.
fn units_of(cgroup: &str) -> &str {
    let mut end = 0;
    for name in cgroup.split('/').skip(1) {
        let is_slice = name.ends_with(".slice");
        if !is_slice && !name.ends_with(".service") && !name.ends_with(".scope") {
            break;
        }
        end += 1 + name.len();
        if !is_slice {
            break;
        }
    }
    if end == 0 { "/" } else { &cgroup[..end] }
}
