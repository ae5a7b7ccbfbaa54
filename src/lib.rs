//! tenantd makes one Linux machine fair for all its tenants, over CPU and memory at once.

#![deny(missing_docs)]

pub mod cli;
pub mod control;
pub mod daemon;
pub mod dop;
pub mod fair;
pub mod host;
pub mod policy;
pub mod sim;
pub mod units;
