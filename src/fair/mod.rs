//! Who gets how much.

mod drf;
mod exact;
mod growth;
pub mod integer;
pub mod max_min;
pub mod problem;
mod second_stage;
mod solution;
mod tree;
mod weights;

pub use problem::{Demand, Field, Kind, Node, Place, Problem, ProblemError, Reason};
pub use solution::{Algorithm, Leaf, Solution, State, WorkConserving, allocate};
