//! The scheduler as a fluid: hierarchical weighted max-min over CPUs with affinities and quotas.
//!
//! **Problem.** Runnable threads are in a tree of groups. Each group divides its rate among its threads and
//! subgroups by weight, gives no member more than it can use, and never exceeds its quota. A thread runs only
//! on the CPUs of its cpuset.
//!
//! **Terms.** A *source* is a process: identical threads that demand together `demand` CPUs. A *group* is a
//! cgroup with the cpu controller. A *rate* is in CPUs.
//!
//! **Algorithm.** Progressive filling. All active sources grow at once; a unit of growth at the root splits
//! down the tree by the weights of the *active* members. Growth runs to the next event: a demand is met, a
//! quota is reached, or a set of CPUs is full; the bound members become inactive. Newton's method on cuts finds
//! the moment at which CPUs fill up: try the whole step, and while it does not fit, shorten it to where the
//! violated cut holds with equality (Radzik 1993). Each cut allows less than the last, so this ends.
//!
//! In the usual case (the same CPUs for all, no quotas) rates follow without events: each group's rate is
//! divided from the root down, in the order in which its members are satisfied.
//!
//! **Properties.** Rates sum to at most the CPUs, each is at most its demand and each group within its quota;
//! with free CPUs every demand within its quota is met (`tests/sim/cpu.rs`, `conservation`). Unbound siblings
//! get rates exactly by weight (`weights_1_2_4`).
//!
//! Not modelled: time slices, migration cost, and the unfairness of real run queues while the load balancer
//! works.

use std::cmp::Ordering;

use super::flow::{EPSILON, Flow};
use super::parse::CpuSet;

/// Scheduler's view of a cgroup. Parents precede children; the first is the root.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) parent: usize,
    pub(super) weight: f64,
    pub(super) quota: f64,
}

#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) group: usize,
    pub(super) weight: f64,
    /// CPUs that its threads want together.
    pub(super) demand: f64,
    pub(super) mask: usize,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Problem {
    pub(super) groups: Vec<Group>,
    pub(super) sources: Vec<Source>,
    /// Distinct affinities; none is empty.
    pub(super) masks: Vec<CpuSet>,
    classes: Classes,
    pub(super) has_quotas: bool,
    /// Members of each group, in the order of satisfaction at the last look, which rarely changes from step
    /// to step.
    members: Vec<Vec<Member>>,
    room: Room,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    demand: f64,
    weight: f64,
    rank: usize,
    kind: MemberKind,
}

#[derive(Clone, Copy, Debug)]
enum MemberKind {
    Source(usize),
    Group(usize),
}

#[derive(Clone, Debug, Default)]
struct Room {
    wanted: Vec<f64>,
    given: Vec<f64>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Solution {
    pub(super) rates: Vec<f64>,
    /// Busy part of each CPU in a mask, 0 ..= 1, ascending by CPU.
    pub(super) busy: Vec<(u32, f64)>,
    /// True for each group at its quota.
    pub(super) throttled: Vec<bool>,
}

/// CPUs that are in the same masks, and therefore need not be distinguished.
#[derive(Clone, Debug, Default)]
struct Classes {
    members: Vec<Vec<u32>>,
    capacities: Vec<f64>,
    allowed: Vec<Vec<bool>>,
}

impl Classes {
    fn new(masks: &[CpuSet]) -> Classes {
        let mut signatures: Vec<Vec<bool>> = Vec::new();
        let mut members: Vec<Vec<u32>> = Vec::new();
        let cpus: CpuSet = masks.iter().flatten().copied().collect();
        for cpu in cpus {
            let signature: Vec<bool> = masks.iter().map(|mask| mask.contains(&cpu)).collect();
            match signatures.iter().position(|known| *known == signature) {
                Some(class) => members[class].push(cpu),
                None => {
                    signatures.push(signature);
                    members.push(vec![cpu]);
                }
            }
        }
        let capacities = members.iter().map(|cpus| cpus.len() as f64).collect();
        let allowed = (0..masks.len())
            .map(|mask| signatures.iter().map(|signature| signature[mask]).collect())
            .collect();
        Classes { members, capacities, allowed }
    }

    fn capacity_of(&self, masks: &[usize]) -> f64 {
        let usable = |class: &usize| masks.iter().any(|&mask| self.allowed[mask][*class]);
        (0..self.capacities.len()).filter(usable).map(|class| self.capacities[class]).sum()
    }
}

impl Problem {
    /// Stores the affinities of the sources, after groups and sources were added. Demands may change later.
    pub(super) fn know(&mut self, masks: Vec<CpuSet>) {
        self.classes = Classes::new(&masks);
        self.masks = masks;
        self.has_quotas = self.groups.iter().any(|group| group.quota.is_finite());
        self.members = vec![Vec::new(); self.groups.len()];
        for (index, source) in self.sources.iter().enumerate() {
            let members = &mut self.members[source.group];
            let (rank, kind) = (members.len(), MemberKind::Source(index));
            members.push(Member { demand: 0.0, weight: source.weight, rank, kind });
        }
        for (index, group) in self.groups.iter().enumerate().skip(1) {
            let members = &mut self.members[group.parent];
            let (rank, kind) = (members.len(), MemberKind::Group(index));
            members.push(Member { demand: 0.0, weight: group.weight, rank, kind });
        }
    }

    pub(super) fn solve(&mut self, solution: &mut Solution) {
        match self.classes.members.as_slice() {
            [_] if !self.has_quotas => {
                let mut room = std::mem::take(&mut self.room);
                let mut members = std::mem::take(&mut self.members);
                self.divide(&self.classes.members[0], &mut members, &mut room, solution);
                (self.room, self.members) = (room, members);
            }
            _ => *solution = self.fill(),
        }
    }

    /// Rates on CPUs that all sources may use, without quotas.
    fn divide(
        &self,
        cpus: &[u32],
        members: &mut [Vec<Member>],
        room: &mut Room,
        solution: &mut Solution,
    ) {
        let Room { wanted, given } = room;
        let Solution { rates, busy, throttled } = solution;
        let demand = |source: &Source| if source.demand > EPSILON { source.demand } else { 0.0 };
        fill_with(wanted, self.groups.len(), 0.0);
        self.sources.iter().for_each(|source| wanted[source.group] += demand(source));
        for (index, group) in self.groups.iter().enumerate().skip(1).rev() {
            wanted[group.parent] += wanted[index];
        }
        fill_with(rates, self.sources.len(), 0.0);
        fill_with(given, self.groups.len(), 0.0);
        given[0] = wanted[0].min(cpus.len() as f64);
        for (group, members) in members.iter_mut().enumerate() {
            let (all, part) = (wanted[group], given[group]);
            let mut weights = 0.0;
            for member in members.iter_mut() {
                weights += member.weight;
                member.demand = match member.kind {
                    MemberKind::Source(index) => demand(&self.sources[index]),
                    MemberKind::Group(index) => wanted[index],
                };
            }
            let is_short = all > part;
            if is_short && !members.is_sorted_by(|a, b| a.needs(b).is_lt()) {
                members.sort_by(Member::needs);
                weights = members.iter().map(|member| member.weight).sum();
            }
            let mut left = part;
            for &Member { demand, weight, kind, .. } in members.iter() {
                let part = left * weight / weights;
                let rate = if is_short { demand.min(part).max(0.0) } else { demand };
                (left, weights) = (left - rate, weights - weight);
                match kind {
                    MemberKind::Source(index) => rates[index] = rate,
                    MemberKind::Group(index) => given[index] = rate,
                }
            }
        }
        let part = (given[0] / cpus.len() as f64).clamp(0.0, 1.0);
        busy.clear();
        busy.extend(cpus.iter().map(|&cpu| (cpu, part)));
        fill_with(throttled, self.groups.len(), false);
    }

    /// Rates, event by event.
    fn fill(&self) -> Solution {
        let classes = &self.classes;
        let mut filling = Filling::new(self);
        while filling.nr_active > 0 {
            filling.set_speeds();
            let (step, full) = filling.step(classes);
            filling.grow(step);
            filling.settle(&full);
        }
        let supplies = filling.by_mask(&filling.rates);
        let used =
            Flow::route(&supplies, &classes.allowed, &classes.capacities).used(&classes.capacities);
        let mut busy: Vec<(u32, f64)> = Vec::new();
        for (cpus, used) in classes.members.iter().zip(used) {
            busy.extend(cpus.iter().map(|&cpu| (cpu, (used / cpus.len() as f64).clamp(0.0, 1.0))));
        }
        busy.sort_by_key(|&(cpu, _)| cpu);
        Solution { rates: filling.rates, busy, throttled: filling.throttled }
    }
}

impl Member {
    /// Order of satisfaction: demand over weight, then the first index.
    #[inline]
    fn needs(&self, other: &Member) -> Ordering {
        let needed = (self.demand * other.weight).total_cmp(&(other.demand * self.weight));
        needed.then(self.rank.cmp(&other.rank))
    }
}

fn fill_with<T: Copy>(values: &mut Vec<T>, nr: usize, value: T) {
    values.clear();
    values.resize(nr, value);
}

struct Filling<'a> {
    problem: &'a Problem,
    rates: Vec<f64>,
    active: Vec<bool>,
    nr_active: usize,
    /// Growth of each source, and of each group, per unit of growth of the root.
    speeds: Vec<f64>,
    group_speeds: Vec<f64>,
    group_rates: Vec<f64>,
    throttled: Vec<bool>,
}

impl<'a> Filling<'a> {
    fn new(problem: &'a Problem) -> Self {
        let nr_groups = problem.groups.len();
        let active: Vec<bool> =
            problem.sources.iter().map(|source| source.demand > EPSILON).collect();
        Filling {
            problem,
            rates: vec![0.0; problem.sources.len()],
            nr_active: active.iter().filter(|&&active| active).count(),
            active,
            speeds: vec![0.0; problem.sources.len()],
            group_speeds: vec![0.0; nr_groups],
            group_rates: vec![0.0; nr_groups],
            throttled: vec![false; nr_groups],
        }
    }

    fn active_sources(&self) -> impl Iterator<Item = (usize, &Source)> {
        self.problem.sources.iter().enumerate().filter(|&(index, _)| self.active[index])
    }

    /// Splits one unit of growth down the tree among the active members of each group.
    fn set_speeds(&mut self) {
        let groups = &self.problem.groups;
        let mut weights = vec![0.0; groups.len()];
        for (_, source) in self.active_sources() {
            weights[source.group] += source.weight;
        }
        for index in (1..groups.len()).rev() {
            if weights[index] > 0.0 {
                weights[groups[index].parent] += groups[index].weight;
            }
        }
        let mut speeds = vec![0.0; groups.len()];
        speeds[0] = 1.0;
        for index in 1..groups.len() {
            if weights[index] > 0.0 {
                let parent = groups[index].parent;
                speeds[index] = speeds[parent] * groups[index].weight / weights[parent];
            }
        }
        for (index, source) in self.problem.sources.iter().enumerate() {
            let part = speeds[source.group] * source.weight / weights[source.group];
            self.speeds[index] = if self.active[index] { part } else { 0.0 };
        }
        self.group_speeds = speeds;
    }

    /// Possible growth, and the masks of the CPUs that are full then.
    fn step(&self, classes: &Classes) -> (f64, Vec<usize>) {
        let mut step = f64::INFINITY;
        for (index, source) in self.active_sources() {
            step = step.min((source.demand - self.rates[index]) / self.speeds[index]);
        }
        for (index, group) in self.problem.groups.iter().enumerate() {
            if self.group_speeds[index] > 0.0 {
                step = step.min((group.quota - self.group_rates[index]) / self.group_speeds[index]);
            }
        }
        let mut step = step.max(0.0);
        let mut full = Vec::new();
        let (rates, speeds) = (self.by_mask(&self.rates), self.by_mask(&self.speeds));
        loop {
            let supplies: Vec<f64> =
                rates.iter().zip(&speeds).map(|(rate, speed)| rate + speed * step).collect();
            let flow = Flow::route(&supplies, &classes.allowed, &classes.capacities);
            let cut = flow.bottleneck;
            let speed: f64 = cut.iter().map(|&mask| speeds[mask]).sum();
            if cut.is_empty() || speed <= 0.0 {
                return (step, full);
            }
            let taken: f64 = cut.iter().map(|&mask| rates[mask]).sum();
            let shorter = ((classes.capacity_of(&cut) - taken) / speed).max(0.0);
            full = cut;
            if shorter >= step {
                return (step, full);
            }
            step = shorter;
        }
    }

    fn by_mask(&self, values: &[f64]) -> Vec<f64> {
        let mut sums = vec![0.0; self.problem.masks.len()];
        for (source, value) in self.problem.sources.iter().zip(values) {
            sums[source.mask] += value;
        }
        sums
    }

    fn grow(&mut self, step: f64) {
        for (rate, speed) in self.rates.iter_mut().zip(&self.speeds) {
            *rate += speed * step;
        }
        for (rate, speed) in self.group_rates.iter_mut().zip(&self.group_speeds) {
            *rate += speed * step;
        }
    }

    /// Deactivates bound sources: satisfied, at a quota, or on full CPUs only.
    fn settle(&mut self, full: &[usize]) {
        let groups = &self.problem.groups;
        let mut bound = vec![false; groups.len()];
        for (index, group) in groups.iter().enumerate() {
            if self.group_speeds[index] > 0.0 && self.group_rates[index] >= group.quota - EPSILON {
                self.throttled[index] = true;
            }
            bound[index] = self.throttled[index] || (index > 0 && bound[group.parent]);
        }
        let mut full_cpus = CpuSet::new();
        full.iter().for_each(|&mask| full_cpus.extend(&self.problem.masks[mask]));
        let stuck: Vec<bool> =
            self.problem.masks.iter().map(|mask| mask.is_subset(&full_cpus)).collect();
        for (index, source) in self.problem.sources.iter().enumerate() {
            let satisfied = self.rates[index] >= source.demand - EPSILON;
            if self.active[index] && (satisfied || bound[source.group] || stuck[source.mask]) {
                self.active[index] = false;
                self.nr_active -= 1;
                if satisfied {
                    self.rates[index] = self.rates[index].min(source.demand);
                }
            }
        }
    }
}
