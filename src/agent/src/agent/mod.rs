//! The agent of one host: sample, step, apply, report.
//!
//! | file | contents |
//! |---|---|
//! | [`start`] | state, start and stop of an agent |
//! | `tick` | one tick |
//! | [`attach`] | attaching running work to tenants |
//! | `attached` | attached work across restarts |
//! | `jobs`, `job_submit`, `job_start`, `job_scope`, `job_valves` | jobs from submission to end |
//! | `job_preempt` | preemption of running jobs |
//! | `job_nested` | jobs submitted from within a job |
//! | [`mode`] | switching between observe and enforce |
//! | `ready` | the part of a reload that may fail |
//! | `transition` | exchanging the policy |
//! | `base` | a policy resolved on this host |
//! | `names` | numbers of the names in the policy, which may arrive late |
//! | `recorded` | the control loop with the recorder of its events |
//! | `each` | tenants found by the templates of the policy |

pub mod attach;
mod attach_check;
mod each;
pub mod mode;
mod names;
mod ready;
pub mod start;
mod take_names;
mod tick;
pub mod transition;

pub use crate::jobs::reply::JobAnswer;
pub use crate::start_error::StartError;
pub use mode::ChangeError;
pub use start::{Agent, Options};
