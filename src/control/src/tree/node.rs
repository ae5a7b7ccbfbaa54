//! The tree and its nodes: of the policy, members and ancestors.

use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::ids::Ids;
use super::policy::{TreeNode, fit};
use crate::words::finding::{Code, Finding};
use tenantd_core::node::NodeId;
use tenantd_core::resource::PerResource;

/// One cgroup of a tenant with several or varying cgroups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Position of its tenant.
    pub tenant: usize,
    /// Its unit, or its cgroup: from the mount, or with `./` from the root that the agent made.
    pub at: String,
    /// Name in findings: its tenant, and in brackets its unit or cgroup.
    pub name: String,
    /// True if it was attached to the tenant while the agent ran.
    pub is_attached: bool,
    /// Parent of its cgroup.
    pub parent: CgroupParent,
}

/// A cgroup above tenants that belongs to no tenant. Its values follow from the nodes below it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ancestor {
    /// Name in findings: its unit, or else its cgroup.
    pub name: String,
    /// Path of its cgroup from the mount.
    pub cgroup: String,
    /// Parent of its cgroup.
    pub parent: CgroupParent,
    /// True for a systemd unit.
    pub is_unit: bool,
    /// True if it directly contains foreign cgroups, like a slice of the system.
    pub is_shared: bool,
    /// True if protection below it needs protection of its own, which is not so on a legacy host.
    pub has_protection: bool,
}

/// Parent of a node's cgroup in the kernel's tree, which may differ from the policy's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum CgroupParent {
    /// No cgroup, or none found yet.
    Unknown,
    /// Members instead of a cgroup of its own.
    Members,
    /// A cgroup that is not governed: the top of the hierarchy, or the agent's root.
    Top,
    /// The cgroup of the node at this position.
    Governed(usize),
}

/// Nodes of the policy, their members, and the ancestors of their cgroups.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Tree {
    nodes: Arc<[TreeNode]>,
    members: Arc<[Member]>,
    ancestors: Arc<[Ancestor]>,
    /// By position.
    parents: Arc<[CgroupParent]>,
    depths: Arc<[usize]>,
    ids: Ids,
    /// Machine for which percentages were resolved.
    machine: Option<PerResource<f64>>,
    /// Nodes whose guarantees do not fit into limits on that machine.
    cut: Vec<usize>,
}

impl Tree {
    /// Creates a tree whose cgroups are nested like the policy; `nodes` are in pre-order.
    pub fn new(nodes: Arc<[TreeNode]>) -> Tree {
        let parent =
            |node: &TreeNode| node.parent.map_or(CgroupParent::Top, CgroupParent::Governed);
        let parents = nodes.iter().map(parent).collect();
        Tree::below(nodes, parents, Vec::new(), Vec::new())
    }

    /// Creates a tree from the nodes (pre-order), the parents of their cgroups, the members (ordered by
    /// tenant) and the ancestors (parents first).
    pub fn below(
        nodes: Arc<[TreeNode]>,
        parents: Vec<CgroupParent>,
        members: Vec<Member>,
        ancestors: Vec<Ancestor>,
    ) -> Tree {
        debug_assert_eq!(parents.len(), nodes.len());
        debug_assert!(members.is_sorted_by_key(|member| member.tenant));
        let of_members = members.iter().map(|member| member.parent);
        let of_ancestors = ancestors.iter().map(|above| above.parent);
        let parents: Arc<[CgroupParent]> =
            parents.into_iter().chain(of_members).chain(of_ancestors).collect();
        let depths = depths(nodes.len() + members.len(), &parents).into();
        let (members, ancestors) = (members.into(), ancestors.into());
        let ids = Ids::first(parents.len());
        Tree { nodes, members, ancestors, parents, depths, ids, machine: None, cut: Vec::new() }
    }

    /// Gives the nodes that stay their identities in the tree `before`, and the others new ones. `kept` has the
    /// position here of each node there, if it stays.
    #[must_use]
    pub fn after(mut self, before: &Tree, kept: &[Option<usize>]) -> Tree {
        self.ids = self.ids.after(&before.ids, kept);
        self
    }

    /// Position of a node; `None` if it is not in this tree.
    pub fn position(&self, id: NodeId) -> Option<usize> {
        self.ids.position(id).filter(|at| *at < self.len())
    }

    /// Node with this identity; `None` if it is not in this tree.
    pub fn find(&self, id: NodeId) -> Option<Node<'_>> {
        self.position(id).map(|at| self.at(at))
    }

    /// Node at this position.
    pub fn at(&self, position: usize) -> Node<'_> {
        Node::new(self, position)
    }

    /// Node of the policy with this path.
    pub fn named(&self, path: &str) -> Option<Node<'_>> {
        self.policy_nodes().find(|node| node.name() == path)
    }

    /// All nodes in the order of their positions.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = Node<'_>> {
        (0..self.len()).map(|at| self.at(at))
    }

    /// Nodes of the policy, in pre-order.
    pub fn policy_nodes(&self) -> impl DoubleEndedIterator<Item = Node<'_>> {
        (0..self.nodes.len()).map(|at| self.at(at))
    }

    /// Nodes of the policy and members.
    pub fn tenants_and_members(&self) -> impl DoubleEndedIterator<Item = Node<'_>> {
        (0..self.first_ancestor()).map(|at| self.at(at))
    }

    /// True if siblings differ between kernel and policy: then [`crate::share::govern`] sets the weights.
    pub fn is_apart(&self) -> bool {
        let is_apart = |(node, parent): (&TreeNode, &CgroupParent)| {
            let in_policy = node.parent.map_or(CgroupParent::Top, CgroupParent::Governed);
            *parent != in_policy && *parent != CgroupParent::Unknown
        };
        !self.ancestors.is_empty() || self.nodes.iter().zip(&*self.parents).any(is_apart)
    }

    /// True if all cgroups have the same places as in `other`, a tree of the same policy.
    pub fn is_placed_as(&self, other: &Tree) -> bool {
        (&self.parents, &self.members, &self.ancestors)
            == (&other.parents, &other.members, &other.ancestors)
    }

    /// True if tenants have weights on disks.
    pub fn weighs_disks(&self) -> bool {
        self.nodes.first().is_some_and(|node| node.disk.is_some())
    }

    /// True if a tenant or group has limits on disks.
    pub fn limits_disks(&self) -> bool {
        self.nodes.iter().any(|node| node.written.limit.disk.limits().next().is_some())
    }

    /// Resolves percentages for `machine`, if it changed.
    pub fn fit(&mut self, machine: PerResource<f64>) {
        if self.machine != Some(machine) {
            self.machine = Some(machine);
            if self.nodes.iter().any(|node| node.written.has_percent()) {
                let mut nodes = self.nodes.to_vec();
                self.cut = fit(&mut nodes, machine);
                self.nodes = nodes.into();
            }
        }
    }

    /// Findings for guarantees that were cut to limits in percent.
    pub fn cuts(&self) -> impl Iterator<Item = Finding> {
        self.cut.iter().map(|at| {
            let what = "on this machine its limit, a percentage or beside one, is below what is guaranteed: the \
                        guarantees are scaled down";
            Finding::of(self.at(*at).name(), Code::Unkeepable, what)
        })
    }

    /// Policies of its nodes, in pre-order; their positions come first.
    pub fn nodes(&self) -> &[TreeNode] {
        &self.nodes
    }

    /// Shared reference to the nodes.
    pub fn shared_nodes(&self) -> Arc<[TreeNode]> {
        Arc::clone(&self.nodes)
    }

    /// Members, ordered by tenant.
    pub fn members(&self) -> impl DoubleEndedIterator<Item = (Node<'_>, &Member)> {
        let first = self.nodes.len();
        self.members.iter().enumerate().map(move |(index, member)| (self.at(first + index), member))
    }

    /// Members of each tenant that has any: the tenant's position, and theirs.
    pub fn sets_of_members(&self) -> impl Iterator<Item = (usize, Range<usize>)> {
        let mut first = self.nodes.len();
        self.members.chunk_by(|a, b| a.tenant == b.tenant).map(move |members| {
            let numbers = first..first + members.len();
            first = numbers.end;
            (members[0].tenant, numbers)
        })
    }

    /// Position of the first ancestor, even if there is none.
    pub fn first_ancestor(&self) -> usize {
        self.nodes.len() + self.members.len()
    }

    /// Ancestors.
    pub fn ancestors(&self) -> impl DoubleEndedIterator<Item = (Node<'_>, &Ancestor)> {
        let first = self.first_ancestor();
        self.ancestors.iter().enumerate().map(move |(index, above)| (self.at(first + index), above))
    }

    /// Parent of each cgroup, by position.
    pub fn parents(&self) -> &[CgroupParent] {
        &self.parents
    }

    /// Number of all nodes, members and ancestors.
    pub fn len(&self) -> usize {
        self.parents.len()
    }

    /// True if there is no node at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Nodes from the top downwards: ancestors, then the policy's nodes in pre-order, then members. A cgroup
    /// precedes those in it.
    pub fn from_above(&self) -> impl DoubleEndedIterator<Item = Node<'_>> {
        from_above(self.first_ancestor(), self.len()).map(|at| self.at(at))
    }

    /// For each position, true if `holds` for it, for a node or member below it in the policy, or for one whose
    /// cgroup is below its own.
    pub fn any_below(&self, holds: impl Fn(Node<'_>) -> bool) -> Vec<bool> {
        let mut any: Vec<bool> = self.all().map(holds).collect();
        for node in self.from_above().rev() {
            let in_policy = match self.nodes.get(node.at()) {
                Some(node) => node.parent,
                None => node.tenant().map(Node::at),
            };
            for above in in_policy.into_iter().chain(node.governed_parent().map(Node::at)) {
                any[above] |= any[node.at()];
            }
        }
        any
    }
}

fn from_above(first_ancestor: usize, nr_all: usize) -> impl DoubleEndedIterator<Item = usize> {
    (first_ancestor..nr_all).chain(0..first_ancestor)
}

fn depths(first_ancestor: usize, parents: &[CgroupParent]) -> Vec<usize> {
    let mut depths = vec![0; parents.len()];
    for at in from_above(first_ancestor, parents.len()) {
        if let CgroupParent::Governed(parent) = parents[at] {
            depths[at] = depths[parent] + 1;
        }
    }
    depths
}

/// A node of one tree, which exists there. Its identity ([`Node::id`]) outlives the tree; its position
/// ([`Node::at`]) does not.
#[derive(Clone, Copy, Debug)]
pub struct Node<'t> {
    tree: &'t Tree,
    at: usize,
}

impl<'t> Node<'t> {
    fn new(tree: &'t Tree, at: usize) -> Node<'t> {
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
        if self.has_members() { self.members() } else { self.at..self.at + 1 }
    }

    /// Its cgroups: its own, or its members.
    pub fn cgroups(self) -> impl Iterator<Item = Node<'t>> {
        self.places().map(|at| self.tree.at(at))
    }
}
