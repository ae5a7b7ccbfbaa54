//! What a tick leaves for readers: the status, the trace that explains it, and the log.
//!
//! | file | what it does |
//! |---|---|
//! | `status` | one tick as a [`Status`](crate::control::status::Status) |
//! | `trace` | one tick as a [`Trace`](crate::control::trace::Trace) |
//! | `effect` | obstacles that keep a value from taking effect |
//! | `competition` | what the cgroups above and beside the tenants take away |
//! | `finding_log` | findings in the log: when they begin and when they are over |
//! | `reporter` | all of it after each tick |

mod competition;
mod effect;
mod finding_log;
pub(super) mod reporter;
mod status;
mod trace;
