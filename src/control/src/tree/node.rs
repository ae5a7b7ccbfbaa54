//! One node of a tree: of the policy, a member, or an ancestor.

use std::ops::Range;

use super::{Ancestor, CgroupParent, Tree, TreeNode};
use tenantd_core::node::NodeId;

/// A node of one tree, which exists there. Its identity ([`Node::id`]) outlives the tree; its position
/// ([`Node::at`]) does not.
#[derive(Clone, Copy, Debug)]
pub struct Node<'t> {
    tree: &'t Tree,
    at: usize,
}

impl<'t> Node<'t> {
    pub(super) fn new(tree: &'t Tree, at: usize) -> Node<'t> {
        Node { tree, at }
    }

    /// Identity of the node.
    pub fn id(self) -> NodeId {
        self.tree.ids.at(self.at)
    }

    /// Index of the node in arrays in the order of its tree.
    pub fn at(self) -> usize {
        self.at
    }

    /// The tree.
    pub fn tree(self) -> &'t Tree {
        self.tree
    }

    /// Name of the node, member or ancestor in findings.
    pub fn name(self) -> &'t str {
        let (nr_nodes, first_ancestor) = (self.tree.nodes.len(), self.tree.first_ancestor());
        match (self.tree.nodes.get(self.at), self.at.checked_sub(first_ancestor)) {
            (Some(node), _) => &node.path,
            (None, Some(index)) => &self.tree.ancestors[index].name,
            (None, None) => &self.tree.members[self.at - nr_nodes].name,
        }
    }

    /// The policy's node of a node or member; `None` for an ancestor.
    pub fn tenant(self) -> Option<Node<'t>> {
        let at = match self.at.checked_sub(self.tree.nodes.len()) {
            None => self.at,
            Some(index) => self.tree.members.get(index)?.tenant,
        };
        Some(self.tree.at(at))
    }

    /// Policy of a node, or of a member's tenant; `None` for an ancestor.
    pub fn policy(self) -> Option<&'t TreeNode> {
        self.tree.nodes.get(self.tenant()?.at)
    }

    fn ancestor(self) -> Option<&'t Ancestor> {
        self.tree.ancestors.get(self.at.checked_sub(self.tree.first_ancestor())?)
    }

    /// True for an ancestor.
    pub fn is_ancestor(self) -> bool {
        self.at >= self.tree.first_ancestor()
    }

    /// True if the node has members, possibly none now, instead of a cgroup of its own.
    pub fn has_members(self) -> bool {
        self.parent() == CgroupParent::Members
    }

    /// True for the cgroup of a tenant or of a member: not for a group, an ancestor, or a tenant with members.
    pub fn has_work(self) -> bool {
        match self.tree.nodes.get(self.at) {
            Some(node) => node.is_leaf && !self.has_members(),
            None => !self.is_ancestor(),
        }
    }

    /// True if the node is an ancestor that is protected for the tenants below it.
    pub fn protects(self) -> bool {
        self.ancestor().is_some_and(|above| above.has_protection)
    }

    /// True for an ancestor that directly contains foreign cgroups.
    pub fn is_shared(self) -> bool {
        self.ancestor().is_some_and(|above| above.is_shared)
    }

    /// Group of a node of the policy.
    pub fn group(self) -> Option<Node<'t>> {
        self.tree.nodes.get(self.at)?.parent.map(|at| self.tree.at(at))
    }

    /// The node and all groups above it, nearest first.
    pub fn upwards(self) -> impl Iterator<Item = Node<'t>> {
        std::iter::successors(Some(self), |node| node.group())
    }

    /// Parent of its cgroup.
    pub fn parent(self) -> CgroupParent {
        self.tree.parents[self.at]
    }

    /// Parent of its cgroup, if that is governed.
    pub fn governed_parent(self) -> Option<Node<'t>> {
        match self.parent() {
            CgroupParent::Governed(parent) => Some(self.tree.at(parent)),
            CgroupParent::Unknown | CgroupParent::Members | CgroupParent::Top => None,
        }
    }

    /// The node and all governed cgroups above its own, nearest first.
    pub fn cgroups_above(self) -> impl Iterator<Item = Node<'t>> {
        std::iter::successors(Some(self), |node| node.governed_parent())
    }

    /// Depth of its cgroup in the tree.
    pub fn depth(self) -> usize {
        self.tree.depths[self.at]
    }

    /// Positions of its members.
    pub fn members(self) -> Range<usize> {
        let Tree { nodes, members, .. } = self.tree;
        let first = members.partition_point(|member| member.tenant < self.at);
        let end = members.partition_point(|member| member.tenant <= self.at);
        nodes.len() + first..nodes.len() + end
    }

    /// Positions of its cgroups: its own, or its members.
    pub fn places(self) -> Range<usize> {
        match self.has_members() {
            true => self.members(),
            false => self.at..self.at + 1,
        }
    }

    /// Its cgroups: its own, or its members.
    pub fn cgroups(self) -> impl Iterator<Item = Node<'t>> {
        self.places().map(|at| self.tree.at(at))
    }
}
