//! The whole agent on the simulated kernel: does it share fairly, and does it put everything back?

mod converge;
mod faults;
mod story;
mod width;
mod world;
