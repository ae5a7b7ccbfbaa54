//! How wide each running job is.

use std::collections::BTreeMap;

use super::state::Admission;
use super::types::JobId;
use crate::fair::integer::{self, Claim};
use crate::queue::TenantId;

impl Admission {
    /// The slots divided among the running jobs by integer max-min: none below its floor or above its ceiling, the
    /// weight of a tenant in equal parts to its jobs.
    pub(super) fn widths(&self) -> Vec<(JobId, u32)> {
        let running: Vec<JobId> = self.runs().map(|(id, _)| id).collect();
        let mut nr_of: BTreeMap<TenantId, f64> = BTreeMap::new();
        for id in &running {
            *nr_of.entry(self.jobs[id].need.tenant).or_default() += 1.0;
        }
        let claim = |id: &JobId| {
            let need = &self.jobs[id].need;
            let weight = self.terms(need.tenant).map_or(1.0, |terms| terms.weight);
            Claim { weight: weight / nr_of[&need.tenant], floor: need.floor, ceiling: need.ceiling }
        };
        let claims: Vec<Claim> = running.iter().map(claim).collect();
        let widths = integer::apportion(u64::from(self.slots()), &claims);
        // More jobs than slots, where the machine has shrunk: each keeps one.
        let width = |dop: u64| u32::try_from(dop).unwrap_or(u32::MAX).max(1);
        running.into_iter().zip(widths).map(|(id, dop)| (id, width(dop))).collect()
    }
}
