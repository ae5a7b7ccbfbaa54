//! The one seam between the agent and the world.
//!
//! **Problem.** Everything the agent knows of a host it reads from small text files that the kernel makes
//! up on the spot (cgroupfs, procfs, sysfs), and everything it does to a host is one short write to such a
//! file. These are not ordinary files: a kept descriptor of a removed cgroup answers ENODEV for ever, also
//! after a cgroup of the same name is made again; a write must arrive in one call; a value may be accepted
//! and clamped, or refused with an errno that says why.
//!
//! **Terms.** A *kernel file* is one of these files; a *directory handle* ([`DirId`]) is a kept descriptor
//! of a directory, a *file handle* ([`FileId`]) one of a file opened for reading. *Gone* means that the
//! cgroup behind a handle was removed: ENODEV on a kept descriptor, ENOENT on a path.
//!
//! **Shape.** [`KernFs`] has two implementations: [`RealKernFs`] and [`crate::sim::SimKernel`]. All that
//! stands above, the parsers included, is the same code in production, in the demo without root and in
//! the tests. Paths given to `open_dir` are absolute; every other name is relative to a handle.
//!
//! **Properties.** A read that failed is an error with its path, never an empty text (`tests/kernel/kernfs.rs`).
//! A handle outlives its cgroup but never comes to mean another one (`tests/kernel/kernfs.rs`).

mod real;
mod seam;

pub use real::RealKernFs;
pub use seam::{DirId, ErrorKind, FileId, KernError, KernFs, Operation};
