//! What a host has to offer.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tenantd_host::kernfs::KernFs;
use tenantd_policy::model::Policy;

use super::step::Abilities;
use crate::util::Snapshot;

/// What happens to the next turn of the agent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fate {
    /// It dies before this call, counted from now.
    pub(crate) dies_at: Option<u64>,
    /// This call fails so.
    pub(crate) fails_at: Option<(u64, nix::errno::Errno)>,
}

/// A host with a ground: a cgroup (`top`) in every tree, below which everything happens.
pub(crate) trait Ground {
    /// The kernel as agents get it.
    type Kernel: KernFs;

    fn abilities(&self) -> Abilities;

    /// The kernel for one agent.
    fn kernel(&self) -> Self::Kernel;

    /// The directory of the top in each tree.
    fn tops(&self) -> &[PathBuf];

    /// The top, as a path from the mount points.
    fn top(&self) -> &str;

    /// The cgroup `below` the top, as the root of an agent.
    fn root(&self, below: &str) -> PathBuf {
        Path::new(self.top()).join(below)
    }

    /// Where the agent's state is.
    fn state_dir(&self) -> &Path;

    /// What every cgroup of the ground holds: see [`Snapshot`].
    fn snapshot(&self) -> Snapshot;

    /// Lets `time` pass on the host.
    fn advance(&mut self, time: Duration);

    /// Runs a turn of the agent with this fate. `None` where it died.
    fn turn<T>(&mut self, fate: Fate, act: impl FnOnce() -> T) -> Option<T>;

    /// The agent has ended, in whatever way: the kernel closes what it held.
    fn close_all(&mut self);

    /// How many directories the agent keeps open; 0 where that is not known.
    fn nr_open(&self) -> usize;

    /// Writes `value` to a file as an administrator; whether the kernel took it.
    fn write(&mut self, file: &Path, value: &str) -> bool;

    /// Makes the cgroup `below` the top in every tree.
    fn make(&mut self, below: &str);

    /// Ends everything in the cgroup `below` the top, and removes it.
    fn remove(&mut self, below: &str);

    /// Starts a process.
    fn spawn(&mut self, below: &str, load: u8);

    fn set_load(&mut self, pid: u32, load: u8);

    fn kill(&mut self, pid: u32);

    fn set_cpu(&mut self, cpu: u32, is_online: bool);

    /// The processes that were started here and live.
    fn pids(&self) -> Vec<u32>;

    /// The policy of this text, where it is valid.
    fn policy(&self, yaml: &str) -> Option<Policy> {
        let path = crate::util::file(self.state_dir().parent()?, "policy.yaml", yaml);
        tenantd_policy::load(&path).ok().map(|loaded| loaded.policy)
    }
}
