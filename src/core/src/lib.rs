//! Quantities, resources, and text from the kernel, for all other crates.
//!
//! | module | contents |
//! |---|---|
//! | [`disk_rate`] | limited rates of requests to disks, and arrays with a value for each |
//! | [`kernel_text`] | names and small files of the kernel, which are bytes |
//! | [`node`] | identities of nodes, and maps of their values |
//! | [`units`] | CPUs, bytes, weights, limits, and their notation |
//! | [`resource`] | divided resources, and arrays with a value for each |
//!
//! No IO, no clock, no global state, no Linux.

#![deny(missing_docs)]

pub mod disk_rate;
pub mod kernel_text;
pub mod node;
pub mod resource;
pub mod units;
