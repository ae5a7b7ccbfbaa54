//! The machine as a drawing, with the tenants of a status on it: for `plan` and `demo`.

use tenantd_control::report::status::{HostStatus, Status};
use tenantd_dop::map::{self, Entry};
use tenantd_dop::{CpuSet, Topology};
use tenantd_lab::text::memory;

/// Memory of the machine, with the huge pages in it.
pub(crate) fn memory_of(host: &HostStatus) -> String {
    let all = memory(host.memory_bytes as f64);
    match host.huge_pages_bytes {
        0 => all,
        bytes => format!("{all} (huge pages: {})", memory(bytes as f64)),
    }
}

/// Lines of the drawing; none before the first decision, or if the topology could not be read.
pub(crate) fn lines(topology: Option<&Topology>, status: &Status) -> Vec<String> {
    let Some(topology) = topology else { return Vec::new() };
    let placed: Vec<(&str, u32, Option<CpuSet>)> = status
        .tenants
        .iter()
        .filter_map(|tenant| {
            let cpus = tenant.cpus.as_ref().and_then(|list| list.parse().ok());
            Some((tenant.name.as_str(), tenant.dop?, cpus))
        })
        .collect();
    let entries: Vec<Entry<'_>> = placed
        .iter()
        .map(|(name, dop, cpus)| Entry {
            name,
            dop: *dop,
            cpus: cpus.as_ref().unwrap_or(topology.usable()),
            shared: cpus.is_none(),
        })
        .collect();
    if entries.is_empty() { Vec::new() } else { map::render(topology, &entries) }
}
