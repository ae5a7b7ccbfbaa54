//! Stage of the demo: the machine's own kernel with real processes, or the kernel in memory.
//!
//! The two differ only in starting loads and in passing time: the agent and all measurements are the same.

use std::time::Duration;

use super::reading::Reading;
use super::scene::{Half, TENANTS};
use tenantd::agent::Agent;
use tenantd_host::kernfs::KernFs;
use tenantd_policy::model::Policy;

#[derive(Clone, Debug)]
pub(crate) struct Size {
    pub(crate) cpus: u32,
    pub(crate) memory_bytes: u64,
    /// Reason why the tenants do not compete for memory; `None` if they do.
    pub(crate) uncontended: Option<String>,
}

pub(crate) trait Stage: Sized {
    const SIMULATED: bool;
    type Kernel: KernFs;

    /// Kernel for the time before the agent.
    fn kernel(&mut self) -> Self::Kernel;
    /// Measures the machine, and bounds the memory of the loads.
    fn size(&mut self, kernel: &mut Self::Kernel) -> anyhow::Result<Size>;
    /// Starts the loads of `half` as ordinary processes of this machine.
    fn start_plain(&mut self, kernel: &mut Self::Kernel, half: &Half) -> anyhow::Result<()>;
    fn end_loads(&mut self, kernel: &mut Self::Kernel) -> anyhow::Result<()>;
    /// Creates an agent on this stage, under a root of its own.
    fn agent(
        &mut self,
        kernel: Self::Kernel,
        policy: Policy,
    ) -> anyhow::Result<Agent<Self::Kernel>>;
    /// Sets the load of each tenant; the first time, starts the loads in the tenants' cgroups.
    fn set_loads(&mut self, agent: &mut Agent<Self::Kernel>, half: &Half) -> anyhow::Result<()>;
    /// Usage of each tenant's load so far, in their order; `None` if unreadable.
    fn readings(&mut self, kernel: &mut Self::Kernel) -> Vec<Option<Reading>>;
    fn now(&self) -> Duration;
    /// Passes `time`, or less if it is interrupted.
    fn sleep(&mut self, kernel: &mut Self::Kernel, time: Duration);
    fn interrupted(&self) -> bool;
    /// Ends the loads, stops the agent, and returns true if nothing is left behind.
    fn finish(self, agent: Agent<Self::Kernel>) -> anyhow::Result<bool>;
}

pub(crate) fn tenants(
    half: &Half,
) -> impl Iterator<Item = (&'static str, &crate::demo::load::Want)> {
    TENANTS.iter().map(|(name, _)| *name).zip(&half.wants)
}
