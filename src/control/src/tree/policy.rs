//! Nodes of a policy, flat and in pre-order.

use serde::{Deserialize, Serialize};
use smol_str::{SmolStr, format_smolstr};

use crate::words::knob::Knob;
use tenantd_core::resource::{PerResource, Resource};
use tenantd_core::units::Weight;
use tenantd_policy::key::Setting;
use tenantd_policy::model::{Amount, CpusPolicy, DopPolicy, Guarantees, Limits, Policy, Tenant};

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
    /// Terms on disks; `None` if the policy divides no disk.
    pub disk: Option<DiskTerms>,
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

/// Terms of a node on disks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiskTerms {
    /// Weight among its siblings.
    pub weight: f64,
    /// Guaranteed part of each disk, 0 ..= 0.8; 0 without a guarantee.
    pub guarantee: f64,
}

impl Default for DiskTerms {
    fn default() -> DiskTerms {
        DiskTerms { weight: Weight::default().get(), guarantee: 0.0 }
    }
}

/// Bounds of a node as written in the policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// Guarantees.
    pub guarantee: Guarantees,
    /// Limits.
    pub limit: Limits,
}

impl Written {
    /// The given bounds, as settings of the policy.
    pub fn settings(&self) -> Vec<Setting> {
        let bounds = [("guarantee", &self.guarantee.amounts), ("limit", &self.limit.amounts)];
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
        let disk = self.limit.disk.limits().map(|(rate, limit)| Setting {
            key: format!("limit.disk.{}", rate.name()),
            value: rate.notation(limit),
        });
        let part = self
            .guarantee
            .disk
            .map(|part| Setting { key: "guarantee.disk".to_string(), value: part.to_string() });
        each.chain(part).chain(pids).chain(disk).collect()
    }

    pub(super) fn has_percent(&self) -> bool {
        let all = self.guarantee.amounts.0.iter().chain(&self.limit.amounts.0);
        all.flatten().any(|amount| amount.is_percent())
    }
}

/// One amount that is divided by terms of the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Row {
    /// A resource of the machine.
    Host(Resource),
    /// Time of a disk, as a part of all of it.
    Disk,
}

impl Row {
    /// Index of the disk in a problem of the allocation core: behind the resources.
    pub const DISK_AT: usize = Resource::ALL.len();

    /// Row with this index.
    pub fn at(index: usize) -> Row {
        Resource::ALL.get(index).map_or(Row::Disk, |resource| Row::Host(*resource))
    }

    /// Name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Row::Host(resource) => resource.name(),
            Row::Disk => "disk",
        }
    }
}

impl From<Resource> for Row {
    fn from(resource: Resource) -> Row {
        Row::Host(resource)
    }
}

/// Terms of a node on one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// Weight among its siblings.
    pub weight: f64,
    /// Guaranteed amount; 0 without a guarantee.
    pub guarantee: f64,
    /// Upper limit; infinite without one.
    pub limit: f64,
}

impl TreeNode {
    /// Terms on `row`.
    pub fn terms(&self, row: impl Into<Row>) -> Terms {
        match row.into() {
            Row::Host(r) => Terms {
                weight: self.weight[r],
                guarantee: self.guarantee[r].unwrap_or(0.0),
                limit: self.limit[r].unwrap_or(f64::INFINITY),
            },
            Row::Disk => {
                let DiskTerms { weight, guarantee } = self.disk.unwrap_or_default();
                Terms { weight, guarantee, limit: f64::INFINITY }
            }
        }
    }

    /// Upper limit that `knob` enforces, in the unit of the policy.
    pub fn limit_of(&self, knob: Knob) -> Option<f64> {
        match knob {
            Knob::PidsMax => self.written.limit.pids.map(f64::from),
            knob => match knob.disk_rate() {
                Some(rate) => Some(self.written.limit.disk[rate]? as f64),
                None => self.limit[knob.resource()?],
            },
        }
    }

    /// True if the policy has the limit that `knob` enforces, also a percentage of an unknown machine.
    pub fn limits(&self, knob: Knob) -> bool {
        let limit = &self.written.limit;
        match knob {
            Knob::PidsMax => limit.pids.is_some(),
            knob if knob.disk_rate().is_some() => self.limit_of(knob).is_some(),
            knob => knob.resource().is_some_and(|resource| limit[resource].is_some()),
        }
    }

    /// Upper bound of each resource for a given total: its limit, or all of it.
    pub fn at_most(&self, there_is: PerResource<f64>) -> PerResource<f64> {
        PerResource::from_fn(|r| self.limit[r].unwrap_or(f64::INFINITY).min(there_is[r]))
    }
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
        add(tenant, None, policy.host.disks.weighs(), &mut nodes);
    }
    nodes
}

fn add(tenant: &Tenant, parent: Option<usize>, weighs_disks: bool, nodes: &mut Vec<TreeNode>) {
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
        weight: tenant.weight.each.map(|weight| weight.get()),
        disk: weighs_disks.then(|| DiskTerms {
            weight: tenant.weight.disk.get(),
            guarantee: tenant.guarantee.disk_ratio(),
        }),
        guarantee: absolute(&tenant.guarantee.amounts),
        limit: absolute(&tenant.limit.amounts),
        written: Written { guarantee: tenant.guarantee, limit: tenant.limit },
        dop: tenant.dop,
        cpus: tenant.cpus.clone(),
        has_credit: tenant.credits && parent.is_none_or(|parent| nodes[parent].has_credit),
    });
    for child in &tenant.tenants {
        add(child, Some(index), weighs_disks, nodes);
    }
}

fn absolute(amounts: &PerResource<Option<Amount>>) -> PerResource<Option<f64>> {
    PerResource::from_fn(|r| Some(r.amount(amounts[r]?.on(None)?)))
}
