//! What can be divided in a tick, and what processes outside every tenant use.

use std::time::Duration;

use super::bounds::AncestorBounds;
use super::sample::HostSample;
use super::state::NodeState;
use super::tree::{CPU, MEMORY};
use super::usage;

/// What can be divided: the machine less `reserve` less `outside`, within the limits above the tenants.
///
/// These limits apply to the tenants alone, so reserve and outside use are subtracted from the machine only.
pub fn capacity(
    machine: [f64; 2],
    reserve: [f64; 2],
    outside: [f64; 2],
    above: &AncestorBounds,
) -> [f64; 2] {
    let most = above.most();
    [CPU, MEMORY].map(|r| {
        let machine_or_less = machine[r].min(most[r]);
        // A machine fully taken by the reserve or by outside processes still has something to divide by
        // weight.
        let least = machine_or_less * 0.01;
        (machine[r] - reserve[r] - outside[r]).max(least).min(machine_or_less)
    })
}

/// What can be divided.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Capacity {
    /// Cores and bytes.
    pub divided: [f64; 2],
    /// CPUs that processes outside every tenant used; `None` without two readings of the host.
    pub outside_cores: Option<f64>,
}

/// What can be divided of the machine: what it has, less the `reserve`, less what outside processes use,
/// within the limits `above` the tenants.
pub(super) fn measure(
    states: &[NodeState],
    reserve: [f64; 2],
    above: &AncestorBounds,
    host: HostSample,
    before: Option<(Duration, HostSample)>,
) -> Capacity {
    let usages = || states.iter().filter_map(|state| state.usage.as_ref());
    let used: f64 = usages().map(|usage| usage.cpu_cores).sum();
    let outside_cores = before
        .and_then(|(elapsed, before)| usage::outside_cores(&before, &host, elapsed, used))
        .map(|outside| outside.min(f64::from(host.nr_cpus)));
    let tenants_memory: f64 = usages().filter_map(|usage| usage.working_set_bytes).sum();
    let total = host.memory_total_bytes as f64;
    let outside_memory = host
        .memory_available_bytes
        .map_or(0.0, |available| (total - available as f64 - tenants_memory).max(0.0));
    // What the reserve already covers is not taken off twice.
    let outside = [
        (outside_cores.unwrap_or(0.0) - reserve[CPU]).max(0.0),
        (outside_memory - reserve[MEMORY]).max(0.0),
    ];
    let machine = [f64::from(host.nr_cpus), total];
    Capacity { divided: capacity(machine, reserve, outside, above), outside_cores }
}
