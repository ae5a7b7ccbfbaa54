//! The shell: the event loop and one tick.
