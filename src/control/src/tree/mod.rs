//! The tree of tenants: flat, in pre-order, parents before children.
//!
//! The nodes of the policy come first. *Members* follow: the cgroups of a tenant that has several, or whose
//! cgroups come and go. A tenant with members has no cgroup of its own; any other has one at most. *Ancestors*
//! are last: cgroups above tenants that belong to no tenant, such as systemd slices. An ancestor's entitlement
//! follows from the nodes below it. One index, the *position*, counts through all three. It is valid in one
//! tree; the identity of a node ([`NodeId`]) is valid in all trees of a run. A [`Node`] is a node of one tree.
//!
//! **Two trees.** The policy nests tenants in groups; the kernel divides among cgroups in one parent. Both are
//! the same for cgroups made by the agent. Systemd places units elsewhere, so each node also has the parent
//! of its cgroup ([`CgroupParent`]). All cgroups that the agent writes are *governed*.

pub mod bounds;
mod ids;
mod node;

pub use node::Node;

use std::ops::Range;
use std::sync::Arc;

use smol_str::{SmolStr, format_smolstr};

use crate::words::finding::{Code, Finding};
use ids::Ids;
use tenantd_core::codec::coded;
use tenantd_core::node::NodeId;
use tenantd_core::resource::{PerResource, Resource};
use tenantd_policy::key::Setting;
use tenantd_policy::model::{Amount, CpusPolicy, DopPolicy, Limits, Policy, Tenant};

/// One node of the tree: a tenant or a group.
#[derive(Clone, Debug, PartialEq)]
pub struct TreeNode {
    /// Names from the top, joined by `/`; also the path of its cgroup below the root. Every status contains
    /// this path.
    pub path: SmolStr,
    /// Index of the parent node.
    pub parent: Option<usize>,
    /// Distance from the top, 0 for the first level.
    pub depth: usize,
    /// True for a tenant, false for a group.
    pub is_leaf: bool,
    /// True if the template of its group found it.
    pub is_found: bool,
    /// Weight among its siblings, for each resource.
    pub weight: PerResource<f64>,
    /// Guaranteed amount. A percentage is `None` until the machine is known ([`fit`]).
    pub guarantee: PerResource<Option<f64>>,
    /// Upper limit, likewise.
    pub limit: PerResource<Option<f64>>,
    /// Both as written in the policy.
    pub written: Written,
    /// Bounds of its degree of parallelism.
    pub dop: DopPolicy,
    /// CPUs it runs on.
    pub cpus: CpusPolicy,
}

/// Bounds of a node as written in the policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Guarantees.
    pub guarantee: PerResource<Option<Amount>>,
    /// Limits.
    pub limit: Limits,
}

impl Written {
    /// The given bounds, as settings of the policy.
    pub fn settings(&self) -> Vec<Setting> {
        let bounds = [("guarantee", &self.guarantee), ("limit", &self.limit.amounts)];
        let each = bounds.into_iter().flat_map(|(key, amounts)| {
            amounts.iter().filter_map(move |(r, amount)| {
                let value = (*amount)?.notation(r);
                Some(Setting { key: format!("{key}.{}", r.name()), value })
            })
        });
        let pids = self
            .limit
            .pids
            .map(|pids| Setting { key: "limit.pids".to_string(), value: pids.to_string() });
        each.chain(pids).collect()
    }

    fn has_percent(&self) -> bool {
        let all = self.guarantee.0.iter().chain(&self.limit.amounts.0);
        all.flatten().any(|amount| amount.is_percent())
    }
}

impl TreeNode {
    /// Upper bound of each resource for a given total: its limit, or all of it.
    pub fn at_most(&self, there_is: PerResource<f64>) -> PerResource<f64> {
        PerResource::from_fn(|r| self.limit[r].unwrap_or(f64::INFINITY).min(there_is[r]))
    }
}

/// One cgroup of a tenant with several or varying cgroups.
#[derive(Clone, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
#[derive(Clone, Debug, Default)]
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

/// Nodes of a policy on a machine, in pre-order.
pub fn on_machine(policy: &Policy, machine: PerResource<f64>) -> Vec<TreeNode> {
    let mut nodes = flatten(policy);
    fit(&mut nodes, machine);
    nodes
}

/// Resolves the percentages of `nodes` for a machine, and scales down guarantees that do not fit into a
/// limit: the policy was checked for an earlier machine, and CPUs and memory come and go. Returns the nodes
/// with these limits.
pub fn fit(nodes: &mut [TreeNode], machine: PerResource<f64>) -> Vec<usize> {
    let resolve = |bound: &mut Option<f64>, written: Option<Amount>, r: Resource| {
        if let Some(percent) = written.filter(|amount| amount.is_percent()) {
            *bound = Some(percent.of(r, machine[r]));
        }
    };
    let mut cut = Vec::new();
    for r in Resource::ALL {
        for node in &mut *nodes {
            let written = node.written;
            resolve(&mut node.limit[r], written.limit[r], r);
            match written.guarantee[r] {
                // A guarantee cut for the last machine counts in full again.
                Some(Amount::Absolute(all)) => node.guarantee[r] = Some(r.amount(all)),
                percent => resolve(&mut node.guarantee[r], percent, r),
            }
        }
        cut.extend(cut_to_limits(nodes, r));
    }
    cut
}

/// Scales the guarantees in and below each node down to its limit; returns the nodes that need it.
fn cut_to_limits(nodes: &mut [TreeNode], resource: Resource) -> Vec<usize> {
    let mut owed: Vec<f64> = vec![0.0; nodes.len()];
    for (index, node) in nodes.iter().enumerate().rev() {
        owed[index] = node.guarantee[resource].unwrap_or(0.0).max(owed[index]);
        if let Some(parent) = node.parent {
            owed[parent] += owed[index];
        }
    }
    let mut cut = Vec::new();
    let mut ratios: Vec<f64> = Vec::with_capacity(nodes.len());
    for (index, node) in nodes.iter_mut().enumerate() {
        let above = node.parent.map_or(1.0, |parent| ratios[parent]);
        let limit = node.limit[resource].unwrap_or(f64::INFINITY);
        // Rounding of the sums is not a cut.
        let is_cut = owed[index] * above > limit * (1.0 + 1e-9);
        ratios.push(if is_cut { limit / owed[index] } else { above });
        cut.extend(is_cut.then_some(index));
        if let Some(guarantee) = &mut node.guarantee[resource] {
            *guarantee = (*guarantee * ratios[index]).min(limit);
        }
    }
    cut
}

/// Nodes of a policy in pre-order, before the machine is known.
pub fn flatten(policy: &Policy) -> Vec<TreeNode> {
    let mut nodes = Vec::new();
    for tenant in &policy.tenants {
        add(tenant, None, &mut nodes);
    }
    nodes
}

fn add(tenant: &Tenant, parent: Option<usize>, nodes: &mut Vec<TreeNode>) {
    let (path, depth) = match parent {
        Some(parent) => {
            let above = &nodes[parent];
            (format_smolstr!("{}/{}", above.path, tenant.name), above.depth + 1)
        }
        None => (tenant.name.as_str().into(), 0),
    };
    let index = nodes.len();
    nodes.push(TreeNode {
        path,
        parent,
        depth,
        is_leaf: !tenant.is_group(),
        is_found: tenant.is_found,
        weight: tenant.weight.map(|weight| weight.get()),
        guarantee: absolute(&tenant.guarantee),
        limit: absolute(&tenant.limit.amounts),
        written: Written { guarantee: tenant.guarantee, limit: tenant.limit },
        dop: tenant.dop,
        cpus: tenant.cpus.clone(),
    });
    for child in &tenant.tenants {
        add(child, Some(index), nodes);
    }
}

fn absolute(amounts: &PerResource<Option<Amount>>) -> PerResource<Option<f64>> {
    PerResource::from_fn(|r| Some(r.amount(amounts[r]?.on(None)?)))
}

// --- recorded ---

coded!(struct Written { guarantee, limit });
coded!(struct TreeNode {
    path, parent, depth, is_leaf, is_found, weight, guarantee, limit, written, dop, cpus,
});
coded!(struct Member { tenant, at, name, is_attached, parent });
coded!(struct Ancestor { name, cgroup, parent, is_unit, is_shared, has_protection });
coded!(enum CgroupParent { Unknown {}, Members {}, Top {}, Governed { 0: position } });
coded!(struct Tree { nodes, members, ancestors, parents, depths, ids, machine, cut });
