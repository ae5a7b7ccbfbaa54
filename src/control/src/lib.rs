//! One tick as a function: samples in, ordered actions out.
//!
//! **Problem.** Once a second the agent must decide what each tenant is entitled to and which values make the
//! kernel enforce it. Its inputs are counters that only grow, files that may be missing and tenants that come
//! and go. The decision has to be repeatable (the same samples give the same values), explainable (every
//! value has a reason) and stable (a value that need not change does not change).
//!
//! **The chain**, one file a link; read them in this order:
//!
//! | link | file | from → to |
//! |---|---|---|
//! | sample | [`sample`] | what the kernel said at one instant, absent where it said nothing |
//! | usage | [`usage`] | two samples and the time between them → rates |
//! | | [`thread_budget`] | who is pressed, and how many threads each has → whose threads are read |
//! | demand | [`demand`] | rates and the last decision → what a tenant could use now |
//! | | [`bounds`] | the limits above the tenants |
//! | capacity | [`capacity`] | the machine less reserve and outside use → what is divided |
//! | target | [`target`] | demands, policy, capacity → allocation and the values that enforce it |
//! | | [`burst`], [`weight`] | what each gets when all are hungry; entitlements as the kernel's weights |
//! | | [`govern`] | the same wherever the cgroups are |
//! | | `siblings` | what siblings of either tree are weighed by |
//! | | [`members`] | the same for tenants of several cgroups: sums, and parts of them |
//! | | [`credit`] | use beside fair shares → banks, and factors of weights |
//! | protect | [`protect`] | what is wanted to be protected, what cannot be reclaimed → what can be protected |
//! | memory alarm | [`memory_alarm`] | how long the whole host has waited for memory → what protection is withdrawn |
//! | probe | [`probe`] | how long tasks waited at a bound → the next bound |
//! | would get | [`would_get`] | demands, policy, capacity → what each tenant would be allocated if it woke up |
//! | width | [`width`] | allocations → degrees of parallelism |
//! | place | [`place`] | degrees of parallelism → sets of CPUs |
//! | pids | [`pids`] | processes and refused forks → what a limit stops |
//! | drift | [`drift`] | what the files hold → what others wrote there |
//! | contest | [`contest`] | values that others overwrite again and again → which are left alone for a time |
//! | desired | `desired` | targets and places → what every file shall hold |
//! | | [`value_reason`] | targets → the reason of a value, as text |
//! | plan | [`plan`] | desired minus observed → an ordered list of actions |
//! | fairness | [`fairness`] | what was decided and what was got → how far apart they are |
//! | shortfall | [`shortfall`], [`fault`] | what was got and what is due → what each lacks; how often so far |
//! | | `diagnosis`, [`reason`] | what a tick knows → why |
//!
//! [`event`] is every change of that state as a value, for recordings.
//! [`control_loop`] is the chain as a whole, with all state between ticks ([`state`], [`step`]):
//! `step(Input) -> Decision`. What a tick reports is in [`finding`], [`status`] with [`jobs`], and [`trace`]; [`explain`]
//! turns a trace into an [`explanation`], the form that goes over the wire.
//!
//! Nothing here reads a file or a clock: time is an argument, and so is everything else.

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
