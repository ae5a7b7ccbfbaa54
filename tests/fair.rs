//! Tests of `fair`: the published and computed vectors, properties over random instances, oracles.

mod discrete;
mod drf;
mod hierarchy;
mod instances;
mod lexicographic;
mod max_min;
mod vectors;
