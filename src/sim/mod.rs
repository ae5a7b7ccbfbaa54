//! A kernel in memory behind [`crate::host::kernfs::KernFs`].
//!
//! **Problem.** The agent must be shown to do its job without root, on hosts that are not at hand and in
//! situations that cannot be had on demand: a cgroup that vanishes in mid-tick, a read-only mount, memory
//! that runs out, two hundred CPUs. A directory of plain files cannot stand in for a kernel: its files do
//! not clamp, refuse, or die with their cgroup, and nothing happens in it.
//!
//! **Shape.** [`SimKernel`] serves the files of a host and moves only when [`SimKernel::advance`] is told
//! how much time has passed. Between two calls it is a value: the same calls give the same history, bit
//! for bit. Its parts:
//!
//! | file | decides |
//! |---|---|
//! | `kernel` | the host, its processes, the clock |
//! | `vfs` | paths, handles, and what an operation on them may answer |
//! | `tree`, `rules` | cgroups, and the kernel's rules for making, removing, moving, enabling |
//! | `account`, `rates`, `spec`, `handles` | what is counted, what flows, which files there are, what is kept open |
//! | `files`, `show`, `store`, `files_v1` | interface files: which, their texts, what they accept |
//! | `proc_files`, `sys_files` | `/proc` and `/sys/devices/system` |
//! | `fluid`, `flow`, `cpu` | who runs: weighted max-min with quotas and affinities |
//! | `memory`, `reclaim`, `oom` | who has memory: charges, protection, throttling, who dies |
//! | `pressure` | what stalls, as PSI shows it |
//! | `workload`, `process` | what processes want and have |
//! | `systemd` | [`SimSystemd`]: units on top of all this |
//! | `fault` | [`Faulty`]: errors on demand, and a log of calls, around any `KernFs` |
//!
//! **Manners.** Texts are those of Linux 6.12, and errors those of 6.1 to 6.18, where they were tried:
//! `cpu.weight` of 0 is ERANGE and `junk` EINVAL; `memory.max` rounds down to pages; a kept file of a removed
//! cgroup answers ENODEV for ever; an unprivileged writer gets EACCES, and a read-only mount EROFS. As root,
//! `tests/sim/real.rs` puts the same questions to this kernel and to the one below. Files that the agent has
//! no use for (`cpu.idle`, `io.max`, swap, …) are not there, or say that nothing happened.
//!
//! **Properties** and the tests that hold them: conservation of CPU time and of memory, exact shares by
//! weight, quota and affinity, protection, determinism, and each errno (`tests/sim.rs`).

mod account;
mod controller;
mod cpu;
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
mod rates;
mod reclaim;
mod rules;
mod show;
mod spec;
mod store;
mod sys_files;
mod systemd;
mod tree;
mod vfs;
mod workload;

pub use controller::Controller;
pub use fault::{Call, Fault, Faulty, When};
pub use kernel::{Access, Layout, SimHost, SimKernel};
pub use systemd::{SimSystemd, SimUnit, SimUnits, UnitFault};
pub use workload::{Load, Trace, Workload};
