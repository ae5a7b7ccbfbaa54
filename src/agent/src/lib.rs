//! The shell around the pure core: one agent, its tick, and the loop that calls it.
//!
//! Arrows point only upwards in this table.
//!
//! | room | what it does |
//! |---|---|
//! | [`recovery`] | what one agent leaves to the next, and to `--restore` |
//! | [`backend`] | where tenants live, behind one set of verbs |
//! | `report` | what a tick leaves for readers: status, trace, log |
//! | `jobs` | admitted jobs: their clients, processes and cgroups |
//! | [`agent`] | sample, step, apply, report; reload; mode |
//! | [`service`] | the agent with its policy on disk, its socket and its service manager |
//! | [`command`] | the command `tenantd`: [`args`], [`log`], [`exit`] |

#![deny(missing_docs)]

pub mod agent;
pub mod args;
pub mod backend;
pub mod command;
pub mod exit;
mod jobs;
pub mod log;
pub mod recovery;
mod report;
pub mod service;
pub mod start_error;
