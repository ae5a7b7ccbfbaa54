//! Cgroups of a tenant in the kernel's tree: weights among siblings, and ancestors.

use std::collections::BTreeMap;

use super::explain_value::value_step;
use crate::report::explanation::{AboveStep, MemberStep, Outcome, ValueStep, WeightStep};
use crate::report::trace::{Record, Trace, ValueRecord};
use crate::share::demand::Demand;
use crate::tree::{CgroupParent, Member, Node, TreeNode};
use crate::width;
use crate::words::knob::Knob;
use crate::write::value_reason;
use tenantd_core::resource::{CPU, PerResource};

pub(crate) struct Shares<'a> {
    trace: &'a Trace,
    sums: BTreeMap<CgroupParent, f64>,
}

impl<'a> Shares<'a> {
    pub(crate) fn new(trace: &'a Trace) -> Shares<'a> {
        let mut sums = BTreeMap::new();
        for (parent, record) in trace.tree.parents().iter().zip(&trace.records) {
            *sums.entry(*parent).or_default() += record.target.cpu_weight;
        }
        Shares { trace, sums }
    }

    fn among_siblings(&self, node: Node<'_>) -> f64 {
        let sum = self.sums.get(&node.parent()).copied().unwrap_or(0.0);
        let weight = self.trace.records.get(node.at()).map_or(0.0, |it| it.target.cpu_weight);
        weight / sum.max(f64::MIN_POSITIVE)
    }

    /// Part of all governed CPU time for a cgroup, or for all members of a tenant, while all are busy.
    fn of_all(&self, node: Node<'_>) -> f64 {
        let of = |node: Node<'_>| {
            node.cgroups_above().map(|node| self.among_siblings(node)).product::<f64>()
        };
        node.cgroups().map(of).sum()
    }

    pub(crate) fn values(&self, node: Node<'_>) -> Vec<ValueStep> {
        let records = &self.trace.records;
        let tenant = node.tenant().and_then(|tenant| Some((tenant.policy()?, tenant.at())));
        let (Some((policy, tenant)), Some(of)) = (tenant, records.get(node.at())) else {
            return Vec::new();
        };
        // The width is the tenant's, the target the cgroup's own.
        let width = &records[tenant];
        let step = |value: &ValueRecord| {
            value_step(self.trace, node.name(), value, reason(policy, (of, width), value))
        };
        self.trace.values(of).iter().map(step).collect()
    }

    pub(crate) fn above(&self, node: Node<'_>) -> Vec<AboveStep> {
        let step = |node: Node<'_>| {
            let (unit, record) = (node.name(), self.trace.records.get(node.at())?);
            let reason =
                |value: &ValueRecord| value_reason::reason_above(value.knob, &record.target);
            let values = self.trace.values(record).iter();
            let values = values.map(|value| value_step(self.trace, unit, value, reason(value)));
            let (unit, sibling_share) = (unit.to_string(), self.among_siblings(node));
            Some(AboveStep { unit, sibling_share, values: values.collect() })
        };
        node.cgroups_above().filter(|node| node.is_ancestor()).filter_map(step).collect()
    }

    pub(crate) fn members(&self, tenant: Node<'_>) -> Vec<MemberStep> {
        let step = |(node, member): (Node<'_>, &Member)| {
            let record = self.trace.records.get(node.at())?;
            let demand = record.demand.unwrap_or(Demand::UNKNOWN);
            let usage = self.trace.usage(record);
            Some(MemberStep {
                cgroup: member.at.clone(),
                is_attached: member.is_attached,
                usage: PerResource::from_fn(|r| usage?.used(r)),
                demand: demand.amount,
                allocation: record.target.allocation,
                sibling_share: self.among_siblings(node),
                values: self.values(node),
                above: self.above(node),
            })
        };
        let members = tenant.tree().members();
        members.filter(|(_, member)| member.tenant == tenant.at()).filter_map(step).collect()
    }

    /// The weight of a tenant or group with this policy and record.
    pub(crate) fn weight_step(
        &self,
        tenant: Node<'_>,
        (node, record): (&TreeNode, &Record),
    ) -> WeightStep {
        let trace = self.trace;
        let (mut sum, mut policy_sum) = (0.0, 0.0);
        for (sibling, policy) in tenant.tree().policy_nodes().zip(tenant.tree().nodes()) {
            if policy.parent == node.parent {
                sum += self.of_all(sibling);
                policy_sum += policy.weight[CPU];
            }
        }
        let is_weight = |value: &&ValueRecord| value.knob == Knob::CpuWeight;
        let weight = trace.values(record).iter().find(is_weight);
        let reason = weight.map(|value| reason(node, (record, record), value));
        let file = weight.and_then(|value| match value.outcome {
            Outcome::Written => Some(&value.wanted),
            _ => value.held.as_ref(),
        });
        let without = if tenant.has_members() {
            "its weight is divided among its members"
        } else {
            "it has no weight in a file"
        };
        WeightStep {
            policy_weight: node.weight[CPU],
            policy_share: node.weight[CPU] / policy_sum.max(f64::MIN_POSITIVE),
            file_value: file.map(|value| (trace.spelling.text)(Knob::CpuWeight, value)),
            cpu_weight: record.target.cpu_weight,
            sibling_share: self.of_all(tenant) / sum.max(f64::MIN_POSITIVE),
            reason: reason.unwrap_or_else(|| without.to_string()),
        }
    }
}

/// Reason for a value of the cgroup with this record, whose tenant has this `width`.
fn reason(node: &TreeNode, (record, width): (&Record, &Record), value: &ValueRecord) -> String {
    match value.knob {
        Knob::Cpus => {
            let width = &width.width;
            let nr_cpus = width.cpus.as_ref().map_or(0, |cpus| cpus.len());
            width::cpus_reason(width.dop, nr_cpus)
        }
        knob => value_reason::reason(knob, &value.wanted, node, &record.target),
    }
}
