//! Where the demo plays: the machine's own kernel with real processes, or the kernel in memory.
//!
//! The two differ in how a load is started and how time passes, and in nothing else: the agent and all that
//! is measured are the same.

use std::time::Duration;

use super::reading::Reading;
use super::scene::{Half, TENANTS};
use crate::daemon::agent::Agent;
use crate::host::kernfs::KernFs;
use crate::policy::model::Policy;

/// The machine that the demo plays on.
#[derive(Clone, Debug)]
pub(super) struct Size {
    pub(super) cpus: u32,
    pub(super) memory_bytes: u64,
    /// Why the tenants do not contend for memory here; `None` where they do.
    pub(super) uncontended: Option<String>,
}

/// A place where the demo can play.
pub(super) trait Stage: Sized {
    /// Whether nothing of it is real.
    const SIMULATED: bool;
    /// The kernel that the agent works on.
    type Kernel: KernFs;

    /// The kernel, for the time before the agent has it.
    fn kernel(&mut self) -> Self::Kernel;
    /// The size of the machine, and a bound on the memory that the loads take of it.
    fn size(&mut self, kernel: &mut Self::Kernel) -> anyhow::Result<Size>;
    /// Starts the loads of `half` as any processes of this machine.
    fn start_plain(&mut self, kernel: &mut Self::Kernel, half: &Half) -> anyhow::Result<()>;
    /// Ends all loads.
    fn end_loads(&mut self, kernel: &mut Self::Kernel) -> anyhow::Result<()>;
    /// An agent on this stage, under a root of its own.
    fn agent(
        &mut self,
        kernel: Self::Kernel,
        policy: Policy,
    ) -> anyhow::Result<Agent<Self::Kernel>>;
    /// Makes each tenant want its load; the first time, starts the loads in the tenants' cgroups.
    fn set_loads(&mut self, agent: &mut Agent<Self::Kernel>, half: &Half) -> anyhow::Result<()>;
    /// What each tenant's load has used so far, in their order; `None` where it cannot be read.
    fn readings(&mut self, kernel: &mut Self::Kernel) -> Vec<Option<Reading>>;
    /// Time since the stage was set up.
    fn now(&self) -> Duration;
    /// Lets `time` pass, or less if it is interrupted.
    fn sleep(&mut self, kernel: &mut Self::Kernel, time: Duration);
    /// Whether a person asked to stop.
    fn interrupted(&self) -> bool;
    /// Ends the loads, stops the agent, and says whether nothing is left behind.
    fn finish(self, agent: Agent<Self::Kernel>) -> anyhow::Result<bool>;
}

/// The tenants with what they want in `half`.
pub(super) fn tenants(
    half: &Half,
) -> impl Iterator<Item = (&'static str, &crate::cli::load::Want)> {
    TENANTS.iter().map(|(name, _)| *name).zip(&half.wants)
}
