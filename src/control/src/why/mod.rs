//! Reasons: why a tenant lacks a resource, and how each value of a tick came about.

pub mod death;
pub(crate) mod diagnosis;
pub mod explain;
pub mod explain_credit;
mod explain_disk;
mod explain_shares;
mod explain_usage;
mod explain_value;
pub mod shortfall;
