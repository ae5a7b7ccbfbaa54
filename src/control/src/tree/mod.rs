//! The tree of tenants: flat, in pre-order, parents before children.
//!
//! The nodes of the policy come first. *Members* follow: the cgroups of a tenant that has several, or whose
//! cgroups come and go. A tenant with members has no cgroup of its own; any other has one at most. *Ancestors*
//! are last: cgroups above tenants that belong to no tenant, such as systemd slices. An ancestor's entitlement
//! follows from the nodes below it. One index, the *number*, counts through all three.
//!
//! **Two trees.** The policy nests tenants in groups; the kernel divides among cgroups in one parent. Both are
//! the same for cgroups made by the agent. Systemd places units elsewhere, so each number also has the parent
//! of its cgroup ([`CgroupParent`]). All cgroups that the agent writes are *governed*.

pub mod bounds;

use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;

use smol_str::{SmolStr, format_smolstr};

use crate::words::finding::{Code, Finding};
use crate::words::knob::Knob;
use tenantd_core::resource::{PerResource, Resource};
use tenantd_policy::key::Setting;
use tenantd_policy::model::{Amount, CpusPolicy, DopPolicy, Limits, Policy, Tenant};

/// One node of the tree: a tenant or a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// True if it takes part in credits: no policy of it or of a group above it excludes it.
    pub has_credit: bool,
}

/// Bounds of a node as written in the policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Upper limit that `knob` enforces, in the unit of the policy.
    pub fn limit_of(&self, knob: Knob) -> Option<f64> {
        match knob {
            Knob::PidsMax => self.written.limit.pids.map(f64::from),
            knob => self.limit[knob.resource()?],
        }
    }

    /// True if the policy has the limit that `knob` enforces, also a percentage of an unknown machine.
    pub fn limits(&self, knob: Knob) -> bool {
        let limit = &self.written.limit;
        match knob {
            Knob::PidsMax => limit.pids.is_some(),
            knob => knob.resource().is_some_and(|resource| limit[resource].is_some()),
        }
    }

    /// Upper bound of each resource for a given total: its limit, or all of it.
    pub fn at_most(&self, there_is: PerResource<f64>) -> PerResource<f64> {
        PerResource::from_fn(|r| self.limit[r].unwrap_or(f64::INFINITY).min(there_is[r]))
    }
}

/// Number of a node of the policy. A plain number may also be a member's or an ancestor's, which have no
/// [`TreeNode`]; only a [`Tree`] converts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeNumber(usize);

impl NodeNumber {
    /// The number among nodes, members and ancestors.
    pub fn get(self) -> usize {
        self.0
    }
}

/// One cgroup of a tenant with several or varying cgroups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Number of its tenant.
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
    /// The cgroup of the node with this number.
    Governed(usize),
}

/// Nodes of the policy, their members, and the ancestors of their cgroups.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Tree {
    nodes: Arc<[TreeNode]>,
    members: Arc<[Member]>,
    ancestors: Arc<[Ancestor]>,
    /// By number.
    parents: Arc<[CgroupParent]>,
    depths: Arc<[usize]>,
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
        Tree { nodes, members, ancestors, parents, depths, machine: None, cut: Vec::new() }
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
        self.cut.iter().map(|number| {
            let what = "on this machine its limit, a percentage or beside one, is below what is guaranteed: the \
                        guarantees are scaled down";
            Finding::of(self.name(*number), Code::Unkeepable, what)
        })
    }

    /// Nodes of the policy, in pre-order; their numbers come first.
    pub fn nodes(&self) -> &[TreeNode] {
        &self.nodes
    }

    /// Shared reference to the nodes.
    pub fn shared_nodes(&self) -> Arc<[TreeNode]> {
        Arc::clone(&self.nodes)
    }

    /// Members with their numbers, ordered by tenant.
    pub fn members(&self) -> impl DoubleEndedIterator<Item = (usize, &Member)> {
        let nr_nodes = self.nodes.len();
        self.members.iter().enumerate().map(move |(index, member)| (nr_nodes + index, member))
    }

    /// Members of each tenant that has any: the tenant's number, and theirs.
    pub fn sets_of_members(&self) -> impl Iterator<Item = (usize, Range<usize>)> {
        let mut first = self.nodes.len();
        self.members.chunk_by(|a, b| a.tenant == b.tenant).map(move |members| {
            let numbers = first..first + members.len();
            first = numbers.end;
            (members[0].tenant, numbers)
        })
    }

    /// Numbers of one tenant's members.
    pub fn members_of(&self, tenant: usize) -> Range<usize> {
        let first = self.members.partition_point(|member| member.tenant < tenant);
        let end = self.members.partition_point(|member| member.tenant <= tenant);
        self.nodes.len() + first..self.nodes.len() + end
    }

    /// True if the node has members, possibly none now, instead of a cgroup of its own.
    pub fn has_members(&self, number: usize) -> bool {
        self.parents[number] == CgroupParent::Members
    }

    /// Numbers of a tenant's cgroups: its own, or its members.
    pub fn cgroups_of(&self, tenant: usize) -> Range<usize> {
        match self.has_members(tenant) {
            true => self.members_of(tenant),
            false => tenant..tenant + 1,
        }
    }

    /// True for the cgroup of a tenant or of a member: not for a group, an ancestor, or a tenant with members.
    pub fn has_work(&self, number: usize) -> bool {
        match self.nodes.get(number) {
            Some(node) => node.is_leaf && !self.has_members(number),
            None => number < self.first_ancestor(),
        }
    }

    /// Number of the policy's node for this node or member; `None` for an ancestor.
    pub fn node_number(&self, number: usize) -> Option<usize> {
        match number.checked_sub(self.nodes.len()) {
            None => Some(number),
            Some(index) => self.members.get(index).map(|member| member.tenant),
        }
    }

    /// Number of the policy's node as a [`NodeNumber`], for lists of these nodes.
    pub fn owner_of(&self, number: usize) -> Option<NodeNumber> {
        self.node_number(number).map(NodeNumber)
    }

    /// Numbers of the policy's nodes.
    pub fn node_numbers(&self) -> impl Iterator<Item = NodeNumber> + use<> {
        (0..self.nodes.len()).map(NodeNumber)
    }

    /// The policy's node for this node or member; `None` for an ancestor.
    pub fn node(&self, number: usize) -> Option<&TreeNode> {
        Some(&self.nodes[self.node_number(number)?])
    }

    /// Number of the first ancestor, even if there is none.
    pub fn first_ancestor(&self) -> usize {
        self.nodes.len() + self.members.len()
    }

    /// True for an ancestor.
    pub fn is_ancestor(&self, number: usize) -> bool {
        number >= self.first_ancestor()
    }

    /// Ancestors with their numbers.
    pub fn ancestors(&self) -> impl DoubleEndedIterator<Item = (usize, &Ancestor)> {
        let first = self.first_ancestor();
        self.ancestors.iter().enumerate().map(move |(index, above)| (first + index, above))
    }

    /// True if the ancestor is protected for the tenants below it.
    pub fn protects(&self, number: usize) -> bool {
        let index = number.checked_sub(self.first_ancestor());
        index.and_then(|index| self.ancestors.get(index)).is_some_and(|above| above.has_protection)
    }

    /// Parent of each number's cgroup.
    pub fn parents(&self) -> &[CgroupParent] {
        &self.parents
    }

    /// Count of all numbers.
    pub fn len(&self) -> usize {
        self.parents.len()
    }

    /// True if there is no node at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Name of the node, member or ancestor in findings.
    ///
    /// # Panics
    /// There is no such number.
    pub fn name(&self, number: usize) -> &str {
        let nr_nodes = self.nodes.len();
        match (self.nodes.get(number), number.checked_sub(self.first_ancestor())) {
            (Some(node), _) => &node.path,
            (None, Some(index)) => &self.ancestors[index].name,
            (None, None) => &self.members[number - nr_nodes].name,
        }
    }

    /// Numbers from the top downwards: ancestors, then the policy's nodes in pre-order, then members. A
    /// cgroup precedes those in it.
    pub fn from_above(&self) -> impl DoubleEndedIterator<Item = usize> + use<> {
        from_above(self.first_ancestor(), self.len())
    }

    /// Depth of each number's cgroup in the tree.
    pub fn depths(&self) -> &[usize] {
        &self.depths
    }

    /// For each number, true if `holds` for it, for a node or member below it in the policy, or for one
    /// whose cgroup is below its own.
    pub fn any_below(&self, holds: impl Fn(usize) -> bool) -> Vec<bool> {
        let mut any: Vec<bool> = (0..self.len()).map(holds).collect();
        for number in self.from_above().rev() {
            let in_policy = match self.nodes.get(number) {
                Some(node) => node.parent,
                None => self.node_number(number),
            };
            let in_cgroups = match self.parents[number] {
                CgroupParent::Governed(parent) => Some(parent),
                _ => None,
            };
            for above in in_policy.into_iter().chain(in_cgroups) {
                any[above] |= any[number];
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
    for number in from_above(first_ancestor, parents.len()) {
        if let CgroupParent::Governed(parent) = parents[number] {
            depths[number] = depths[parent] + 1;
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
        has_credit: tenant.credits && parent.is_none_or(|parent| nodes[parent].has_credit),
    });
    for child in &tenant.tenants {
        add(child, Some(index), nodes);
    }
}

fn absolute(amounts: &PerResource<Option<Amount>>) -> PerResource<Option<f64>> {
    PerResource::from_fn(|r| Some(r.amount(amounts[r]?.on(None)?)))
}
