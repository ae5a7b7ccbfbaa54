//! Preemption of running jobs while a guarantee of another tenant is due: less width, an end if they asked for it, and
//! freezing if the policy allows.
//!
//! [`Preemption`](tenantd_admission::Preemption) decides. This file takes its inputs from the last tick, and
//! freezes and thaws jobs. Frozen jobs are in the journal, so a stop, the next start after a kill and
//! `--restore` thaw them.

use std::collections::BTreeMap;

use tracing::{info, warn};

use super::cgroup::JobCgroup;
use super::evict;
use super::room::JobRoom;
use crate::backend::access::HostAccess;
use crate::tenants::state::Tenants;
use tenantd_admission::{Admission, Claim, Consent, JobId, Owed, Phase, Running};
use tenantd_control::report::reason::ReasonKind;
use tenantd_control::state::NodeState;
use tenantd_control::tree::TreeNode;
use tenantd_core::resource::CPU;
use tenantd_host::enforce::with_causes;
use tenantd_host::kernfs::KernFs;
use tenantd_policy::model::Mode;

impl JobRoom {
    /// Narrows, freezes and thaws jobs. With a tick it uses the unmet demand of tenants; between ticks it only
    /// thaws jobs that reached the freeze bound.
    pub(super) fn preempt<K: KernFs>(&mut self, tenants: &mut Tenants<K>, is_tick: bool, now: f64) {
        if tenants.mode() != Mode::Enforce {
            return self.thaw_all(&mut tenants.host);
        }
        let bound = tenants.base.written.admission.freeze.map(|bound| bound.as_secs_f64());
        if !is_tick {
            let over = self.preemption.overdue(bound, now);
            return over.into_iter().for_each(|job| self.thaw(&mut tenants.host, job));
        }
        let claims = claims(tenants.nodes(), tenants.control.states());
        let running = running(&self.admission, now);
        let orders = self.preemption.step(&claims, &running, bound, now);
        orders.thaw.into_iter().for_each(|job| self.thaw(&mut tenants.host, job));
        for (job, claim) in orders.evict {
            let eviction = self.admission.evict_for_guarantee(job, &claim, now);
            eviction.into_iter().for_each(|it| evict::send(self, it));
        }
        for job in orders.freeze {
            if let Err(why) = self.freeze(&mut tenants.host, job) {
                warn!("job {job} is not frozen: {why}");
                self.preemption.failed(job, bound.unwrap_or(0.0), now);
            }
        }
        let withheld = slots_of(
            &orders.withheld,
            self.admission.slots(),
            tenants.reporter.trace().capacity[CPU],
        );
        if self.admission.withhold(&withheld) {
            for (tenant, (slots, _)) in &withheld {
                info!(
                    tenant,
                    action = "job",
                    "jobs of others leave {slots} slots to its guarantee"
                );
            }
        }
    }

    fn freeze<K: KernFs>(&mut self, host: &mut HostAccess<K>, job: JobId) -> Result<(), String> {
        let home = self.records.get(&job).and_then(|record| record.home.as_ref());
        let cgroup = &home.ok_or("it has no cgroup")?.cgroup;
        let dir = cgroup.freeze_dir(&host.layout);
        let dir = dir.ok_or("this host has no tree of the unified hierarchy")?;
        let mut enforcer = host.enforcer();
        if !enforcer.freeze(dir).map_err(|error| with_causes(&error))? {
            return Err("another program has frozen it already".to_string());
        }
        info!(action = "job", "job {job} is frozen: a guarantee is due to another tenant");
        self.has_changed = true;
        Ok(())
    }

    fn thaw<K: KernFs>(&mut self, host: &mut HostAccess<K>, job: JobId) {
        self.has_changed = true;
        let home = self.records.get(&job).and_then(|record| record.home.as_ref());
        let Some(dir) = home.and_then(|home| home.cgroup.freeze_dir(&host.layout)) else {
            return;
        };
        match host.enforcer().thaw(dir) {
            Ok(()) => info!(action = "job", "job {job} is thawed"),
            Err(error) => warn!("job {job} is not thawed: {}", with_causes(&error)),
        }
    }

    pub(crate) fn thaw_all<K: KernFs>(&mut self, host: &mut HostAccess<K>) {
        let frozen = self.preemption.end();
        frozen.into_iter().for_each(|job| self.thaw(host, job));
        self.admission.withhold(&BTreeMap::new());
    }

    pub(super) fn forget_frozen<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        job: JobId,
        cgroup: &JobCgroup,
    ) {
        if !self.preemption.ended(job) {
            return;
        }
        let Some(dir) = cgroup.freeze_dir(&host.layout) else { return };
        let path = host.kernel.dir_path(dir);
        let mut enforcer = host.enforcer();
        if let Err(error) = enforcer.forget_frozen(&path) {
            warn!("{}", with_causes(&error));
        }
    }
}

fn running(admission: &Admission, now: f64) -> Vec<Running> {
    let running = admission.jobs().filter_map(|view| match view.phase {
        Phase::Running { since, dop } => {
            let (tenant, used_cores) = (view.request.tenant.clone(), view.used_cores);
            let consent = if view.is_leaving {
                Consent::Leaving
            } else if admission.is_evictable(view.job, now) {
                Consent::Evictable
            } else {
                Consent::No
            };
            Some(Running { job: view.job, tenant, since, dop, used_cores, consent })
        }
        _ => None,
    });
    running.collect()
}

/// Converts CPUs to slots; a machine may have more `slots` than its `divided` CPUs.
fn slots_of(
    owed: &BTreeMap<String, Owed>,
    slots: u32,
    divided: f64,
) -> BTreeMap<String, (u32, Owed)> {
    let per_core = (f64::from(slots) / divided.max(f64::MIN_POSITIVE)).max(1.0);
    // Float-to-integer casts saturate. A thousandth of a slot is noise.
    let slots = |owed: &Owed| (owed.due_cores * per_core - 1e-3).ceil() as u32;
    owed.iter().map(|(tenant, owed)| (tenant.clone(), (slots(owed), *owed))).collect()
}

/// CPUs of one tenant, or the sum over a group.
#[derive(Clone, Copy, Debug, Default)]
struct Cores {
    wanted: f64,
    used: f64,
    /// Unmet demand because other tenants have the CPUs.
    missing: f64,
}

fn claims(nodes: &[TreeNode], states: &[NodeState]) -> Vec<Claim> {
    let mut cores = vec![Cores::default(); nodes.len()];
    let mut claims = Vec::new();
    // In reverse: members of a group come after the group.
    for (number, node) in nodes.iter().enumerate().rev() {
        if node.is_leaf {
            cores[number] = cores_of(&states[number]);
        }
        let Cores { wanted, used, missing } = cores[number];
        if let Some(guaranteed) = node.guarantee[CPU] {
            let due_cores = guaranteed.min(wanted);
            let lacking_cores = missing.min(due_cores - used).max(0.0);
            claims.push(Claim { tenant: node.path.to_string(), due_cores, lacking_cores });
        }
        if let Some(above) = node.parent {
            let above = &mut cores[above];
            above.wanted += wanted;
            above.used += used;
            above.missing += missing;
        }
    }
    claims
}

fn cores_of(state: &NodeState) -> Cores {
    let wanted = state.demand.map_or(0.0, |demand| demand.amount[CPU]);
    let used = state.usage.as_ref().and_then(|usage| usage.used(CPU)).unwrap_or(0.0);
    let (Some(_), Some(shortfall)) = (&state.usage, &state.shortfall) else {
        return Cores { wanted, used, missing: 0.0 };
    };
    // Narrower jobs do not help a tenant that is held back by a limit or by itself.
    let is_its_own = |kind: ReasonKind| {
        use ReasonKind::{InsideTenant, KernelLimit, PolicyLimit};
        [InsideTenant, KernelLimit, PolicyLimit].contains(&kind)
    };
    let mut reasons = shortfall.reasons.iter().filter(|reason| reason.resource() == CPU);
    let is_held_back = reasons.any(|reason| is_its_own(reason.kind()));
    let missing = if is_held_back { 0.0 } else { shortfall.missing[CPU] };
    Cores { wanted, used, missing }
}
