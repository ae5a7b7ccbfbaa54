//! The tree of tenants as the tick walks it: flat, in pre-order, parents before children.
//!
//! The nodes of the policy are followed by its *ancestors*: cgroups above tenants that the agent steers as
//! well, for example a slice of systemd's above the slices of tenants. An ancestor has no entitlement of its
//! own, only what follows from the nodes below it. One index, the *node's number*, counts through both.

use std::sync::Arc;

use super::finding::{Code, Finding};
use crate::policy::key::Setting;
use crate::policy::model::{Amount, CpusPolicy, DopPolicy, Policy, Tenant};
use crate::resource::{PerResource, Resource};

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
    /// What it gets whenever it wants it. A percentage is none until the machine is known ([`fit`]).
    pub guarantee: PerResource<Option<f64>>,
    /// What it never exceeds, likewise.
    pub limit: PerResource<Option<f64>>,
    /// Both as the policy writes them.
    pub written: Written,
    /// Bounds of its degree of parallelism.
    pub dop: DopPolicy,
    /// Which CPUs it runs on.
    pub cpus: CpusPolicy,
}

/// The bounds of a node as the policy writes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Its guarantees.
    pub guarantee: PerResource<Option<Amount>>,
    /// Its limits.
    pub limit: PerResource<Option<Amount>>,
}

impl Written {
    /// The bounds that are given, as settings of the policy.
    pub fn settings(&self) -> Vec<Setting> {
        let bounds = [("guarantee", &self.guarantee), ("limit", &self.limit)];
        let each = bounds.into_iter().flat_map(|(key, amounts)| {
            amounts.iter().filter_map(move |(r, amount)| {
                let value = (*amount)?.notation(r);
                Some(Setting { key: format!("{key}.{}", r.name()), value })
            })
        });
        each.collect()
    }

    fn has_percent(&self) -> bool {
        let all = self.guarantee.0.iter().chain(&self.limit.0);
        all.flatten().any(|amount| amount.is_percent())
    }
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
    /// The machine that percentages were resolved for.
    machine: Option<PerResource<f64>>,
    /// The nodes whose guarantees do not fit into limits on that machine.
    cut: Vec<usize>,
}

impl Tree {
    /// The nodes of a policy, in pre-order, below `ancestors`.
    pub fn new(nodes: Arc<[TreeNode]>, ancestors: Vec<Ancestor>) -> Tree {
        Tree { nodes, ancestors: ancestors.into(), machine: None, cut: Vec::new() }
    }

    /// Resolves percentages for `machine`, where it is not the one they are resolved for.
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

    /// Guarantees that were cut to the limits that the machine makes of percentages.
    pub fn cuts(&self) -> impl Iterator<Item = Finding> {
        self.cut.iter().map(|number| {
            let what = "on this machine its limit, a percentage or beside one, is below what is guaranteed: the \
                        guarantees are scaled down";
            Finding::of(self.name(*number), Code::Unkeepable, what)
        })
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

/// The nodes of a policy on a machine, in pre-order.
pub fn on_machine(policy: &Policy, machine: PerResource<f64>) -> Vec<TreeNode> {
    let mut nodes = flatten(policy);
    fit(&mut nodes, machine);
    nodes
}

/// Resolves the percentages of `nodes` for a machine, and scales guarantees down that do not fit into a limit
/// there: the policy was checked for the machine of that time, and CPUs and memory come and go. Returns the nodes
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
                // What was cut for the machine before counts in full again.
                Some(Amount::Absolute(all)) => node.guarantee[r] = Some(r.amount(all)),
                percent => resolve(&mut node.guarantee[r], percent, r),
            }
        }
        cut.extend(cut_to_limits(nodes, r));
    }
    cut
}

/// Scales the guarantees of each node and of all below it down to its limit; returns the nodes that need it.
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
        // A rounding of the sums is no cut.
        let is_cut = owed[index] * above > limit * (1.0 + 1e-9);
        ratios.push(if is_cut { limit / owed[index] } else { above });
        cut.extend(is_cut.then_some(index));
        if let Some(guarantee) = &mut node.guarantee[resource] {
            *guarantee = (*guarantee * ratios[index]).min(limit);
        }
    }
    cut
}

/// The nodes of a policy in pre-order, before the machine is known.
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
        guarantee: absolute(&tenant.guarantee),
        limit: absolute(&tenant.limit),
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
