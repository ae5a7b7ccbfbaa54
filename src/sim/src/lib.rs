//! A kernel in memory behind [`tenantd_host::kernfs::KernFs`].
//!
//! **Problem.** The agent must be tested without root, on absent hosts and in rare situations: a cgroup
//! that vanishes in mid-tick, a read-only mount, exhausted memory, two hundred CPUs. A directory of plain
//! files cannot replace a kernel: its files do not clamp, refuse, or vanish with their cgroup, and nothing
//! happens in it.
//!
//! **Shape.** [`SimKernel`] serves the files of a host, and its time advances only with
//! [`SimKernel::advance`]. Between two calls it is a value: the same calls give the same history, bit for
//! bit. Its parts:
//!
//! | file | contents |
//! |---|---|
//! | `kernel` | the host, its processes, the clock |
//! | `vfs` | paths, handles, and the results of operations on them |
//! | `tree`, `rules` | cgroups, and the kernel's rules for making, removing, moving, enabling |
//! | `account`, `rates`, `spec`, `handles` | counters, rates, the kinds of files, open handles |
//! | `files`, `show`, `digits`, `store`, `files_v1` | interface files: list, texts, accepted values |
//! | `proc_files`, `sys_files` | `/proc` and `/sys/devices/system` |
//! | `fluid`, `flow`, `cpu` | CPU time: weighted max-min with quotas and affinities |
//! | `memory`, `reclaim`, `candidates`, `swap`, `oom` | memory: charges, protection, throttling, swap, kills |
//! | `pressure` | stalls, as PSI reports them |
//! | `workload`, `process`, `processes`, `charges` | the loads of processes, and their state |
//! | `quiet` | time in which only counters change, passed at once |
//! | `systemd`, `scopes` | `SimSystemd`: units on top of all this |
//! | `fault` | `Faulty`: errors on demand, and a log of calls, around any `KernFs` |
//!
//! **Behaviour.** Texts are those of Linux 6.12, and errors those of 6.1 to 6.18, as tried: `cpu.weight` of
//! 0 is ERANGE and `junk` EINVAL; `memory.max` rounds down to pages; a kept file of a removed cgroup always
//! returns ENODEV; an unprivileged writer gets EACCES, and a read-only mount EROFS. As root,
//! `tests/sim/real.rs` compares this kernel with the real one. Files that the agent does not use
//! (`cpu.idle`, `io.max`, …) are absent, or report that nothing happened.
//!
//! **Properties** (`tests/sim.rs`): conservation of CPU time and of memory, exact shares by weight, quota
//! and affinity, protection, determinism, and each errno.

#![deny(missing_docs)]

mod account;
mod candidates;
mod charges;
mod controller;
mod cpu;
mod digits;
mod fault;
mod files;
mod files_v1;
mod flow;
mod fluid;
mod handles;
mod kernel;
mod memory;
mod oom;
mod parse;
mod pressure;
mod proc_files;
mod process;
mod processes;
mod quiet;
mod rates;
mod reclaim;
mod rules;
mod scopes;
mod show;
mod spec;
mod store;
mod swap;
mod sys_files;
mod systemd;
mod tree;
mod vfs;
mod workload;

pub use controller::Controller;
pub use fault::{Call, Fault, Faulty, When};
pub use kernel::{Access, Layout, SimHost, SimKernel};
pub use process::ProcessUsage;
pub use swap::Swap;
pub use systemd::{SimSystemd, SimUnit, SimUnits, UnitFault};
pub use workload::{Load, Trace, Workload};
