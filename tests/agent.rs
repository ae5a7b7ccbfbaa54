//! The whole agent on the simulated kernel: does it share fairly, and does it put everything back?

mod claims;
mod converge;
mod crash;
mod effect;
mod evenness;
mod explain;
mod faults;
mod hosts;
mod in_place;
mod kills;
mod patience;
mod pids;
mod pressure;
mod protect;
mod put_back;
mod reload;
mod residents;
mod scale;
mod service;
mod soak;
mod still;
mod story;
mod units;
mod vanish;
mod width;
mod world;
