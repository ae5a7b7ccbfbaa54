//! Choice of the tenants whose threads are read in the next tick.

use super::ControlLoop;
use crate::measure::thread_budget::{self, Look, Pressed};

impl ControlLoop {
    pub(crate) fn threads_to_read(&self, number: usize) -> Look {
        let state = &self.states[number];
        match state.nr_readable_threads {
            _ if self.tree.is_ancestor(number) || !state.is_pressed() => Look::None,
            0 if self.is_turn_of(number) => Look::Count,
            0 => Look::None,
            nr => Look::Read(nr),
        }
    }

    pub(crate) fn spend_threads(&mut self) {
        let (tree, states) = (&self.tree, &mut self.states);
        let mut pressed = Vec::new();
        for number in (0..tree.first_ancestor()).filter(|number| tree.has_work(*number)) {
            let state = &mut states[number];
            state.nr_readable_threads = 0;
            if state.is_pressed() {
                pressed.push(Pressed { number, nr_threads: state.nr_threads });
            }
        }
        for tenant in thread_budget::chosen(&pressed, self.tick + 1) {
            states[tenant.number].nr_readable_threads = tenant.allowance();
        }
    }
}
