//! Metrics of credits; they have no samples where the policy has none.

use super::metric::{Metric, group, tenant};

pub(super) fn of_tenants() -> Vec<Metric> {
    vec![
        tenant(
            "tenant_credit",
            "seconds",
            "Credit for CPU time left to siblings, in time of the tenant's own fair share.",
            |t| t.credit_seconds,
        ),
        tenant("tenant_credit_factor", "", "Factor of the CPU weight by credit.", |t| {
            t.credit_factor
        }),
    ]
}

pub(super) fn of_groups() -> Vec<Metric> {
    vec![
        group(
            "group_credit",
            "seconds",
            "Credit for CPU time left to siblings, in time of the group's own fair share.",
            |g| g.credit_seconds,
        ),
        group("group_credit_factor", "", "Factor of the CPU weight of the group by credit.", |g| {
            g.credit_factor
        }),
    ]
}
