//! What must be true of every status.

use tenantd_control::report::status::{Status, TenantStatus};
use tenantd_control::report::trace::Trace;
use tenantd_control::why::explain;
use tenantd_control::words::finding::Code;
use tenantd_core::resource::{CPU, Resource};

/// Rounding of sums.
const CLOSE: f64 = 1e-6;

fn close(resource: Resource) -> f64 {
    if resource == CPU { CLOSE } else { 1.0 }
}

/// # Panics
/// Something is not true of `status`.
pub(crate) fn check(status: &Status, trace: &Trace) {
    let json = serde_json::to_value(status).unwrap();
    match serde_json::from_value::<Status>(json.clone()) {
        Ok(again) => {
            let again = serde_json::to_value(&again).unwrap();
            assert_eq!(again, json, "a status that is read differs");
        }
        Err(error) => panic!("a status that cannot be read: {error}: {json}"),
    }
    let nr_cpus = f64::from(status.host.cpus);
    for resource in Resource::ALL {
        let capacity = status.host.capacity[resource];
        let allocated: f64 = status.tenants.iter().map(|tenant| tenant.allocation[resource]).sum();
        let name = resource.name();
        assert!(allocated <= capacity + close(resource), "{allocated} of {capacity} {name}");
    }
    let outside = status.host.outside_cores.unwrap_or(0.0);
    assert!(
        (0.0..=nr_cpus + CLOSE).contains(&outside),
        "{outside} CPUs are used outside of {nr_cpus}"
    );
    let is_short = status.finding_records.iter().any(|finding| finding.code == Code::Unkeepable);
    for tenant in &status.tenants {
        check_tenant(tenant, nr_cpus, is_short);
        let explained = explain::explain(trace, status, &tenant.name);
        assert!(
            status.host.cpus == 0 || explained.is_some(),
            "{} cannot be explained",
            tenant.name
        );
    }
}

fn check_tenant(tenant: &TenantStatus, nr_cpus: f64, is_short: bool) {
    let name = &tenant.name;
    let used = tenant.usage[CPU].unwrap_or(0.0);
    assert!((0.0..=nr_cpus + CLOSE).contains(&used), "{name} uses {used} of {nr_cpus} CPUs");
    let weight = tenant.cpu_weight.unwrap_or(1.0);
    assert!((0.19..=25_600.0).contains(&weight), "{name} has the weight {weight}");
    assert!(tenant.dop != Some(0), "{name} is to run on no CPU");
    for resource in Resource::ALL {
        let (allocated, demand) = (tenant.allocation[resource], tenant.demand[resource]);
        let (guarantee, limit) = (tenant.guarantee[resource], tenant.limit[resource]);
        let close = close(resource);
        assert!(allocated >= 0.0 && demand >= 0.0, "{name}: {allocated}, {demand}");
        assert!(
            allocated <= limit.unwrap_or(f64::INFINITY) + close,
            "{name}: {allocated} over {limit:?}"
        );
        let kept = guarantee.unwrap_or(0.0).min(demand).min(limit.unwrap_or(f64::INFINITY));
        assert!(is_short || allocated >= kept - close, "{name}: {allocated} of {kept} guaranteed");
    }
    if let Some(cpus) = &tenant.cpus {
        assert!(!cpus.is_empty(), "{name} is placed on no CPU");
    }
}
