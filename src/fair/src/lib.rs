//! Shares of the machine: the allocation core.
//!
//! # Problem
//! A machine has limited amounts of several resources, and its tenants together want more. Their demands
//! have proportions (CPU without memory is of no use), weights, guarantees and limits, and they form
//! groups. The allocation has to be fair: each tenant gets at least what its part of the machine alone
//! would have given it, none prefers the allocation of another, nothing usable is left idle, and
//! misreporting a demand does not pay. Dominant resource fairness has these properties; this module
//! computes it exactly, with the extensions that practice needs.
//!
//! # Reading order
//! 1. [`problem`]: capacity, nodes and terms; the one place where numbers are checked.
//! 2. [`max_min`]: one resource. The idea behind all the rest: raise a level until it stops.
//! 3. `drf`: several resources, by one sweep.
//! 4. `second_stage`: division of the resources that proportions left idle, and its cap.
//! 5. `hierarchy`, on `course`, `phase` and `front`: groups, of any depth, and their limits; `promises`:
//!    their guarantees.
//! 6. [`tasks`], [`integer`]: tasks or slots that cannot be divided, with exact numbers (`decimal`).
//! 7. [`nodes`]: tasks on one of several machines each.
//! 8. [`order`] and [`yarn`]: the orders of well-known cluster schedulers.
//! 9. [`measure`]: the fairness of an allocation under any rule. [`audit`]: its properties, and the gain of
//!    false claims.
//!
//! [`allocate`] is the entry point. `tenantctl solve` makes it available for problems in files.
//!
//! # Numbers
//! Allocations are `f64`; every sum that decides something is an integer.
//!
//! *Why not fixed point throughout?* Resources come in nanocores and in exabytes, and a rational answer
//! such as 841/119 tasks needs a relative precision, not an absolute one: 1e-9 of a millionth of a machine
//! still has to be right.
//!
//! *Why not `f64` throughout?* A sweep adds and subtracts a hundred thousand times. In floating point the
//! order of the terms shows in the last bits, so that two hosts which list the same tenants in different
//! orders would disagree; and a heavy tenant that comes and goes leaves a rounding error the size of the
//! light ones. So sums are kept in 128-bit fixed point, scaled to the largest term (`exact`): addition is
//! then associative and has an inverse, and the answer depends on the set of tenants and not on their
//! order. Rounding is left in one division for a level, and one product for each allocation.
//!
//! *Never above the capacity.* The rounded products may exceed the capacity by some last bits. Taking the
//! excess from the largest allocation would make one of two equal tenants poorer, depending on their order.
//! It is taken from all tenants at the common level, by the same factor. The exact sum of the allocations
//! never exceeds the capacity.
//!
//! *Purity.* No input or output, no clock, no globals, no Linux: a function of its arguments, on any
//! machine.

#![deny(missing_docs)]

pub mod audit;
mod check;
mod course;
mod decimal;
mod drf;
mod exact;
pub mod finish_time;
mod front;
mod growth;
mod hierarchy;
pub mod integer;
mod limits;
pub mod max_min;
pub mod measure;
mod node;
pub mod nodes;
pub mod order;
mod phase;
pub mod problem;
mod promises;
mod second_stage;
mod slots;
mod solution;
pub mod steps;
pub mod tasks;
mod tree;
mod weights;
pub mod yarn;

pub use nodes::{Nodes, Placed, Placement};
pub use problem::{Bounds, Demand, Field, Kind, Node, Order, Place, Problem, ProblemError, Reason};
pub use solution::{Algorithm, Leaf, Solution, State, WorkConserving, allocate, allocate_on};
