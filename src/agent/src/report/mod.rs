//! Output of a tick for readers: the status, the trace that explains it, and the log.
//!
//! | file | contents |
//! |---|---|
//! | `status` | one tick as a [`Status`](tenantd_control::report::status::Status) |
//! | `trace` | one tick as a [`Trace`](tenantd_control::report::trace::Trace) |
//! | `engine` | effect of weights under a scheduler of sched_ext |
//! | `effect` | obstacles that keep a value from taking effect |
//! | `competition` | what the cgroups above and beside the tenants take away |
//! | `charged` | memory of moved processes that stays where they came from |
//! | `binding` | CPUs to which such tenants have bound themselves |
//! | `surroundings` | what is around tenants that lack something |
//! | `outsiders`, `programs` | CPUs that work of no tenant uses, by cgroup; the program behind it |
//! | `mounts` | options of mounts that make protection or claims void |
//! | `absent` | devices of counted resources that do not exist |
//! | [`recorded`] | one tick of a recording as a status |
//! | `finding_log` | findings in the log: when they begin and when they are over |
//! | `held` | findings about the load, which stay for a while |
//! | `reporter` | all of it after each tick |

mod absent;
mod binding;
mod charged;
mod competition;
mod effect;
mod engine;
mod finding_log;
mod held;
mod mounts;
mod outsiders;
mod programs;
pub mod recorded;
pub(super) mod reporter;
mod status;
mod surroundings;
mod trace;
