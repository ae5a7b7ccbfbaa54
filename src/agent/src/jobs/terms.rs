//! The policy of jobs in the types of the queue.

use std::collections::HashMap;
use std::sync::Arc;

use tracing::warn;

use super::outcome;
use super::reply::JobAnswer;
use super::room::JobRoom;
use crate::tenants::state::Tenants;
use tenantd_admission::{
    Capacity, Guarantee, JobId, JobView, Measured, Phase, Reserve, Rules, Terms,
};
use tenantd_control::tree::TreeNode;
use tenantd_core::resource::{CPU, MEMORY};
use tenantd_host::kernfs::KernFs;
use tenantd_policy::model::{CpusPolicy, DopPolicy, JobsPolicy, Policy};
use tenantd_varlink::error::CallError;
use tenantd_varlink::jobs::EndReason;

impl JobRoom {
    pub(super) fn renew_terms<K: KernFs>(&mut self, tenants: &Tenants<K>, now: f64) {
        let nodes = tenants.control.tree().shared_nodes();
        let rules = rules(&tenants.base.written);
        let is_same = Arc::ptr_eq(&tenants.base.written, &self.policy);
        if is_same && Arc::ptr_eq(&nodes, &self.nodes) {
            return;
        }
        let policy = tenants.base.in_force();
        let terms = of(&nodes, policy);
        let is_left = |tenant: &str| terms.iter().any(|it| it.path == tenant);
        let leaving = self.admission.jobs().filter(|view| !is_left(&view.request.tenant));
        let (waiting, begun): (Vec<JobView<'_>>, Vec<JobView<'_>>) =
            leaving.partition(|view| matches!(view.phase, Phase::Waiting { .. }));
        let sets = begun.iter().filter(|view| view.set.is_some());
        let mut tenant_of: HashMap<JobId, String> = waiting
            .iter()
            .chain(sets)
            .map(|view| (view.job, view.request.tenant.clone()))
            .collect();
        let mut leaving: Vec<JobId> = waiting.iter().map(|view| view.job).collect();
        leaving.sort_unstable();
        for job in leaving {
            let text = "left the queue: its tenant has left the policy";
            outcome::record_unstarted(self, job, EndReason::TenantGone, text, now);
        }
        let gone = self.admission.policy(rules, terms, now);
        let is_there = |tenant: &String| nodes.iter().any(|node| node.path == *tenant);
        self.tallies.retain(|tenant, _| is_there(tenant));
        (self.nodes, self.policy) = (nodes, Arc::clone(&tenants.base.written));
        for job in gone {
            let tenant = tenant_of.remove(&job).unwrap_or_default();
            let error = CallError::NoSuchTenant { tenant, tenants: Vec::new(), awaited: None };
            self.answer(job, JobAnswer::Submitted(Err(error)));
            // A set that has begun ends with its process.
            if self.admission.job(job).is_none() {
                self.records.remove(&job);
            }
            self.has_changed = true;
        }
    }

    pub(super) fn measure<K: KernFs>(&mut self, tenants: &mut Tenants<K>, now: f64) {
        let slots = tenants.reporter.trace().slots.max(1);
        let sample = match tenants.host.machine.sample(&mut tenants.host.kernel) {
            Ok(sample) => sample,
            Err(error) => return warn!("the memory for jobs is not known: {error}"),
        };
        let total = sample.memory_total_bytes;
        let reserve = tenants.base.written.host.reserve[MEMORY].on(Some(total)).unwrap_or(0);
        let memory_bytes = Some(total.saturating_sub(reserve));
        let resources = tenants.base.written.host.resources.iter();
        let units = resources.map(|it| (it.name.clone(), it.count)).collect();
        self.admission.capacity(Capacity { slots, memory_bytes, units }, now);
        let views = self.admission.active();
        let of_jobs: u64 = views.filter_map(|view| view.used_bytes).sum();
        if let Some(available) = sample.memory_available_bytes {
            let used = total.saturating_sub(available);
            self.measured = Measured { outside_bytes: used.saturating_sub(of_jobs) };
        }
    }
}

fn rules(policy: &Policy) -> Rules {
    let (admission, default) = (&policy.admission, Rules::default());
    Rules {
        discipline: admission.discipline,
        max_running: admission.max_running,
        overtakes_max: admission.overtakes.unwrap_or(default.overtakes_max),
        max_waiting: admission.max_waiting.unwrap_or(default.max_waiting),
        max_waiting_per_user: admission
            .max_waiting_per_user
            .unwrap_or(default.max_waiting_per_user),
        reserve: admission
            .short_jobs
            .and_then(|kept| Some(Reserve { workers: kept.workers?, below: kept.below })),
    }
}

/// Terms of every tenant among `nodes`. The weight of a tenant is its part of the sum of its siblings, times
/// the weight of its group, and so on up to the top.
fn of(nodes: &[TreeNode], policy: &Policy) -> Vec<Terms> {
    let leaves = policy.leaves().into_iter();
    let quotas: HashMap<String, JobsPolicy> =
        leaves.map(|(path, tenant)| (path, tenant.jobs)).collect();
    let mut sums = vec![0.0; nodes.len() + 1];
    let siblings = |node: &TreeNode| node.parent.map_or(0, |parent| parent + 1);
    nodes.iter().for_each(|node| sums[siblings(node)] += node.weight[CPU]);
    let mut shares: Vec<f64> = Vec::with_capacity(nodes.len());
    let mut terms = Vec::new();
    for node in nodes {
        // Groups come before their members.
        let above = node.parent.map_or(1.0, |parent| shares[parent]);
        let share = above * node.weight[CPU] / sums[siblings(node)];
        shares.push(share);
        if node.is_leaf {
            let cpus = node.limit[CPU].map(|cpus| (cpus.ceil() as u32).max(1));
            let dop = match node.dop {
                DopPolicy::Manual(dop) | DopPolicy::AtMost(dop) => Some(dop),
                DopPolicy::Auto | DopPolicy::Imci => None,
            };
            let fixed = match &node.cpus {
                CpusPolicy::Fixed(cpus) => u32::try_from(cpus.len()).ok(),
                CpusPolicy::Shared | CpusPolicy::Dop | CpusPolicy::Exclusive => None,
            };
            let quota = quotas.get(node.path.as_str()).copied().unwrap_or_default();
            terms.push(Terms {
                max_running: quota.max_running,
                max_running_per_user: quota.max_running_per_user,
                memory_max_bytes: node.limit[MEMORY].map(|bytes| bytes as u64),
                guarantee: Guarantee {
                    cores: node.guarantee[CPU].unwrap_or(0.0),
                    memory_bytes: node.guarantee[MEMORY].map_or(0, |bytes| bytes as u64),
                },
                dop_max: cpus.into_iter().chain(dop).chain(fixed).min(),
                ..Terms::new(&*node.path, share)
            });
        }
    }
    terms
}
