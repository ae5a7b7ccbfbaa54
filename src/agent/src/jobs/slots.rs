//! Slots between the queue and the control loop: tenants pay by what they are entitled to and use, and weights depend on who waits
//! for them ([`tenantd_control::share::turns`]).

use std::cell::LazyCell;

use tenantd_admission::{Admission, Cores, SlotUse};
use tenantd_control::share::turns::Slots;
use tenantd_control::state::NodeState;
use tenantd_control::state::step::NodeInput;
use tenantd_control::tick::control_loop::ControlLoop;

/// Charges tenants for the slots of their jobs and for what they use beside waiting ones, and sets the price of the next ones.
pub(super) fn price(admission: &mut Admission, control: &ControlLoop, now: f64) {
    let (tree, states) = (control.tree(), control.states());
    let is_on = control.settings().credits.is_some();
    // Looks at all nodes, and is wanted only while there are jobs.
    let is_credit_spent = LazyCell::new(|| is_on && states.iter().any(NodeState::spends_credit));
    let cores = |tenant: &str| {
        let state = &states[tree.named(tenant)?.at()];
        let used = state.usage.as_ref().map(|usage| usage.cpu_cores);
        let lendable = state.target.lendable_cores();
        // Siblings that spend credit leave less.
        let entitled =
            if *is_credit_spent { lendable.min(state.target.due_cores()) } else { lendable };
        Some(Cores { entitled, used })
    };
    admission.price_slots(cores, now);
}

/// Adds the slots of tenants to the input of a tick.
pub(crate) fn pass_on(admission: &Admission, control: &ControlLoop, nodes: &mut [NodeInput]) {
    for (tenant, slots) in admission.slot_use() {
        let node = control.tree().named(tenant).and_then(|node| nodes.get_mut(node.at()));
        if let Some(input) = node {
            let held = u32::try_from(slots.held).unwrap_or(u32::MAX);
            let SlotUse { are_awaited, were_held, .. } = slots;
            input.slots = Slots { held, are_awaited, were_held };
        }
    }
}
