//! Who gets how much: the allocation core.
//!
//! # Problem
//! A machine has so much of several resources, and tenants who together want more. Their demands have
//! proportions (CPU without memory is of no use), weights, guarantees and limits, and they stand in groups.
//! An allocation is wanted that nobody has reason to call unfair: everyone gets at least what his part of the
//! machine alone would have given him, nobody would rather have another's, nothing is left that anybody
//! could use, and misreporting one's demand does not pay. Dominant resource fairness has these properties;
//! this module computes it exactly, with what it takes in practice around it.
//!
//! # Reading order
//! 1. [`problem`]: what is to be divided, and on which terms; the one place where numbers are judged.
//! 2. [`max_min`]: one resource. The idea of all that follows: raise a level, find where it stops.
//! 3. `drf`: several resources, by one sweep.
//! 4. `second_stage`: what proportions left idle, and why not all of it may be handed out.
//! 5. `hierarchy`, on `course`: groups, of any depth, and their limits; `promises`: their guarantees.
//! 6. [`tasks`], [`integer`]: when tasks, or slots, cannot be divided.
//! 8. [`yarn`]: how a well-known cluster scheduler does it.
//! 9. [`measure`]: how fair an allocation is, whoever made it.
//!
//! [`allocate`] is the way in. `tenantctl solve` makes it available for problems in files.
//!
//! # Numbers
//! Allocations are `f64`; every sum that decides something is an integer.
//!
//! *Why not fixed point throughout?* Resources come in nanocores and in exabytes, and a rational answer such
//! as 841/119 tasks wants a relative precision, not an absolute one: 1e-9 of a millionth of a machine is
//! still to be right.
//!
//! *Why not `f64` throughout?* A sweep adds and takes away a hundred thousand times. In floating point the
//! order of the terms shows in the last bits, so that two hosts which list the same tenants in another order
//! would disagree; and a heavy tenant that comes and goes leaves its rounding error where the light ones
//! were. So sums are kept in 128-bit fixed point, scaled to the largest term (`exact`): addition is
//! then associative and has an inverse, and the answer depends on the set of tenants and not on their list.
//! What is left to rounding is one division for a level, and one product for each allocation.
//!
//! *Never above the capacity.* The rounded products may add up to more than there is, by some last bits.
//! Taking the excess from the largest allocation would make one of two equal tenants poorer, and which one
//! would be a matter of order; it is taken from all who stand at the common level, by the same factor. The
//! exact sum of what is given never exceeds the capacity.
//!
//! *Purity.* No input or output, no clock, no globals, no Linux: a function of its arguments, on any machine.

mod course;
mod drf;
mod exact;
mod growth;
mod hierarchy;
pub mod integer;
mod limits;
pub mod max_min;
pub mod measure;
pub mod problem;
mod promises;
mod second_stage;
mod solution;
pub mod tasks;
mod tree;
mod weights;
pub mod yarn;

pub use problem::{Bounds, Demand, Field, Kind, Node, Place, Problem, ProblemError, Reason};
pub use solution::{Algorithm, Leaf, Solution, State, WorkConserving, allocate};
