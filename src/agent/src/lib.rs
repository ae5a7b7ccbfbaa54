//! The shell around the pure core: one agent, its tick, and the loop that calls it.
//!
//! Modules import only those above them in this table.
//!
//! | module | contents |
//! |---|---|
//! | [`recovery`] | state that one agent leaves to the next, and to `--restore` |
//! | [`backend`] | the cgroups of tenants, behind one set of operations |
//! | [`report`] | output of a tick for readers: status, trace, log |
//! | `tenants` | the tenants in force: policy, decisions, cgroups and journal |
//! | `jobs` | admitted jobs: their clients, processes and cgroups |
//! | [`agent`] | sample, step, apply, report; start, transitions and stop |
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
pub mod report;
pub mod service;
pub mod start_error;
mod tenants;
