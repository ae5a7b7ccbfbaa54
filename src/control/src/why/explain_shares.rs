//! Cgroups of a tenant in the kernel's tree: weights among siblings, and ancestors.

use std::collections::BTreeMap;

use super::explain_value::value_step;
use crate::report::explanation::{AboveStep, MemberStep, Outcome, ValueStep, WeightStep};
use crate::report::trace::{Record, Trace, ValueRecord};
use crate::share::demand::Demand;
use crate::tree::{CgroupParent, Member, TreeNode};
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

    fn path(&self, number: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(number), |number| match self.trace.tree.parents().get(*number) {
            Some(CgroupParent::Governed(above)) => Some(*above),
            _ => None,
        })
    }

    fn among_siblings(&self, number: usize) -> f64 {
        let parent = self.trace.tree.parents().get(number);
        let sum = parent.and_then(|parent| self.sums.get(parent)).copied().unwrap_or(0.0);
        let weight = self.trace.records.get(number).map_or(0.0, |it| it.target.cpu_weight);
        weight / sum.max(f64::MIN_POSITIVE)
    }

    /// Part of all governed CPU time for a cgroup, or for all members of a tenant, while all are busy.
    fn of_all(&self, number: usize) -> f64 {
        let of =
            |number| self.path(number).map(|number| self.among_siblings(number)).product::<f64>();
        match self.trace.tree.has_members(number) {
            true => self.trace.tree.members_of(number).map(of).sum(),
            false => of(number),
        }
    }

    pub(crate) fn values(&self, number: usize) -> Vec<ValueStep> {
        let tree = &self.trace.tree;
        let (Some(node), Some(of)) = (tree.node_number(number), self.trace.records.get(number))
        else {
            return Vec::new();
        };
        // The width is the tenant's, the target the cgroup's own.
        let width = &self.trace.records[node];
        let node = &tree.nodes()[node];
        let step = |value: &ValueRecord| {
            value_step(self.trace, tree.name(number), value, reason(node, (of, width), value))
        };
        self.trace.values(of).iter().map(step).collect()
    }

    pub(crate) fn above(&self, number: usize) -> Vec<AboveStep> {
        let tree = &self.trace.tree;
        let step = |number: usize| {
            let (unit, record) = (tree.name(number), self.trace.records.get(number)?);
            let reason =
                |value: &ValueRecord| value_reason::reason_above(value.knob, &record.target);
            let values = self.trace.values(record).iter();
            let values = values.map(|value| value_step(self.trace, unit, value, reason(value)));
            let (unit, sibling_share) = (unit.to_string(), self.among_siblings(number));
            Some(AboveStep { unit, sibling_share, values: values.collect() })
        };
        self.path(number).filter(|number| tree.is_ancestor(*number)).filter_map(step).collect()
    }

    pub(crate) fn members(&self, tenant: usize) -> Vec<MemberStep> {
        let tree = &self.trace.tree;
        let step = |(number, member): (usize, &Member)| {
            let record = self.trace.records.get(number)?;
            let demand = record.demand.unwrap_or(Demand::UNKNOWN);
            let usage = self.trace.usage(record);
            Some(MemberStep {
                cgroup: member.at.clone(),
                is_attached: member.is_attached,
                usage: PerResource::from_fn(|r| usage?.used(r)),
                demand: demand.amount,
                allocation: record.target.allocation,
                sibling_share: self.among_siblings(number),
                values: self.values(number),
                above: self.above(number),
            })
        };
        tree.members().filter(|(_, member)| member.tenant == tenant).filter_map(step).collect()
    }

    pub(crate) fn weight_step(&self, index: usize) -> WeightStep {
        let (trace, nodes) = (self.trace, self.trace.tree.nodes());
        let node = &nodes[index];
        let siblings = nodes.iter().enumerate().filter(|(_, other)| other.parent == node.parent);
        let (mut sum, mut policy_sum) = (0.0, 0.0);
        for (number, sibling) in siblings {
            sum += self.of_all(number);
            policy_sum += sibling.weight[CPU];
        }
        let record = &trace.records[index];
        let is_weight = |value: &&ValueRecord| value.knob == Knob::CpuWeight;
        let weight = trace.values(record).iter().find(is_weight);
        let reason = weight.map(|value| reason(node, (record, record), value));
        let file = weight.and_then(|value| match value.outcome {
            Outcome::Written => Some(&value.wanted),
            _ => value.held.as_ref(),
        });
        let without = match trace.tree.has_members(index) {
            true => "its weight is divided among its members",
            false => "it has no weight in a file",
        };
        WeightStep {
            policy_weight: node.weight[CPU],
            policy_share: node.weight[CPU] / policy_sum.max(f64::MIN_POSITIVE),
            file_value: file.map(|value| (trace.spelling.text)(Knob::CpuWeight, value)),
            cpu_weight: record.target.cpu_weight,
            sibling_share: self.of_all(index) / sum.max(f64::MIN_POSITIVE),
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
