//! How wide each tenant and each job runs, and where.
//!
//! **Problem.** A program that starts 64 threads on an entitlement of six CPUs wastes caches, locks and
//! memory. Weights alone do not help: they share the time, not the width. This part computes the degree
//! of parallelism (DOP) of every tenant and job, and the CPUs that many threads should run on.
//!
//! **Reading order.**
//! 1. [`target`]: admission and width of queries or jobs (elastic auto-DOP), and [`imci`], the published
//!    rule it improves on; [`rounds`]: queries over time under both.
//! 2. [`tenant`]: the width of every tenant, each tick, from its allocation; [`band`] keeps it still.
//! 3. [`cpuset`] and [`topology`]: sets of CPUs, and the structure of the machine.
//! 4. [`placement`]: widths into sets; [`transition`]: from the present sets to those, one safe write at a
//!    time; [`map`]: the same as a drawing.
//! 5. [`environment`]: how a program gets its width.
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
pub mod rounds;
pub mod target;
pub mod tenant;
pub mod topology;
pub mod transition;

pub use cpuset::CpuSet;
pub use topology::Topology;
