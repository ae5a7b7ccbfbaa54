//! The host, its processes and its clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use nix::errno::Errno;

use super::candidates::Candidates;
use super::charges::Charges;
use super::controller::{Controller, ControllerSet};
use super::handles::Handles;
use super::parse::{CpuSet, PAGE_BYTES};
use super::process::{Process, ProcessUsage, Stall, Thread};
use super::processes::ByPid;
use super::rates::{CpuTimes, Posed, Rates};
use super::swap::Swap;
use super::tree::{CgroupId, Tree, Version};
use super::workload::{Load, Trace, Workload};
use tenantd_core::resource::{PerResource, Resource};

/// Longest step of the memory model, in which loads are evaluated and memory is touched.
pub(super) const STEP_NSEC: u64 = 10_000_000;

pub(super) const MOUNT: &str = "/sys/fs/cgroup";

/// Mounted cgroup hierarchies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// One tree with every controller at `/sys/fs/cgroup`.
    #[default]
    Unified,
    /// A tree for each controller at `/sys/fs/cgroup/CONTROLLER`, and a unified one without controllers at
    /// `/sys/fs/cgroup/unified`.
    Legacy,
}

/// Permissions of the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Root's permissions.
    #[default]
    Root,
    /// Reading only: every write is EACCES.
    Unprivileged,
    /// cgroupfs is mounted read-only: every write is EROFS.
    ReadOnlyMount,
}

/// The machine to simulate.
#[derive(Clone, Debug)]
pub struct SimHost {
    /// Number of CPUs, at least 1; all are online at first.
    pub cpus: u32,
    /// Hardware threads that share a core, at least 1.
    pub threads_per_core: u32,
    /// Memory nodes, each with its own socket and last-level cache, at least 1.
    pub numa_nodes: u32,
    /// Installed memory.
    pub memory_bytes: u64,
    /// Swap device, if any.
    pub swap: Option<Swap>,
    /// Mounted hierarchies.
    pub layout: Layout,
    /// Controllers of the kernel.
    pub controllers: Vec<Controller>,
    /// True if pressure stall information is on.
    pub psi: bool,
    /// True if a parent's unclaimed protection goes to its children, as systemd mounts it.
    pub memory_recursiveprot: bool,
    /// True if pages are kept in generations (`CONFIG_LRU_GEN_ENABLED`), as in Debian since 13: reclaim
    /// skips a cgroup within its `memory.low` once, and takes from it the next time.
    pub has_generations: bool,
    /// Permissions of the caller.
    pub access: Access,
}

impl SimHost {
    /// Capacity of each resource.
    pub fn machine(&self) -> PerResource<f64> {
        PerResource::from_fn(|resource| match resource {
            Resource::Cpu => f64::from(self.cpus),
            Resource::Memory => self.memory_bytes as f64,
        })
    }
}

impl Default for SimHost {
    /// Four CPUs, 8 GiB, unified, everything switched on: a small server with systemd.
    fn default() -> Self {
        SimHost {
            cpus: 4,
            threads_per_core: 1,
            numa_nodes: 1,
            memory_bytes: 8 << 30,
            swap: None,
            layout: Layout::Unified,
            controllers: Controller::ALL.to_vec(),
            psi: true,
            memory_recursiveprot: true,
            has_generations: false,
            access: Access::Root,
        }
    }
}

/// A kernel in memory. See the [module documentation](super).
#[derive(Debug)]
pub struct SimKernel {
    pub(super) host: SimHost,
    pub(super) now_nsec: u64,
    pub(super) tree: Tree,
    pub(super) processes: ByPid<Process>,
    pub(super) online: CpuSet,
    pub(super) cpu_times: Vec<CpuTimes>,
    pub(super) rates: Rates,
    /// True if the rates are valid: not after a change that may have moved them.
    pub(super) has_rates: bool,
    /// Competition for CPUs; `None` after a change of cgroups, processes or CPUs. Stalls only change demands.
    pub(super) posed: Option<Box<Posed>>,
    pub(super) sys: BTreeMap<String, String>,
    pub(super) handles: Handles,
    /// True if the last reclaim skipped cgroups within `memory.low`, with generations.
    pub(super) has_passed_over: bool,
    pub(super) candidates: Candidates,
    /// Time in nanoseconds since boot before which no trace changes its load.
    pub(super) steady_until_nsec: u64,
    caller: u32,
    next_pid: u32,
}

impl SimKernel {
    /// Creates a host that has just booted: process 1 and the caller sleep in the root.
    pub fn new(host: SimHost) -> SimKernel {
        let cpus = host.cpus.max(1);
        let mut kernel = SimKernel {
            now_nsec: 0,
            tree: mounted(&host),
            processes: ByPid::default(),
            online: (0..cpus).collect(),
            cpu_times: vec![CpuTimes::default(); cpus as usize],
            rates: Rates::default(),
            has_rates: false,
            posed: None,
            sys: BTreeMap::new(),
            handles: Handles::default(),
            has_passed_over: false,
            candidates: Candidates::default(),
            steady_until_nsec: 0,
            caller: 0,
            next_pid: 1,
            host,
        };
        kernel.sys = kernel.sys_files();
        let roots: Vec<CgroupId> = kernel.tree.hierarchies.iter().map(|h| h.root).collect();
        kernel.start(roots.clone(), &Workload::constant("init", Load::idle()));
        kernel.caller = kernel.start(roots, &Workload::constant("tenantd", Load::idle()));
        kernel
    }

    /// Description of the host.
    pub fn host(&self) -> &SimHost {
        &self.host
    }

    /// Time since boot.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.now_nsec)
    }

    /// Process that uses the files: `/proc/self`, and process 0 in `cgroup.procs`.
    pub fn caller(&self) -> u32 {
        self.caller
    }

    /// Changes the permissions of the caller.
    pub fn set_access(&mut self, access: Access) {
        self.host.access = access;
    }

    /// Advances time: loads follow their traces, threads run, memory is touched and reclaimed.
    ///
    /// Several calls with multiples of 10 ms have the same result as one; any other cut changes memory by
    /// the amount that a process touches in 10 ms.
    pub fn advance(&mut self, dt: Duration) {
        let end = self.now_nsec.saturating_add(u64::try_from(dt.as_nanos()).unwrap_or(u64::MAX));
        while self.now_nsec < end {
            let next = ((self.now_nsec / STEP_NSEC + 1) * STEP_NSEC).min(end);
            let dt_nsec = next - self.now_nsec;
            self.follow_traces();
            let is_quiet = self.touch_memory(dt_nsec);
            let mut rates = std::mem::take(&mut self.rates);
            if !self.has_rates {
                self.compute_rates(&mut rates);
                self.has_rates = true;
            }
            let nr_steps = match is_quiet && dt_nsec == STEP_NSEC {
                true => self.nr_quiet_steps(end),
                false => 1,
            };
            self.account(&rates, dt_nsec, nr_steps);
            self.touch_quietly(nr_steps - 1);
            self.rates = rates;
            self.now_nsec += dt_nsec * nr_steps;
            self.average_pressure();
        }
    }

    pub(super) fn reschedule(&mut self) {
        (self.has_rates, self.posed) = (false, None);
    }

    /// Applies the due loads of traces, and computes the time until the next change.
    fn follow_traces(&mut self) {
        let now_nsec = self.now_nsec;
        if now_nsec < self.steady_until_nsec {
            return;
        }
        let mut changed: Vec<(u32, Load)> = Vec::new();
        let mut steady_nsec = u64::MAX;
        for (&pid, process) in self.processes.iter() {
            if matches!(process.trace, Trace::Constant(_)) {
                continue;
            }
            let age = Duration::from_nanos(now_nsec - process.started_nsec);
            let load = process.trace.at(age).clamped();
            if load != process.load {
                changed.push((pid, load));
            }
            // Edges are not exact to the nanosecond: the steps around one are taken singly.
            let before = age.saturating_sub(Duration::from_nanos(STEP_NSEC));
            let steady_for = process.trace.steady_for(before).saturating_sub(3 * STEP_NSEC);
            steady_nsec = steady_nsec.min(steady_for);
        }
        changed.into_iter().for_each(|(pid, load)| self.apply_load(pid, load));
        self.steady_until_nsec = now_nsec.saturating_add(steady_nsec);
    }

    /// Starts a process in the cgroup `path` (`/` is the root) of every hierarchy with such a cgroup, and
    /// in the root of the others. Returns its pid.
    ///
    /// # Errors
    /// ENOENT if no hierarchy has such a cgroup, EBUSY for an internal node, EAGAIN at `pids.max`.
    pub fn spawn(&mut self, path: &str, workload: impl Into<Workload>) -> Result<u32, Errno> {
        let found: Vec<Option<CgroupId>> =
            self.tree.hierarchies.iter().map(|h| self.find(h.root, path)).collect();
        if found.iter().all(Option::is_none) {
            return Err(Errno::ENOENT);
        }
        for &id in found.iter().flatten() {
            self.vet_attach(id)?;
            self.vet_fork(id)?;
        }
        let roots = self.tree.hierarchies.iter().map(|h| h.root);
        let cgroups = found.into_iter().zip(roots).map(|(id, root)| id.unwrap_or(root)).collect();
        Ok(self.start(cgroups, &workload.into()))
    }

    fn start(&mut self, cgroups: Vec<CgroupId>, workload: &Workload) -> u32 {
        let pid = self.next_pid;
        for &id in &cgroups {
            self.tree[id].processes.insert(pid);
        }
        self.processes.insert(
            pid,
            Process {
                name: workload.name.chars().take(15).collect(),
                uid: workload.uid,
                real_uid: None,
                gid: workload.gid,
                started_nsec: self.now_nsec,
                trace: workload.trace,
                load: Load::idle(),
                cgroups,
                threads: Vec::new(),
                user_nsec: 0.0,
                system_nsec: 0.0,
                charges: Charges::default(),
                hot_pages_seen: 0,
                cold_pages_seen: 0,
                read_bytes: 0,
                disk_read_bytes: 0,
                refault_bytes: 0,
                touched_bytes: 0.0,
                touch_remainder: [0.0; 6],
                stall: Stall::default(),
            },
        );
        self.apply_load(pid, workload.trace.at(Duration::ZERO).clamped());
        pid
    }

    /// Replaces the load of a process permanently.
    ///
    /// # Errors
    /// ESRCH if it ended.
    pub fn set_load(&mut self, pid: u32, load: Load) -> Result<(), Errno> {
        self.set_trace(pid, Trace::Constant(load))
    }

    /// Replaces the trace of a process; its time counts from the start of the process.
    ///
    /// # Errors
    /// ESRCH if it ended.
    pub fn set_trace(&mut self, pid: u32, trace: Trace) -> Result<(), Errno> {
        let process = self.processes.get_mut(&pid).ok_or(Errno::ESRCH)?;
        process.trace = trace;
        let load = trace.at(Duration::from_nanos(self.now_nsec - process.started_nsec)).clamped();
        self.apply_load(pid, load);
        Ok(())
    }

    fn apply_load(&mut self, pid: u32, load: Load) {
        let next_pid = &mut self.next_pid;
        let Some(process) = self.processes.get_mut(&pid) else { return };
        process.load = load;
        self.steady_until_nsec = 0;
        process.threads.truncate(load.threads as usize);
        while process.threads.len() < load.threads as usize {
            let tid = if process.threads.is_empty() { pid } else { *next_pid };
            *next_pid = (*next_pid).max(tid + 1);
            process.threads.push(Thread { tid, run_nsec: 0.0, wait_nsec: 0.0 });
        }
        self.charge_threads(pid);
        self.reschedule();
    }

    /// Ends a process, as SIGKILL does.
    ///
    /// # Errors
    /// ESRCH if it ended before.
    pub fn kill(&mut self, pid: u32) -> Result<(), Errno> {
        if !self.processes.contains_key(&pid) {
            return Err(Errno::ESRCH);
        }
        self.end_process(pid);
        Ok(())
    }

    /// Sets the real and the effective user of a process, as setresuid(2) does.
    ///
    /// # Errors
    /// ESRCH if it ended before.
    pub fn set_users(&mut self, pid: u32, real: u32, effective: u32) -> Result<(), Errno> {
        let process = self.processes.get_mut(&pid).ok_or(Errno::ESRCH)?;
        (process.real_uid, process.uid) = (Some(real), effective);
        Ok(())
    }

    pub(super) fn end_process(&mut self, pid: u32) {
        let Some(process) = self.processes.remove(&pid) else { return };
        for id in &process.cgroups {
            self.tree[*id].processes.remove(&pid);
        }
        self.release_memory(pid, &process);
        self.reschedule();
    }

    /// True for processes that the kernel never kills: the first one and the caller.
    pub(super) fn is_exempt(&self, pid: u32) -> bool {
        pid == 1 || pid == self.caller
    }

    /// Takes a CPU offline or online, as hotplug does. The last one stays online.
    pub fn set_cpu_online(&mut self, cpu: u32, online: bool) {
        if online && cpu < self.host.cpus {
            self.online.insert(cpu);
        } else if !online && self.online != BTreeSet::from([cpu]) {
            self.online.remove(&cpu);
        }
        self.shrink_legacy_cpusets();
        self.sys = self.sys_files();
        self.reschedule();
    }

    /// Changes the installed memory, as hotplug does. Used memory beyond it is reclaimed over time.
    pub fn set_memory(&mut self, bytes: u64) {
        self.host.memory_bytes = bytes;
        self.reschedule();
    }

    pub(super) fn find(&self, root: CgroupId, path: &str) -> Option<CgroupId> {
        let mut names = path.split('/').filter(|name| !name.is_empty());
        names.try_fold(root, |id, name| self.tree[id].children.get(name).copied())
    }

    // --- queries of tests and reports, past the files ---

    /// Makes the cgroup `path` and its missing ancestors, with every controller enabled and legacy cpusets
    /// filled, as another administrator would, whatever the caller may do.
    ///
    /// # Errors
    /// The kernel's own: EBUSY if a process is in the way.
    pub fn make_cgroup(&mut self, path: &str) -> Result<(), Errno> {
        for hierarchy in 0..self.tree.hierarchies.len() {
            let mut id = self.tree.hierarchies[hierarchy].root;
            for name in path.split('/').filter(|name| !name.is_empty()) {
                if self.tree.version(id) == Version::V2 {
                    let wanted = self.tree[id].controllers.without(self.tree[id].subtree_control);
                    self.enable(id, wanted, ControllerSet::default())?;
                }
                id = match self.tree[id].children.get(name) {
                    Some(&child) => child,
                    None => self.add_cgroup(id, name)?,
                };
                self.inherit_legacy_cpuset(id);
            }
        }
        Ok(())
    }

    /// Multiplies the scheduler's weight of the cgroup `path` by `ratio`, as with few threads on a real
    /// kernel. The file shows the written value.
    ///
    /// # Errors
    /// ENOENT without such a cgroup; EINVAL for a ratio that is not positive and finite.
    pub fn set_bias(&mut self, path: &str, ratio: f64) -> Result<(), Errno> {
        if !(ratio.is_finite() && ratio > 0.0) {
            return Err(Errno::EINVAL);
        }
        let id = self.find(self.cpu_root(), path).ok_or(Errno::ENOENT)?;
        self.tree[id].cpu.bias = ratio;
        self.reschedule();
        Ok(())
    }

    /// CPU time used by the cgroup `path`, in microseconds.
    pub fn usage_usec(&self, path: &str) -> Option<u64> {
        let id = self.find(self.cpu_root(), path)?;
        Some((self.tree[id].cpu_account.usage_nsec / 1000.0) as u64)
    }

    /// Memory charged to the cgroup `path`, in bytes.
    pub fn memory_bytes(&self, path: &str) -> Option<u64> {
        let id = self.find(self.memory_root(), path)?;
        Some(self.tree[id].memory_account.usage * PAGE_BYTES)
    }

    /// Usage of a process since it began; `None` if it ended.
    pub fn process_usage(&self, pid: u32) -> Option<ProcessUsage> {
        self.processes.get(&pid).map(Process::usage)
    }

    /// Cgroup of a process in the hierarchy with the cpu controller.
    pub fn process_cgroup(&self, pid: u32) -> Option<String> {
        Some(self.tree.path(self.processes.get(&pid)?.cgroups[self.cpu_hierarchy()]))
    }

    /// Pids of all processes, ascending.
    pub fn pids(&self) -> Vec<u32> {
        self.processes.keys().copied().collect()
    }
}

fn mounted(host: &SimHost) -> Tree {
    let mut tree = Tree::default();
    let has = |controller: &Controller| host.controllers.contains(controller);
    match host.layout {
        Layout::Unified => {
            let unified = |controller: &Controller| *controller != Controller::Cpuacct;
            let controllers = Controller::ALL.into_iter().filter(has).filter(unified).collect();
            tree.mount(MOUNT, Version::V2, controllers);
        }
        Layout::Legacy => {
            for controller in Controller::ALL.into_iter().filter(has) {
                let mount = format!("{MOUNT}/{}", legacy_name(controller));
                tree.mount(&mount, Version::V1, [controller].into_iter().collect());
            }
            tree.mount(&format!("{MOUNT}/unified"), Version::V2, ControllerSet::default());
        }
    }
    tree
}

/// Legacy name of a controller: io was called blkio.
pub(super) fn legacy_name(controller: Controller) -> &'static str {
    match controller {
        Controller::Io => "blkio",
        other => other.name(),
    }
}
