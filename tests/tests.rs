//! The integration tests: one binary, one module for each part.

mod dop;
mod fair;
mod policy;
mod sim;
