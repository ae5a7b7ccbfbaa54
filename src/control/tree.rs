//! The tree of tenants as the tick walks it: flat, in pre-order, parents before children.
//!
//! The nodes of the policy are followed by its *ancestors*: cgroups above tenants that the agent steers as
//! well, for example a slice of systemd's above the slices of tenants. An ancestor has no entitlement of its
//! own, only what follows from the nodes below it. One index, the *node's number*, counts through both.

use std::sync::Arc;

use crate::policy::model::{CpusPolicy, DopPolicy, Policy, Tenant};
use crate::resource::PerResource;

/// One node of the tree: a tenant, or a group of them.
#[derive(Clone, Debug, PartialEq)]
pub struct TreeNode {
    /// Its names from the top, joined by `/`: also the path of its cgroup below the root.
    pub path: String,
    /// Index of the node above it.
    pub parent: Option<usize>,
    /// Distance from the top, 0 for the first level.
    pub depth: usize,
    /// Whether it is a tenant, not a group.
    pub is_leaf: bool,
    /// Its weight against its siblings, for each resource.
    pub weight: PerResource<f64>,
    /// What it gets whenever it wants it.
    pub guarantee: PerResource<Option<f64>>,
    /// What it never exceeds.
    pub limit: PerResource<Option<f64>>,
    /// Bounds of its degree of parallelism.
    pub dop: DopPolicy,
    /// Which CPUs it runs on.
    pub cpus: CpusPolicy,
}

impl TreeNode {
    /// What it can have of each resource at most where there is so much: its limit, or all of it.
    pub fn at_most(&self, there_is: PerResource<f64>) -> PerResource<f64> {
        PerResource::from_fn(|r| self.limit[r].unwrap_or(f64::INFINITY).min(there_is[r]))
    }
}

/// A cgroup above tenants. Its protection follows from that of the tenants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ancestor {
    /// What a finding calls it.
    pub name: String,
    /// The numbers of the topmost nodes below it.
    pub below: Vec<usize>,
}

/// The nodes of the policy and the ancestors of their cgroups.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    nodes: Arc<[TreeNode]>,
    ancestors: Arc<[Ancestor]>,
}

impl Tree {
    /// The nodes of a policy, in pre-order, below `ancestors`.
    pub fn new(nodes: Arc<[TreeNode]>, ancestors: Vec<Ancestor>) -> Tree {
        Tree { nodes, ancestors: ancestors.into() }
    }

    /// The nodes of the policy, in pre-order; their numbers come first.
    pub fn nodes(&self) -> &[TreeNode] {
        &self.nodes
    }

    /// The same, to be kept.
    pub fn shared_nodes(&self) -> Arc<[TreeNode]> {
        Arc::clone(&self.nodes)
    }

    /// The ancestors, each with its number.
    pub fn ancestors(&self) -> impl Iterator<Item = (usize, &Ancestor)> {
        self.ancestors.iter().enumerate().map(|(index, above)| (self.nodes.len() + index, above))
    }

    /// How many numbers there are.
    pub fn len(&self) -> usize {
        self.nodes.len() + self.ancestors.len()
    }

    /// Whether there is no node at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What a finding calls the node with this number.
    ///
    /// # Panics
    /// There is no such node.
    pub fn name(&self, number: usize) -> &str {
        match self.nodes.get(number) {
            Some(node) => &node.path,
            None => &self.ancestors[number - self.nodes.len()].name,
        }
    }

    /// The number of the node above this one in the policy, or of the ancestor directly above it.
    pub fn above(&self, number: usize) -> Option<usize> {
        let parent = self.nodes.get(number).and_then(|node| node.parent);
        let ancestor =
            || self.ancestors().find(|(_, above)| above.below.contains(&number)).map(|(n, _)| n);
        parent.or_else(ancestor)
    }

    /// The numbers from the top downwards: ancestors, then the policy's nodes in pre-order.
    pub fn from_above(&self) -> impl Iterator<Item = usize> + use<> {
        let (nodes, all) = (self.nodes.len(), self.len());
        (nodes..all).chain(0..nodes)
    }

    /// For each number, whether `holds` for it or for any node below it.
    pub fn any_below(&self, holds: impl Fn(usize) -> bool) -> Vec<bool> {
        let mut any: Vec<bool> = (0..self.len()).map(holds).collect();
        for (index, node) in self.nodes.iter().enumerate().rev() {
            if let Some(parent) = node.parent {
                any[parent] |= any[index];
            }
        }
        for (number, ancestor) in self.ancestors() {
            any[number] |= ancestor.below.iter().any(|below| any[*below]);
        }
        any
    }
}

/// The nodes of a policy in pre-order.
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
            (format!("{}/{}", nodes[parent].path, tenant.name), nodes[parent].depth + 1)
        }
        None => (tenant.name.clone(), 0),
    };
    let index = nodes.len();
    nodes.push(TreeNode {
        path,
        parent,
        depth,
        is_leaf: !tenant.is_group(),
        weight: tenant.weight.map(|weight| weight.get()),
        guarantee: tenant.guarantee.amounts(),
        limit: tenant.limit.amounts(),
        dop: tenant.dop,
        cpus: tenant.cpus.clone(),
    });
    for child in &tenant.tenants {
        add(child, Some(index), nodes);
    }
}
