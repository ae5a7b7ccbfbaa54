//! Head starts of tenants with credit.
//!
//! Credit is kept by the caller, in seconds of the whole machine; the queue has it in CPU seconds. A tenant whose first
//! job comes after a pause starts earlier by it ([`tenantd_queue::Queue::lend`]), and pays for each start that was
//! earlier than its turn. Seniors and limits are not affected. A changed discipline or number of slots begins the queue
//! anew and ends the head starts of waiting jobs; nothing is paid for these.

use super::state::Admission;
use tenantd_queue::TenantId;

impl Admission {
    /// Lends a tenant its credit, in seconds of the whole machine. Replaces its former credit.
    pub fn lend(&mut self, tenant: &str, seconds: f64) {
        if let Some(number) = self.numbers.get(tenant) {
            self.queue.lend(TenantId(number), seconds * f64::from(self.capacity.slots.max(1)));
        }
    }

    /// True if a job of a tenant waits.
    pub fn has_waiting(&self, tenant: &str) -> bool {
        let number = self.numbers.get(tenant);
        number.is_some_and(|number| self.queue.waiting_of(TenantId(number)) > 0)
    }

    /// Takes the tenants that have paid for early starts, each with its fee in seconds of the whole machine.
    pub fn take_fees(&mut self) -> Vec<(String, f64)> {
        std::mem::take(&mut self.fees)
    }

    /// Ends a round of starts.
    pub(super) fn collect_fees(&mut self, now: f64) {
        let slots = f64::from(self.capacity.slots.max(1));
        for (tenant, fee) in self.queue.fees(now) {
            let terms = self.tenants.get(tenant.0 as usize).and_then(Option::as_ref);
            self.fees.extend(terms.map(|terms| (terms.path.clone(), fee / slots)));
        }
    }
}
