//! What can be divided in a tick, and what processes outside every tenant use.

use std::time::Duration;

use super::bounds::AncestorBounds;
use super::sample::HostSample;
use super::state::NodeState;
use super::usage;
use tenantd_core::resource::{CPU, PerResource};

/// What can be divided: the machine less `reserve` less `outside`, within the limits above the tenants.
///
/// These limits apply to the tenants alone, so reserve and outside use are subtracted from the machine only.
pub fn capacity(
    machine: PerResource<f64>,
    reserve: PerResource<f64>,
    outside: PerResource<f64>,
    above: &AncestorBounds,
) -> PerResource<f64> {
    let most = above.most();
    PerResource::from_fn(|r| {
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
    /// Of each resource.
    pub divided: PerResource<f64>,
    /// What would be divided if nothing else ran on the machine and nothing above the tenants were limited.
    pub promised: PerResource<f64>,
    /// CPUs that processes outside every tenant used; `None` without two readings of the host.
    pub outside_cores: Option<f64>,
    /// CPUs on which nothing ran; `None` without two readings of the host.
    pub idle_cores: Option<f64>,
    /// What outside processes have beyond the reserve, of each resource.
    pub outside: PerResource<f64>,
}

/// What can be divided of the machine: what it has, less the `reserve`, less what outside processes use,
/// within the limits `above` the tenants.
pub(super) fn measure(
    states: &[NodeState],
    reserve: PerResource<f64>,
    above: &AncestorBounds,
    host: HostSample,
    before: Option<(Duration, HostSample)>,
) -> Capacity {
    let usages = || states.iter().filter_map(|state| state.usage.as_ref());
    let used: f64 = usages().map(|usage| usage.cpu_cores).sum();
    let outside_cores = before
        .and_then(|(elapsed, before)| usage::outside_cores(&before, &host, elapsed, used))
        .map(|outside| outside.min(f64::from(host.nr_cpus)));
    let machine = host.machine();
    // What the reserve already covers is not taken off twice.
    let outside = PerResource::from_fn(|r| {
        let outside = match r {
            CPU => outside_cores.unwrap_or(0.0),
            held => {
                let of_tenants: f64 = usages().filter_map(|usage| usage.used(held)).sum();
                host.in_use(held).map_or(0.0, |all| (all - of_tenants).max(0.0))
            }
        };
        (outside - reserve[r]).max(0.0)
    });
    let divided = capacity(machine, reserve, outside, above);
    let promised = PerResource::from_fn(|r| (machine[r] - reserve[r]).max(divided[r]));
    let idle_cores = before.and_then(|(elapsed, before)| {
        let idle_usec = host.idle_usec?.checked_sub(before.idle_usec?)? as f64;
        (!elapsed.is_zero()).then(|| idle_usec / elapsed.as_micros() as f64)
    });
    Capacity { divided, promised, outside_cores, idle_cores, outside }
}
