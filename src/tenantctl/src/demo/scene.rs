//! Scenario of the demo: three tenants, their demands in each half, and their policy. `tenantctl simulate host`
//! runs the same file.

use std::time::Duration;

use crate::demo::load::Want;
use tenantd_core::resource::Resource;
use tenantd_core::units::Bytes;
use tenantd_lab::simulate::host::{self, Scenario};
use tenantd_policy::model::{Amount, Policy};
use tenantd_policy::report::Style;
use tenantd_sim::Load;

/// Memory of the demo's tenants; they cannot use the rest of the machine.
pub(crate) const MEMORY: Bytes = Bytes::mib(512);

pub(crate) const TENANTS: [(&str, f64); 3] = [("batch", 1.0), ("cache", 2.0), ("web", 4.0)];

/// Index of the tenant that depends on its file cache, if memory is contended.
pub(crate) const CACHE: usize = 1;

const TITLES: [&str; 2] = [
    "batch and web want all CPUs, cache a little",
    "now cache wants all CPUs too, and web a little",
];

#[derive(Clone, Debug)]
pub(crate) struct Half {
    pub(crate) title: &'static str,
    /// Its begin in the scenario.
    pub(crate) from: Duration,
    /// Demands in the order of [`TENANTS`].
    pub(crate) wants: Vec<Want>,
}

pub(crate) fn scenario() -> anyhow::Result<Scenario> {
    const TEXT: &str = include_str!("../../../../scenarios/host/demo.yaml");
    host::scenario("scenarios/host/demo.yaml", TEXT)
        .map_err(|report| anyhow::anyhow!("{}", report.render(Style::PLAIN)))
}

/// A machine on which the scenario is played.
#[derive(Clone, Debug)]
pub(crate) struct Size {
    pub(crate) cpus: u32,
    pub(crate) memory_bytes: u64,
    /// Reason why the tenants do not compete for memory; `None` if they do.
    pub(crate) uncontended: Option<String>,
}

/// The halves on a machine of this size; on one as large as the scenario's, its loads.
pub(crate) fn halves(scenario: &Scenario, size: &Size) -> Vec<Half> {
    let want = |load: Load| {
        let (threads, duty) = if load.duty == 1.0 {
            let there = hungry_threads(scenario.host.cpus);
            (load.threads * hungry_threads(size.cpus) / there, 1.0)
        } else {
            (1, (0.1 * f64::from(size.cpus)).min(0.5))
        };
        let files = if size.uncontended.is_none() { load.hot_file_bytes } else { 0 };
        let (hot_bytes, scan_bytes) = if files > MEMORY.0 { (0, files) } else { (files, 0) };
        Want { threads, duty, memory_bytes: load.working_set_bytes, hot_bytes, scan_bytes }
    };
    let half = |(from, title)| {
        let loads = scenario.loads(from).into_iter().flatten();
        Half { title, from, wants: loads.map(want).collect() }
    };
    scenario.changes().into_iter().zip(TITLES).map(half).collect()
}

/// Threads of a tenant that wants every CPU, on a machine with `cpus` of them.
///
/// The kernel balances threads over CPUs by weight, to within a quarter or so, and two threads of one
/// tenant on one CPU leave the other CPU to other tenants. Few CPUs need several threads each, so that the
/// indivisible unit stays small.
fn hungry_threads(cpus: u32) -> u32 {
    cpus.max((4 * cpus).min(32))
}

/// The policy of the scenario on a machine of this size.
pub(crate) fn policy(policy: &Policy, size: &Size) -> Policy {
    let mut policy = policy.clone();
    let reserve = size.memory_bytes.saturating_sub(MEMORY.0);
    policy.host.reserve[Resource::Memory] = Amount::Absolute(reserve);
    if size.uncontended.is_some() {
        for tenant in &mut policy.tenants {
            tenant.guarantee[Resource::Memory] = None;
            tenant.limit[Resource::Memory] = None;
        }
    }
    policy
}
