//! A kernel in memory behind [`tenantd_host::kernfs::KernFs`].
//!
//! **Problem.** The agent must be tested without root, on absent hosts and in rare situations: a cgroup
//! that vanishes in mid-tick, a read-only mount, exhausted memory, two hundred CPUs. A directory of plain
//! files cannot replace a kernel: its files do not clamp, refuse, or vanish with their cgroup, and nothing
//! happens in it.
//!
//! **Shape.** [`SimKernel`] serves the files of a host, and its time advances only with
//! [`SimKernel::advance`]. Between two calls it is a value: the same calls give the same history, bit for
//! bit. It owns these parts; each calls only those above it in the table:
//!
//! | part | files | contents |
//! |---|---|---|
//! | `Tree` | `tree`, `account`, `pressure`, `controller` | cgroups: settings, counters, stalls |
//! | `Population` | `population`, `process`, `processes`, `workload`, `charges`, `ledger`, `oom` | processes: loads, charges |
//! | | `rules` | the kernel's rules for making, removing, moving, enabling |
//! | `Memory` | `memory`, `swap`, `reclaim`, `charge`, `touch` | memory of the host: size and swap, protection, throttling, use |
//! | `Cpu` | `cpu`, `rates`, `fluid`, `flow`, `queues` | CPU time: max-min by weight on all CPUs, or on each by itself |
//! | `SimKernel` | `kernel`, `host`, `disk` | the clock, and the calls of tests |
//! | files | `spec`, `files`, `show`, `digits`, `store`, `files_v1`, `proc_files`, `sys_files` | list, texts, accepted values |
//! | handles | `paths`, `handles`, `vfs` | paths, open handles, and the results of operations on them |
//! | `SimSystemd` | `systemd`, `orders` | units on top of all this |
//! | `Faulty` | `fault` | errors on demand, and a log of calls, around any `KernFs` |
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
mod charge;
mod charges;
mod contend;
mod controller;
mod cpu;
mod digits;
mod disk;
mod disk_queue;
mod fault;
mod files;
mod files_v1;
mod flow;
mod fluid;
mod handles;
mod host;
mod kernel;
mod ledger;
mod memory;
mod oom;
mod orders;
mod parse;
mod paths;
mod population;
mod pressure;
mod proc_files;
mod process;
mod processes;
mod queues;
mod rates;
mod reclaim;
mod rules;
mod show;
mod spec;
mod store;
mod swap;
mod sys_files;
mod systemd;
mod touch;
mod tree;
mod vfs;
mod workload;

pub use controller::Controller;
pub use cpu::{Loaded, Weighs};
pub use disk::{DiskWork, Divider};
pub use disk_queue::DiskQueue;
pub use fault::{Call, Fault, Faulty, When};
pub use host::{Access, Layout, SimHost};
pub use kernel::SimKernel;
pub use orders::SimUnits;
pub use process::ProcessUsage;
pub use swap::Swap;
pub use systemd::{SimSystemd, SimUnit, UnitFault};
pub use workload::{Load, Trace, Workload};
