//! From processes and cgroups to a scheduling problem, and from its solution to what the files show.
//!
//! Rates hold until something changes (a write, a load, a stall); meanwhile time only multiplies them.
//! Of a thread that wants `d` of a CPU and gets `x`, the rest of its cycle is waiting: it waits
//! `1 − x / d` of the time that memory and disk leave it (see [`super::workload::Load`]).
//!
//! A quota `q` under a demand `p` stops the group `1 − q / p` of the time; `throttled_usec` counts that for
//! each of the `p` run queues, which comes to `p − q` (kernel/sched/fair.c, `throttled_clock`).

use std::collections::BTreeMap;

use super::controller::Controller;
use super::fluid::{Group, Problem, Source};
use super::kernel::SimKernel;
use super::parse::CpuSet;
use super::pressure::{AVERAGING_NSEC, Activity};
use super::tree::CgroupId;

/// The weight of one thread in its group: nice 0, as much as a group of `cpu.weight` 100.
const THREAD_WEIGHT: f64 = 1024.0;

/// What `cpu.stat` counts, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CpuAccount {
    pub(super) usage_nsec: f64,
    pub(super) system_nsec: f64,
    pub(super) nr_periods: f64,
    pub(super) nr_throttled: f64,
    pub(super) throttled_nsec: f64,
}

/// The time of one CPU: a line of `/proc/stat`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CpuTimes {
    pub(super) user_nsec: f64,
    pub(super) system_nsec: f64,
    pub(super) idle_nsec: f64,
}

/// What flows where until the next change.
#[derive(Clone, Debug, Default)]
pub(super) struct Rates {
    /// By pid: CPUs of all threads together, and the waiting part of each thread's time.
    processes: Vec<(u32, f64, f64)>,
    /// Every cgroup of every hierarchy, with the CPUs it uses in the kernel.
    cgroups: Vec<(CgroupId, Activity, f64)>,
    /// Groups with a quota: periods and throttled periods per second, throttled time per time.
    bandwidths: Vec<(CgroupId, [f64; 3])>,
    /// Busy part of each CPU, and the part of that in the kernel.
    busy: BTreeMap<u32, f64>,
    system_ratio: f64,
}

/// The scheduling problem, and whose each part is.
struct Posed {
    problem: Problem,
    group_ids: Vec<CgroupId>,
    pids: Vec<u32>,
}

impl SimKernel {
    /// The present rates, computed anew after a change.
    pub(super) fn compute_rates(&self) -> Rates {
        let posed = self.pose();
        let solution = posed.problem.solve();
        let mut rates = Rates { busy: solution.busy.iter().copied().collect(), ..Rates::default() };
        let mut activities: BTreeMap<CgroupId, (Activity, f64)> =
            self.tree.ids().map(|id| (id, Default::default())).collect();
        let mut total = Activity::default();
        let mut total_system = 0.0;
        for (pid, &rate) in posed.pids.iter().zip(&solution.rates) {
            let process = &self.processes[pid];
            let threads = f64::from(process.load.threads);
            let demand = process.cpu_demand();
            let frozen = process.cgroups.iter().any(|&id| self.tree.is_frozen(id));
            let unmet = if demand > 0.0 && !frozen { (1.0 - rate / demand).max(0.0) } else { 0.0 };
            let wait_ratio = unmet * process.stall.awake_ratio();
            rates.processes.push((*pid, rate, wait_ratio));
            let activity = Activity {
                running: rate,
                waiting: wait_ratio * threads,
                stalled: process.stall.memory_ratio * threads,
                blocked: process.stall.io_ratio * threads,
                throttled_ratio: 0.0,
            };
            let system = rate * process.load.system_ratio;
            for id in process.cgroups.iter().flat_map(|&id| self.tree.lineage(id)) {
                if let Some((sum, sum_system)) = activities.get_mut(&id) {
                    sum.add(&activity);
                    *sum_system += system;
                }
            }
            total.add(&activity);
            total_system += system;
        }
        rates.system_ratio = if total.running > 0.0 { total_system / total.running } else { 0.0 };
        let held = self.throttling(&posed, &solution.throttled);
        for (id, throttled_ratio, bandwidth) in held {
            for below in self.tree.subtree(id) {
                if let Some((activity, _)) = activities.get_mut(&below) {
                    activity.throttled_ratio = activity.throttled_ratio.max(throttled_ratio);
                }
            }
            rates.bandwidths.push((id, bandwidth));
        }
        rates.cgroups = activities.into_iter().map(|(id, (a, system))| (id, a, system)).collect();
        rates
    }

    /// The scheduling problem of this moment.
    fn pose(&self) -> Posed {
        let hierarchy = self.tree.home(Controller::Cpu).unwrap_or(0);
        let root = self.tree.hierarchies[hierarchy].root;
        let mut posed = Posed {
            problem: Problem::default(),
            group_ids: self.tree.subtree(root),
            pids: Vec::new(),
        };
        posed
            .group_ids
            .retain(|&id| id == root || self.tree[id].controllers.contains(Controller::Cpu));
        let index: BTreeMap<CgroupId, usize> =
            posed.group_ids.iter().enumerate().map(|(index, &id)| (id, index)).collect();
        for &id in &posed.group_ids {
            let cgroup = &self.tree[id];
            let parent = cgroup.parent.map_or(root, |p| self.tree.effective(p, Controller::Cpu));
            posed.problem.groups.push(Group {
                parent: index[&parent],
                weight: cgroup.cpu.shares as f64,
                quota: cgroup.cpu.bandwidth.cpus().unwrap_or(f64::INFINITY),
            });
        }
        let mut masks: BTreeMap<CpuSet, usize> = BTreeMap::new();
        for (&pid, process) in &self.processes {
            let group = self.tree.effective(process.cgroups[hierarchy], Controller::Cpu);
            let frozen = process.cgroups.iter().any(|&id| self.tree.is_frozen(id));
            let next = masks.len();
            let mask = *masks.entry(self.allowed_cpus(pid)).or_insert(next);
            posed.pids.push(pid);
            posed.problem.sources.push(Source {
                group: index[&group],
                weight: THREAD_WEIGHT * f64::from(process.load.threads),
                demand: if frozen { 0.0 } else { process.cpu_demand() },
                mask,
            });
        }
        posed.problem.masks = vec![CpuSet::new(); masks.len()];
        masks.into_iter().for_each(|(set, index)| posed.problem.masks[index] = set);
        posed
    }

    /// The CPUs that a process may run on.
    pub(super) fn allowed_cpus(&self, pid: u32) -> CpuSet {
        match self.tree.home(Controller::Cpuset) {
            Some(home) => {
                self.tree.effective_cpus(self.processes[&pid].cgroups[home], &self.online)
            }
            None => self.online.clone(),
        }
    }

    /// For each group with a quota: the part of time it is stopped, and its counters' speeds per second.
    fn throttling(&self, posed: &Posed, bound: &[bool]) -> Vec<(CgroupId, f64, [f64; 3])> {
        let groups = &posed.problem.groups;
        let mut wanted = vec![0.0; groups.len()];
        for source in &posed.problem.sources {
            let cpus = posed.problem.masks[source.mask].len() as f64;
            wanted[source.group] += source.demand.min(cpus);
        }
        let mut held = Vec::new();
        for index in (0..groups.len()).rev() {
            let group = &groups[index];
            let unlimited = wanted[index].min(self.online.len() as f64);
            if index > 0 {
                wanted[group.parent] += unlimited.min(group.quota);
            }
            if !group.quota.is_finite() {
                continue;
            }
            let id = posed.group_ids[index];
            let periods = 1e6 / self.tree[id].cpu.bandwidth.period_usec as f64;
            let over = if bound[index] { (unlimited - group.quota).max(0.0) } else { 0.0 };
            let is_over = over > super::flow::EPSILON;
            let speeds = [
                if unlimited > 0.0 { periods } else { 0.0 },
                if is_over { periods } else { 0.0 },
                over * 1e9,
            ];
            held.push((id, if is_over { over / unlimited } else { 0.0 }, speeds));
        }
        held
    }

    /// Lets `dt_nsec` pass at the present rates.
    pub(super) fn account(&mut self, rates: &Rates, dt_nsec: u64) {
        let dt = dt_nsec as f64;
        for &(pid, rate, wait_ratio) in &rates.processes {
            let Some(process) = self.processes.get_mut(&pid) else { continue };
            let run_nsec = rate * dt;
            process.system_nsec += run_nsec * process.load.system_ratio;
            process.user_nsec += run_nsec * (1.0 - process.load.system_ratio);
            let each = run_nsec / process.threads.len() as f64;
            for thread in &mut process.threads {
                thread.run_nsec += each;
                thread.wait_nsec += wait_ratio * dt;
            }
        }
        for (id, activity, system) in &rates.cgroups {
            let is_root = self.tree[*id].parent.is_none();
            let cgroup = &mut self.tree[*id];
            cgroup.cpu_account.usage_nsec += activity.running * dt;
            cgroup.cpu_account.system_nsec += system * dt;
            cgroup.pressure.advance(activity, dt_nsec, is_root);
        }
        for &(id, [periods, throttled, throttled_nsec]) in &rates.bandwidths {
            let account = &mut self.tree[id].cpu_account;
            account.nr_periods += periods * dt * 1e-9;
            account.nr_throttled += throttled * dt * 1e-9;
            account.throttled_nsec += throttled_nsec * dt * 1e-9;
        }
        for (cpu, times) in self.cpu_times.iter_mut().enumerate() {
            let cpu = cpu as u32;
            if !self.online.contains(&cpu) {
                continue;
            }
            let busy = rates.busy.get(&cpu).copied().unwrap_or(0.0);
            times.system_nsec += busy * rates.system_ratio * dt;
            times.user_nsec += busy * (1.0 - rates.system_ratio) * dt;
            times.idle_nsec += (1.0 - busy) * dt;
        }
    }

    /// Closes an averaging interval where one ends now.
    pub(super) fn average_pressure(&mut self) {
        if self.now_nsec.is_multiple_of(AVERAGING_NSEC) {
            let ids: Vec<CgroupId> = self.tree.ids().collect();
            ids.into_iter().for_each(|id| self.tree[id].pressure.average());
        }
    }
}
