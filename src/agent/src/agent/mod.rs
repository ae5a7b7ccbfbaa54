//! The agent of one host: sample, step, apply, report.
//!
//! | file | contents |
//! |---|---|
//! | [`start`] | state, start and stop of an agent |
//! | `tick` | one tick |
//! | [`attach`] | attaching running work to tenants |
//! | `attached` | attached work across restarts |
//! | [`jobs`], `job_submit`, `job_start`, `job_scope`, `job_valves` | jobs from submission to end |
//! | `job_preempt` | preemption of running jobs |
//! | `job_nested` | jobs submitted from within a job |
//! | [`mode`] | switching between observe and enforce |
//! | `ready` | the part of a reload that may fail |
//! | [`reload`] | exchanging the policy |
//! | `base` | a policy resolved on this host |
//! | `names` | numbers of the names in the policy, which may arrive late |
//! | `recorded` | the control loop with the recorder of its events |
//! | `each` | tenants found by the templates of the policy |

pub mod attach;
mod attach_check;
mod attached;
mod base;
mod each;
mod job_nested;
mod job_preempt;
mod job_scope;
mod job_start;
mod job_submit;
mod job_valves;
pub mod jobs;
pub mod mode;
mod names;
mod ready;
mod recorded;
pub mod reload;
pub mod start;
mod take_names;
mod tick;

pub use crate::start_error::StartError;
pub use mode::ChangeError;
pub use start::{Agent, Options};
