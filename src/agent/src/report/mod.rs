//! Output of a tick for readers: the status, the trace that explains it, and the log.
//!
//! | file | contents |
//! |---|---|
//! | `status` | one tick as a [`Status`](tenantd_control::status::Status) |
//! | `trace` | one tick as a [`Trace`](tenantd_control::trace::Trace) |
//! | `effect` | obstacles that keep a value from taking effect |
//! | `competition` | cgroups above and beside that weaken the tenants' values |
//! | `charged` | memory of moved processes charged to their origin |
//! | `surroundings` | other work and limits around tenants short of a resource |
//! | `outsiders`, `programs` | CPU use outside all tenants by cgroup, and its main program |
//! | `finding_log` | findings in the log, when they begin and end |
//! | `reporter` | all of it after each tick |

mod charged;
mod competition;
mod effect;
mod finding_log;
mod outsiders;
mod programs;
pub(super) mod reporter;
mod status;
mod surroundings;
mod trace;
