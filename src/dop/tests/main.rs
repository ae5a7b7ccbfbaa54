//! Tests of `dop`: how wide each tenant runs, and where.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test asserts; it need not handle")]

mod autodop;
mod band;
mod cpuset;
mod machines;
mod map;
mod placement;
mod stillness;
mod target;
mod tenant;
mod topology;
mod transition;
