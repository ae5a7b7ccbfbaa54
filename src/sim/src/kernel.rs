//! The kernel: its parts and its clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use nix::errno::Errno;

use super::account::Kind;
use super::controller::{Controller, ControllerSet};
use super::cpu::{Cpu, Loaded};
use super::disk::DiskWork;
use super::handles::Handles;
use super::host::{Access, Layout, MOUNT, STEP_NSEC, SimHost, legacy_name};
use super::memory::Memory;
use super::parse::PAGE_BYTES;
use super::population::{Changed, Population};
use super::pressure::AVERAGING_NSEC;
use super::process::{Process, ProcessUsage};
use super::sys_files::sched_ext_files;
use super::tree::{CgroupId, Tree, Version};
use super::workload::{Load, Trace, Workload};

/// A kernel in memory. See the [module documentation](super).
#[derive(Debug)]
pub struct SimKernel {
    pub(super) host: SimHost,
    pub(super) now_nsec: u64,
    pub(super) live: Population,
    pub(super) cpu: Cpu,
    pub(super) memory: Memory,
    pub(super) disk: DiskWork,
    pub(super) sys: BTreeMap<String, String>,
    pub(super) handles: Handles,
}

impl SimKernel {
    /// Creates a host that has just booted: process 1 and the caller sleep in the root.
    pub fn new(host: SimHost) -> SimKernel {
        let cpu = Cpu::new(&host);
        let mut kernel = SimKernel {
            now_nsec: 0,
            live: Population::new(mounted(&host)),
            memory: Memory::new(&host),
            disk: DiskWork::default(),
            sys: host.sys_files(&cpu.online).into_iter().chain(sched_ext_files(None)).collect(),
            cpu,
            handles: Handles::default(),
            host,
        };
        let roots: Vec<CgroupId> = kernel.live.tree.roots().collect();
        kernel.start(roots.clone(), &Workload::constant("init", Load::idle()));
        let caller = kernel.start(roots, &Workload::constant("tenantd", Load::idle()));
        kernel.live.caller = caller;
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

    /// Takes the unread records of the kernel's log, as `/dev/kmsg` has them.
    pub fn take_log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.live.log)
    }

    /// Process that uses the files: `/proc/self`, and process 0 in `cgroup.procs`.
    pub fn caller(&self) -> u32 {
        self.live.caller
    }

    /// Changes the permissions of the caller.
    pub fn set_access(&mut self, access: Access) {
        self.host.access = access;
    }

    /// Advances time: loads follow their traces, threads run, memory is touched and reclaimed.
    ///
    /// Several calls with multiples of 10 ms have the same result as one; any other cut changes memory by
    /// the amount that a process touches in 10 ms. Steps are *quiet* if no process touches missing memory or
    /// owes sleep, and nothing is reclaimed: the following ones are the same, and pass at once until a load
    /// changes or the averages of pressure are due.
    pub fn advance(&mut self, dt: Duration) {
        let end = self.now_nsec.saturating_add(u64::try_from(dt.as_nanos()).unwrap_or(u64::MAX));
        while self.now_nsec < end {
            let next = ((self.now_nsec / STEP_NSEC + 1) * STEP_NSEC).min(end);
            let dt_nsec = next - self.now_nsec;
            self.follow_traces();
            let is_quiet = self.memory.touch(&mut self.live, dt_nsec);
            let unbalanced_nsec = self.cpu.balance(&mut self.live, self.now_nsec);
            self.cpu.update(&mut self.live);
            let is_repeated = is_quiet && dt_nsec == STEP_NSEC;
            let nr_steps = if is_repeated {
                self.nr_quiet_steps(unbalanced_nsec.min(end - self.now_nsec))
            } else {
                1
            };
            self.cpu.account(&mut self.live, dt_nsec, nr_steps);
            for process in self.live.processes.values_mut() {
                process.go_over(STEP_NSEC, nr_steps - 1);
            }
            self.now_nsec += dt_nsec * nr_steps;
            if self.now_nsec.is_multiple_of(AVERAGING_NSEC) {
                self.live.tree.average_pressure();
            }
        }
    }

    /// Number of steps, including this one, that are quiet like it. Each addition to a counter is rounded to a
    /// quarter of its unit ([`super::rates::quarters`]), so sums are exact and time may be cut anywhere
    /// (`determinism` and `quiet_time_in_one_piece_is_the_same` in `tests/sim/cpu.rs`).
    fn nr_quiet_steps(&self, most_nsec: u64) -> u64 {
        let averages = AVERAGING_NSEC - self.now_nsec % AVERAGING_NSEC;
        let steady = self.live.steady_until_nsec.saturating_sub(self.now_nsec);
        (steady.min(averages).min(most_nsec) / STEP_NSEC).max(1)
    }

    fn follow_traces(&mut self) {
        if self.now_nsec < self.live.steady_until_nsec {
            return;
        }
        let (due, steady_until_nsec) = self.live.due_loads(self.now_nsec);
        for (pid, load) in due {
            self.memory.apply_load(&mut self.live, pid, load);
        }
        self.live.steady_until_nsec = steady_until_nsec;
    }

    /// Does `work` on the disk in the name of a process: it is charged to its cgroups, and to those above them.
    ///
    /// # Errors
    /// ESRCH if the process has ended.
    pub fn use_disk(&mut self, pid: u32, work: DiskWork) -> Result<(), Errno> {
        let process = self.live.processes.get(&pid).ok_or(Errno::ESRCH)?;
        let tree = &mut self.live.tree;
        let hierarchies = tree.hierarchies.iter().zip(&process.cgroups);
        let with_io = hierarchies.filter(|(it, _)| it.controllers.contains(Controller::Io));
        let charged: Vec<CgroupId> = with_io.map(|(_, cgroup)| *cgroup).collect();
        for id in charged {
            let mut next = Some(id);
            while let Some(id) = next {
                tree[id].disk.add(&work);
                next = tree[id].parent;
            }
        }
        self.disk.add(&work);
        Ok(())
    }

    fn start(&mut self, cgroups: Vec<CgroupId>, workload: &Workload) -> u32 {
        let pid = self.live.start(cgroups, workload, self.now_nsec);
        let load = workload.trace.at(Duration::ZERO).clamped();
        self.memory.apply_load(&mut self.live, pid, load);
        pid
    }

    /// Starts a process in the cgroup `path` (`/` is the root) of every hierarchy with such a cgroup, and
    /// in the root of the others. Returns its pid.
    ///
    /// # Errors
    /// ENOENT if no hierarchy has such a cgroup, EBUSY for an internal node, EAGAIN at `pids.max`.
    pub fn spawn(&mut self, path: &str, workload: impl Into<Workload>) -> Result<u32, Errno> {
        let tree = &mut self.live.tree;
        let found: Vec<Option<CgroupId>> = tree.roots().map(|root| tree.find(root, path)).collect();
        if found.iter().all(Option::is_none) {
            return Err(Errno::ENOENT);
        }
        for &id in found.iter().flatten() {
            tree.vet_attach(id)?;
            tree.vet_fork(id)?;
        }
        let places = found.into_iter().zip(tree.roots());
        let cgroups = places.map(|(id, root)| id.unwrap_or(root)).collect();
        Ok(self.start(cgroups, &workload.into()))
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
        let process = self.live.processes.get_mut(&pid).ok_or(Errno::ESRCH)?;
        process.trace = trace;
        let load = trace.at(Duration::from_nanos(self.now_nsec - process.started_nsec)).clamped();
        self.memory.apply_load(&mut self.live, pid, load);
        Ok(())
    }

    /// Ends a process, as SIGKILL does.
    ///
    /// # Errors
    /// ESRCH if it ended before.
    pub fn kill(&mut self, pid: u32) -> Result<(), Errno> {
        if !self.live.processes.contains_key(&pid) {
            return Err(Errno::ESRCH);
        }
        self.live.end(pid);
        Ok(())
    }

    /// Sets the real and the effective user of a process, as setresuid(2) does.
    ///
    /// # Errors
    /// ESRCH if it ended before.
    pub fn set_users(&mut self, pid: u32, real: u32, effective: u32) -> Result<(), Errno> {
        let process = self.live.processes.get_mut(&pid).ok_or(Errno::ESRCH)?;
        (process.real_uid, process.uid) = (Some(real), effective);
        Ok(())
    }

    /// Takes a CPU offline or online, as hotplug does. The last one stays online.
    pub fn set_cpu_online(&mut self, cpu: u32, online: bool) {
        if online && cpu < self.host.cpus {
            self.cpu.online.insert(cpu);
        } else if !online && self.cpu.online != BTreeSet::from([cpu]) {
            self.cpu.online.remove(&cpu);
        }
        self.live.shrink_legacy_cpusets(&self.cpu.online);
        self.sys = self.host.sys_files(&self.cpu.online);
        self.sys.extend(sched_ext_files(self.cpu.loaded.as_ref()));
        self.live.changed = Changed::Everything;
    }

    /// Changes the installed memory, as hotplug does. Used memory beyond it is reclaimed over time.
    pub fn set_memory(&mut self, bytes: u64) {
        self.host.memory_bytes = bytes;
        self.memory.total_pages = bytes / PAGE_BYTES;
    }

    /// Makes the cgroup `path` and its missing ancestors, with every controller enabled and legacy cpusets
    /// filled, as another administrator would, whatever the caller may do.
    ///
    /// # Errors
    /// The kernel's own: EBUSY if a process is in the way.
    pub fn make_cgroup(&mut self, path: &str) -> Result<(), Errno> {
        let roots: Vec<CgroupId> = self.live.tree.roots().collect();
        for mut id in roots {
            for name in path.split('/').filter(|name| !name.is_empty()) {
                let tree = &self.live.tree;
                if tree.version(id) == Version::V2 {
                    let wanted = tree[id].controllers.without(tree[id].subtree_control);
                    self.live.enable(id, wanted, ControllerSet::default())?;
                }
                id = match self.live.tree[id].children.get(name) {
                    Some(&child) => child,
                    None => self.live.add_cgroup(id, name)?,
                };
                self.live.tree.inherit_legacy_cpuset(id, &self.cpu.online, &self.host.mems());
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
        let tree = &mut self.live.tree;
        let id = tree.find_of(Controller::Cpu, path).ok_or(Errno::ENOENT)?;
        tree[id].cpu.bias = ratio;
        self.live.changed = Changed::Everything;
        Ok(())
    }

    /// Loads a scheduler through sched_ext in place of the one before; `None` returns to the kernel's own.
    pub fn load_scheduler(&mut self, loaded: Option<Loaded>) {
        self.cpu.loaded = loaded;
        self.sys.extend(sched_ext_files(self.cpu.loaded.as_ref()));
        self.live.changed = Changed::Everything;
    }

    /// CPU time used by the cgroup `path`, in microseconds.
    pub fn usage_usec(&self, path: &str) -> Option<u64> {
        let id = self.live.tree.find_of(Controller::Cpu, path)?;
        Some((self.live.tree[id].cpu_account.usage_nsec / 1000.0) as u64)
    }

    /// Memory charged to the cgroup `path`, in bytes.
    pub fn memory_bytes(&self, path: &str) -> Option<u64> {
        let id = self.live.tree.find_of(Controller::Memory, path)?;
        Some(self.live.tree[id].memory_account.usage * PAGE_BYTES)
    }

    /// File cache of the cgroup `path` and below that was read once and is not missed, in bytes.
    pub fn cold_cache_bytes(&self, path: &str) -> Option<u64> {
        let id = self.live.tree.find_of(Controller::Memory, path)?;
        Some(self.live.pages_below(id).of(Kind::InactiveFile) * PAGE_BYTES)
    }

    /// Usage of a process since it began; `None` if it ended.
    pub fn process_usage(&self, pid: u32) -> Option<ProcessUsage> {
        self.live.processes.get(&pid).map(Process::usage)
    }

    /// Cgroup of a process in the hierarchy with the cpu controller.
    pub fn process_cgroup(&self, pid: u32) -> Option<String> {
        let Population { tree, processes, .. } = &self.live;
        Some(tree.path(processes.get(&pid)?.cgroups[tree.home_or_first(Controller::Cpu)]))
    }

    /// Pids of all processes, ascending.
    pub fn pids(&self) -> Vec<u32> {
        self.live.processes.keys().copied().collect()
    }
}

fn mounted(host: &SimHost) -> Tree {
    let mut tree = Tree::default();
    tree.has_bfq = host.divider.is_bfq;
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
