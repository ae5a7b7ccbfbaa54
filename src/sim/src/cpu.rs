//! From processes and cgroups to a scheduling problem, and from its solution to the contents of files.
//!
//! Rates hold until something changes (a write, a load, a stall); meanwhile time only multiplies them. A
//! thread that wants `d` of a CPU and gets `x` waits for the rest of its cycle: `1 − x / d` of the time
//! that memory and disk leave it (see [`super::workload::Load`]).
//!
//! A quota `q` under a demand `p` stops the group `1 − q / p` of the time; `throttled_usec` counts that for
//! each of the `p` run queues, `p − q` in all (kernel/sched/fair.c, `throttled_clock`).

use std::collections::BTreeMap;

use super::controller::Controller;
use super::flow::EPSILON;
use super::fluid::{Group, Problem, Solution, Source};
use super::host::SimHost;
use super::parse::CpuSet;
use super::population::{Changed, Population};
use super::pressure::Activity;
use super::process::Process;
use super::queues::{BALANCING_NSEC, Queues};
use super::rates::{CpuTimes, Posed, QuotaState, Rates, quarters};
use super::tree::{CgroupId, Tree};

/// Weight of one thread in its group: nice 0, like a group of `cpu.weight` 100.
const THREAD_WEIGHT: f64 = 1024.0;

#[derive(Debug)]
pub(super) struct Cpu {
    pub(super) online: CpuSet,
    /// By number of the CPU.
    pub(super) times: Vec<CpuTimes>,
    rates: Rates,
    /// Competition for CPUs; `None` at first.
    posed: Option<Box<Posed>>,
    /// `None` if all CPUs divide as one.
    queues: Option<Queues>,
    /// `None` for the kernel's own scheduler.
    pub(super) loaded: Option<Loaded>,
}

/// A scheduler that is loaded through sched_ext.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Its name.
    pub name: String,
    /// The object that a CPU weight applies to.
    pub weighs: Weighs,
}

/// The object that a loaded scheduler applies the weight of a cgroup to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weighs {
    /// The cgroup, below that of its parent.
    Groups,
    /// Each thread of the cgroup, beside all threads of the machine.
    Threads,
    /// No object: all threads get the same.
    Nothing,
}

impl Cpu {
    pub(super) fn new(host: &SimHost) -> Cpu {
        let cpus = host.cpus.max(1);
        let times = vec![CpuTimes::default(); cpus as usize];
        let queues = host.has_run_queues.then(Queues::default);
        let online = (0..cpus).collect();
        Cpu { online, times, rates: Rates::default(), posed: None, queues, loaded: None }
    }

    /// Balances the run queues if it is time to, and returns the time until the next balancing.
    pub(super) fn balance(&mut self, live: &mut Population, now_nsec: u64) -> u64 {
        let Some(queues) = &mut self.queues else { return u64::MAX };
        let passed_nsec = now_nsec % BALANCING_NSEC;
        if passed_nsec == 0 {
            queues.balance();
            live.changed = live.changed.max(Changed::Stalls);
        }
        BALANCING_NSEC - passed_nsec
    }

    /// Computes the rates again if anything changed. Stalls only change demands.
    pub(super) fn update(&mut self, live: &mut Population) {
        let changed = std::mem::replace(&mut live.changed, Changed::Nothing);
        if changed == Changed::Nothing {
            return;
        }
        let mut rates = std::mem::take(&mut self.rates);
        let known = self.posed.take().filter(|_| changed == Changed::Stalls);
        let mut posed = known.unwrap_or_else(|| {
            let posed = Box::new(self.pose(live));
            rates.cgroups.clear();
            rates.cgroups.extend(posed.all.iter().map(|&id| (id, Activity::default(), [0.0; 6])));
            posed
        });
        for (source, process) in posed.problem.sources.iter_mut().zip(live.processes.values()) {
            source.demand = demand_of(&live.tree, process);
        }
        if let Some(queues) = &mut self.queues {
            let threads = |(pid, process): (&u32, &Process)| (*pid, process.threads.len());
            let threads: Vec<(u32, usize)> = live.processes.iter().map(threads).collect();
            queues.solve(&posed.problem, &threads, &self.online, &mut posed.solution);
        } else {
            posed.problem.solve(&mut posed.solution);
        }
        self.rates_of(live, &posed, &mut rates);
        (self.rates, self.posed) = (rates, Some(posed));
    }

    fn rates_of(&self, live: &Population, posed: &Posed, rates: &mut Rates) {
        let solution = &posed.solution;
        rates.processes.clear();
        for (_, activity, stalls) in &mut rates.cgroups {
            (*activity, *stalls) = (Activity::default(), [0.0; 6]);
        }
        let mut total = Activity::default();
        for (index, process) in live.processes.values().enumerate() {
            let rate = solution.rates[index];
            let demand = posed.problem.sources[index].demand;
            let (activity, wait_ratio) = activity_of(process, demand, rate);
            rates.processes.push((rate, wait_ratio));
            if activity.is_none() {
                continue;
            }
            posed.places[index].iter().for_each(|&place| rates.cgroups[place].1.add(&activity));
            total.add(&activity);
        }
        rates.quotas.clear();
        if posed.problem.has_quotas {
            rates.quotas = self.quota_states(posed, &solution.throttled);
        }
        for &(id, QuotaState { throttled_ratio, .. }) in &rates.quotas {
            let place = live.tree.places(posed.all.iter().copied());
            for below in live.tree.subtree(id).iter() {
                let activity = &mut rates.cgroups[place[below.0]].1;
                activity.throttled_ratio = activity.throttled_ratio.max(throttled_ratio);
            }
        }
        for (_, activity, stalls) in rates.cgroups.iter_mut().filter(|(_, it, _)| !it.is_none()) {
            *stalls = activity.stalls();
        }
        rates.busy.clone_from(&solution.busy);
        rates.system_ratio = if total.running > 0.0 { total.system / total.running } else { 0.0 };
    }

    fn pose(&self, live: &Population) -> Posed {
        let hierarchy = live.tree.home_or_first(Controller::Cpu);
        let root = live.tree.root_of(Controller::Cpu);
        let mut posed = Posed {
            problem: Problem::default(),
            solution: Solution::default(),
            group_ids: live.tree.subtree(root).to_vec(),
            places: Vec::new(),
            all: live.tree.ids().collect(),
        };
        let place = live.tree.places(posed.all.iter().copied());
        posed
            .group_ids
            .retain(|&id| id == root || live.tree[id].controllers.contains(Controller::Cpu));
        let index = live.tree.places(posed.group_ids.iter().copied());
        for &id in &posed.group_ids {
            let cgroup = &live.tree[id];
            let parent = cgroup.parent.map_or(root, |p| live.tree.effective(p, Controller::Cpu));
            posed.problem.groups.push(Group {
                parent: index[parent.0],
                weight: cgroup.cpu.shares as f64 * cgroup.cpu.bias,
                quota: cgroup.cpu.bandwidth.cpus().unwrap_or(f64::INFINITY),
            });
        }
        let mut masks: BTreeMap<CpuSet, usize> = BTreeMap::new();
        // Cpusets that are already resolved.
        let (cpusets, mut known) = (live.tree.home(Controller::Cpuset), Vec::new());
        for process in live.processes.values() {
            let group = live.tree.effective(process.cgroups[hierarchy], Controller::Cpu);
            let home = cpusets.map(|home| process.cgroups[home]);
            let seen = known.iter().find(|(id, _)| *id == home).map(|(_, mask)| *mask);
            let mask = seen.unwrap_or_else(|| {
                let next = masks.len();
                let mask = *masks.entry(self.allowed(&live.tree, process)).or_insert(next);
                known.push((home, mask));
                mask
            });
            let above = process.cgroups.iter().flat_map(|&id| live.tree.lineage(id));
            posed.places.push(above.map(|id| place[id.0]).collect());
            let weighs = self.loaded.as_ref().map_or(Weighs::Groups, |loaded| loaded.weighs);
            let (home, thread_weight) = match weighs {
                Weighs::Groups => (index[group.0], THREAD_WEIGHT),
                Weighs::Threads => (index[root.0], live.tree[group].cpu.shares as f64),
                Weighs::Nothing => (index[root.0], THREAD_WEIGHT),
            };
            posed.problem.sources.push(Source {
                group: home,
                weight: thread_weight * f64::from(process.load.threads),
                demand: demand_of(&live.tree, process),
                mask,
            });
        }
        let mut sets = vec![CpuSet::new(); masks.len()];
        masks.into_iter().for_each(|(set, index)| sets[index] = set);
        posed.problem.know(sets);
        posed
    }

    pub(super) fn allowed(&self, tree: &Tree, process: &Process) -> CpuSet {
        match tree.home(Controller::Cpuset) {
            Some(home) => tree.effective_cpus(process.cgroups[home], &self.online),
            None => self.online.clone(),
        }
    }

    fn quota_states(&self, posed: &Posed, bound: &[bool]) -> Vec<(CgroupId, QuotaState)> {
        let groups = &posed.problem.groups;
        let mut wanted = vec![0.0; groups.len()];
        for source in &posed.problem.sources {
            let cpus = posed.problem.masks[source.mask].len() as f64;
            wanted[source.group] += source.demand.min(cpus);
        }
        let mut states = Vec::new();
        for index in (0..groups.len()).rev() {
            let group = &groups[index];
            let unlimited = wanted[index].min(self.online.len() as f64);
            if index > 0 {
                wanted[group.parent] += unlimited.min(group.quota);
            }
            if group.quota.is_finite() && unlimited > 0.0 {
                let over = if bound[index] { (unlimited - group.quota).max(0.0) } else { 0.0 };
                let throttled_ratio = over / unlimited;
                states.push((posed.group_ids[index], QuotaState { over, throttled_ratio }));
            }
        }
        states
    }

    /// Advances `nr_steps` of `dt_nsec` at the present rates.
    pub(super) fn account(&mut self, live: &mut Population, dt_nsec: u64, nr_steps: u64) {
        let (rates, dt, nr) = (&self.rates, dt_nsec as f64, nr_steps as f64);
        let passed = |rate: f64| quarters(rate * dt) * nr;
        for (process, &(rate, wait_ratio)) in live.processes.values_mut().zip(&rates.processes) {
            if rate == 0.0 && wait_ratio == 0.0 {
                continue;
            }
            process.system_nsec += passed(rate * process.load.system_ratio);
            process.user_nsec += passed(rate * (1.0 - process.load.system_ratio));
            let ran = passed(rate / process.threads.len() as f64);
            let waited = passed(wait_ratio);
            for thread in &mut process.threads {
                thread.run_nsec += ran;
                thread.wait_nsec += waited;
            }
        }
        for (id, activity, stalls) in rates.cgroups.iter().filter(|(_, it, _)| !it.is_none()) {
            let cgroup = &mut live.tree[*id];
            let is_root = cgroup.parent.is_none();
            cgroup.cpu_account.usage_nsec += passed(activity.running);
            cgroup.cpu_account.system_nsec += passed(activity.system);
            cgroup.pressure.advance(stalls, passed, is_root);
        }
        for &(id, state) in &rates.quotas {
            let cgroup = &mut live.tree[id];
            let period_nsec = cgroup.cpu.bandwidth.period_usec * 1000;
            let account = &mut cgroup.cpu_account;
            let elapsed_nsec = account.period_elapsed_nsec + dt_nsec * nr_steps;
            let periods = elapsed_nsec / period_nsec;
            account.period_elapsed_nsec = elapsed_nsec % period_nsec;
            account.nr_periods += periods;
            if state.over > EPSILON {
                account.nr_throttled += periods;
                account.throttled_nsec += passed(state.over);
            }
        }
        let mut known = rates.busy.iter().peekable();
        for &cpu in &self.online {
            while known.next_if(|(other, _)| *other < cpu).is_some() {}
            let busy = known.next_if(|(other, _)| *other == cpu).map_or(0.0, |(_, busy)| *busy);
            let times = &mut self.times[cpu as usize];
            times.system_nsec += passed(busy * rates.system_ratio);
            times.user_nsec += passed(busy * (1.0 - rates.system_ratio));
            times.idle_nsec += passed(1.0 - busy);
        }
    }
}

fn demand_of(tree: &Tree, process: &Process) -> f64 {
    let is_frozen = tree.has_frozen && process.cgroups.iter().any(|&id| tree.is_frozen(id));
    if is_frozen { 0.0 } else { process.cpu_demand() }
}

/// Activity of a process that wants `demand` CPUs and gets `rate`, and the waiting part of each thread's time.
fn activity_of(process: &Process, demand: f64, rate: f64) -> (Activity, f64) {
    let unmet = if demand > 0.0 { (1.0 - rate / demand).max(0.0) } else { 0.0 };
    let wait_ratio = unmet * process.stall.awake_ratio();
    let threads = f64::from(process.load.threads);
    let activity = Activity {
        running: rate,
        system: rate * process.load.system_ratio,
        waiting: wait_ratio * threads,
        stalled: process.stall.memory_ratio * threads,
        blocked: process.stall.io_ratio * threads,
        throttled_ratio: 0.0,
    };
    (activity, wait_ratio)
}
