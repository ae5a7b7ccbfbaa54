//! The agent as a service.
//!
//! | file | what it does |
//! |---|---|
//! | [`run`] | the agent with its policy on disk, its socket and its service manager |
//! | [`event_loop`] | epoll, timers and signals around an agent |
//! | `policy_watch` | noticing that the policy on disk changed |

pub mod event_loop;
mod policy_watch;
pub mod run;

pub use run::{PolicySource, Service};
