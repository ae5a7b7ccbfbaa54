//! Tests of `fair`: the published and computed vectors, properties over random instances, oracles.

mod discrete;
mod hierarchy;
mod instances;
mod vectors;
