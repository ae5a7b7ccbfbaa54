//! The pure parts of tenantd as commands, on problems, scenarios and recordings in files.
//!
//! | module | command |
//! |---|---|
//! | [`solve`] | `tenantctl solve`: the fair allocation of a problem |
//! | [`dop`] | `tenantctl dop`: widths and CPU sets of a problem |
//! | [`simulate`] | `tenantctl simulate`: queues and hosts over time |
//! | [`replay`] | `tenantctl plan --replay`: another policy on a recording |
//!
//! [`formats`] explains their files. [`text`], [`table`], [`time`] and [`json`] write results; [`problem`]
//! reads and refuses files.

#![deny(missing_docs)]

pub mod args;
pub mod dop;
pub mod formats;
pub mod json;
pub mod problem;
pub mod replay;
pub mod simulate;
pub mod solve;
pub mod table;
pub mod text;
pub mod time;
