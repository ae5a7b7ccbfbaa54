//! The tenants of one user, without data of others.
//!
//! **Problem.** Every user of the host may ask about itself, and most users may not read the rest. **Terms.** A
//! tenant is the caller's if its `match` names the user or a group of the calling process, if a job of the user is in
//! it, or if the calling process is in a cgroup of it. **Rules.** The view has the figures of these tenants only. It
//! names no other tenant, and no program or cgroup outside of the caller's tenants: reasons lose these names. The last
//! published tick answers; neither the agent nor an account service is asked.
//!
//! **Bounds.** Linear in the numbers of tenants, jobs and cgroups of tenants; at most [`TENANTS_MAX`] tenants.

use std::collections::BTreeMap;
use std::fs;

use super::bridge::Published;
use super::own_view::{Claimants, OwnBasis, OwnTenant, OwnView};
use super::peers::{self, Peer};
use tenantd_control::report::status::{ReasonStatus, Status, TenantStatus, group_of};
use tenantd_control::report::trace::Trace;
use tenantd_control::share::demand::CpuBasis;
use tenantd_control::tree::Node;
use tenantd_core::kernel_text::proc_files::{self, CgroupLine};
use tenantd_core::resource::{CPU, PerResource};

const TENANTS_MAX: usize = 64;

/// View of `peer` in the last published tick.
pub(super) fn own_view(peer: &Peer, newest: &Published) -> OwnView {
    let status = &newest.status;
    let own = own_tenants(peer, newest);
    let tenants = status.tenants.iter().filter_map(|tenant| {
        let basis = own.get(tenant.name.as_str())?.clone();
        let is_one_user = tenant.found && basis.contains(&OwnBasis::User);
        let deaths = tenant.deaths.iter().map(|death| death.seen_by(peer.uid)).collect();
        Some(OwnTenant { basis, is_one_user, deaths, ..own_tenant(status, tenant) })
    });
    OwnView {
        uid: peer.uid,
        tick: status.tick,
        time: status.time.clone(),
        mode: status.mode,
        stale_seconds: status.thresholds.stale_seconds,
        cpus: status.host.cpus,
        capacity: status.host.capacity,
        tenants: tenants.take(TENANTS_MAX).collect(),
    }
}

fn own_tenants(peer: &Peer, newest: &Published) -> BTreeMap<String, Vec<OwnBasis>> {
    let Claimants { users, groups } = &*newest.claimants;
    let (gids, place) = process(peer);
    let of_user = users.get(&peer.uid).map(|path| (path.clone(), OwnBasis::User));
    let of_groups = gids.iter().filter_map(|gid| Some((groups.get(gid)?.clone(), OwnBasis::Group)));
    let jobs = newest.jobs.list.jobs.iter().filter(|job| job.uid == peer.uid);
    let of_jobs = jobs.map(|job| (job.tenant.clone(), OwnBasis::Job));
    let of_place = tenant_at(&newest.trace, &place).map(|path| (path, OwnBasis::Process));
    let mut own: BTreeMap<String, Vec<OwnBasis>> = BTreeMap::new();
    for (path, basis) in of_user.into_iter().chain(of_groups).chain(of_jobs).chain(of_place) {
        let all = own.entry(path).or_default();
        if !all.contains(&basis) {
            all.push(basis);
        }
    }
    own
}

/// Groups and cgroups of the calling process. Only its effective group if it has ended or has another owner by now.
fn process(peer: &Peer) -> (Vec<u32>, Vec<CgroupLine>) {
    // The owner is read last: a number that another user's process has by now reveals nothing about that process.
    let place = fs::read(format!("/proc/{}/cgroup", peer.pid)).ok();
    let Some(owner) = peers::owner(peer) else { return (vec![peer.gid], Vec::new()) };
    let place = place.and_then(|text| proc_files::cgroup_lines(&text)).unwrap_or_default();
    let gids = owner.groups.into_iter().chain([owner.rgid, owner.egid]);
    (gids.collect(), place)
}

/// Path of the tenant with a cgroup that contains a process with these lines.
fn tenant_at(trace: &Trace, place: &[CgroupLine]) -> Option<String> {
    let candidates = (trace.spelling.places)(place);
    let of = |name: &str| -> Option<Node<'_>> {
        let is_it = |(_, at): &(Node<'_>, &str)| at.strip_prefix("./").unwrap_or(at) == name;
        let mut members = trace.tree.members().map(|(node, member)| (node, member.at.as_str()));
        let named = trace.tree.all().find(|node| node.name() == name && !node.is_ancestor());
        named.or_else(|| members.find(is_it).map(|(node, _)| node))
    };
    let tenants = candidates.iter().filter_map(|name| of(name)?.policy());
    tenants.filter(|tenant| tenant.is_leaf).map(|tenant| tenant.path.to_string()).next()
}

fn own_tenant(status: &Status, tenant: &TenantStatus) -> OwnTenant {
    let (nr_sharing, shared_cores) = sharing(status, &tenant.name);
    let reasons = tenant.reasons.iter().map(ReasonStatus::without_names);
    OwnTenant {
        name: tenant.name.to_string(),
        weight: tenant.weight,
        guarantee: tenant.guarantee,
        memory_guarantee_void: tenant.memory_guarantee_void,
        limit: tenant.limit,
        share_now: tenant.would_get,
        share_if_busy: PerResource([
            Some(tenant.fair_share_cores),
            Some(tenant.fair_share_memory_bytes),
        ]),
        usage: tenant.usage,
        nr_sharing,
        shared_cores,
        cpu_pressure_ratio: tenant.cpu_pressure_ratio,
        memory_pressure_ratio: tenant.memory_pressure_ratio,
        missing: tenant.missing,
        reasons: reasons.collect(),
        faults: tenant.faults,
        nr_oom_kills: tenant.nr_oom_kills,
        limit_pids: tenant.limit_pids,
        limit_disk: tenant.limit_disk,
        usage_pids: tenant.usage_pids,
        cpus: tenant.cpus.clone(),
        ..OwnTenant::default()
    }
}

/// Number of tenants with processes in the group of the tenant `name`, and the CPUs for all of them now.
fn sharing(status: &Status, name: &str) -> (u64, Option<f64>) {
    let group = group_of(name);
    let has_processes = |tenant: &TenantStatus| {
        !matches!(tenant.demand_basis, CpuBasis::Idle | CpuBasis::Unknown) || tenant.name == name
    };
    let beside = status.tenants.iter().filter(|tenant| group_of(&tenant.name) == group);
    let nr_sharing = beside.filter(|tenant| has_processes(tenant)).count();
    let cores = if group.is_empty() {
        Some(status.host.capacity[CPU])
    } else {
        status.groups.iter().find(|it| it.name == group).map(|group| group.would_get[CPU])
    };
    (nr_sharing as u64, cores)
}
