//! Choice of the tenants whose threads are read in the next tick.

use super::ControlLoop;
use crate::measure::thread_budget::{self, Look, Pressed};
use crate::tree::Node;

impl ControlLoop {
    pub(crate) fn threads_to_read(&self, node: Node<'_>) -> Look {
        let state = &self.states[node.at()];
        match state.nr_readable_threads {
            _ if node.is_ancestor() || !state.is_pressed() => Look::None,
            0 if self.is_turn_of(node) => Look::Count,
            0 => Look::None,
            nr => Look::Read(nr),
        }
    }

    pub(crate) fn spend_threads(&mut self) {
        let (tree, states) = (&self.tree, &mut self.states);
        let mut pressed = Vec::new();
        for node in tree.tenants_and_members().filter(|node| node.has_work()) {
            let state = &mut states[node.at()];
            state.nr_readable_threads = 0;
            if state.is_pressed() {
                pressed.push(Pressed { at: node.at(), nr_threads: state.nr_threads });
            }
        }
        for tenant in thread_budget::chosen(&pressed, self.tick + 1) {
            states[tenant.at].nr_readable_threads = tenant.allowance();
        }
    }
}
