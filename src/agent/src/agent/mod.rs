//! The agent of one host: sample, step, apply, report.
//!
//! | file | what it does |
//! |---|---|
//! | [`start`] | what an agent holds; how it comes to be, and how it goes |
//! | `tick` | one tick |
//! | [`attach`] | handing running work to tenants |
//! | `attached` | the same across restarts |
//! | [`jobs`], `job_submit`, `job_start`, `job_scope`, `job_valves`, `job_preempt` | jobs: submitted to ended, and what they give up |
//! | `job_nested` | jobs that are submitted from within a job |
//! | [`mode`] | switching between observe and enforce |
//! | `ready` | the part of a reload that may fail |
//! | [`reload`] | taking up another policy |
//! | `base` | what a policy comes to on this host |
//! | `names` | numbers of the names in the policy, which may come late |
//! | `recorded` | the control loop, and the recorder of its changes |
//! | `each` | taking up what the templates of the policy found |

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
