//! Findings on processes that are claimed by owner and stay where they are.

use std::collections::BTreeMap;
use std::path::Path;

use tenantd_control::tree::Tree;
use tenantd_control::words::finding::{Code, Finding};
use tenantd_core::kernel_text::text_of_path;
use tenantd_core::node::NodeId;
use tenantd_host::claiming::StayPlace;

/// Number of processes that stay, by tenant and reason.
pub(super) type Stays = BTreeMap<(NodeId, StayPlace), usize>;

pub(super) const PLACES_MAX: usize = 16;

pub(super) fn describe(stays: &Stays, tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut by_node: BTreeMap<NodeId, Vec<(&StayPlace, usize)>> = BTreeMap::new();
    for ((node, place), nr) in stays {
        by_node.entry(*node).or_default().push((place, *nr));
    }
    for node in tree.policy_nodes() {
        let Some(stays) = by_node.get(&node.id()) else { continue };
        let tenant = node.name();
        let said = |what: String| Finding::of(tenant, Code::NotClaimed, what);
        findings.extend(stays.iter().take(PLACES_MAX).map(|(place, nr)| {
            let processes = counted(*nr, "process stays", "processes stay");
            match place {
                StayPlace::Unit(unit) => said(format!(
                    "{processes} in {unit}, which is systemd's: to share by it, give it a tenant \
                     with `match: {{ unit: {unit} }}`"
                )),
                StayPlace::Cgroup(cgroup) => said(format!(
                    "{processes} in the cgroup {cgroup}, outside the slice of the user: to share \
                     by it, give it a tenant with `match: {{ cgroup: {cgroup} }}`"
                )),
                StayPlace::Managed(cgroup) => said(format!(
                    "{processes} in the cgroup {cgroup}, which another program made and manages: to share by it, give \
                     it a tenant with `match: {{ cgroup: {cgroup} }}`, or add `move: true` to the `match` of {tenant}"
                )),
                StayPlace::RealTime(cgroup) => said(format!(
                    "{} out of {cgroup}: its cpu.rt_runtime_us is 0, and a kernel with CONFIG_RT_GROUP_SCHED takes no \
                     SCHED_FIFO or SCHED_RR task into such a cgroup",
                    counted(*nr, "real-time process stays", "real-time processes stay")
                ))
                .with_remedy(
                    "leave them out of the tenant, because they run before all weights (docs/host.md), or make them normal: \
                     `chrt --other --pid 0 PID`",
                ),
                StayPlace::Unmounted(cgroup) => said(format!(
                    "{processes} in the cgroup {cgroup}, which is not below the mount points of this namespace, so \
                     tenantd cannot move them: run tenantd outside of the container"
                )),
            }
        }));
        let rest = &stays[stays.len().min(PLACES_MAX)..];
        if !rest.is_empty() {
            let nr_processes = rest.iter().map(|(_, nr)| nr).sum();
            let processes = counted(nr_processes, "process stays", "processes stay");
            let places = counted(rest.len(), "further place", "further places");
            findings.push(said(format!("{processes} in {places}")));
        }
    }
    findings
}

pub(super) fn named<P: AsRef<Path>>(cgroups: impl ExactSizeIterator<Item = P>) -> String {
    let rest = cgroups.len().saturating_sub(PLACES_MAX);
    let first = cgroups.take(PLACES_MAX).map(|path| text_of_path(path.as_ref()));
    let rest = (rest > 0).then(|| counted(rest, "further cgroup", "further cgroups"));
    first.chain(rest).collect::<Vec<_>>().join(", ")
}

pub(super) fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
