//! The queue of jobs as a value: what holds of it under every discipline, for any course of events.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test asserts; it need not handle")]

mod after;
mod course;
mod evictions;
mod examples;
mod foresee;
mod groups;
mod names;
mod newcomer;
mod preempt;
mod properties;
mod reserve;
mod seniors;
mod sets;
mod simulated;
mod slots;
mod turns;
mod units;
