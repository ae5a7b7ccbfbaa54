//! The agent as a service.
//!
//! | file | contents |
//! |---|---|
//! | [`run`] | the agent with its policy on disk, its socket and its service manager |
//! | [`event_loop`] | epoll, timers and signals around an agent |
//! | `jobs` | jobs on the socket |
//! | `policy_watch` | detecting changes of the policy on disk |
//! | `prekill` | the hook of systemd-oomd |

pub mod event_loop;
mod jobs;
mod policy_watch;
mod prekill;
pub mod run;

pub use run::{PolicySource, Service};
