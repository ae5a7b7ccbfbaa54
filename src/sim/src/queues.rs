//! A run queue for each CPU, and the errors of the load balancing between them.
//!
//! **Problem.** The fluid of [`super::fluid`] divides all CPUs as one, so shares follow weights exactly. A real
//! kernel divides each CPU by itself among the threads on it, and moves threads only if the load averages of two
//! CPUs differ enough. Right weights then have wrong effects for as long as the averages look even.
//!
//! **Algorithm** (kernel/sched/fair.c, 6.18). The weight of a group is spread over CPUs by its runnable threads
//! there (`calc_group_shares`). The load average of a CPU is the sum over its groups of that weight times the part
//! of time in which the group is runnable: a heavy group that mostly sleeps counts with a part of its weight,
//! although it leaves the CPU to others. Every 100 ms the CPU with the highest average passes threads to the one
//! with the lowest if it is more than 17 % higher (`imbalance_pct`): threads whose loads together are at most half
//! of the difference, in turn. A new thread goes to the CPU with the fewest threads.
//!
//! **Properties** (`tests/sim/cpu.rs`): equal groups without sleepers get nearly equal shares
//! (`run_queues_divide_by_weight_if_loads_are_even`); a heavy sleeper makes them err
//! (`a_heavy_sleeper_misleads_the_balance`).
//!
//! Not modelled: moves at wake-up, caches, and averages that lag behind.

use std::collections::BTreeMap;

use super::flow::EPSILON;
use super::fluid::{Problem, Solution, Source};
use super::parse::CpuSet;

/// Interval of load balancing.
pub(super) const BALANCING_NSEC: u64 = 100_000_000;

/// Ratio of two loads that is left.
const IMBALANCE: f64 = 1.17;

/// CPU of each thread, and the loads at the last solution.
#[derive(Debug, Default)]
pub(super) struct Queues {
    /// CPUs of the threads of each process, by pid.
    places: BTreeMap<u32, Vec<u32>>,
    cpus: Vec<u32>,
    /// Load average of each CPU.
    loads: Vec<f64>,
    /// Pid, usable CPUs, and the load of one thread on each CPU, by process.
    threads: Vec<(u32, CpuSet, Vec<f64>)>,
    /// Process whose threads are the next to move.
    turn: usize,
}

impl Queues {
    /// Rates of processes with these pids and numbers of threads, which are the sources of `problem`.
    pub(super) fn solve(
        &mut self,
        problem: &Problem,
        processes: &[(u32, usize)],
        online: &CpuSet,
        solution: &mut Solution,
    ) {
        self.cpus = online.iter().copied().collect();
        self.place(problem, processes);
        let on = self.threads_on(processes);
        let spread = Spread::new(problem, &on, self.cpus.len());
        *solution = Solution {
            rates: vec![0.0; processes.len()],
            busy: Vec::new(),
            throttled: vec![false; problem.groups.len()],
        };
        for (cpu, name) in self.cpus.iter().enumerate() {
            let part = spread.divided(problem, &on, cpu, *name);
            solution.rates.iter_mut().zip(part.rates).for_each(|(sum, rate)| *sum += rate);
            solution.busy.push((*name, part.busy.first().map_or(0.0, |busy| busy.1)));
            solution.throttled.iter_mut().zip(part.throttled).for_each(|(all, one)| *all |= one);
        }
        let threads = processes.iter().zip(&problem.sources).zip(&on);
        let load = |(((pid, _), source), on): ((&(u32, usize), &Source), &Vec<f64>)| {
            let loads = (0..on.len()).map(|cpu| spread.load_of_thread(problem, source, on, cpu));
            (*pid, problem.masks[source.mask].clone(), loads.collect())
        };
        self.threads = threads.map(load).collect();
        self.loads = spread.averages;
    }

    /// Places threads without a CPU, or on one that they may not use; threads of ended processes leave.
    fn place(&mut self, problem: &Problem, processes: &[(u32, usize)]) {
        let mut places = std::mem::take(&mut self.places);
        let mut nr: BTreeMap<u32, usize> = self.cpus.iter().map(|cpu| (*cpu, 0)).collect();
        let mask = |index: usize| &problem.masks[problem.sources[index].mask];
        for (index, (pid, nr_threads)) in processes.iter().enumerate() {
            let mut cpus = places.remove(pid).unwrap_or_default();
            cpus.retain(|cpu| mask(index).contains(cpu));
            cpus.truncate(*nr_threads);
            cpus.iter().for_each(|cpu| *nr.entry(*cpu).or_default() += 1);
            self.places.insert(*pid, cpus);
        }
        for (index, (pid, nr_threads)) in processes.iter().enumerate() {
            let cpus = self.places.entry(*pid).or_default();
            while cpus.len() < *nr_threads {
                let allowed = nr.iter_mut().filter(|(cpu, _)| mask(index).contains(cpu));
                let Some((cpu, nr)) = allowed.min_by_key(|(_, nr)| **nr) else { break };
                cpus.push(*cpu);
                *nr += 1;
            }
        }
    }

    /// Number of threads of each process on each CPU.
    fn threads_on(&self, processes: &[(u32, usize)]) -> Vec<Vec<f64>> {
        let on = |(pid, _): &(u32, usize)| {
            let count = |cpu: &u32| self.places[pid].iter().filter(|it| *it == cpu).count() as f64;
            self.cpus.iter().map(count).collect()
        };
        processes.iter().map(on).collect()
    }

    /// Moves threads from the CPU with the highest load to the one with the lowest.
    pub(super) fn balance(&mut self) {
        let by_load = |a: &usize, b: &usize| self.loads[*a].total_cmp(&self.loads[*b]);
        let cpus = 0..self.loads.len();
        let (Some(from), Some(to)) = (cpus.clone().max_by(by_load), cpus.min_by(by_load)) else {
            return;
        };
        if self.loads[from] <= IMBALANCE * self.loads[to] {
            return;
        }
        let mut left = (self.loads[from] - self.loads[to]) / 2.0;
        let (nr, first) = (self.threads.len(), self.turn);
        for index in (0..nr).map(|step| (first + step) % nr) {
            let (pid, mask, loads) = &self.threads[index];
            let load = loads[from];
            if !mask.contains(&self.cpus[to]) || load <= EPSILON {
                continue;
            }
            for place in self.places.entry(*pid).or_default().iter_mut() {
                if *place == self.cpus[from] && load <= left {
                    (*place, left) = (self.cpus[to], left - load);
                    self.turn = index + 1;
                }
            }
        }
    }
}

/// Weights of groups by group and CPU.
struct Spread {
    /// Weights of everything runnable in the group.
    queued: Vec<Vec<f64>>,
    /// Part of the group's own weight.
    shares: Vec<Vec<f64>>,
    /// CPUs wanted by the threads below it.
    wanted: Vec<Vec<f64>>,
    /// Load average of each CPU.
    averages: Vec<f64>,
}

impl Spread {
    fn new(problem: &Problem, on: &[Vec<f64>], nr_cpus: usize) -> Spread {
        let none = vec![vec![0.0; nr_cpus]; problem.groups.len()];
        let averages = vec![0.0; nr_cpus];
        let mut it = Spread { queued: none.clone(), shares: none.clone(), wanted: none, averages };
        let awake = problem.sources.iter().zip(on).filter(|(source, _)| source.demand > EPSILON);
        for (source, on) in awake {
            let nr = on.iter().sum::<f64>().max(1.0);
            for (cpu, part) in on.iter().map(|on| on / nr).enumerate() {
                it.queued[source.group][cpu] += source.weight * part;
                it.wanted[source.group][cpu] += source.demand * part;
                if source.group == 0 {
                    it.averages[cpu] += source.weight * part * (source.demand / nr).min(1.0);
                }
            }
        }
        for (index, group) in problem.groups.iter().enumerate().skip(1).rev() {
            let all: f64 = it.queued[index].iter().sum();
            for cpu in (0..nr_cpus).filter(|_| all > 0.0) {
                let share = group.weight * it.queued[index][cpu] / all;
                let wanted = it.wanted[index][cpu];
                it.shares[index][cpu] = share;
                it.queued[group.parent][cpu] += share;
                it.wanted[group.parent][cpu] += wanted;
                if group.parent == 0 {
                    it.averages[cpu] += share * wanted.min(1.0);
                }
            }
        }
        it
    }

    /// Division of one CPU, whose number is `name`.
    fn divided(&self, problem: &Problem, on: &[Vec<f64>], cpu: usize, name: u32) -> Solution {
        let mut alone = Problem::default();
        alone.groups.clone_from(&problem.groups);
        for (index, group) in alone.groups.iter_mut().enumerate().skip(1) {
            let share = self.shares[index][cpu];
            group.quota *= (share / group.weight).max(EPSILON);
            group.weight = share.max(EPSILON);
        }
        let source = |(source, on): (&Source, &Vec<f64>)| {
            let part = on[cpu] / on.iter().sum::<f64>().max(1.0);
            let weight = (source.weight * part).max(EPSILON);
            Source { weight, demand: source.demand * part, mask: 0, ..*source }
        };
        alone.sources = problem.sources.iter().zip(on).map(source).collect();
        alone.know(vec![CpuSet::from([name])]);
        let mut solution = Solution::default();
        alone.solve(&mut solution);
        solution
    }

    /// Load of a thread on a CPU: the part of the weight at the root that it brings there.
    fn load_of_thread(&self, problem: &Problem, source: &Source, on: &[f64], cpu: usize) -> f64 {
        if on[cpu] == 0.0 {
            return 0.0;
        }
        let nr = on.iter().sum::<f64>().max(1.0);
        let mut load = source.weight / nr * (source.demand / nr).min(1.0);
        let mut group = source.group;
        while group > 0 && self.queued[group][cpu] > 0.0 {
            load *= self.shares[group][cpu] / self.queued[group][cpu];
            group = problem.groups[group].parent;
        }
        load
    }
}
