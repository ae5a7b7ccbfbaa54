//! Demand, fair shares, and the values that enforce them.

pub mod burst;
pub mod contended;
pub mod credit;
pub mod demand;
pub mod disk;
pub mod engine;
pub mod fairness;
pub mod govern;
pub mod pids;
pub mod rows;
mod siblings;
pub mod steady;
pub mod target;
pub mod trim;
pub mod turns;
pub mod weight;
pub mod would_get;
