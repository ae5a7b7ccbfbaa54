//! The three machines side by side, and the distance of each from the entitlements of the tenants.
//!
//! **Entitled** is each tenant's weighted DRF share by the true demands of the work: the agent has to
//! estimate them, the scenario knows them. The divided amount is the agent's: the machine less the reserve
//! and less the usage outside the tenants. A disk counts among the resources if the policy couples it, and is divided alone by
//! its weights if not.
//!
//! **Share error** of a tick: the largest part of the divided CPUs to which some tenant is entitled, and
//! for which it waited in vain. **Jain's index** of a tick: over the weighted dominant shares of the
//! tenants, each as a part of the entitled one, memory at most at its entitlement. **Converged** after a
//! change: the ticks until the share error stays at most [`FAIR_ERROR_MAX`], until the next change.

use std::time::Duration;

use super::scenario::Scenario;
use super::world::{Regime, Used, World};
use tenantd_control::share::demand::Demand;
use tenantd_control::share::fairness::FAIR_ERROR_MAX;
use tenantd_control::share::rows::{DiskDemand, DiskRow, Rows};
use tenantd_control::share::target;
use tenantd_control::tree::{self, TreeNode};
use tenantd_core::resource::{CPU, MEMORY, PerResource, Resource};
use tenantd_fair::measure::jain_index;
use tenantd_policy::model::{Allocation, Coupling, Policy};
use tenantd_sim::Load;

/// Points of a series.
pub(super) const POINTS_MAX: u32 = 240;

#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) tenants: Vec<Wanted>,
    /// In the order of [`Regime::ALL`].
    pub(super) runs: [Run; 3],
    /// Times of the points of all series, in seconds: the ends of their intervals.
    pub(super) times: Vec<f64>,
}

/// Demand and entitlement of a tenant, in cores and bytes: means over the ticks, and points of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    pub(super) demand: Series,
    pub(super) entitled: Series,
    /// Mean parts of the disk: wanted, and entitled.
    pub(super) disk: [f64; 2],
}

/// The mean of a resource vector over the ticks, and points over time.
#[derive(Clone, Debug, Default)]
pub(super) struct Series {
    sum: PerResource<f64>,
    pub(super) mean: PerResource<f64>,
    pub(super) points: Vec<PerResource<f64>>,
}

/// One machine of the comparison.
#[derive(Clone, Debug, Default)]
pub(super) struct Run {
    pub(super) tenants: Vec<Figures>,
    /// CPU time of the work outside the tenants.
    pub(super) outside_seconds: f64,
    pub(super) share_error_mean: f64,
    pub(super) share_error_max: f64,
    /// Absent if no tenant ever wants anything.
    pub(super) jain_mean: Option<f64>,
    pub(super) settled: Vec<Settled>,
}

/// One tenant on one machine.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    /// CPUs used and memory held.
    pub(super) got: Series,
    /// Mean part of the disk.
    pub(super) disk_ratio: f64,
    pub(super) cpu_seconds: f64,
    pub(super) refault_bytes: f64,
    pub(super) nr_kills: u64,
    pub(super) share_error_mean: f64,
    pub(super) share_error_max: f64,
}

/// Time after a change until the division was fair again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Settled {
    pub(super) change: Duration,
    /// `None` if it was not fair before the next change.
    pub(super) after: Option<Duration>,
}

impl Series {
    fn add(&mut self, amounts: PerResource<f64>) {
        self.sum = PerResource::from_fn(|r| self.sum[r] + amounts[r]);
    }

    /// Ends a point of `nr_ticks` ticks, of `nr_all` in all.
    fn end_point(&mut self, nr_ticks: u32, nr_all: u32) {
        let sum = std::mem::take(&mut self.sum);
        self.points.push(sum.map(|sum| sum / f64::from(nr_ticks)));
        self.mean = PerResource::from_fn(|r| self.mean[r] + sum[r] / f64::from(nr_all));
    }
}

impl Run {
    /// Work of all tenants, in seconds of CPU time.
    pub(super) fn cpu_seconds(&self) -> f64 {
        self.tenants.iter().map(|tenant| tenant.cpu_seconds).sum()
    }

    pub(super) fn refault_bytes(&self) -> f64 {
        self.tenants.iter().map(|tenant| tenant.refault_bytes).sum()
    }

    pub(super) fn nr_kills(&self) -> u64 {
        self.tenants.iter().map(|tenant| tenant.nr_kills).sum()
    }
}

/// Runs a scenario on three machines; `progress` receives the finished part, from 0 to 1.
///
/// # Errors
/// The simulated kernel refused an operation of the agent or the policy.
pub(super) fn run(scenario: &Scenario, progress: &mut dyn FnMut(f64)) -> anyhow::Result<Outcome> {
    let mut worlds = Vec::with_capacity(Regime::ALL.len());
    for regime in Regime::ALL {
        worlds.push(World::new(scenario, regime)?);
    }
    let mut meter = Meter::new(scenario);
    let mut policies = scenario.policies.iter().skip(1).peekable();
    let mut now = Duration::ZERO;
    for tick in 1..=scenario.nr_ticks {
        let end = scenario.interval() * tick;
        let parts = advance(scenario, &mut worlds, now, end)?;
        now = end;
        // A new policy takes effect with the tick after it.
        let mut newest = None;
        while let Some((_, policy)) = policies.next_if(|(at, _)| *at <= now) {
            worlds.iter_mut().try_for_each(|world| world.change_policy(policy))?;
            newest = Some(policy);
        }
        let ticks: Vec<(Vec<Used>, Option<PerResource<f64>>)> =
            worlds.iter_mut().map(|world| world.tick(now)).collect();
        meter.add(tick, now, &parts, &ticks);
        if let Some(policy) = newest {
            meter.nodes = Nodes::new(policy, scenario.host.machine());
        }
        progress(f64::from(tick) / f64::from(scenario.nr_ticks));
    }
    Ok(meter.outcome)
}

/// CPU, memory and disk demands of each work, for a part of a tick.
#[derive(Debug)]
struct Demanded {
    part: f64,
    demands: Vec<PerResource<f64>>,
    disks: Vec<f64>,
}

/// Advances all machines to `end`; returns the demands of that time.
fn advance(
    scenario: &Scenario,
    worlds: &mut [World],
    begin: Duration,
    end: Duration,
) -> anyhow::Result<Vec<Demanded>> {
    let whole = (end - begin).as_secs_f64();
    let cpus = f64::from(scenario.host.cpus);
    let demand = |load: &Option<Load>| {
        let Some(load) = load else { return PerResource::all(0.0) };
        let cores = (f64::from(load.threads) * load.duty).min(cpus);
        let bytes = load.working_set_bytes.saturating_add(load.hot_file_bytes) as f64;
        PerResource::only(&[(CPU, cores), (MEMORY, bytes)])
    };
    let mut parts: Vec<Demanded> = Vec::new();
    let mut now = begin;
    while now < end {
        let loads = scenario.loads(now);
        let changes = scenario.works.iter().map(|work| work.next_change(now));
        let until = changes.fold(end, Duration::min);
        let part = (until - now).as_secs_f64() / whole;
        let disks = scenario.disks(now);
        for world in worlds.iter_mut() {
            world.run(&loads, &disks, until - now)?;
        }
        parts.push(Demanded { part, demands: loads.iter().map(demand).collect(), disks });
        now = until;
    }
    Ok(parts)
}

/// Entitlement of each tenant for these demands, which count within its limits.
pub fn entitled(
    nodes: &[TreeNode],
    demands: &[PerResource<f64>],
    divided: PerResource<f64>,
) -> Vec<PerResource<f64>> {
    let of_nodes = of_nodes(nodes, demands);
    let targets = target::targets(nodes, &of_nodes, divided, Allocation::Drf);
    let leaves = (0..nodes.len()).filter(|index| nodes[*index].is_leaf);
    leaves.map(|leaf| targets[leaf].allocation).collect()
}

/// Demand of each node, for those of the leaves.
fn of_nodes(nodes: &[TreeNode], demands: &[PerResource<f64>]) -> Vec<Demand> {
    let leaves = (0..nodes.len()).filter(|index| nodes[*index].is_leaf);
    let mut of_nodes = vec![Demand::UNKNOWN; nodes.len()];
    for (leaf, demand) in leaves.zip(demands) {
        let limit = nodes[leaf].limit.map(|limit| limit.unwrap_or(f64::INFINITY));
        of_nodes[leaf].amount = PerResource::from_fn(|r| demand[r].min(limit[r]));
    }
    of_nodes
}

/// The tree of a policy, and the number of each leaf in it.
#[derive(Debug)]
struct Nodes {
    nodes: Vec<TreeNode>,
    leaves: Vec<usize>,
    couples_disk: bool,
}

/// Amounts of a leaf: of the resources, and a part of the disk.
type Due = (PerResource<f64>, f64);

impl Nodes {
    fn new(policy: &Policy, machine: PerResource<f64>) -> Nodes {
        let nodes = tree::on_machine(policy, machine);
        let leaves = (0..nodes.len()).filter(|index| nodes[*index].is_leaf).collect();
        let is_weighed = policy.host.disks.weighs();
        let couples_disk = is_weighed && policy.control.couple == Coupling::WithDisk;
        Nodes { nodes, leaves, couples_disk }
    }

    /// Entitlement of each leaf in a part of a tick.
    fn entitled(&self, parts: &Demanded, divided: PerResource<f64>) -> Vec<Due> {
        let nodes = &self.nodes;
        if parts.disks.iter().all(|disk| *disk == 0.0) {
            let entitled = entitled(nodes, &parts.demands, divided);
            return entitled.into_iter().map(|amounts| (amounts, 0.0)).collect();
        }
        let demands = of_nodes(nodes, &parts.demands);
        let mut of_disk = vec![DiskDemand { part: 0.0, growth: 1.0, cpu_growth: 1.0 }; nodes.len()];
        for (leaf, part) in self.leaves.iter().zip(&parts.disks) {
            of_disk[*leaf].part = *part;
        }
        let rows = || Rows {
            disk: Some(DiskRow { capacity: 1.0, demands: of_disk.clone() }),
            ..Rows::from(divided)
        };
        let alone = |rule| target::targets(nodes, &demands, rows(), rule);
        let of_disk = alone(if self.couples_disk { Allocation::Drf } else { Allocation::MaxMin });
        let of_host = if self.couples_disk {
            of_disk.clone()
        } else {
            target::targets(nodes, &demands, divided, Allocation::Drf)
        };
        let part = |leaf: usize| of_disk[leaf].disk.map_or(0.0, |disk| disk.allocation);
        self.leaves.iter().map(|leaf| (of_host[*leaf].allocation, part(*leaf))).collect()
    }

    /// Mean demand and mean entitlement of each leaf in a tick. The entitlement follows each demand, not
    /// the mean demand.
    fn due(&self, parts: &[Demanded], divided: PerResource<f64>) -> [Vec<Due>; 2] {
        let nothing = vec![(PerResource::all(0.0), 0.0); self.leaves.len()];
        let mut due = [nothing.clone(), nothing];
        for demanded in parts {
            let part = demanded.part;
            let demands = demanded.demands.iter().copied().zip(demanded.disks.iter().copied());
            let both = [demands.collect(), self.entitled(demanded, divided)];
            for (sums, amounts) in due.iter_mut().zip(both) {
                for (sum, (amounts, disk)) in sums.iter_mut().zip(amounts) {
                    sum.0 = PerResource::from_fn(|r| sum.0[r] + part * amounts[r]);
                    sum.1 += part * disk;
                }
            }
        }
        due
    }

    /// A leaf's weighted dominant share of the divided amounts.
    fn dominant(&self, leaf: usize, (amounts, disk): Due, divided: PerResource<f64>) -> f64 {
        let node = &self.nodes[self.leaves[leaf]];
        let share = |r: Resource| amounts[r] / (divided[r].max(f64::MIN_POSITIVE) * node.weight[r]);
        let terms = node.disk.filter(|_| self.couples_disk);
        let of_disk = terms.map_or(0.0, |terms| disk / terms.weight);
        Resource::ALL.map(share).into_iter().fold(of_disk, f64::max)
    }
}

#[derive(Debug)]
struct Meter {
    outcome: Outcome,
    nodes: Nodes,
    nr_ticks: u32,
    /// Ticks of a point, and ticks in the present one.
    ticks_of_point: u32,
    nr_in_point: u32,
    changes: Vec<Duration>,
    /// Of each run: the present change, by its number, and the end of the last tick that was unfair.
    unfair: [(usize, Option<Duration>); 3],
    /// Ticks of each run in which Jain's index is defined.
    nr_compared: [u32; 3],
}

impl Meter {
    fn new(scenario: &Scenario) -> Meter {
        let nodes = Nodes::new(scenario.policy(), scenario.host.machine());
        let nr_tenants = nodes.leaves.len();
        let run = Run { tenants: vec![Figures::default(); nr_tenants], ..Run::default() };
        let outcome = Outcome {
            tenants: vec![Wanted::default(); nr_tenants],
            runs: [run.clone(), run.clone(), run],
            times: Vec::new(),
        };
        Meter {
            outcome,
            nodes,
            nr_ticks: scenario.nr_ticks,
            ticks_of_point: scenario.nr_ticks.div_ceil(POINTS_MAX),
            nr_in_point: 0,
            changes: scenario.changes(),
            unfair: [(0, None); 3],
            nr_compared: [0; 3],
        }
    }

    fn add(
        &mut self,
        tick: u32,
        now: Duration,
        parts: &[Demanded],
        ticks: &[(Vec<Used>, Option<PerResource<f64>>)],
    ) {
        let Some(divided) = ticks.iter().find_map(|(_, divided)| *divided) else { return };
        let seconds = now.as_secs_f64() / f64::from(tick);
        let [demands, entitled] = self.nodes.due(parts, divided);
        let nr_ticks = f64::from(self.nr_ticks);
        for ((wanted, demand), entitled) in
            self.outcome.tenants.iter_mut().zip(&demands).zip(&entitled)
        {
            wanted.demand.add(demand.0);
            wanted.entitled.add(entitled.0);
            for (mean, part) in wanted.disk.iter_mut().zip([demand.1, entitled.1]) {
                *mean += part / nr_ticks;
            }
        }
        for (run, (used, _)) in ticks.iter().enumerate() {
            self.add_run(run, (now, seconds), (&entitled, divided), used);
        }
        self.nr_in_point += 1;
        if self.nr_in_point == self.ticks_of_point || tick == self.nr_ticks {
            self.end_point(now);
        }
        if tick == self.nr_ticks {
            (0..self.unfair.len()).for_each(|run| self.settle(run, now));
        }
    }

    fn add_run(
        &mut self,
        number: usize,
        (now, seconds): (Duration, f64),
        (entitled, divided): (&[Due], PerResource<f64>),
        used: &[Used],
    ) {
        let run = &mut self.outcome.runs[number];
        let nr_ticks = f64::from(self.nr_ticks);
        let (mut worst, mut ratios): (f64, Vec<f64>) = (0.0, Vec::new());
        for (leaf, (figures, used)) in run.tenants.iter_mut().zip(used).enumerate() {
            let cores = used.cpu_seconds / seconds;
            figures.got.add(PerResource::only(&[(CPU, cores), (MEMORY, used.memory_bytes)]));
            let disk_ratio = used.disk_seconds / seconds;
            figures.disk_ratio += disk_ratio / nr_ticks;
            figures.cpu_seconds += used.cpu_seconds;
            figures.refault_bytes += used.refault_bytes;
            figures.nr_kills += used.nr_kills;
            // A shortage without waiting is no demand: the work slept, or waited for its disk.
            let (amounts, disk) = entitled[leaf];
            let lacked = (amounts[CPU] - cores).clamp(0.0, used.waited_seconds / seconds);
            let error = lacked / divided[CPU].max(f64::MIN_POSITIVE);
            figures.share_error_mean += error / nr_ticks;
            figures.share_error_max = figures.share_error_max.max(error);
            worst = worst.max(error);
            let due = self.nodes.dominant(leaf, entitled[leaf], divided);
            if due > 0.0 {
                // More memory than the entitlement takes it from others only if they lack it, which their
                // own part shows.
                let memory_bytes = used.memory_bytes.min(amounts[MEMORY]);
                let got = PerResource::only(&[(CPU, cores), (MEMORY, memory_bytes)]);
                let got = self.nodes.dominant(leaf, (got, disk_ratio.min(disk)), divided);
                ratios.push(got / due);
            }
        }
        run.outside_seconds += used.last().map_or(0.0, |outside| outside.cpu_seconds);
        run.share_error_mean += worst / nr_ticks;
        run.share_error_max = run.share_error_max.max(worst);
        if !ratios.is_empty() {
            self.nr_compared[number] += 1;
            // A running mean: the number of ticks with a comparison is known at the end only.
            let nr_compared = f64::from(self.nr_compared[number]);
            let before = run.jain_mean.unwrap_or_default();
            run.jain_mean = Some(before + (jain_index(ratios) - before) / nr_compared);
        }
        let next = self.changes.get(self.unfair[number].0 + 1);
        if next.is_some_and(|next| *next < now) {
            self.settle(number, now - Duration::from_secs_f64(seconds));
            let passed = self.changes.iter().rposition(|change| *change < now);
            self.unfair[number] = (passed.unwrap_or(0), None);
        }
        if worst > FAIR_ERROR_MAX {
            self.unfair[number].1 = Some(now);
        }
    }

    /// Records the time at which the division was fair after the present change, if it is known at `now`.
    fn settle(&mut self, number: usize, now: Duration) {
        let (change, unfair) = self.unfair[number];
        let change = self.changes[change];
        let after = match unfair {
            None => Some(Duration::ZERO),
            Some(unfair) => (unfair < now).then(|| unfair - change),
        };
        self.outcome.runs[number].settled.push(Settled { change, after });
    }

    fn end_point(&mut self, now: Duration) {
        let nr_ticks = std::mem::take(&mut self.nr_in_point);
        self.outcome.times.push(now.as_secs_f64());
        let wanted = self.outcome.tenants.iter_mut();
        let wanted = wanted.flat_map(|wanted| [&mut wanted.demand, &mut wanted.entitled]);
        let runs = self.outcome.runs.iter_mut().flat_map(|run| &mut run.tenants);
        for series in wanted.chain(runs.map(|figures| &mut figures.got)) {
            series.end_point(nr_ticks, self.nr_ticks);
        }
    }
}
