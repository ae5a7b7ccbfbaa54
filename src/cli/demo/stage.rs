//! Where the demo plays: the machine's own kernel with real processes, or the kernel in memory.
//!
//! The two differ in how a load is started and how time passes, and in nothing else: the agent and all that
//! is measured are the same.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tracing::warn;

use crate::cli::load;
use crate::daemon::agent::{Agent, Options};
use crate::daemon::recovery::leftover;
use crate::host::kernfs::{KernFs, RealKernFs};
use crate::host::machine::Machine;
use crate::policy::model::Policy;
use crate::sim::{Load, SimHost, SimKernel};

use super::scope;

/// How large the machine is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) cpus: u32,
    pub(super) memory_bytes: u64,
}

/// A place where the demo can play.
pub(super) trait Stage: Sized {
    /// Whether nothing of it is real.
    const SIMULATED: bool;
    /// The kernel that the agent works on.
    type Kernel: KernFs;

    /// The size of the machine.
    fn size(&mut self) -> anyhow::Result<Size>;
    /// An agent on this stage, under a root of its own.
    fn agent(&mut self, policy: Policy) -> anyhow::Result<Agent<Self::Kernel>>;
    /// Makes each tenant want its load.
    fn set_loads(
        &mut self,
        agent: &mut Agent<Self::Kernel>,
        tenants: &[&str],
        loads: &[Load],
    ) -> anyhow::Result<()>;
    /// Time since the stage was set up.
    fn now(&self) -> Duration;
    /// Lets `time` pass, or less if it is interrupted.
    fn sleep(&mut self, agent: &mut Agent<Self::Kernel>, time: Duration);
    /// Whether a person asked to stop.
    fn interrupted(&self) -> bool;
    /// Ends the loads, stops the agent, and says whether nothing is left behind.
    fn finish(self, agent: Agent<Self::Kernel>) -> anyhow::Result<bool>;
}

// === the real kernel ===

/// The machine's own kernel.
#[derive(Debug)]
pub(super) struct RealStage {
    begin: Instant,
    state_dir: PathBuf,
    children: HashMap<String, Child>,
    stop: Arc<AtomicBool>,
}

impl RealStage {
    /// Takes up what a killed demo left, and prepares a state directory of its own.
    pub(super) fn new() -> anyhow::Result<RealStage> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
        clean_up_after_killed_demos();
        let state_dir = PathBuf::from(format!("{STATE_PREFIX}{}", std::process::id()));
        Ok(RealStage { begin: Instant::now(), state_dir, children: HashMap::new(), stop })
    }

    fn start(&mut self, agent: &mut Agent<RealKernFs>, tenant: &str) -> anyhow::Result<()> {
        let program = std::env::current_exe().context("cannot find the path of tenantctl")?;
        let child = Command::new(program)
            .arg("load")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start a load")?;
        let pid = child.id();
        self.children.insert(tenant.to_string(), child);
        let trees = agent.layout().trees.clone();
        for tree in trees {
            let path = tree.root.join(tenant);
            if path.is_dir() {
                let kernel = agent.kernel_mut();
                let dir = kernel.open_dir(&path)?;
                let moved = kernel.move_process(dir, pid);
                kernel.close_dir(dir);
                moved?;
            }
        }
        Ok(())
    }
}

/// State directories of demos, followed by a process number.
const STATE_PREFIX: &str = "/run/tenantd-demo-";

/// Puts back what demos left that were killed before they could.
fn clean_up_after_killed_demos() {
    let Ok(entries) = fs::read_dir("/run") else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if !path.to_string_lossy().starts_with(STATE_PREFIX) {
            continue;
        }
        match leftover::restore_only(&mut RealKernFs::new(), &path) {
            Ok(restored) if restored.failures.is_empty() => {
                if let Err(error) = fs::remove_dir_all(&path) {
                    warn!("cannot remove {}: {error}", path.display());
                }
            }
            // In use by a demo that still runs, or said already what could not be put back.
            Ok(_) | Err(_) => {}
        }
    }
}

impl Stage for RealStage {
    const SIMULATED: bool = false;
    type Kernel = RealKernFs;

    fn size(&mut self) -> anyhow::Result<Size> {
        let mut kernel = RealKernFs::new();
        let host = Machine::open(&mut kernel)?.sample(&mut kernel)?;
        Ok(Size { cpus: host.nr_cpus, memory_bytes: host.memory_total_bytes })
    }

    fn agent(&mut self, policy: Policy) -> anyhow::Result<Agent<RealKernFs>> {
        let options = Options {
            observe: false,
            root: scope::root(),
            state_dir: Some(self.state_dir.clone()),
        };
        Ok(Agent::start(RealKernFs::new(), policy, Vec::new(), &options)?)
    }

    fn set_loads(
        &mut self,
        agent: &mut Agent<RealKernFs>,
        tenants: &[&str],
        loads: &[Load],
    ) -> anyhow::Result<()> {
        for (tenant, load) in tenants.iter().zip(loads) {
            if !self.children.contains_key(*tenant) {
                self.start(agent, tenant)?;
            }
            let stdin = self.children.get_mut(*tenant).and_then(|child| child.stdin.as_mut());
            let Some(stdin) = stdin else { bail!("the load of {tenant} has no input") };
            // One write: a line that arrives in parts would be two orders.
            stdin.write_all(format!("{}\n", load::orders(load)).as_bytes())?;
            stdin.flush()?;
        }
        Ok(())
    }

    fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    fn sleep(&mut self, _agent: &mut Agent<RealKernFs>, time: Duration) {
        let until = Instant::now() + time;
        while !self.interrupted() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            // A signal does not end a sleep: look up often enough that a person feels heard.
            thread::sleep(left.min(Duration::from_millis(100)));
        }
    }

    fn interrupted(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn finish(mut self, agent: Agent<RealKernFs>) -> anyhow::Result<bool> {
        for child in self.children.values_mut() {
            // Errors mean that it has ended already, which is what is wanted.
            let _ = child.kill();
            let _ = child.wait();
        }
        let made: Vec<PathBuf> = agent
            .layout()
            .trees
            .iter()
            .flat_map(|tree| {
                let tenants = agent.nodes().iter().map(|node| tree.root.join(&node.path));
                let root = scope::root().map(|_| tree.root.clone());
                tenants.chain(root).collect::<Vec<_>>()
            })
            .collect();
        let (restored, _) = agent.stop()?;
        restored.failures.iter().for_each(|failure| eprintln!("not put back: {failure}"));
        let left: Vec<&PathBuf> = made.iter().filter(|path| path.exists()).collect();
        left.iter().for_each(|path| eprintln!("left behind: {}", path.display()));
        let clean = restored.failures.is_empty() && left.is_empty();
        if clean {
            fs::remove_dir_all(&self.state_dir)
                .with_context(|| format!("cannot remove {}", self.state_dir.display()))?;
        }
        Ok(clean)
    }
}

// === the simulated kernel ===

/// A machine in memory: two CPUs and 8 GiB.
#[derive(Debug)]
pub(super) struct SimulatedStage {
    host: SimHost,
    now: Duration,
    pids: HashMap<String, u32>,
}

impl SimulatedStage {
    /// A machine that has just booted.
    pub(super) fn new() -> SimulatedStage {
        let host = SimHost { cpus: 2, memory_bytes: 8 << 30, ..SimHost::default() };
        SimulatedStage { host, now: Duration::ZERO, pids: HashMap::new() }
    }
}

impl Stage for SimulatedStage {
    const SIMULATED: bool = true;
    type Kernel = SimKernel;

    fn size(&mut self) -> anyhow::Result<Size> {
        Ok(Size { cpus: self.host.cpus, memory_bytes: self.host.memory_bytes })
    }

    fn agent(&mut self, policy: Policy) -> anyhow::Result<Agent<SimKernel>> {
        let kernel = SimKernel::new(self.host.clone());
        Ok(Agent::start(kernel, policy, Vec::new(), &Options::default())?)
    }

    fn set_loads(
        &mut self,
        agent: &mut Agent<SimKernel>,
        tenants: &[&str],
        loads: &[Load],
    ) -> anyhow::Result<()> {
        let tree = agent.layout().trees[0].clone();
        // The simulated kernel calls a cgroup by its path from the mount.
        let below = tree.root.strip_prefix(&tree.mount).unwrap_or(Path::new(""));
        let kernel = agent.kernel_mut();
        for (tenant, load) in tenants.iter().zip(loads) {
            match self.pids.get(*tenant) {
                Some(pid) => kernel.set_load(*pid, *load)?,
                None => {
                    let cgroup = Path::new("/").join(below).join(tenant);
                    let pid = kernel.spawn(&cgroup.to_string_lossy(), *load)?;
                    self.pids.insert((*tenant).to_string(), pid);
                }
            }
        }
        Ok(())
    }

    fn now(&self) -> Duration {
        self.now
    }

    fn sleep(&mut self, agent: &mut Agent<SimKernel>, time: Duration) {
        agent.kernel_mut().advance(time);
        self.now += time;
    }

    fn interrupted(&self) -> bool {
        false
    }

    fn finish(self, mut agent: Agent<SimKernel>) -> anyhow::Result<bool> {
        for pid in self.pids.values() {
            agent.kernel_mut().kill(*pid)?;
        }
        let root = agent.layout().trees[0].root.clone();
        let nodes: Vec<PathBuf> = agent.nodes().iter().map(|node| root.join(&node.path)).collect();
        let (restored, mut kernel) = agent.stop()?;
        let left = nodes.iter().any(|path| kernel.open_dir(path).is_ok());
        Ok(restored.failures.is_empty() && !left)
    }
}
