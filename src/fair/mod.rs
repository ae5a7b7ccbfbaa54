//! Who gets how much.

mod course;
mod drf;
mod exact;
mod growth;
mod hierarchy;
pub mod integer;
pub mod max_min;
pub mod measure;
pub mod problem;
mod second_stage;
mod solution;
pub mod tasks;
mod tree;
mod weights;
pub mod yarn;

pub use problem::{Demand, Field, Kind, Node, Place, Problem, ProblemError, Reason};
pub use solution::{Algorithm, Leaf, Solution, State, WorkConserving, allocate};
