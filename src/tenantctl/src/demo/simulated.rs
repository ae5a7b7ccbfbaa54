//! The kernel in memory: two CPUs, and little more memory than the demo's tenants share.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::reading::Reading;
use super::scene::{Half, MEMORY, TENANTS};
use crate::demo::load::{HOT_PASS, Want};
use tenantd::agent::{Agent, Options};
use tenantd_host::kernfs::KernFs;
use tenantd_policy::model::Policy;
use tenantd_sim::{Load, SimHost, SimKernel};

use super::stage::{Size, Stage, tenants};

/// Memory of the machine for its kernel, beside that of the tenants.
const KERNEL_BYTES: u64 = 64 << 20;

const TICKS_PER_SEC: f64 = 100.0;

#[derive(Debug)]
pub(crate) struct SimulatedStage {
    host: SimHost,
    now: Duration,
    pids: HashMap<&'static str, u32>,
    /// True if a simulated second takes a second.
    is_in_real_time: bool,
}

impl SimulatedStage {
    pub(crate) fn new(is_in_real_time: bool) -> SimulatedStage {
        let memory_bytes = MEMORY.0 + KERNEL_BYTES;
        let host = SimHost { cpus: 2, memory_bytes, ..SimHost::default() };
        SimulatedStage { host, now: Duration::ZERO, pids: HashMap::new(), is_in_real_time }
    }
}

/// Converts a demand to a load. In this model files read once never displace others: a scan of more than
/// fits into memory is modelled as a file that is always read again.
fn load(want: &Want) -> Load {
    let hot_bytes_per_sec = (want.hot_bytes as f64 / HOT_PASS.as_secs_f64()) as u64;
    let default = Load::default().touch_bytes_per_sec;
    Load {
        threads: want.threads,
        duty: want.duty,
        // One speed for all of its memory: that of the file, but fast enough to touch the rest as well.
        touch_bytes_per_sec: if hot_bytes_per_sec > 0 { 2 * hot_bytes_per_sec } else { default },
        ..Load::default()
            .with_working_set(want.memory_bytes)
            .with_hot_file(want.hot_bytes + want.scan_bytes)
    }
}

impl Stage for SimulatedStage {
    const SIMULATED: bool = true;
    type Kernel = SimKernel;

    fn kernel(&mut self) -> SimKernel {
        SimKernel::new(self.host.clone())
    }

    fn size(&mut self, _kernel: &mut SimKernel) -> anyhow::Result<Size> {
        let SimHost { cpus, memory_bytes, .. } = self.host;
        Ok(Size { cpus, memory_bytes, uncontended: None })
    }

    fn start_plain(&mut self, kernel: &mut SimKernel, half: &Half) -> anyhow::Result<()> {
        for (tenant, want) in tenants(half) {
            self.pids.insert(tenant, kernel.spawn("/", load(want))?);
        }
        Ok(())
    }

    fn end_loads(&mut self, kernel: &mut SimKernel) -> anyhow::Result<()> {
        for (_, pid) in self.pids.drain() {
            kernel.kill(pid)?;
        }
        Ok(())
    }

    fn agent(&mut self, kernel: SimKernel, policy: Policy) -> anyhow::Result<Agent<SimKernel>> {
        Ok(Agent::start(kernel, policy, Vec::new(), &Options::default())?)
    }

    fn set_loads(&mut self, agent: &mut Agent<SimKernel>, half: &Half) -> anyhow::Result<()> {
        let tree = agent.layout().trees[0].clone();
        // The simulated kernel names a cgroup by its path from the mount.
        let below = tree.root.strip_prefix(&tree.mount).unwrap_or(Path::new(""));
        let kernel = agent.kernel_mut();
        for (tenant, want) in tenants(half) {
            if let Some(pid) = self.pids.get(tenant) {
                kernel.set_load(*pid, load(want))?;
            } else {
                let cgroup = Path::new("/").join(below).join(tenant);
                let pid = kernel.spawn(&cgroup.to_string_lossy(), load(want))?;
                self.pids.insert(tenant, pid);
            }
        }
        Ok(())
    }

    fn readings(&mut self, kernel: &mut SimKernel) -> Vec<Option<Reading>> {
        let mut text = |pid: u32, name: &str| {
            let dir = kernel.open_dir(Path::new("/proc")).ok()?;
            let text = kernel.read_once(dir, &format!("{pid}/{name}")).map(<[u8]>::to_vec);
            kernel.close_dir(dir);
            Some(String::from_utf8_lossy(&text.ok()?).into_owned())
        };
        let mut reading = |name: &str| {
            let pid = *self.pids.get(name)?;
            Reading::parse(&text(pid, "stat")?, text(pid, "io").as_deref(), TICKS_PER_SEC)
        };
        TENANTS.iter().map(|(name, _)| reading(name)).collect()
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
