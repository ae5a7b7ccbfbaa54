//! CPU time of tenants beside their jobs (`slots`).

use std::collections::BTreeMap;

use tenantd_queue::TenantId;

/// CPU time of the tenants with running jobs.
#[derive(Clone, Debug, Default)]
pub(super) struct TenantUse {
    looks: BTreeMap<TenantId, Look>,
}

/// A look at a tenant.
#[derive(Clone, Copy, Debug)]
struct Look {
    at: f64,
    /// CPU time of the tenant.
    total_seconds: f64,
    /// CPU time of its jobs since then.
    of_jobs_seconds: f64,
}

impl TenantUse {
    /// Notes that a job of a tenant has used CPU time.
    pub(super) fn note_job(&mut self, tenant: TenantId, seconds: f64) {
        if let Some(look) = self.looks.get_mut(&tenant) {
            look.of_jobs_seconds += seconds;
        }
    }

    /// Keeps the looks at these tenants only.
    pub(super) fn retain(&mut self, is_kept: impl Fn(TenantId) -> bool) {
        self.looks.retain(|tenant, _| is_kept(*tenant));
    }

    /// CPU time of a tenant beside its jobs since the last look, and the time of that look; `None` at the first one.
    pub(super) fn look(
        &mut self,
        tenant: TenantId,
        total_seconds: f64,
        now: f64,
    ) -> Option<(f64, f64)> {
        let look = Look { at: now, total_seconds, of_jobs_seconds: 0.0 };
        let before = self.looks.insert(tenant, look)?;
        let of_all = total_seconds - before.total_seconds;
        Some((of_all - before.of_jobs_seconds, before.at))
    }
}
