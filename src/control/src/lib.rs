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
//! | | [`credit`] | use beside fair shares → banks and factors of weights |
//! | protect | [`protect`] | wanted protection, unreclaimable memory → possible protection |
//! | memory alarm | [`alarm`] | stall of the whole host → withdrawn protection |
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
//! with all state between ticks ([`state`], [`step`]): `apply(Event) -> Decision`. [`finding`], [`status`],
//! [`jobs`] and [`trace`] report a tick; [`explain`] turns a trace into an [`explanation`] for the wire.
//!
//! Nothing here reads a file or a clock: all inputs, including time, are arguments.
//!
//! [`alarm`]: memory::alarm
//! [`bounds`]: tree::bounds
//! [`burst`]: share::burst
//! [`capacity`]: state::capacity
//! [`contest`]: state::contest
//! [`control_loop`]: tick::control_loop
//! [`credit`]: share::credit
//! [`demand`]: share::demand
//! [`drift`]: state::drift
//! [`event`]: tick::event
//! [`explain`]: why::explain
//! [`explanation`]: report::explanation
//! [`fairness`]: share::fairness
//! [`fault`]: measure::fault
//! [`finding`]: words::finding
//! [`govern`]: share::govern
//! [`jobs`]: words::jobs
//! [`members`]: state::members
//! [`pids`]: share::pids
//! [`place`]: width::place
//! [`plan`]: write::plan
//! [`probe`]: memory::probe
//! [`protect`]: memory::protect
//! [`reason`]: report::reason
//! [`sample`]: measure::sample
//! [`shortfall`]: why::shortfall
//! [`status`]: report::status
//! [`step`]: state::step
//! [`target`]: share::target
//! [`thread_budget`]: measure::thread_budget
//! [`trace`]: report::trace
//! [`usage`]: measure::usage
//! [`value_reason`]: write::value_reason
//! [`weight`]: share::weight
//! [`would_get`]: share::would_get

#![deny(missing_docs)]

pub mod measure;
pub mod memory;
pub mod report;
pub mod share;
pub mod state;
pub mod tick;
pub mod tree;
pub mod why;
pub mod width;
pub mod words;
pub mod write;
