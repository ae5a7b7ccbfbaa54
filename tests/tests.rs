//! The integration tests: one binary, one module for each part.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test asserts; it need not handle")]

mod admission;
mod agent;
mod architecture;
mod cli;
mod control;
mod dop;
mod face;
mod fair;
mod fuzz;
mod history;
mod journal;
mod kernel;
mod policy;
mod programs;
mod queue;
mod sim;
mod soak;
mod util;
mod valve;
mod varlink;
