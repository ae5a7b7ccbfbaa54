//! Where the demo runs: the machine's own kernel with real processes, or the kernel in memory.
//!
//! The two differ only in how a load is started and how time passes: the agent and all measurements are the
//! same.

use std::time::Duration;

use super::reading::Reading;
use super::scene::{Half, TENANTS};
use tenantd::agent::Agent;
use tenantd_host::kernfs::KernFs;
use tenantd_policy::model::Policy;

/// The machine that the demo runs on.
#[derive(Clone, Debug)]
pub(super) struct Size {
    pub(super) cpus: u32,
    pub(super) memory_bytes: u64,
    /// Why the tenants do not compete for memory here; `None` where they do.
    pub(super) uncontended: Option<String>,
}

/// A place where the demo can run.
pub(super) trait Stage: Sized {
    /// Whether it is simulated.
    const SIMULATED: bool;
    /// The kernel that the agent works on.
    type Kernel: KernFs;

    /// The kernel, for the time before the agent has it.
    fn kernel(&mut self) -> Self::Kernel;
    /// The size of the machine, and a bound on the memory that the loads take of it.
    fn size(&mut self, kernel: &mut Self::Kernel) -> anyhow::Result<Size>;
    /// Starts the loads of `half` as ordinary processes of this machine.
    fn start_plain(&mut self, kernel: &mut Self::Kernel, half: &Half) -> anyhow::Result<()>;
    /// Ends all loads.
    fn end_loads(&mut self, kernel: &mut Self::Kernel) -> anyhow::Result<()>;
    /// An agent on this stage, under a root of its own.
    fn agent(
        &mut self,
        kernel: Self::Kernel,
        policy: Policy,
    ) -> anyhow::Result<Agent<Self::Kernel>>;
    /// Sets the load of each tenant; the first time, starts the loads in the tenants' cgroups.
    fn set_loads(&mut self, agent: &mut Agent<Self::Kernel>, half: &Half) -> anyhow::Result<()>;
    /// What each tenant's load has used so far, in their order; `None` where it cannot be read.
    fn readings(&mut self, kernel: &mut Self::Kernel) -> Vec<Option<Reading>>;
    /// Time since the stage was set up.
    fn now(&self) -> Duration;
    /// Lets `time` pass, or less if it is interrupted.
    fn sleep(&mut self, kernel: &mut Self::Kernel, time: Duration);
    /// Whether the user asked to stop.
    fn interrupted(&self) -> bool;
    /// Ends the loads, stops the agent, and returns whether nothing is left behind.
    fn finish(self, agent: Agent<Self::Kernel>) -> anyhow::Result<bool>;
}

/// The tenants with their demands in `half`.
pub(super) fn tenants(half: &Half) -> impl Iterator<Item = (&'static str, &crate::load::Want)> {
    TENANTS.iter().map(|(name, _)| *name).zip(&half.wants)
}
