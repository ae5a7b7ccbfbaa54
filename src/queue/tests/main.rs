//! Tests of `queue`: which request goes next.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test asserts; it need not handle")]

mod beside;
mod bounds;
mod dominant;
mod estimates;
mod harness;
mod leads;
mod levels;
mod properties;
mod reference;
#[path = "../../fair/tests/suite.rs"]
mod suite;
mod vectors;
