//! Capacity to divide in a tick, and usage by processes outside every tenant.

use std::time::Duration;

use crate::measure::sample::HostSample;
use crate::measure::usage;
use crate::state::NodeState;
use crate::tree::bounds::AncestorBounds;
use tenantd_core::resource::{CPU, PerResource};

/// Capacity to divide: the machine less `reserve` and `outside`, within the limits above the tenants.
///
/// These limits apply to the tenants alone, so reserve and outside usage are subtracted from the machine only.
pub fn capacity(
    machine: PerResource<f64>,
    reserve: PerResource<f64>,
    outside: PerResource<f64>,
    above: &AncestorBounds,
) -> PerResource<f64> {
    let most = above.most();
    PerResource::from_fn(|r| {
        let machine_or_less = machine[r].min(most[r]);
        // Keeps something to divide by weight when the reserve or outside processes take the whole machine.
        let least = machine_or_less * 0.01;
        (machine[r] - reserve[r] - outside[r]).max(least).min(machine_or_less)
    })
}

/// Capacity to divide in a tick.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Capacity {
    /// Amount of each resource to divide among the tenants.
    pub divided: PerResource<f64>,
    /// Amount to divide if no other work ran and nothing above the tenants were limited.
    pub promised: PerResource<f64>,
    /// CPUs used by processes outside every tenant; `None` without two samples of the host.
    pub outside_cores: Option<f64>,
    /// Idle CPUs; `None` without two samples of the host.
    pub idle_cores: Option<f64>,
    /// Usage of outside processes beyond the reserve, per resource.
    pub outside: PerResource<f64>,
}

/// Computes the capacity: the machine less `reserve` and outside usage, within the limits `above` the tenants.
pub(crate) fn measure(
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
    // The reserve already covers part of the outside usage.
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
