//! One tick as a function: samples in, ordered actions out.
//!
//! **Problem.** Once a second the agent must decide what each tenant is entitled to and which values make
//! the kernel enforce it, from counters that only grow, files that may be missing and tenants that come and
//! go. The decision has to be repeatable (the same samples give the same values), explainable (every value
//! has a reason) and still (what need not change does not).
//!
//! **The chain**, one file a link; read them in this order:
//!
//! | link | file | from → to |
//! |---|---|---|
//! | sample | [`sample`] | what the kernel said at one instant, absent where it said nothing |
//! | usage | [`usage`] | two samples and the time between them → rates |
//! | demand | [`demand`] | rates and the last decision → what a tenant could use now |
//! | target | [`target`] | demands, policy, host → allocation and the values that enforce it |
//! | width | [`width`] | allocations → degrees of parallelism |
//! | place | [`place`] | degrees of parallelism → sets of CPUs |
//! | plan | [`plan`] | desired minus observed → an ordered list of actions |
//! | fairness | [`fairness`] | what was decided and what was got → how far apart they are |
//! | explain | [`explain`] | one tenant's way through all of these → numbers and reasons |
//! | trace | [`trace`] | what a tick leaves behind so that it can be explained |
//! | status | [`status`] | all of it as one immutable value, for whoever asks |
//!
//! Nothing here reads a file or a clock: time is an argument, and so is everything else.

pub mod demand;
pub mod explain;
pub mod fairness;
pub mod place;
pub mod plan;
pub mod sample;
pub mod status;
pub mod target;
pub mod trace;
pub mod tree;
pub mod usage;
pub mod width;
