//! The recorded tenant behind each tenant of the other policy.
//!
//! Nodes of equal paths correspond. Of the others, tenants correspond if their last names are equal and unique on both
//! sides: so a policy with groups can be compared with one without.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tenantd_control::tree::TreeNode;

/// Result of the search for the recorded node of a node of the other policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// Position of the recorded node.
    At(usize),
    /// Several tenants have the last name, on either side.
    Ambiguous,
    /// A group has the path of the tenant.
    Group,
    /// No recorded node corresponds.
    Absent,
}

impl Origin {
    pub(super) fn at(self) -> Option<usize> {
        match self {
            Origin::At(position) => Some(position),
            Origin::Ambiguous | Origin::Group | Origin::Absent => None,
        }
    }
}

/// The recorded nodes of `nodes` among `old`.
pub(super) fn origins(nodes: &[TreeNode], old: &[TreeNode]) -> Vec<Origin> {
    let by_path: HashMap<(&str, bool), usize> =
        old.iter().enumerate().map(|(at, node)| ((&*node.path, node.is_leaf), at)).collect();
    let by_own_path = |node: &TreeNode| match by_path.get(&(&*node.path, node.is_leaf)) {
        Some(at) => Origin::At(*at),
        None if node.is_leaf && by_path.contains_key(&(&*node.path, false)) => Origin::Group,
        None => Origin::Absent,
    };
    let mut origins: Vec<Origin> = nodes.iter().map(by_own_path).collect();
    let taken: BTreeSet<usize> = origins.iter().filter_map(|origin| origin.at()).collect();
    let mut by_name: BTreeMap<&str, [Vec<usize>; 2]> = BTreeMap::new();
    for (at, node) in nodes.iter().enumerate() {
        if node.is_leaf && origins[at] == Origin::Absent {
            by_name.entry(last_name(node)).or_default()[0].push(at);
        }
    }
    for (at, node) in old.iter().enumerate() {
        if node.is_leaf
            && !taken.contains(&at)
            && let Some(sides) = by_name.get_mut(last_name(node))
        {
            sides[1].push(at);
        }
    }
    for [new, recorded] in by_name.into_values() {
        let origin = match (&new[..], &recorded[..]) {
            (_, []) => continue,
            ([_], [at]) => Origin::At(*at),
            _ => Origin::Ambiguous,
        };
        new.into_iter().for_each(|at| origins[at] = origin);
    }
    origins
}

fn last_name(node: &TreeNode) -> &str {
    node.path.rsplit('/').next().unwrap_or_default()
}

/// Tenants of all the time of a replay, by their correspondence.
#[derive(Debug, Default)]
pub(super) struct Seen {
    matched: BTreeSet<String>,
    unmatched: BTreeMap<String, Origin>,
    /// Tenants of the recording without one in the policy.
    left_out: BTreeSet<String>,
}

impl Seen {
    /// Adds the present tenants of both sides.
    pub(super) fn note(&mut self, nodes: &[TreeNode], origins: &[Origin], old: &[TreeNode]) {
        let mut used = BTreeSet::new();
        for (node, origin) in nodes.iter().zip(origins) {
            used.extend(origin.at());
            if !node.is_leaf {
                continue;
            }
            if origin.at().is_some() {
                self.matched.insert(node.path.to_string());
            } else {
                self.unmatched.insert(node.path.to_string(), *origin);
            }
        }
        let is_left_out = |(at, node): &(usize, &TreeNode)| node.is_leaf && !used.contains(at);
        let left_out = old.iter().enumerate().filter(is_left_out);
        self.left_out.extend(left_out.map(|(_, node)| node.path.to_string()));
    }

    /// Tenants of the policy that never had a recorded one, for this reason.
    pub(super) fn never(&self, origin: Origin) -> Vec<&str> {
        let of = self.unmatched.iter();
        let of = of.filter(|(path, it)| **it == origin && !self.matched.contains(*path));
        of.map(|(path, _)| path.as_str()).collect()
    }

    /// Tenants of the policy that had a recorded one for a part of the time.
    pub(super) fn sometimes(&self) -> Vec<&str> {
        let of = self.matched.iter().filter(|path| self.unmatched.contains_key(*path));
        of.map(String::as_str).collect()
    }

    /// Tenants of the recording without one in the policy, at any time.
    pub(super) fn left_out(&self) -> &BTreeSet<String> {
        &self.left_out
    }
}
