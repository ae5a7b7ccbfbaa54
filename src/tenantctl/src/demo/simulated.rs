//! The machine and the loads of a scenario that `tenantctl simulate host` runs as well.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use super::scene::{self, Half, Size};
use super::stage::Stage;
use tenantd::agent::{Agent, Options};
use tenantd_host::kernfs::KernFs;
use tenantd_lab::simulate::host::{Scenario, Works, root};
use tenantd_policy::model::Policy;
use tenantd_sim::SimKernel;

#[derive(Debug)]
pub(crate) struct SimulatedStage {
    scenario: Scenario,
    works: Works,
    now: Duration,
    /// True if a simulated second takes a second.
    is_in_real_time: bool,
}

impl SimulatedStage {
    pub(crate) fn new(is_in_real_time: bool) -> anyhow::Result<SimulatedStage> {
        let (scenario, works) = (scene::scenario()?, Works::default());
        Ok(SimulatedStage { scenario, works, now: Duration::ZERO, is_in_real_time })
    }
}

impl Stage for SimulatedStage {
    const SIMULATED: bool = true;
    type Kernel = SimKernel;

    fn kernel(&mut self) -> SimKernel {
        SimKernel::new(self.scenario.host.clone())
    }

    fn size(&mut self, _kernel: &mut SimKernel) -> anyhow::Result<Size> {
        let host = &self.scenario.host;
        Ok(Size { cpus: host.cpus, memory_bytes: host.memory_bytes, uncontended: None })
    }

    fn start_plain(&mut self, kernel: &mut SimKernel, half: &Half) -> anyhow::Result<()> {
        self.works = Works::new(&self.scenario, None);
        self.works.set_loads(kernel, &self.scenario.loads(half.from))
    }

    fn end_loads(&mut self, kernel: &mut SimKernel) -> anyhow::Result<()> {
        self.works.set_loads(kernel, &self.scenario.loads(Duration::MAX))
    }

    fn agent(&mut self, kernel: SimKernel, policy: Policy) -> anyhow::Result<Agent<SimKernel>> {
        let agent = Agent::start(kernel, policy, Vec::new(), &Options::default())?;
        self.works = Works::new(&self.scenario, Some(&root(&agent)));
        Ok(agent)
    }

    fn set_loads(&mut self, agent: &mut Agent<SimKernel>, half: &Half) -> anyhow::Result<()> {
        self.works.set_loads(agent.kernel_mut(), &self.scenario.loads(half.from))
    }

    fn pid(&self, tenant: usize) -> Option<u32> {
        self.works.pid(tenant)
    }

    fn now(&self) -> Duration {
        self.now
    }

    fn sleep(&mut self, kernel: &mut SimKernel, time: Duration) {
        kernel.advance(time);
        self.now += time;
        if self.is_in_real_time {
            thread::sleep(time);
        }
    }

    fn interrupted(&self) -> bool {
        false
    }

    fn finish(mut self, mut agent: Agent<SimKernel>) -> anyhow::Result<bool> {
        self.end_loads(agent.kernel_mut())?;
        let root = agent.layout().trees[0].root.clone();
        let nodes: Vec<PathBuf> = agent.nodes().iter().map(|node| root.join(&node.path)).collect();
        let (restored, mut kernel) = agent.stop()?;
        let left = nodes.iter().any(|path| kernel.open_dir(path).is_ok());
        Ok(restored.failures.is_empty() && !left)
    }
}
