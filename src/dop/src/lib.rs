//! The width of each tenant and each job, and its CPUs.
//!
//! **Problem.** A program that starts 64 threads on an entitlement of six CPUs wastes caches, locks and
//! memory. Weights alone do not help: they share the time, not the width. This crate computes the degree of
//! parallelism (DOP) of every tenant and job, and the CPUs that many threads should run on.
//!
//! **Reading order.**
//! 1. [`target`]: admission and width of queries or jobs (elastic auto-DOP), and [`imci`], the published
//!    rule that it improves; [`rounds`]: queries over time under both.
//! 2. [`tenant`]: the width of every tenant, each tick, from its allocation; [`band`] keeps it steady.
//! 3. [`cpuset`] and [`topology`]: sets of CPUs, and the structure of the machine.
//! 4. [`placement`]: sets of CPUs for the widths; [`transition`]: the safe writes from the present sets to
//!    those; [`map`]: a drawing of the sets.
//! 5. [`environment`]: the width in the environment of a program.
//!
//! All of it is pure: values in, values out. Time is an argument, and the machine is plain data that
//! `tenantd_host::topology` reads.

#![deny(missing_docs)]

pub mod band;
pub mod cpuset;
pub mod environment;
pub mod imci;
pub mod map;
pub mod placement;
mod problem;
pub mod rounds;
pub mod target;
pub mod tenant;
pub mod topology;
pub mod transition;

pub use cpuset::CpuSet;
pub use topology::Topology;
