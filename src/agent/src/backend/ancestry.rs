//! The cgroups of all nodes in the kernel's tree, and their ancestors.
//!
//! **Problem.** The agent makes some cgroups itself, below its root. Units are where systemd puts them, which
//! is known only once they run. Their ancestors need weights and protection as well
//! ([`tenantd_control::share::govern`]).
//!
//! **Rules.**
//!
//! - On a host with systemd, an ancestor is a unit of the system manager: a slice, or a service or scope with
//!   cgroups inside. Deeper cgroups have another owner (a user's manager, a container engine, the agent itself)
//!   and are skipped.
//! - Above a cgroup that the policy names, and on a host without systemd, every cgroup is an ancestor. The
//!   agent writes those that are not units.
//! - A cgroup that went keeps its last place, so that a restart changes nothing. A unit above stays until a
//!   reload, even with nothing below it; other cgroups go with the last tenant in them.
//! - On a cgroup v1 host with systemd, or at the request of the policy, only the slice of all tenants is an
//!   ancestor, and only if a tenant is a slice. Cgroup v1 has no protection to govern, so it needs ancestors
//!   only for a cgroup in place.

use std::collections::HashMap;
use std::sync::Arc;

use super::location::Location;
use tenantd_control::tree::{Ancestor, CgroupParent, Member, Tree, TreeNode};
use tenantd_host::cgroup::{Facet, Layout};
use tenantd_host::systemd::slice_name::TOP;
use tenantd_policy::unit_path::units_of;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GovernedAbove {
    Nothing,
    /// Units of systemd, and the other cgroups above those that the policy names.
    Units,
    Cgroups,
}

/// Builds the tree of `nodes` at these locations, governing `governs` above them. `cgroups` returns found
/// cgroups below the mount. `before` is the present tree, whose units above stay.
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
    let has_protection = layout.is_unified();
    let cgroups = (&known[..], &of_members[..]);
    let mut ancestry = Ancestry::new((governs, has_protection), governed_root, &nodes, cgroups);
    let before = before.iter().flat_map(|tree| tree.ancestors());
    for (_, ancestor) in before.filter(|(_, ancestor)| ancestor.is_unit) {
        ancestry.at(&ancestor.cgroup);
    }
    let is_slice = |location: &Location| matches!(location, Location::Slice(_));
    let top =
        if has_slices(locations) { ancestry.at(&format!("/{TOP}")) } else { CgroupParent::Top };
    let mut parent = |at: usize, location: &Location, cgroup: Option<&str>| match location {
        Location::Direct | Location::Made(_) => {
            let is_in_group = location.below_root(&nodes[at].path) == Some(&nodes[at].path);
            match direct_group(&nodes[at], locations).filter(|_| is_in_group) {
                Some(group) => CgroupParent::Governed(group),
                None => ancestry.above(&root, governed_root).unwrap_or(CgroupParent::Top),
            }
        }
        Location::Slice(_) => match nodes[at].parent {
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
        nodes_at.map(|(at, (location, cgroup))| parent(at, location, cgroup.as_deref())).collect();
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

pub(super) fn has_slices(locations: &[Location]) -> bool {
    let is_slice = |location: &Location| match location {
        Location::Slice(_) => true,
        Location::Members(sources) => sources.slice.is_some(),
        _ => false,
    };
    locations.iter().any(is_slice)
}

/// Maps each member and ancestor of `old` to its position in `new`, if it stays.
pub(crate) fn kept(old: &Tree, new: &Tree) -> Vec<Option<usize>> {
    let of_new = new.members().map(|(node, member)| (member.name.as_str(), node.at()));
    let of_new: HashMap<&str, usize> = of_new.collect();
    let members = old.members().map(|(_, member)| of_new.get(member.name.as_str()).copied());
    let same = |ancestor: &Ancestor| {
        let mut same = new.ancestors().filter(|(_, other)| other.cgroup == ancestor.cgroup);
        same.next().map(|(node, _)| node.at())
    };
    members.chain(old.ancestors().map(|(_, ancestor)| same(ancestor))).collect()
}

/// Group whose cgroup contains that of a node which the agent makes.
fn direct_group(node: &TreeNode, locations: &[Location]) -> Option<usize> {
    node.parent.filter(|group| locations[*group] == Location::Direct)
}

fn root_from_mount(layout: &Layout) -> String {
    let tree = layout.tree(Facet::Cpu).map(|tree| &layout.trees[tree]);
    tree.map_or_else(|| "/".to_string(), |tree| tree.path_to(&tree.root))
}

/// Parent of `cgroup`; `None` for the top.
pub(super) fn dir_of(cgroup: &str) -> Option<&str> {
    let (dir, name) = cgroup.rsplit_once('/')?;
    (!name.is_empty()).then_some(if dir.is_empty() { "/" } else { dir })
}

#[derive(Debug)]
struct Ancestry {
    governs: GovernedAbove,
    has_protection: bool,
    /// Cgroup in which the agent makes others; it contains no foreign ones.
    root: String,
    first: usize,
    /// Cgroups outside the root that are nodes or members: position, and true if it is a tenant's and not a
    /// group's.
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

    fn above_cgroup(&mut self, cgroup: Option<&str>) -> CgroupParent {
        let dir = cgroup.and_then(dir_of);
        dir.and_then(|dir| self.above(dir, dir)).unwrap_or(CgroupParent::Unknown)
    }

    /// Returns the nearest known cgroup at or above `dir`, or else the ancestor `governed` (`dir` or above it).
    /// `None` if nothing is governed and none is known.
    fn above(&mut self, dir: &str, governed: &str) -> Option<CgroupParent> {
        let ups = || std::iter::successors(Some(dir), |up| dir_of(up));
        for up in ups() {
            match self.known.get(up) {
                // The inside of a tenant is the tenant's own to divide.
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

    /// Returns the ancestor with this cgroup; adds it and all its ancestors if needed.
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
