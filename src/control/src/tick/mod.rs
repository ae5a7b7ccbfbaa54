//! The whole chain with all state between ticks, and every change of that state as a value.

pub mod control_loop;
pub mod event;
