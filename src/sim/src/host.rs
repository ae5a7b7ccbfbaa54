//! The machine to simulate.

use super::controller::Controller;
use super::disk::Divider;
use super::disk_queue::DiskQueue;
use super::parse::CpuSet;
use super::swap::Swap;
use tenantd_core::resource::{PerResource, Resource};

/// Longest step of the memory model, in which loads are evaluated and memory is touched.
pub(super) const STEP_NSEC: u64 = 10_000_000;

pub(super) const MOUNT: &str = "/sys/fs/cgroup";

/// Mounted cgroup hierarchies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// One tree with every controller at `/sys/fs/cgroup`.
    #[default]
    Unified,
    /// A tree for each controller at `/sys/fs/cgroup/CONTROLLER`, and a unified one without controllers at
    /// `/sys/fs/cgroup/unified`.
    Legacy,
}

/// Permissions of the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Root's permissions.
    #[default]
    Root,
    /// Reading only: every write is EACCES.
    Unprivileged,
    /// cgroupfs is mounted read-only: every write is EROFS.
    ReadOnlyMount,
}

/// The machine to simulate.
#[derive(Clone, Debug)]
pub struct SimHost {
    /// Number of CPUs, at least 1; all are online at first.
    pub cpus: u32,
    /// Hardware threads that share a core, at least 1.
    pub threads_per_core: u32,
    /// Memory nodes, each with its own socket and last-level cache, at least 1.
    pub numa_nodes: u32,
    /// Installed memory.
    pub memory_bytes: u64,
    /// Swap device, if any.
    pub swap: Option<Swap>,
    /// Mounted hierarchies.
    pub layout: Layout,
    /// Controllers of the kernel.
    pub controllers: Vec<Controller>,
    /// True if pressure stall information is on.
    pub psi: bool,
    /// True if a parent's unclaimed protection goes to its children, as systemd mounts it.
    pub memory_recursiveprot: bool,
    /// True if pages are kept in generations (`CONFIG_LRU_GEN_ENABLED`), as in Debian since 13: reclaim
    /// skips a cgroup within its `memory.low` once, and takes from it the next time.
    pub has_generations: bool,
    /// True if each CPU has a run queue, in which threads stay while the load averages of CPUs look even.
    /// Otherwise all CPUs divide as one, without errors.
    pub has_run_queues: bool,
    /// Permissions of the caller.
    pub access: Access,
    /// Scheduler of the disk, and `io.cost`.
    pub divider: Divider,
    /// Settings of the disk.
    pub queue: DiskQueue,
}

impl SimHost {
    /// Capacity of each resource.
    pub fn machine(&self) -> PerResource<f64> {
        PerResource::from_fn(|resource| match resource {
            Resource::Cpu => f64::from(self.cpus),
            Resource::Memory => self.memory_bytes as f64,
        })
    }

    pub(super) fn mems(&self) -> CpuSet {
        (0..self.numa_nodes.max(1)).collect()
    }
}

impl Default for SimHost {
    /// Four CPUs, 8 GiB, unified, everything switched on: a small server with systemd.
    fn default() -> Self {
        SimHost {
            cpus: 4,
            threads_per_core: 1,
            numa_nodes: 1,
            memory_bytes: 8 << 30,
            swap: None,
            layout: Layout::Unified,
            controllers: Controller::ALL.to_vec(),
            psi: true,
            memory_recursiveprot: true,
            has_generations: false,
            has_run_queues: false,
            access: Access::Root,
            divider: Divider::default(),
            queue: DiskQueue::default(),
        }
    }
}

/// Legacy name of a controller: io was called blkio.
pub(super) fn legacy_name(controller: Controller) -> &'static str {
    match controller {
        Controller::Io => "blkio",
        other => other.name(),
    }
}
