//! State of removed tenants in the queue, and its bound in time.

use std::collections::BTreeSet;

use super::state::Admission;
use tenantd_queue::TenantId;

impl Admission {
    /// Resets the state of tenants that were removed long ago, and frees their numbers.
    pub(super) fn forget_gone(&mut self, now: f64) {
        let payers = self.runs().filter_map(|(_, run)| Some(run.payer?.0));
        let owners = self.jobs.values().map(|job| job.need.tenant.0);
        let with_jobs: BTreeSet<u32> = owners.chain(payers).collect();
        let known = &self.tenants;
        let is_there = |number| known.get(number as usize).is_some_and(Option::is_some);
        let freed = self.numbers.sweep(is_there, |number| with_jobs.contains(&number));
        for number in freed {
            self.classes.forget(number);
            self.queue.reset(TenantId(number), now);
        }
    }
}
