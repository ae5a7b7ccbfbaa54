//! Quantities and resources: what every other part of tenantd counts in; and text from the kernel.
//!
//! | module | contents |
//! |---|---|
//! | [`codec`] | values as bytes, exact and compact, for recordings |
//! | [`kernel_text`] | names and small files of the kernel, which are bytes |
//! | [`units`] | CPUs, bytes, weights, limits, and their notation |
//! | [`resource`] | what is divided, and arrays with a value for each resource |
//!
//! No IO, no clock, no global state, no Linux.

#![deny(missing_docs)]

pub mod codec;
pub mod kernel_text;
pub mod resource;
pub mod units;
