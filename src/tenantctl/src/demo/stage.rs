//! Stage of the demo: the machine's own kernel with real processes, or the kernel in memory.
//!
//! The two differ only in starting loads and in passing time: the agent and all measurements are the same.

use std::path::Path;
use std::time::Duration;

use nix::unistd::{SysconfVar, sysconf};

use super::load::Want;
use super::reading::Reading;
use super::scene::{Half, Size, TENANTS};
use tenantd::agent::Agent;
use tenantd_host::kernfs::KernFs;
use tenantd_policy::model::Policy;

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
    /// Process of the load of a tenant.
    fn pid(&self, tenant: usize) -> Option<u32>;
    /// Usage of each tenant's load so far, in their order; `None` if unreadable.
    fn readings(&self, kernel: &mut Self::Kernel) -> Vec<Option<Reading>> {
        let ticks = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100) as f64;
        let mut text = |pid: u32, name: &str| {
            let dir = kernel.open_dir(Path::new("/proc")).ok()?;
            let text = kernel.read_once(dir, &format!("{pid}/{name}")).map(<[u8]>::to_vec);
            kernel.close_dir(dir);
            Some(String::from_utf8_lossy(&text.ok()?).into_owned())
        };
        let mut reading = |tenant: usize| {
            let pid = self.pid(tenant)?;
            Reading::parse(&text(pid, "stat")?, text(pid, "io").as_deref(), ticks)
        };
        (0..TENANTS.len()).map(&mut reading).collect()
    }
    fn now(&self) -> Duration;
    /// Passes `time`, or less if it is interrupted.
    fn sleep(&mut self, kernel: &mut Self::Kernel, time: Duration);
    fn interrupted(&self) -> bool;
    /// Ends the loads, stops the agent, and returns true if nothing is left behind.
    fn finish(self, agent: Agent<Self::Kernel>) -> anyhow::Result<bool>;
}

pub(crate) fn tenants(half: &Half) -> impl Iterator<Item = (&'static str, &Want)> {
    TENANTS.iter().map(|(name, _)| *name).zip(&half.wants)
}
