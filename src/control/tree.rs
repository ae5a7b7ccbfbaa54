//! The tree of tenants as the tick walks it: flat, in pre-order, parents before children.

use crate::policy::model::{Bound, CpusPolicy, DopPolicy, Policy, Tenant};

/// The resources that the agent divides, in the order of every vector of the control chain.
pub const RESOURCES: [&str; 2] = ["cpu", "memory"];
/// Index of CPU, in cores.
pub const CPU: usize = 0;
/// Index of memory, in bytes.
pub const MEMORY: usize = 1;

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
    pub weight: [f64; 2],
    /// What it gets whenever it wants it, in cores and bytes.
    pub guarantee: [Option<f64>; 2],
    /// What it never exceeds, in cores and bytes.
    pub limit: [Option<f64>; 2],
    /// Bounds of its degree of parallelism.
    pub dop: DopPolicy,
    /// Which CPUs it runs on.
    pub cpus: CpusPolicy,
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
        weight: [tenant.weight.cpu.get(), tenant.weight.memory.get()],
        guarantee: amounts(&tenant.guarantee),
        limit: amounts(&tenant.limit),
        dop: tenant.dop,
        cpus: tenant.cpus.clone(),
    });
    for child in &tenant.tenants {
        add(child, Some(index), nodes);
    }
}

fn amounts(bound: &Bound) -> [Option<f64>; 2] {
    [bound.cpu.map(|cpus| cpus.cores()), bound.memory.map(|bytes| bytes.0 as f64)]
}
