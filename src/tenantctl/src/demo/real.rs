//! The machine's own kernel, with processes of the demo as loads.

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

use super::scene::{Half, Size, TENANTS};
use super::scope;
use crate::demo::load::{self, Want};
use tenantd::agent::{Agent, Options};
use tenantd::recovery::leftover;
use tenantd_host::kernfs::{KernFs, RealKernFs};
use tenantd_host::machine::Machine;
use tenantd_policy::model::Policy;

use super::bound::Bound;
use super::stage::{Stage, tenants};

#[derive(Debug)]
pub(crate) struct RealStage {
    begin: Instant,
    state_dir: PathBuf,
    children: HashMap<&'static str, Child>,
    bound: Option<Bound>,
    stop: Arc<AtomicBool>,
}

/// Prefix of the demos' state directories, before a process number.
const STATE_PREFIX: &str = "/run/tenantd-demo-";

/// File in a state directory with the path of the bounded cgroup.
const BOUND_FILE: &str = "bound";

impl RealStage {
    pub(crate) fn new() -> anyhow::Result<RealStage> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
        clean_up_after_killed_demos();
        let state_dir = PathBuf::from(format!("{STATE_PREFIX}{}", std::process::id()));
        fs::create_dir_all(&state_dir)
            .with_context(|| format!("cannot make {}", state_dir.display()))?;
        let (begin, children) = (Instant::now(), HashMap::new());
        Ok(RealStage { begin, state_dir, children, bound: None, stop })
    }

    fn spawn(&mut self, tenant: &'static str) -> anyhow::Result<u32> {
        let program = std::env::current_exe().context("cannot find the path of tenantctl")?;
        let child = Command::new(program)
            .arg("load")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start a load")?;
        let pid = child.id();
        self.children.insert(tenant, child);
        Ok(pid)
    }

    fn order(&mut self, tenant: &str, want: &Want) -> anyhow::Result<()> {
        let stdin = self.children.get_mut(tenant).and_then(|child| child.stdin.as_mut());
        let Some(stdin) = stdin else { bail!("the load of {tenant} has no input") };
        // One write: a line that arrives in parts would be read as two orders.
        stdin.write_all(format!("{}\n", load::orders(want)).as_bytes())?;
        Ok(stdin.flush()?)
    }

    fn kill_loads(&mut self) {
        for (_, mut child) in self.children.drain() {
            // Errors mean that it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for RealStage {
    /// Ends all loads and removes their bound, however the demo ends.
    fn drop(&mut self) {
        self.kill_loads();
        self.bound = None;
        // The directory is not empty if an agent has left values; the next demo restores them.
        let _ = fs::remove_file(self.state_dir.join(BOUND_FILE));
        let _ = fs::remove_dir(&self.state_dir);
    }
}

fn clean_up_after_killed_demos() {
    let Ok(entries) = fs::read_dir("/run") else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if !path.to_string_lossy().starts_with(STATE_PREFIX) {
            continue;
        }
        match leftover::restore_only(&mut RealKernFs::new(), &path) {
            Ok(restored) if restored.failures.is_empty() => {
                if let Ok(made) = fs::read_to_string(path.join(BOUND_FILE)) {
                    // It may be gone; a running demo has processes in it.
                    let _ = fs::remove_dir(made);
                }
                if let Err(error) = fs::remove_dir_all(&path) {
                    warn!("cannot remove {}: {error}", path.display());
                }
            }
            // In use by a running demo, or its failures were reported already.
            Ok(_) | Err(_) => {}
        }
    }
}

impl Stage for RealStage {
    const SIMULATED: bool = false;
    type Kernel = RealKernFs;

    fn kernel(&mut self) -> RealKernFs {
        RealKernFs::new()
    }

    fn size(&mut self, kernel: &mut RealKernFs) -> anyhow::Result<Size> {
        let host = Machine::open(kernel)?.sample(kernel)?;
        let uncontended = match Bound::make(&self.state_dir.join(BOUND_FILE)) {
            Ok(bound) => {
                self.bound = Some(bound);
                None
            }
            Err(reason) => Some(reason),
        };
        Ok(Size { cpus: host.nr_cpus, memory_bytes: host.memory_total_bytes, uncontended })
    }

    fn start_plain(&mut self, _kernel: &mut RealKernFs, half: &Half) -> anyhow::Result<()> {
        for (tenant, want) in tenants(half) {
            let pid = self.spawn(tenant)?;
            if let Some(bound) = &self.bound {
                bound.enter(pid)?;
            }
            self.order(tenant, want)?;
        }
        Ok(())
    }

    fn end_loads(&mut self, _kernel: &mut RealKernFs) -> anyhow::Result<()> {
        self.kill_loads();
        Ok(())
    }

    fn agent(&mut self, kernel: RealKernFs, policy: Policy) -> anyhow::Result<Agent<RealKernFs>> {
        let options = Options {
            observe: false,
            root: scope::root(),
            state_dir: Some(self.state_dir.clone()),
            ..Options::default()
        };
        Ok(Agent::start(kernel, policy, Vec::new(), &options)?)
    }

    fn set_loads(&mut self, agent: &mut Agent<RealKernFs>, half: &Half) -> anyhow::Result<()> {
        for (tenant, want) in tenants(half) {
            if !self.children.contains_key(tenant) {
                let pid = self.spawn(tenant)?;
                enter(agent, tenant, pid)?;
            }
            self.order(tenant, want)?;
        }
        Ok(())
    }

    fn pid(&self, tenant: usize) -> Option<u32> {
        Some(self.children.get(TENANTS[tenant].0)?.id())
    }

    fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    fn sleep(&mut self, _kernel: &mut RealKernFs, time: Duration) {
        let until = Instant::now() + time;
        while !self.interrupted() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            // A signal does not end a sleep: short sleeps keep Ctrl-C responsive.
            thread::sleep(left.min(Duration::from_millis(100)));
        }
    }

    fn interrupted(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn finish(mut self, agent: Agent<RealKernFs>) -> anyhow::Result<bool> {
        self.kill_loads();
        let mut made: Vec<PathBuf> = agent
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
        restored.failures.iter().for_each(|failure| eprintln!("not restored: {failure}"));
        made.extend(self.bound.as_ref().and_then(Bound::made).map(Path::to_path_buf));
        self.bound = None;
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

fn enter(agent: &mut Agent<RealKernFs>, tenant: &str, pid: u32) -> anyhow::Result<()> {
    let trees = agent.layout().trees.clone();
    for path in trees.iter().map(|tree| tree.root.join(tenant)).filter(|path| path.is_dir()) {
        let kernel = agent.kernel_mut();
        let dir = kernel.open_dir(&path)?;
        let moved = kernel.move_process(dir, pid);
        kernel.close_dir(dir);
        moved?;
    }
    Ok(())
}
