//! Credit of tenants in the queue of jobs: lent to it before starts, and paid after them.

use crate::tenants::state::Tenants;
use tenantd_admission::Admission;
use tenantd_control::share::credit::jobs::{pay, spendable};
use tenantd_host::kernfs::KernFs;

/// Lends a tenant its credit before a job of it is submitted.
pub(super) fn lend<K: KernFs>(admission: &mut Admission, tenants: &Tenants<K>, tenant: &str) {
    if let Some(number) = number_of(tenants, tenant) {
        admission.lend(tenant, bank(tenants, number));
    }
}

/// Lends the tenants with waiting jobs their credit, which may have changed in a tick.
pub(super) fn lend_waiting<K: KernFs>(admission: &mut Admission, tenants: &Tenants<K>) {
    if admission.nr_waiting() == 0 {
        return;
    }
    for (number, node) in tenants.nodes().iter().enumerate() {
        if node.is_leaf && admission.has_waiting(&node.path) {
            admission.lend(&node.path, bank(tenants, number));
        }
    }
}

/// Takes the fees of the last starts from the credit of their tenants.
pub(super) fn pay_fees<K: KernFs>(admission: &mut Admission, tenants: &mut Tenants<K>) {
    for (tenant, fee) in admission.take_fees() {
        let Some(number) = number_of(tenants, &tenant) else { continue };
        let states = tenants.control.states();
        let paid = pay(tenants.nodes(), |number| states[number].credit, number, fee);
        tenants.control.take_credits(paid);
    }
}

fn number_of<K: KernFs>(tenants: &Tenants<K>, tenant: &str) -> Option<usize> {
    tenants.nodes().iter().position(|node| node.path == tenant)
}

/// Credit of a tenant for starts of jobs, in seconds of the whole machine; 0 while the policy has no credits.
fn bank<K: KernFs>(tenants: &Tenants<K>, number: usize) -> f64 {
    if tenants.control.settings().credits.is_none() {
        return 0.0;
    }
    let states = tenants.control.states();
    spendable(tenants.nodes(), |number| states[number].credit, number)
}
