//! Tests of `queue`: which request goes next.

mod bounds;
mod command;
mod dominant;
mod entrance;
mod estimates;
mod figures;
mod harness;
mod levels;
mod properties;
mod reference;
mod vectors;
