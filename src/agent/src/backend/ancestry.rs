//! Where the cgroups of all nodes are in the kernel's tree, and what is above them.
//!
//! **Problem.** The agent makes some cgroups itself, below its root; units are wherever systemd has them, and that is
//! known only once they run. What is above them has to be weighed and protected as well
//! ([`tenantd_control::govern`]).
//!
//! **Rules.** On a host that systemd runs, an ancestor is a unit of the system's systemd: a slice, or a service or
//! scope with cgroups of its own inside. What is deeper has another owner (a user's manager, a container engine,
//! the agent itself) and is passed over, except above a cgroup that the policy names: there, and on a host without
//! systemd, every cgroup is an ancestor, and one that is no unit is written by the agent. What went stays where it was
//! last, so that a restart changes nothing. A unit above stays until a reload, also where nothing is below it any more;
//! other cgroups go with the last tenant in them.
//!
//! Where the policy says so, and on a legacy host that systemd runs, only the slice of all tenants is an ancestor, and
//! only where a tenant is a slice. A legacy host has no protection that could be void, so without a cgroup in place
//! there is nothing to be governed.

use std::collections::HashMap;
use std::sync::Arc;

use super::location::Location;
use tenantd_control::tree::{Ancestor, CgroupParent, Member, Tree, TreeNode};
use tenantd_host::cgroup::{Dialect, Facet, Layout};
use tenantd_host::systemd::slice_name::TOP;
use tenantd_policy::unit_path::units_of;

/// What is governed above the cgroups of tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GovernedAbove {
    Nothing,
    /// Units of systemd, and the other cgroups above those that the policy names.
    Units,
    /// Every cgroup: systemd does not run this host.
    Cgroups,
}

/// The tree of `nodes` at these locations, where `governs` is governed above them. `cgroups` are those that were
/// found, from the mount; `before` is the tree so far, whose units above stay.
pub(crate) fn tree(
    (layout, governs): (&Layout, GovernedAbove),
    nodes: Arc<[TreeNode]>,
    (locations, members): (&[Location], Vec<(usize, String)>),
    cgroups: impl Fn(&Location) -> Option<String>,
    before: Option<&Tree>,
) -> Tree {
    let known: Vec<Option<String>> = locations.iter().map(&cgroups).collect();
    let of_member = |(tenant, at): &(usize, String)| match &locations[*tenant] {
        Location::Members(sources) => sources.location_of(at),
        other => other.clone(),
    };
    let at_members: Vec<Location> = members.iter().map(of_member).collect();
    let of_members: Vec<Option<String>> = at_members.iter().map(&cgroups).collect();
    let root = root_from_mount(layout);
    let governed_root = match governs {
        GovernedAbove::Cgroups => &root,
        GovernedAbove::Nothing | GovernedAbove::Units => units_of(&root),
    };
    let has_protection = layout.dialect == Dialect::Unified;
    let cgroups = (&known[..], &of_members[..]);
    let mut ancestry = Ancestry::new((governs, has_protection), governed_root, &nodes, cgroups);
    let before = before.iter().flat_map(|tree| tree.ancestors());
    for (_, ancestor) in before.filter(|(_, ancestor)| ancestor.is_unit) {
        ancestry.at(&ancestor.cgroup);
    }
    let is_slice = |location: &Location| matches!(location, Location::Slice(_));
    let top = match has_slices(locations) {
        true => ancestry.at(&format!("/{TOP}")),
        false => CgroupParent::Top,
    };
    let mut parent = |number: usize, location: &Location, cgroup: Option<&str>| match location {
        Location::Direct | Location::Made(_) => {
            let is_in_group = location.below_root(&nodes[number].path) == Some(&nodes[number].path);
            match direct_group(&nodes, locations, number).filter(|_| is_in_group) {
                Some(group) => CgroupParent::Governed(group),
                None => ancestry.above(&root, governed_root).unwrap_or(CgroupParent::Top),
            }
        }
        Location::Slice(_) => match nodes[number].parent {
            Some(group) if is_slice(&locations[group]) => CgroupParent::Governed(group),
            _ => top,
        },
        Location::Unit(_) | Location::InPlace(_) => ancestry.above_cgroup(cgroup),
        Location::Members(_) => CgroupParent::Members,
        Location::Above(_)
        | Location::AboveInPlace(_)
        | Location::Nowhere
        | Location::Unknown(_) => CgroupParent::Unknown,
    };
    let nodes_at = locations.iter().zip(&known).enumerate();
    let parents: Vec<CgroupParent> =
        nodes_at.map(|(number, (at, cgroup))| parent(number, at, cgroup.as_deref())).collect();
    let members_at = members.into_iter().zip(at_members.iter().zip(&of_members));
    let member =
        |((tenant, at), (location, cgroup)): ((usize, String), (&Location, &Option<String>))| {
            let is_attached =
                matches!(&locations[tenant], Location::Members(it) if it.attached.contains(&at));
            let name = format!("{}[{at}]", nodes[tenant].path);
            Member {
                tenant,
                parent: parent(tenant, location, cgroup.as_deref()),
                name,
                at,
                is_attached,
            }
        };
    let members = members_at.map(member).collect();
    Tree::below(nodes, parents, members, ancestry.ancestors)
}

/// Whether any tenant has a slice of its own.
pub(super) fn has_slices(locations: &[Location]) -> bool {
    let is_slice = |location: &Location| match location {
        Location::Slice(_) => true,
        Location::Members(sources) => sources.slice.is_some(),
        _ => false,
    };
    locations.iter().any(is_slice)
}

/// For each member and each ancestor of `old` its number in `new`, where it stays.
pub(crate) fn kept(old: &Tree, new: &Tree) -> Vec<Option<usize>> {
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
    tree.map_or_else(|| "/".to_string(), |tree| tree.path_to(&tree.root))
}

/// The cgroup that `cgroup` is in; `None` for the top.
pub(super) fn dir_of(cgroup: &str) -> Option<&str> {
    let (dir, name) = cgroup.rsplit_once('/')?;
    (!name.is_empty()).then_some(if dir.is_empty() { "/" } else { dir })
}

#[derive(Debug)]
struct Ancestry {
    governs: GovernedAbove,
    has_protection: bool,
    /// The cgroup in which the agent makes others: there are no foreign ones in it.
    root: String,
    /// The number of the first ancestor.
    first: usize,
    /// The cgroups outside the root that are nodes or members: their numbers, and whether they are tenants' and not
    /// groups'.
    known: HashMap<String, (usize, bool)>,
    ancestors: Vec<Ancestor>,
    by_cgroup: HashMap<String, usize>,
}

impl Ancestry {
    fn new(
        (governs, has_protection): (GovernedAbove, bool),
        root: &str,
        nodes: &[TreeNode],
        (of_nodes, of_members): (&[Option<String>], &[Option<String>]),
    ) -> Ancestry {
        let all = of_nodes.iter().chain(of_members).enumerate();
        let known = all.filter_map(|(number, cgroup)| {
            let is_tenant = nodes.get(number).is_none_or(|node| node.is_leaf);
            Some((cgroup.clone()?, (number, is_tenant)))
        });
        Ancestry {
            governs,
            has_protection,
            root: root.to_string(),
            first: nodes.len() + of_members.len(),
            known: known.collect(),
            ancestors: Vec::new(),
            by_cgroup: HashMap::new(),
        }
    }

    /// The parent of a cgroup outside the root, where it is known.
    fn above_cgroup(&mut self, cgroup: Option<&str>) -> CgroupParent {
        let dir = cgroup.and_then(dir_of);
        dir.and_then(|dir| self.above(dir, dir)).unwrap_or(CgroupParent::Unknown)
    }

    /// The parent of a cgroup in `dir`: the nearest that is governed, which may be all of `governed`, `dir` or above
    /// it; `None` where none is known.
    fn above(&mut self, dir: &str, governed: &str) -> Option<CgroupParent> {
        let ups = || std::iter::successors(Some(dir), |up| dir_of(up));
        for up in ups() {
            match self.known.get(up) {
                // What is inside of a tenant is its own to divide.
                Some((_, true)) => return Some(CgroupParent::Unknown),
                Some((group, false)) => return Some(CgroupParent::Governed(*group)),
                None => {}
            }
        }
        if self.governs != GovernedAbove::Nothing {
            return Some(self.at(governed));
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
        self.by_cgroup.insert(cgroup.to_string(), number);
        let is_top = name == TOP && dir == "/";
        let has_units = is_top || self.governs == GovernedAbove::Units;
        let is_unit = has_units && units_of(cgroup) == cgroup;
        self.ancestors.push(Ancestor {
            name: if is_unit { name } else { cgroup }.to_string(),
            cgroup: cgroup.to_string(),
            parent,
            is_unit,
            is_shared: !is_top && cgroup != self.root,
            has_protection: self.has_protection,
        });
        CgroupParent::Governed(number)
    }
}
