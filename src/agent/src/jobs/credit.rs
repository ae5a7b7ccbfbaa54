//! Credit of tenants in the queue of jobs: lent to it before starts, and paid after them.

use crate::tenants::state::Tenants;
use tenantd_admission::Admission;
use tenantd_control::share::credit::jobs::{pay, spendable};
use tenantd_control::tick::event::Event;
use tenantd_control::tree::Node;
use tenantd_host::kernfs::KernFs;

/// Lends a tenant its credit before a job of it is submitted.
pub(super) fn lend<K: KernFs>(admission: &mut Admission, tenants: &Tenants<K>, tenant: &str) {
    if let Some(node) = tenants.control.tree().named(tenant) {
        admission.lend(tenant, bank(tenants, node));
    }
}

/// Lends the tenants with waiting jobs their credit, which may have changed in a tick.
pub(super) fn lend_waiting<K: KernFs>(admission: &mut Admission, tenants: &Tenants<K>) {
    if admission.nr_waiting() == 0 {
        return;
    }
    for node in tenants.control.tree().policy_nodes() {
        if admission.has_waiting(node.name()) {
            admission.lend(node.name(), bank(tenants, node));
        }
    }
}

/// Takes the fees of the last starts from the credit of their tenants.
pub(super) fn pay_fees<K: KernFs>(admission: &mut Admission, tenants: &mut Tenants<K>) {
    for (tenant, fee) in admission.take_fees() {
        let (tree, states) = (tenants.control.tree(), tenants.control.states());
        let Some(node) = tree.named(&tenant) else { continue };
        let paid = pay(tree.nodes(), |at| states[at].credit, node.at(), fee);
        let paid = paid.into_iter().map(|(at, credit)| (tree.at(at).id(), credit)).collect();
        tenants.control.apply(Event::TakeCredits(paid));
    }
}

/// Credit of a tenant for starts of jobs, in seconds of the whole machine; 0 while the policy has no credits.
fn bank<K: KernFs>(tenants: &Tenants<K>, node: Node<'_>) -> f64 {
    if tenants.control.settings().credits.is_none() {
        return 0.0;
    }
    let states = tenants.control.states();
    spendable(tenants.control.tree().nodes(), |at| states[at].credit, node.at())
}
