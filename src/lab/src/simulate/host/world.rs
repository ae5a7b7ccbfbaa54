//! One machine of the comparison: the simulated kernel with the work on it, and its regime.
//!
//! Under tenantd the real agent ticks. With static settings the policy is written once, as an administrator
//! would with `CPUWeight=`, `CPUQuota=`, `MemoryLow=` and `MemoryMax=`: the weights that give each tenant
//! its fair share while all of them are busy, guarantees included, and the limits. Without either, all work
//! is ordinary processes of one cgroup, and the kernel divides by threads.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;

use super::scenario::Scenario;
use tenantd::agent::{Agent, Options};
use tenantd_control::share::demand::Demand;
use tenantd_control::share::target::{fair_shares, knobs, targets};
use tenantd_control::tree::{self, Row};
use tenantd_control::words::knob::{Knob, Value};
use tenantd_core::resource::{CPU, MEMORY, PerResource, Resource};
use tenantd_core::units::Limit;
use tenantd_dop::CpuSet;
use tenantd_host::cgroup::spell_unified;
use tenantd_policy::model::{Allocation, Amount, CpusPolicy, Policy};
use tenantd_sim::{DiskWork, Load, ProcessUsage, SimKernel};

/// The cgroup of the tenants without an agent, and the cgroup of the work outside of them.
const ROOT: &str = "/tenants";
const OUTSIDE: &str = "/outside";

/// Weight on the disk of a tenant with all of it.
const DISK_WEIGHT: f64 = 1000.0;

/// A second of the disk, with so many reads that parts of them are exact.
const SECOND: DiskWork = DiskWork::reads(400_000, 8000);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Regime {
    Tenantd,
    Static,
    None,
}

impl Regime {
    pub(super) const ALL: [Regime; 3] = [Regime::Tenantd, Regime::Static, Regime::None];
}

#[derive(Debug)]
enum Governed {
    ByAgent(Box<Agent<SimKernel>>),
    Plain(Box<SimKernel>),
}

impl Governed {
    fn kernel(&mut self) -> &mut SimKernel {
        match self {
            Governed::ByAgent(agent) => agent.kernel_mut(),
            Governed::Plain(kernel) => kernel,
        }
    }
}

/// A machine with its work.
#[derive(Debug)]
pub(super) struct World {
    regime: Regime,
    governed: Governed,
    works: Works,
}

/// Processes of the works of a scenario, each in a cgroup of its own or all in one.
#[derive(Debug, Default)]
pub struct Works {
    cgroups: Vec<String>,
    processes: Vec<Option<Process>>,
    used: Vec<Used>,
}

#[derive(Debug)]
struct Process {
    pid: u32,
    load: Load,
    /// Its usage at the last reading.
    read: ProcessUsage,
}

/// Usage of one work since the last tick, all its processes together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Used {
    pub(super) cpu_seconds: f64,
    /// Time in which its threads waited for a CPU, all of them together.
    pub(super) waited_seconds: f64,
    /// Memory held now.
    pub(super) memory_bytes: f64,
    /// Time of the disk.
    pub(super) disk_seconds: f64,
    /// Files that it had read before and read again.
    pub(super) refault_bytes: f64,
    /// Processes that the kernel killed for lack of memory.
    pub(super) nr_kills: u64,
}

impl World {
    /// Boots a machine with the first policy in force.
    pub(super) fn new(scenario: &Scenario, regime: Regime) -> anyhow::Result<World> {
        let mut kernel = SimKernel::new(scenario.host.clone());
        let policy = scenario.policy();
        let mut governed = match regime {
            Regime::Tenantd => {
                let mut agent =
                    Agent::start(kernel, policy.clone(), Vec::new(), &Options::default())?;
                // The first tick makes the cgroups of the tenants, which the work needs.
                agent.tick(Duration::ZERO);
                Governed::ByAgent(Box::new(agent))
            }
            Regime::Static => {
                write_policy(&mut kernel, policy).context("static settings")?;
                Governed::Plain(Box::new(kernel))
            }
            Regime::None => Governed::Plain(Box::new(kernel)),
        };
        let root = match &governed {
            Governed::ByAgent(agent) => Some(root(agent)),
            Governed::Plain(_) => (regime == Regime::Static).then(|| ROOT.to_string()),
        };
        let works = Works::new(scenario, root.as_deref());
        if regime != Regime::None {
            governed.kernel().make_cgroup(OUTSIDE)?;
        }
        Ok(World { regime, governed, works })
    }

    /// Sets the load of each work and its part of the disk, and advances by `time`.
    pub(super) fn run(
        &mut self,
        loads: &[Option<Load>],
        disks: &[f64],
        time: Duration,
    ) -> anyhow::Result<()> {
        let kernel = self.governed.kernel();
        self.works.set_loads(kernel, loads)?;
        let mut loads = loads.to_vec();
        // A process that reads less computes less.
        for (index, part) in self.works.use_disk(kernel, disks, time)? {
            if let Some(load) = &mut loads[index] {
                load.duty *= part / disks[index];
            }
        }
        self.works.set_loads(kernel, &loads)?;
        kernel.advance(time);
        Ok(())
    }

    pub(super) fn change_policy(&mut self, policy: &Policy) -> anyhow::Result<()> {
        match (&mut self.governed, self.regime) {
            (Governed::ByAgent(agent), _) => {
                agent.reload(policy.clone(), Vec::new())?;
            }
            (Governed::Plain(kernel), Regime::Static) => write_policy(kernel, policy)?,
            (Governed::Plain(_), _) => {}
        }
        Ok(())
    }

    /// Runs a tick at time `now`; returns the usage of each work since the last one, and with an agent the
    /// divided amounts, in cores and bytes.
    pub(super) fn tick(&mut self, now: Duration) -> (Vec<Used>, Option<PerResource<f64>>) {
        let used = self.works.take_used(self.governed.kernel());
        let divided = match &mut self.governed {
            Governed::ByAgent(agent) => Some(agent.tick(now).host.capacity),
            Governed::Plain(_) => None,
        };
        (used, divided)
    }
}

/// The cgroup of an agent's tenants, as the simulated kernel names it.
pub fn root(agent: &Agent<SimKernel>) -> String {
    let tree = &agent.layout().trees[0];
    format!("/{}", tree.root.strip_prefix(&tree.mount).unwrap_or(Path::new("")).display())
}

impl Works {
    /// Works without processes, with the tenants' cgroups below `root`; all in one cgroup without it.
    pub fn new(scenario: &Scenario, root: Option<&str>) -> Works {
        let cgroup = |path: String| root.map_or("/".to_string(), |root| format!("{root}/{path}"));
        let leaves = scenario.policy().leaves().into_iter().map(|(path, _)| cgroup(path));
        let outside = root.map_or("/", |_| OUTSIDE).to_string();
        let cgroups: Vec<String> = leaves.chain([outside]).collect();
        let processes = cgroups.iter().map(|_| None).collect();
        Works { processes, used: vec![Used::default(); cgroups.len()], cgroups }
    }

    /// Process of a work.
    pub fn pid(&self, index: usize) -> Option<u32> {
        Some(self.processes.get(index)?.as_ref()?.pid)
    }

    /// Sets the load of each work; one without a load has no process.
    ///
    /// # Errors
    /// The cgroup of a work is missing.
    pub fn set_loads(
        &mut self,
        kernel: &mut SimKernel,
        loads: &[Option<Load>],
    ) -> anyhow::Result<()> {
        for (index, load) in loads.iter().enumerate() {
            match (load, &mut self.processes[index]) {
                (Some(load), None) => {
                    let cgroup = self.cgroups[index].clone();
                    let pid = kernel.spawn(&cgroup, *load).context(cgroup)?;
                    let read = ProcessUsage::default();
                    self.processes[index] = Some(Process { pid, load: *load, read });
                }
                (Some(load), Some(process)) if process.load != *load => {
                    process.load = *load;
                    let pid = process.pid;
                    // A process that was killed is noticed at the tick.
                    let _ = kernel.set_load(pid, *load);
                }
                (None, Some(process)) => {
                    let pid = process.pid;
                    self.read(kernel, index);
                    let _ = kernel.kill(pid);
                    self.processes[index] = None;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads for `time`, each work as much of the disk as it wants and gets. Returns the readers with their parts.
    fn use_disk(
        &mut self,
        kernel: &mut SimKernel,
        disks: &[f64],
        time: Duration,
    ) -> anyhow::Result<Vec<(usize, f64)>> {
        let running = |(index, want): (usize, &f64)| {
            let pid = self.pid(index).filter(|pid| kernel.process_usage(*pid).is_some())?;
            (*want > 0.0).then_some((pid, *want))
        };
        let wants: Vec<(u32, f64)> = disks.iter().enumerate().filter_map(running).collect();
        if wants.is_empty() {
            return Ok(Vec::new());
        }
        let seconds = time.as_secs_f64();
        let got = kernel.contend_for(&wants, SECOND.part(seconds))?;
        let of =
            |index: usize| Some((index, got.iter().find(|it| Some(it.0) == self.pid(index))?.1));
        let parts: Vec<(usize, f64)> = (0..self.processes.len()).filter_map(of).collect();
        for (index, part) in &parts {
            self.used[*index].disk_seconds += part * seconds;
        }
        Ok(parts)
    }

    /// Usage of each work since the last call.
    fn take_used(&mut self, kernel: &SimKernel) -> Vec<Used> {
        (0..self.processes.len()).for_each(|index| self.read(kernel, index));
        for (used, process) in self.used.iter_mut().zip(&self.processes) {
            used.memory_bytes = process.as_ref().map_or(0.0, |it| it.read.memory_bytes as f64);
        }
        self.used.iter_mut().map(std::mem::take).collect()
    }

    /// Adds the usage of a work's process since the last reading. A process that is gone was killed, and
    /// starts again with the next load.
    fn read(&mut self, kernel: &SimKernel, index: usize) {
        let Some(pid) = self.processes[index].as_ref().map(|process| process.pid) else { return };
        let now = kernel.process_usage(pid);
        let used = &mut self.used[index];
        let Some(now) = now else {
            used.nr_kills += 1;
            self.processes[index] = None;
            return;
        };
        if let Some(process) = &mut self.processes[index] {
            let before = std::mem::replace(&mut process.read, now);
            used.cpu_seconds += (now.run_nsec - before.run_nsec) * 1e-9;
            used.waited_seconds += (now.wait_nsec - before.wait_nsec).max(0.0) * 1e-9;
            used.refault_bytes += (now.refault_bytes - before.refault_bytes) as f64;
        }
    }
}

/// Makes the cgroups of a policy, and writes its values once.
fn write_policy(kernel: &mut SimKernel, policy: &Policy) -> anyhow::Result<()> {
    let machine = kernel.host().machine();
    let nodes = tree::on_machine(policy, machine);
    let reserve = Amount::of_each(&policy.host.reserve, machine);
    let cores = machine[CPU] - reserve[CPU];
    let memory_bytes = (machine[MEMORY] - reserve[MEMORY]).max(0.0);
    // With no demand, weights are those of the fair shares, and memory is protected up to the guarantees.
    let idle = vec![Demand::UNKNOWN; nodes.len()];
    let targets = targets(
        &nodes,
        &idle,
        PerResource::only(&[(CPU, cores), (MEMORY, memory_bytes)]),
        Allocation::Drf,
    );
    let mut protected_bytes = 0;
    let disks = fair_shares(&nodes, 1.0, Row::Disk);
    for (index, (node, knobs)) in nodes.iter().zip(knobs(&nodes, &targets)).enumerate() {
        let path = format!("{ROOT}/{}", node.path);
        kernel.make_cgroup(&path)?;
        let unlimited = Resource::ALL.map(|r| (Knob::limit(r), Value::Amount(r, Limit::Max)));
        let cpus = match &node.cpus {
            CpusPolicy::Fixed(cpus) => cpus.iter().copied().collect(),
            _ => CpuSet::default(),
        };
        let cpus = [(Knob::Cpus, Value::CpuList(cpus))];
        let weight = node.disk.map(|_| (disks[index] * DISK_WEIGHT).round().max(1.0));
        let disk = weight.map(|weight| (Knob::BfqWeight, Value::Weight(weight)));
        let disk = disk.filter(|_| kernel.host().divider.is_bfq);
        for (knob, value) in unlimited.into_iter().chain(knobs).chain(cpus).chain(disk) {
            write(kernel, &path, knob, &value)?;
            if let (Knob::MemoryLow, 0, Value::Amount(_, Limit::Finite(bytes))) =
                (knob, node.depth, value)
            {
                protected_bytes += bytes;
            }
        }
    }
    // Protection below an unprotected parent is void.
    let protected = Value::Amount(MEMORY, Limit::Finite(protected_bytes));
    write(kernel, ROOT, Knob::MemoryLow, &protected)
}

fn write(kernel: &mut SimKernel, path: &str, knob: Knob, value: &Value) -> anyhow::Result<()> {
    let mount = kernel.cgroup_mount().display().to_string();
    for spelling in spell_unified(knob, value) {
        let file = format!("{mount}{path}/{}", spelling.file);
        kernel.write_file(&file, &spelling.text).with_context(|| file.clone())?;
    }
    Ok(())
}
