//! Tests of `queue`: who goes next.

mod bounds;
mod dominant;
mod estimates;
mod harness;
mod levels;
mod properties;
mod reference;
mod vectors;
