//! Tests of `fair`: the published and computed vectors, properties over random instances, oracles.

mod instances;
mod vectors;
