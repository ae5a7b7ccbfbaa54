//! The integration tests: one binary, one module for each part.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test asserts; it need not handle")]

mod agent;
mod architecture;
mod cli;
mod control;
mod face;
mod fuzz;
mod history;
mod journal;
mod kernel;
mod policy;
mod programs;
mod sim;
mod soak;
mod sysfs;
mod util;
mod valve;
mod varlink;
