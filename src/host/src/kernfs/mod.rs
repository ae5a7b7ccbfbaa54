//! The only interface between the agent and the kernel.
//!
//! **Problem.** All facts about a host come from small text files that the kernel generates on each read
//! (cgroupfs, procfs, sysfs), and every change of a host is one short write to such a file. These are not
//! ordinary files: a kept descriptor of a removed cgroup returns ENODEV permanently, even if a cgroup of the
//! same name is made again; a write must arrive in one call; a value may be accepted and clamped, or refused
//! with an errno that gives the reason.
//!
//! **Terms.** A *kernel file* is one of these files. A *directory handle* ([`DirId`]) is a kept descriptor of a
//! directory, a *file handle* ([`FileId`]) one of a file opened for reading. *Gone* means that the cgroup
//! behind a handle was removed: ENODEV on a kept descriptor, ENOENT on a path.
//!
//! **Implementations.** [`KernFs`] has two: [`RealKernFs`] and `tenantd_sim::SimKernel`. All code that uses
//! it, including the parsers, is the same in production, in the demo without root and in the tests. Paths given
//! to `open_dir` are absolute; every other name is relative to a handle.
//!
//! **Properties** (`tests/kernel/kernfs.rs`): a failed read is an error with its path, never an empty text; a
//! handle outlives its cgroup but never refers to a later one.

mod aside;
mod log;
mod real;
mod seam;

pub use log::KernelLog;
pub use real::RealKernFs;
pub use seam::{DirId, ErrorKind, FileId, KernError, KernFs, Operation};
