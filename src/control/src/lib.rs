//! One tick as a function: samples in, ordered actions out.
//!
//! **Problem.** Once a second the agent must decide each tenant's entitlement and the values that enforce
//! it. Its inputs are growing counters, files that may be missing, and tenants that come and go. The
//! decision must be repeatable (same samples, same values), explainable (every value has a reason) and
//! stable (no needless changes).
//!
//! **The chain**, one file per link, in reading order:
//!
//! | link | file | from → to |
//! |---|---|---|
//! | sample | [`sample`] | one reading of the kernel's counters |
//! | usage | [`usage`] | two samples and the time between them → rates |
//! | | [`thread_budget`] | pressed tenants and their thread counts → threads to read |
//! | demand | [`demand`] | rates and the last decision → demand |
//! | | [`bounds`] | limits above the tenants |
//! | capacity | [`capacity`] | machine less reserve and outside usage → capacity to divide |
//! | target | [`target`] | demands, policy, capacity → allocations and the values that enforce them |
//! | | [`burst`], [`weight`] | amounts if all are hungry; entitlements as kernel weights |
//! | | [`govern`] | weights across the tree of cgroups |
//! | | `siblings` | weights of siblings in either tree |
//! | | [`members`] | tenants of several cgroups: sums and parts |
//! | | [`credit`] | use beside fair shares → banks and factors of weights; not in force yet |
//! | protect | [`protect`] | wanted protection, unreclaimable memory → possible protection |
//! | memory alarm | [`memory_alarm`] | stall of the whole host → withdrawn protection |
//! | probe | [`probe`] | stalls at a bound → next bound |
//! | would get | [`would_get`] | demands, policy, capacity → allocation of a tenant that wakes |
//! | width | [`width`] | allocations → degrees of parallelism |
//! | place | [`place`] | degrees of parallelism → sets of CPUs |
//! | pids | [`pids`] | processes and refused forks → reached limits |
//! | drift | [`drift`] | observed values → foreign writes |
//! | contest | [`contest`] | repeated foreign writes → values left alone |
//! | desired | `desired` | targets and places → desired values |
//! | | [`value_reason`] | targets → reason of a value, as text |
//! | plan | [`plan`] | desired minus observed → ordered actions |
//! | fairness | [`fairness`] | allocated and received → distance |
//! | shortfall | [`shortfall`], [`fault`] | received and due → shortfalls and their counts |
//! | | `diagnosis`, [`reason`] | data of a tick → reasons |
//!
//! [`event`] is every change of the state as a value, for recordings. [`control_loop`] is the whole chain
//! with all state between ticks ([`state`], [`step`]): `step(Input) -> Decision`. [`finding`], [`status`],
//! [`jobs`] and [`trace`] report a tick; [`explain`] turns a trace into an [`explanation`] for the wire.
//!
//! Nothing here reads a file or a clock: all inputs, including time, are arguments.

#![deny(missing_docs)]

pub mod bounds;
pub mod burst;
pub mod capacity;
pub mod contest;
pub mod control_loop;
pub mod credit;
pub mod demand;
mod desired;
mod diagnosis;
pub mod drift;
pub mod event;
pub mod explain;
mod explain_shares;
mod explain_usage;
mod explain_value;
pub mod explanation;
pub mod fairness;
pub mod fault;
pub mod finding;
pub mod govern;
pub mod jobs;
pub mod knob;
pub mod members;
pub mod memory_alarm;
pub mod pids;
pub mod place;
pub mod plan;
pub mod probe;
pub mod protect;
pub mod reason;
pub mod sample;
pub mod shortfall;
mod siblings;
pub mod squeeze;
pub mod state;
pub mod status;
pub mod steady;
pub mod step;
pub mod target;
pub mod thread_budget;
pub mod trace;
pub mod tree;
pub mod trim;
pub mod usage;
pub mod value_reason;
pub mod weight;
pub mod width;
pub mod would_get;
