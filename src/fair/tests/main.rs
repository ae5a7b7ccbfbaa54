//! Tests of `fair`: the published and computed vectors, properties over random instances, oracles.

#![allow(clippy::unwrap_used, reason = "a test asserts; it need not handle")]
#![allow(clippy::needless_range_loop, reason = "`r` is a resource, in whatever vector")]

mod collusion;
mod discrete;
mod drf;
mod hierarchy;
mod instances;
mod lexicographic;
mod max_min;
mod suite;
mod vectors;
